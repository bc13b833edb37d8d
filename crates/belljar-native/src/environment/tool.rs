//! The tools that create environments: uv, or `python -m venv` and pip.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{EnvironmentError, EnvironmentSpec, interpreter};

/// The number of lines at the end of a tool's output that are reported when it fails.
const MAX_OUTPUT_LINES: usize = 12;

/// A tool that creates environments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvTool {
    Uv,
    Venv,
}

impl EnvTool {
    /// Chooses uv if it is on the path, since it is many times as fast and downloads a missing Python.
    pub(super) fn find() -> Self {
        if is_successful(Command::new("uv").arg("--version")) { Self::Uv } else { Self::Venv }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Uv => "uv",
            Self::Venv => "venv and pip",
        }
    }

    /// Creates an empty environment.
    ///
    /// # Errors
    /// Returns an error if the Python does not exist or the tool fails.
    pub(super) fn create(self, spec: &EnvironmentSpec, directory: &Path) -> Result<(), EnvironmentError> {
        match self {
            Self::Uv => {
                let mut command = Command::new("uv");
                // `--seed` installs pip, as `python -m venv` does: `pip list` in a session runs it.
                command.args(["venv", "--no-project", "--seed"]);
                if let Some(python) = &spec.python {
                    command.arg(format!("--python={python}"));
                }
                run(command.arg("--").arg(directory), "uv venv").map_err(|error| explain_uv_failure(spec, error))
            }
            Self::Venv => {
                let python = spec.python.as_deref().unwrap_or("python3");
                run(Command::new(python).args(["-I", "-m", "venv"]).arg(directory), "python -m venv")
                    .map_err(|error| explain_venv_failure(python, error))
            }
        }
    }

    /// Installs the packages into an environment.
    ///
    /// # Errors
    /// Returns [`EnvironmentError::Install`].
    pub(super) fn install(self, spec: &EnvironmentSpec, directory: &Path) -> Result<(), EnvironmentError> {
        let python = interpreter(directory);
        let installed = match self {
            Self::Uv => run(
                Command::new("uv").args(["pip", "install", "--python"]).arg(python).arg("--").args(&spec.packages),
                "uv pip install",
            ),
            Self::Venv => {
                let options = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--"];
                run(Command::new(python).args(options).args(&spec.packages), "pip install")
            }
        };
        installed.map_err(|error| match error {
            EnvironmentError::Tool { tool, output } => EnvironmentError::Install { tool, output },
            other => other,
        })
    }
}

/// Reports a missing Python as such. uv's exit status is the same for every failure of `uv venv`, so `uv python find`
/// looks for the Python.
fn explain_uv_failure(spec: &EnvironmentSpec, error: EnvironmentError) -> EnvironmentError {
    if !matches!(error, EnvironmentError::Tool { .. }) {
        return error;
    }
    let mut find = Command::new("uv");
    find.args(["python", "find", "--no-project", "--system"]);
    if let Some(python) = &spec.python {
        find.arg("--").arg(python);
    }
    if is_successful(&mut find) {
        return error;
    }
    let python = spec.python.clone().unwrap_or_else(|| "Python".into());
    EnvironmentError::NoPython { python, source: Some(Box::new(error)) }
}

/// Reports a missing Python, or a Python that was packaged without `venv`, as such. The exit status of `python -m venv`
/// is the same for every failure, so the modules are imported.
fn explain_venv_failure(python: &str, error: EnvironmentError) -> EnvironmentError {
    match &error {
        EnvironmentError::File { error: cause, .. } if cause.kind() == ErrorKind::NotFound => {
            EnvironmentError::NoPython { python: python.to_owned(), source: None }
        }
        EnvironmentError::Tool { .. }
            if !is_successful(Command::new(python).args(["-I", "-c", "import venv, ensurepip"])) =>
        {
            EnvironmentError::NoVenv { python: python.to_owned(), source: Box::new(error) }
        }
        _ => error,
    }
}

/// Runs a tool until it exits. Ctrl-C reaches it too, since it is in the same process group.
fn run(command: &mut Command, name: &str) -> Result<(), EnvironmentError> {
    let program = PathBuf::from(command.get_program());
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| EnvironmentError::File { path: program, error })?;
    if output.status.success() {
        return Ok(());
    }
    let output = last_lines(&[output.stdout, output.stderr].concat(), MAX_OUTPUT_LINES);
    Err(EnvironmentError::Tool { tool: name.into(), output })
}

fn is_successful(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

/// Returns at most `max` lines from the end of a text, without blank ones.
pub(super) fn last_lines(bytes: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(max)..].join("\n")
}
