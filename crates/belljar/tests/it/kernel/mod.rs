//! Belljar as a kernel of Jupyter, as Jupyter's own programs use it.

mod clients;
mod installing;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::{Belljar, cache, release};
use crate::native_serving::{ENVIRONMENTS, sandbox_stands};
use crate::serve::fetched;

/// A Python with Jupyter's clients.
fn jupyter() -> PathBuf {
    fetched::python("jupyter", &["jupyter-client==8.10.0", "jupyter_kernel_test==0.7.0", "nbclient==0.11.0"])
}

/// A place where the kernel `belljar` is installed.
struct Installed {
    prefix: TempDir,
}

impl Installed {
    fn new() -> Self {
        Self::with(&[])
    }

    /// With these options of `belljar kernel run`.
    fn with(options: &[&str]) -> Self {
        Self::of(&[&["--"], options].concat())
    }

    /// With these arguments of `belljar kernel install`.
    fn of(arguments: &[&str]) -> Self {
        let prefix = tempfile::tempdir().unwrap();
        let install = Belljar::without_cache().args(["kernel", "install", "--prefix"]).arg(prefix.path());
        let run = install.args(arguments.iter().copied()).run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), ""), "{run:?}");
        assert!(run.stderr.contains("share/jupyter/kernels/belljar"), "{run:?}");
        // The image of sessions is made before, where no client's patience counts.
        let warm = Belljar::new().arg("run").arg(notebook(prefix.path())).run();
        assert_eq!(warm.status, Some(0), "{warm:?}");
        Self { prefix }
    }

    /// With a native kernel; `None` where this machine has no sandbox for it.
    fn native() -> Option<Self> {
        let environments = ENVIRONMENTS.to_str().unwrap();
        sandbox_stands().then(|| Self::of(&["--sandbox", "native", "--", "--native-dir", environments]))
    }

    fn data(&self) -> PathBuf {
        self.prefix.path().join("share/jupyter")
    }

    /// Runs one of the scripts beside the tests, which finds the kernel.
    fn run(&self, script: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(jupyter());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel").join(script)).args(arguments);
        command.env("JUPYTER_PATH", self.data()).env("JUPYTER_RUNTIME_DIR", self.prefix.path().join("runtime"));
        command.env("IPYTHONDIR", self.prefix.path()).env("BELLJAR_CACHE", cache()).current_dir(self.prefix.path());
        if let Some(release) = release() {
            command.env("BELLJAR_PYODIDE", release);
        }
        fetched::run(&mut command)
    }
}

fn notebook(folder: &Path) -> PathBuf {
    let path = folder.join("empty.ipynb");
    std::fs::write(&path, r#"{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}"#).unwrap();
    path
}
