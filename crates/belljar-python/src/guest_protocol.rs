//! The interface between the host and the guest's `_belljar` package: its functions, and the JSON that they take and
//! return. Results are untrusted: one that does not have the expected form is rejected.

use std::collections::BTreeMap;
use std::time::Duration;

use belljar_core::kernel::{CellError, CellRequest, ShellRequest};
use belljar_core::{ExitReason, Outcome, PythonError, RunRequest, Value, Wait};
use belljar_emscripten::Instance;
use serde::{Deserialize, Serialize};

use crate::c_api::{self, CApiError, Object};
use crate::interpreter::Renewal;

/// The version of the requests and results below, and of the guest's calls to the host. It must be raised whenever a
/// guest package of another build could not be used any more: sessions may continue in an image of an earlier build.
pub(crate) const GUEST_PROTOCOL: u32 = 1;

/// The functions of the guest's `_belljar` package that the host calls: objects inside the image.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct GuestFunctions {
    pub(crate) run: Object,
    pub(crate) is_complete: Object,
    pub(crate) complete: Object,
    pub(crate) finish: Object,
    pub(crate) execute: Object,
    pub(crate) ask: Object,
    /// Not in images of builds whose cells could not wait without a thread.
    #[serde(default)]
    pub(crate) resume: Option<Object>,
}

impl GuestFunctions {
    /// Imports the package and looks up its functions.
    pub(crate) fn import(instance: &mut Instance) -> Result<Self, CApiError> {
        let mut function = |name| c_api::import(instance, "_belljar", name);
        Ok(Self {
            run: function("run")?,
            is_complete: function("is_complete")?,
            complete: function("complete")?,
            finish: function("finish")?,
            execute: function("execute")?,
            ask: function("ask")?,
            resume: Some(function("resume")?),
        })
    }

    /// Returns the function that runs or continues a cell by its name.
    pub(crate) fn by_name(&self, name: &str) -> Option<Object> {
        match name {
            "execute" => Some(self.execute),
            "resume" => self.resume,
            _ => None,
        }
    }
}

/// The argument of `_belljar.run`.
#[derive(Serialize)]
pub(crate) struct RunArguments<'a> {
    #[serde(flatten)]
    pub(crate) request: &'a RunRequest,
    /// The modules that no package provides, with the notes for errors of importing them.
    #[serde(rename = "absent", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) missing_modules: &'a BTreeMap<String, String>,
    pub(crate) renewal: Renewal,
    /// True if the host has installed packages since the last run.
    pub(crate) installed: bool,
    pub(crate) max_value_bytes: u64,
    /// True if the guest returns when the code waits.
    pub(crate) stepped: bool,
    /// Environment variables to set first.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) environment: BTreeMap<String, String>,
}

/// The argument of `_belljar.execute`.
#[derive(Serialize)]
pub(crate) struct ExecuteArguments<'a> {
    #[serde(flatten)]
    pub(crate) cell: &'a CellRequest,
    /// True for tracebacks with colours. Only the value for the first cell has an effect.
    pub(crate) color: bool,
    pub(crate) max_value_bytes: u64,
    /// True if the host has installed packages since the last cell.
    pub(crate) installed: bool,
    pub(crate) renewal: Renewal,
    /// True if the guest returns when the cell waits.
    pub(crate) stepped: bool,
    /// Environment variables to set first.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) environment: BTreeMap<String, String>,
}

/// The argument of `_belljar.resume`.
#[derive(Serialize)]
pub(crate) struct ResumeArguments {
    /// Set if the interpreter is a copy of the one in which the cell began to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) renewal: Option<Renewal>,
    /// Environment variables to set first.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) environment: BTreeMap<String, String>,
}

/// The argument of `_belljar.ask`.
#[derive(Serialize)]
pub(crate) struct ShellArguments<'a> {
    #[serde(flatten)]
    pub(crate) request: &'a ShellRequest,
    pub(crate) renewal: Renewal,
}

/// The result of `_belljar.run` and `_belljar.finish`.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum RunResult {
    Value {
        value: Option<String>,
        text: Option<String>,
        #[serde(default)]
        strict: Option<String>,
    },
    Error(PythonError),
    Exit {
        code: i32,
    },
    /// The code waits.
    Waiting(GuestWait),
}

/// The text about a guest that waits although its caller does.
const UNEXPECTED_WAIT: &str = "the interpreter waits, but it was not asked to return then";

/// The end of a guest's wait.
#[derive(Deserialize)]
pub(crate) struct GuestWait {
    /// The seconds until the next timer.
    timer: Option<f64>,
    /// True if the guest waits for functions of the host.
    host: bool,
}

impl From<&GuestWait> for Wait {
    fn from(&GuestWait { timer, host }: &GuestWait) -> Self {
        let duration = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
        Self { timer: timer.map(duration), for_host: host }
    }
}

impl From<RunResult> for Outcome {
    fn from(result: RunResult) -> Self {
        match result {
            RunResult::Waiting(_) => Self::Exited(ExitReason::Crash(UNEXPECTED_WAIT.into())),
            RunResult::Value { value, text, strict } => Self::Success(value.map(|json| Value {
                text: text.unwrap_or_else(|| json.clone()),
                json,
                strict_json: strict,
            })),
            RunResult::Error(error) => Self::Error(error),
            RunResult::Exit { code } => exited(code),
        }
    }
}

/// The result of `_belljar.execute`.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum ExecuteResult {
    /// The shell has run the cell.
    Cell {
        count: u64,
        error: Option<ShellException>,
        /// The encoded value, if the cell has one and its request had an exchange.
        #[serde(default)]
        value: Option<String>,
    },
    /// An exception left the shell.
    Error(PythonError),
    Exit {
        code: i32,
    },
    /// The cell waits.
    Waiting(GuestWait),
}

/// An exception that the shell caught.
#[derive(Deserialize)]
pub(crate) struct ShellException {
    name: String,
    message: String,
    traceback: Vec<String>,
    #[serde(default)]
    missing_module: Option<String>,
}

/// A cell that the shell has run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShellCell {
    /// The cell's number, from 1 on; an empty cell has the number of the one before.
    pub(crate) execution_count: u64,
    /// The exception that the cell raised.
    pub(crate) error: Option<CellError>,
    /// The name of the module without which the cell failed, which the guest chose.
    pub(crate) missing_module: Option<String>,
    /// The encoded value, if the request had an exchange.
    pub(crate) value: Option<String>,
}

impl From<ExecuteResult> for Result<ShellCell, Outcome> {
    fn from(result: ExecuteResult) -> Self {
        match result {
            ExecuteResult::Cell { count, error, value } => {
                let Some(ShellException { name, message, traceback, missing_module }) = error else {
                    return Ok(ShellCell { execution_count: count, value, ..ShellCell::default() });
                };
                let error = Some(CellError { name, message, traceback });
                Ok(ShellCell { execution_count: count, error, missing_module, value: None })
            }
            // An interrupt that arrived when the cell had already ended.
            ExecuteResult::Error(error) if error.kind == "KeyboardInterrupt" => {
                let PythonError { kind, message, traceback, .. } = error;
                let error = CellError { name: kind, message, traceback: vec![traceback] };
                Ok(ShellCell { error: Some(error), ..ShellCell::default() })
            }
            ExecuteResult::Error(error) => Err(Outcome::Error(error)),
            ExecuteResult::Exit { code } => Err(exited(code)),
            ExecuteResult::Waiting(_) => Err(Outcome::Exited(ExitReason::Crash(UNEXPECTED_WAIT.into()))),
        }
    }
}

/// The result of `_belljar.ask`.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum ShellResult {
    Answer {
        content: serde_json::Value,
    },
    /// Code that the request ran raised an exception, or the shell was interrupted.
    Error(PythonError),
    Exit {
        code: i32,
    },
}

impl From<ShellResult> for Result<serde_json::Value, Outcome> {
    fn from(result: ShellResult) -> Self {
        match result {
            ShellResult::Answer { content } => Ok(content),
            ShellResult::Error(error) => Err(Outcome::Error(error)),
            ShellResult::Exit { code } => Err(exited(code)),
        }
    }
}

/// Returns the outcome of code that ended with `code`, of which the system keeps eight bits.
fn exited(code: i32) -> Outcome {
    Outcome::Exited(ExitReason::Exit(code & 0xff))
}
