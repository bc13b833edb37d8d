//! Calls of the guest package as text: the interface of an interpreter whose caller is in another process.
//!
//! The caller writes the arguments and reads the result, as [`Interpreter`] does for calls of its own. Nothing of them
//! is interpreted here.

use belljar_core::{ExitReason, Limits, Outcome};
use serde::{Deserialize, Serialize};

use crate::c_api::{self, CApiError};
use crate::interpreter::Interpreter;

/// A function of the guest package that runs code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestFunction {
    /// Runs code.
    Run,
    /// Continues code that waits.
    Resume,
    /// Runs what the code has registered for its end.
    Finish,
    /// Runs a cell.
    Execute,
    /// Sends the shell a request that is not a cell.
    Ask,
}

impl GuestFunction {
    /// Returns the name of the function.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Resume => "resume",
            Self::Finish => "finish",
            Self::Execute => "execute",
            Self::Ask => "ask",
        }
    }
}

/// The end of a call of the guest package.
#[derive(Debug)]
pub struct GuestReturn {
    /// The JSON that the function has returned, or the reason why the interpreter has ended.
    pub result: Result<String, ExitReason>,
    /// The largest size that the memory has had, in bytes.
    pub peak_memory: u64,
    /// True if the code has written output or read input since the interpreter was created.
    pub has_used_streams: bool,
}

impl Interpreter {
    /// Calls a function of the guest package with arguments and a result of JSON, within the limits of time.
    pub fn call_text(&mut self, function: GuestFunction, arguments: &str, limits: Limits) -> GuestReturn {
        let functions = self.functions();
        let object = match function {
            GuestFunction::Run => functions.run,
            // An image without the function does not wait: the call of the null object is an error.
            GuestFunction::Resume => functions.resume.unwrap_or_default(),
            GuestFunction::Finish => functions.finish,
            GuestFunction::Execute => functions.execute,
            GuestFunction::Ask => functions.ask,
        };
        self.set_limits_of_time(&limits);
        let mut result = Err(ExitReason::Cancelled);
        let execution = self.with_limits(|this| {
            result =
                c_api::call(this.instance_mut(), object, function.name(), arguments).map_err(|error| match error {
                    CApiError::Instance(error) => this.exit_reason(error),
                    error => ExitReason::Crash(error.to_string()),
                });
            result.as_ref().err().map_or(Outcome::Success(None), |reason| Outcome::Exited(reason.clone()))
        });
        self.host_mut().console.flush();
        let peak_memory = execution.statistics.peak_memory;
        GuestReturn { result, peak_memory, has_used_streams: self.has_used_streams() }
    }
}
