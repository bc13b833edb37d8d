//! Programs with pydantic-monty's client, and the worker that they start.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::{cache, python_with, release};

/// The packages that pip installs together.
const PACKAGES: &[&str] =
    &["pydantic-monty==1.4.0", "pydantic-ai-harness[code-mode]==0.62.0", "pydantic-ai-slim==2.62.0"];

/// Returns a script of `tests/monty` with the client's Python.
pub(crate) fn script(name: &str) -> Command {
    script_with("monty", PACKAGES, name)
}

/// Does the same with other packages, which are installed under the name `environment`.
pub(crate) fn script_with(environment: &str, packages: &[&str], name: &str) -> Command {
    let mut command = Command::new(python_with(environment, packages));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/monty").join(name));
    command
}

/// A program that runs the worker with the cache of the tests. The client passes no options and no variables.
pub(crate) struct WorkerProgram {
    directory: TempDir,
}

impl WorkerProgram {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let release = release().map(|release| format!(" --pyodide {release}")).unwrap_or_default();
        let (begin, arguments) = if cfg!(windows) { ("@", "%*") } else { ("#!/bin/sh\nexec ", "\"$@\"") };
        let text =
            format!("{begin}{} {arguments} --cache {}{release}\n", env!("CARGO_BIN_EXE_belljar"), cache().display());
        let worker = Self { directory };
        std::fs::write(worker.path(), text).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(worker.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        worker
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join(if cfg!(windows) { "worker.cmd" } else { "worker" })
    }
}
