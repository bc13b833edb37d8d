//! Tests of environments that uv creates, and of sessions in them. uv is installed from the package index.

use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_core::NoProgress;
use belljar_native::environment::{Environment, EnvironmentSpec, Environments};
use belljar_native::{NativeBackend, NativeOptions, NativePackages};
use belljar_testing::{Trial, install};

use crate::trials::harness::{PYTHON, Session, options, strongest};
use crate::trials::packages::failures_are_summarised;

/// The first argument of a process that creates an environment, with uv on its path.
pub(crate) const PART: &str = "__environment";

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("environment_created_by_uv_runs_kernels", || {
        created_by_uv();
        Ok(())
    })]
}

/// Creates an environment in this folder and prints its Python. Runs in a process of its own, for another `PATH`.
#[expect(clippy::print_stdout, reason = "the parent process reads it")]
pub(crate) fn make(folder: &str) {
    let environments = Environments::new(Some(folder.into())).unwrap();
    let spec = EnvironmentSpec { python: Some(PYTHON.display().to_string()), packages: vec!["ipykernel".into()] };
    let made = environments.set_up(&spec, &NoProgress).unwrap();
    assert_eq!(environments.current().unwrap(), made);
    println!("{}", made.interpreter().display());
}

fn created_by_uv() {
    let uv = install::pip(Path::new(env!("CARGO_TARGET_TMPDIR")), "uv", &["uv"]).join("uv");
    let root = tempfile::tempdir().unwrap();
    let made = |path: String| {
        let mut command = Command::new("/proc/self/exe");
        let output = command.arg(PART).arg(root.path()).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    };
    let with_uv = format!("{}:{}", uv.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let python = made(with_uv.clone());
    let directory = python.parent().and_then(Path::parent).unwrap().to_owned();
    let configured = std::fs::read_to_string(directory.join("pyvenv.cfg")).unwrap();
    assert!(configured.contains("uv = "), "{configured}");
    // Once more, and without any tool: nothing is created.
    let marked = || std::fs::metadata(directory.join("belljar.json")).unwrap().modified().unwrap();
    let before = marked();
    assert_eq!((made(with_uv), made("/nonexistent".into())), (python.clone(), python.clone()));
    assert_eq!(marked(), before);
    Environment::from_directory(&directory).unwrap();

    let packages = NativePackages { uv: Some(uv), ..NativePackages::default() };
    let options = NativeOptions { python, packages: Some(packages), ..options(strongest()) };
    let native = NativeBackend::new(options.clone()).unwrap();
    let mut session = Session::new(&native);
    assert!(session.error("import humanize").starts_with("ModuleNotFoundError"));
    assert_eq!(session.text("%pip install humanize==4.9.0"), "Successfully installed humanize==4.9.0\n");
    assert_eq!(session.text("import humanize\nhumanize.intcomma(1234567)"), "'1,234,567'");
    assert!(session.text("%pip install humanize==4.8.0").contains("humanize==4.8.0"));
    let listed = session.text("!pip list");
    assert!(listed.contains("ipykernel") && listed.contains("humanize"), "{listed}");
    failures_are_summarised(&mut session);
    drop(session);

    let native = NativeBackend::new(NativeOptions { package_bytes: 100_000, ..options }).unwrap();
    let mut session = Session::new(&native);
    let refused = session.error("%pip install humanize==4.9.0");
    assert!(refused.contains("would take more than 100000 bytes"), "{refused}");
    assert_eq!(session.text("import os\nos.listdir(os.environ['BELLJAR_SITE'])"), "[]");
}
