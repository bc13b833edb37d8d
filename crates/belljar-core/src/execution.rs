//! How code ended, and what it gave.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::exchange::Buffer;
use crate::exit_reason::ExitReason;
use crate::kernel::CellError;
use crate::limits::Limits;
use crate::mime::Image;
use crate::output::Output;

/// The result of running a piece of code in an interpreter of its own.
#[derive(Debug, Clone)]
pub struct Execution {
    /// How the code ended.
    pub outcome: Outcome,
    /// The time and memory that it took.
    pub statistics: Statistics,
}

/// How a piece of code ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The code ran to its end. The value is that of its last line, if it has one that is not `None`.
    Success(Option<Value>),
    /// The code raised an exception.
    Error(PythonError),
    /// The code ended its interpreter, reached a limit, was cancelled, or crashed. Its interpreter has ended.
    Exited(ExitReason),
    /// The code did not begin: the packages that it needs could not be installed, for the reason that the text gives.
    InstallError(String),
}

/// The result of [`Backend::run_once`](crate::kernel::Backend::run_once).
#[derive(Debug, Clone)]
pub struct RunReport {
    /// How the code ended.
    pub outcome: Outcome,
    /// The names of the installed packages that the code or its caller asked for.
    pub dependencies: Vec<String>,
    /// The images that the code showed.
    pub images: Vec<Image>,
    /// The limits that held.
    pub limits: Limits,
    /// The package that the code lacked, if that is why it failed.
    pub missing_dependency: Option<MissingDependency>,
    /// The time and memory that the code took; zero if the backend does not measure them.
    pub statistics: Statistics,
    /// The buffers of the value, if the request had an [`Exchange`](crate::Exchange).
    pub buffers: Vec<Buffer>,
}

impl RunReport {
    /// Creates the report of code that has not run yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            outcome: Outcome::Success(None),
            dependencies: Vec::new(),
            images: Vec::new(),
            limits,
            missing_dependency: None,
            statistics: Statistics::default(),
            buffers: Vec::new(),
        }
    }
}

/// A package that code lacked while it ran, usually an optional dependency of a package that it imports: pandas imports
/// openpyxl when it reads a workbook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingDependency {
    /// The module whose import failed, in dotted form.
    pub module: String,
    /// The package that is expected to provide the module.
    pub package: String,
    /// The reason why the package was not installed, and the code not run again.
    pub obstacle: Obstacle,
}

/// The reason why code was not run again with a package that it lacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The code declares its packages, so that none is added.
    DeclaredByCode,
    /// The code had effects before it failed, such as output, which running it again would repeat.
    Effects,
    /// The package cannot be installed, for the reason that the text gives.
    NotInstallable(String),
}

/// The result of running a cell in a kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct CellResult {
    /// The cell's number, from 1 on: Jupyter's `execution_count`.
    pub execution_count: u64,
    /// How the cell ended.
    pub status: CellStatus,
    /// The cell's output, in order.
    pub outputs: Vec<Output>,
}

/// How a cell ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CellStatus {
    /// The cell ran to its end.
    Ok,
    /// The cell raised an exception. The interpreter lives.
    Error(CellError),
    /// The cell was interrupted after this time, its limit, and stopped. The interpreter lives.
    TimedOut {
        /// The limit.
        after: Duration,
        /// True if it is the limit of waiting, false if it is that of running.
        waited: bool,
        /// The traceback of the interrupt, as the shell prints it.
        traceback: Vec<String>,
    },
    /// The interpreter ended.
    KernelDied(ExitReason),
}

impl From<&Outcome> for CellStatus {
    /// Returns how a program has ended as the status of the only cell of a session.
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Success(_) => Self::Ok,
            Outcome::Error(error) => Self::Error(CellError {
                name: error.kind.clone(),
                message: error.message.clone(),
                traceback: vec![error.traceback.clone()],
            }),
            Outcome::InstallError(reason) => {
                Self::Error(CellError { name: "InstallError".into(), message: reason.clone(), traceback: Vec::new() })
            }
            Outcome::Exited(reason) => Self::KernelDied(reason.clone()),
        }
    }
}

impl CellStatus {
    /// Returns the error that a cell ended with, if it did; `limits` are those that held.
    pub fn error(&self, limits: &Limits) -> Option<CellError> {
        match self {
            Self::Ok => None,
            Self::Error(error) => Some(error.clone()),
            Self::TimedOut { after, waited, traceback } => {
                let what = if *waited { "waited" } else { "ran" };
                Some(CellError {
                    name: "TimeoutError".into(),
                    message: format!("the cell {what} longer than {} s and was interrupted", after.as_secs_f64()),
                    traceback: traceback.clone(),
                })
            }
            Self::KernelDied(reason) => Some(reason.to_cell_error(limits)),
        }
    }
}

/// The value of a piece of code: that of its last line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Value {
    /// JSON, indented by two spaces, with Python's `NaN`, `Infinity` and `-Infinity` where floats are those. If the
    /// request had an [`Exchange`](crate::Exchange), the encoded value instead.
    #[serde(rename = "value")]
    pub json: String,
    /// A human-readable form: the text itself if the value is a `str`, else the same as `json`.
    pub text: String,
    /// RFC 8259 JSON, where `json` is not: non-finite floats are strings.
    #[serde(default, rename = "strict")]
    pub strict_json: Option<String>,
}

impl Value {
    /// Returns the value as RFC 8259 JSON on one line; `None` if the interpreter sent text that is not JSON.
    pub fn to_strict_json(&self) -> Option<Box<RawValue>> {
        RawValue::from_string(on_one_line(self.strict_json.as_ref().unwrap_or(&self.json))).ok()
    }
}

/// Removes white space between the tokens of a JSON text. Parsing it and writing it again would change its numbers.
fn on_one_line(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    json.chars()
        .filter(|&c| {
            if in_string {
                in_string = escaped || c != '"';
                escaped = !escaped && c == '\\';
                return true;
            }
            in_string = c == '"';
            !c.is_ascii_whitespace()
        })
        .collect()
}

/// An exception that left the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonError {
    /// The name of the exception's class: `ZeroDivisionError`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The exception's `str()`.
    pub message: String,
    /// The traceback as Python prints it, without frames of Belljar's own; ends with a newline.
    pub traceback: String,
    /// The name of the module without which the code failed, which the guest chose.
    #[serde(default, skip_serializing)]
    pub missing_module: Option<String>,
}

/// The time and memory that an execution took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Statistics {
    /// The time to start the interpreter; zero if it ran before.
    pub start: Duration,
    /// The time to run the code.
    pub run: Duration,
    /// The most bytes of linear memory in use.
    pub peak_memory: u64,
}

#[cfg(test)]
mod tests {
    use super::on_one_line;

    #[test]
    fn white_space_between_tokens_is_removed() {
        let json = "{\n  \"a b\": [\n    1.0,\n    \"q\\\" \\\\\",\n    1267650600228229401496703205376\n  ]\n}";
        assert_eq!(on_one_line(json), r#"{"a b":[1.0,"q\" \\",1267650600228229401496703205376]}"#);
    }
}
