//! The tools that make environments: uv, or `python -m venv` and pip. What they say when they fail is told in our words.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{EnvironmentError, Plan, interpreter};

/// Lines of a tool's output that are shown when it fails.
const LAST_LINES: usize = 12;

/// What environments are made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Uv,
    Pip,
}

impl Tool {
    /// uv where there is one: it is many times as fast, and brings a Python where there is none.
    pub(super) fn find() -> Self {
        let found = Command::new("uv").arg("--version").output();
        if found.is_ok_and(|output| output.status.success()) { Self::Uv } else { Self::Pip }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Uv => "uv",
            Self::Pip => "venv and pip",
        }
    }

    pub(super) fn make(self, plan: &Plan, directory: &Path) -> Result<(), EnvironmentError> {
        match self {
            Self::Uv => {
                let mut command = Command::new("uv");
                // With pip in it, as the other tool does: `pip list` in a session is that one.
                command.args(["venv", "--no-project", "--seed"]);
                if let Some(python) = &plan.python {
                    command.arg(format!("--python={python}"));
                }
                finish(command.arg("--").arg(directory), "uv venv").map_err(|error| match error {
                    EnvironmentError::Tool { output, .. } if output.contains("No interpreter found") => {
                        EnvironmentError::NoPython(plan.python.clone().unwrap_or_else(|| "Python".into()))
                    }
                    other => other,
                })
            }
            Self::Pip => {
                let python = plan.python.as_deref().unwrap_or("python3");
                let result = finish(Command::new(python).args(["-I", "-m", "venv"]).arg(directory), "python -m venv");
                result.map_err(|error| match error {
                    EnvironmentError::File { error, .. } if error.kind() == ErrorKind::NotFound => {
                        EnvironmentError::NoPython(python.to_owned())
                    }
                    EnvironmentError::Tool { output, .. }
                        if output.contains("No module named venv") || output.contains("ensurepip") =>
                    {
                        EnvironmentError::NoVenv(python.to_owned())
                    }
                    other => other,
                })
            }
        }
    }

    pub(super) fn install(self, plan: &Plan, directory: &Path) -> Result<(), EnvironmentError> {
        let python = interpreter(directory);
        match self {
            Self::Uv => finish(
                Command::new("uv").args(["pip", "install", "--python"]).arg(python).arg("--").args(&plan.packages),
                "uv pip install",
            ),
            Self::Pip => {
                let options = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--"];
                finish(Command::new(python).args(options).args(&plan.packages), "pip install")
            }
        }
    }
}

/// Runs a tool to its end. Ctrl-C reaches it as it reaches us.
fn finish(command: &mut Command, what: &str) -> Result<(), EnvironmentError> {
    let program = PathBuf::from(command.get_program());
    let output = command
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|error| EnvironmentError::File { path: program, error })?;
    if output.status.success() {
        return Ok(());
    }
    let text = last_lines(&[output.stdout, output.stderr].concat(), LAST_LINES);
    // pip's and uv's words for a network that is not there.
    let unreachable = [
        "NewConnectionError",
        "Failed to establish a new connection",
        "Temporary failure in name resolution",
        "dns error",
        "tcp connect error",
        "error sending request",
        "Network is unreachable",
        "Connection refused",
        "ProxyError",
        // pip's last word when its retries are used up, and when the name is wrong.
        "(from versions: none)",
    ];
    if unreachable.iter().any(|sign| text.contains(sign)) {
        return Err(EnvironmentError::NoNetwork(text));
    }
    Err(EnvironmentError::Tool { what: what.into(), output: text })
}

pub(super) fn last_lines(bytes: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}
