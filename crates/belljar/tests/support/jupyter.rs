//! Belljar installed as a kernel, and Jupyter's clients.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::{Belljar, cache, python_with, release};

/// Returns a Python that has Jupyter's clients.
fn jupyter() -> PathBuf {
    python_with("jupyter", &["jupyter-client==8.10.0", "jupyter_kernel_test==0.7.0", "nbclient==0.11.0"])
}

/// A prefix in which the kernel `belljar` is installed.
pub(crate) struct Installed {
    pub(crate) prefix: TempDir,
}

impl Installed {
    pub(crate) fn new() -> Self {
        Self::with_arguments(&[])
    }

    /// Installs the kernel with these options of `belljar kernel run`.
    pub(crate) fn with_options(options: &[&str]) -> Self {
        Self::with_arguments(&[&["--"], options].concat())
    }

    /// Installs the kernel with these arguments of `belljar kernel install`.
    pub(crate) fn with_arguments(arguments: &[&str]) -> Self {
        let prefix = tempfile::tempdir().unwrap();
        let install = Belljar::without_cache().args(["kernel", "install", "--prefix"]).arg(prefix.path());
        let run = install.args(arguments.iter().copied()).run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), ""), "{run:?}");
        assert!(run.stderr.contains("share/jupyter/kernels/belljar"), "{run:?}");
        // Makes the image of sessions before a client's timeout runs.
        let warm = Belljar::new().arg("run").arg(notebook(prefix.path())).run();
        assert_eq!(warm.status, Some(0), "{warm:?}");
        Self { prefix }
    }

    fn data(&self) -> PathBuf {
        self.prefix.path().join("share/jupyter")
    }

    /// Runs a script of `tests/kernel`, which finds the kernel, and returns its output.
    pub(crate) fn run(&self, script: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(jupyter());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel").join(script)).args(arguments);
        command.env("JUPYTER_PATH", self.data()).env("JUPYTER_RUNTIME_DIR", self.prefix.path().join("runtime"));
        command.env("IPYTHONDIR", self.prefix.path()).env("BELLJAR_CACHE", cache()).current_dir(self.prefix.path());
        if let Some(release) = release() {
            command.env("BELLJAR_PYODIDE", release);
        }
        belljar_testing::install::run(&mut command)
    }
}

fn notebook(folder: &Path) -> PathBuf {
    let path = folder.join("empty.ipynb");
    std::fs::write(&path, r#"{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}"#).unwrap();
    path
}
