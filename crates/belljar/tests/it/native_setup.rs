//! `belljar native setup` with real tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Belljar, Run, python_with};

struct Machine {
    folder: tempfile::TempDir,
    path: std::ffi::OsString,
}

impl Machine {
    /// Returns a machine without uv, even if the real machine has it.
    fn without_uv() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(real_python(), bin.join("python3")).unwrap();
        Self { path: bin.into(), folder }
    }

    fn with_uv() -> Self {
        let uv = python_with("uv", &["uv"]).parent().unwrap().to_owned();
        let machine = Self::without_uv();
        let path = std::env::join_paths([uv, PathBuf::from(&machine.path)]).unwrap();
        Self { path, ..machine }
    }

    fn native(&self, args: &[&str]) -> Run {
        let belljar = Belljar::without_cache().arg("native").args(args).env("PATH", &self.path);
        // Without the harness's timeout, since an installation depends on the network.
        let output = belljar.env("BELLJAR_NATIVE", self.root()).into_command().output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Run { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("native")
    }

    /// Returns the environment that kernels use.
    fn current(&self) -> PathBuf {
        let status = self.native(&["status"]);
        assert_eq!(status.status, Some(0), "{status:?}");
        let line = status.stdout.lines().find_map(|line| line.strip_prefix("environment")).unwrap();
        PathBuf::from(line.trim())
    }
}

/// Returns the path of Python itself, since `python3` may be a version manager's program.
fn real_python() -> PathBuf {
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable, end='')"]).output().unwrap();
    String::from_utf8(asked.stdout).unwrap().into()
}

fn imports(environment: &Path, modules: &str) -> bool {
    let python = environment.join("bin/python");
    Command::new(python).args(["-c", &format!("import {modules}")]).status().unwrap().success()
}

fn makes_once(machine: &Machine) {
    let before = machine.native(&["status"]);
    assert!(before.stderr.contains("belljar native setup"), "{before:?}");
    let words = [
        "sandbox      available (--sandbox native)",
        "sandbox      only the weak sandbox",
        "sandbox      unavailable: ",
    ];
    assert!(words.iter().any(|words| before.stdout.starts_with(words)), "{before:?}");
    let setup = ["setup", "--packages", "ipykernel"];
    let made = machine.native(&setup);
    assert_eq!(made.status, Some(0), "{made:?}");
    let environment = machine.current();
    assert!(imports(&environment, "ipykernel"));
    // The second time nothing is created, so no tool is needed.
    let again =
        Belljar::without_cache().arg("native").args(setup).env("PATH", "").env("BELLJAR_NATIVE", machine.root());
    let again = again.run();
    assert!(again.status == Some(0) && !again.stderr.contains("installing"), "{again:?}");
    // An unfinished environment is not used.
    std::fs::remove_file(environment.join("belljar.json")).unwrap();
    std::fs::remove_file(environment.join("bin/python")).unwrap();
    let repaired = machine.native(&setup);
    assert_eq!(repaired.status, Some(0), "{repaired:?}");
    assert!(imports(&machine.current(), "ipykernel"));
}

#[test]
fn pip_creates_an_environment_once() {
    makes_once(&Machine::without_uv());
}

#[test]
fn uv_creates_an_environment_once() {
    makes_once(&Machine::with_uv());
}

#[test]
fn the_usual_packages_work_together() {
    let machine = Machine::with_uv();
    let made = machine.native(&["setup"]);
    assert_eq!(made.status, Some(0), "{made:?}");
    assert!(imports(
        &machine.current(),
        "numpy, pandas, matplotlib, seaborn, plotly, kaleido, sympy, nbformat, scipy, sklearn, requests, openpyxl, lxml, \
         tabulate"
    ));
}

#[test]
fn existing_environment_is_adopted_unchanged() {
    let machine = Machine::without_uv();
    let own = machine.folder.path().join("own");
    let own_text = own.to_str().unwrap();
    // The environment has no kernel.
    let made = Command::new(real_python()).args(["-m", "venv"]).arg(&own).status().unwrap();
    assert!(made.success());
    let refused = machine.native(&["setup", "--venv", own_text]);
    assert!(refused.status == Some(2) && refused.stderr.contains("pip install ipykernel"), "{refused:?}");
    assert!(own.join("bin/python").exists(), "it was taken away");
    let installed =
        Command::new(own.join("bin/python")).args(["-m", "pip", "install", "--quiet", "ipykernel"]).status();
    assert!(installed.unwrap().success());
    let taken = machine.native(&["setup", "--venv", own_text]);
    assert_eq!(taken.status, Some(0), "{taken:?}");
    assert_eq!(machine.current(), own);
}

#[test]
fn missing_tools_and_packages_are_named() {
    for machine in [Machine::without_uv(), Machine::with_uv()] {
        let no_python = machine.native(&["setup", "--python", "python9.99"]);
        assert!(no_python.status == Some(2) && no_python.stderr.contains("there is no python9.99"), "{no_python:?}");
        assert!(no_python.stderr.contains("hint: "), "{no_python:?}");
    }
    let machine = Machine::without_uv();
    let setup = ["native", "setup", "--packages", "ipykernel"];
    // No server listens on this port.
    let belljar = Belljar::without_cache().args(setup).env("PATH", &machine.path).env("BELLJAR_NATIVE", machine.root());
    let belljar = belljar.env("PIP_INDEX_URL", "http://127.0.0.1:9/simple").env("PIP_RETRIES", "0");
    let no_network = belljar.run();
    assert!(no_network.status == Some(2) && no_network.stderr.contains("hint: check the network"), "{no_network:?}");
    let option = machine.native(&["setup", "--packages=--pre"]);
    assert!(option.status == Some(2) && option.stderr.contains("is not a package"), "{option:?}");
    assert!(machine.native(&["status"]).status == Some(2));
}
