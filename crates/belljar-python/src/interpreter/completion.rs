//! Input at a prompt: whether it can be run, and its completions.

use std::time::Duration;

use belljar_core::Outcome;
use serde::Deserialize;

use super::Interpreter;
use crate::c_api;
use crate::guest_protocol::ShellResult;

/// The state of interactive input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Completeness {
    /// The input can be run.
    Complete,
    /// More lines are required.
    Incomplete,
    /// The input is not valid Python, whatever lines follow.
    Invalid,
}

/// The completions of input at a prompt, which the guest made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Completions {
    /// The number of characters before the word that is completed.
    pub start: usize,
    /// The words that can replace it.
    pub matches: Vec<String>,
}

/// The time for completing input, which may run the program's code, such as `__dir__`.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);
/// The least time between the interrupt of code that runs for a completion, and the end of its interpreter.
const COMPLETION_GRACE: Duration = Duration::from_secs(1);

impl Interpreter {
    /// Returns whether `code`, typed at a prompt, can be run or needs more lines.
    pub fn completeness(&mut self, code: &str) -> Completeness {
        #[derive(Deserialize)]
        struct Reply {
            status: Completeness,
        }
        let request = serde_json::json!({ "code": code }).to_string();
        let reply = c_api::call(&mut self.instance, self.functions.is_complete, "is_complete", &request);
        // If the check fails, the code is run, so that Python reports the problem.
        reply
            .ok()
            .and_then(|text| serde_json::from_str::<Reply>(&text).ok())
            .map_or(Completeness::Complete, |reply| reply.status)
    }

    /// Returns the completions of `code`, input at a prompt up to the cursor. They are empty if finding them fails.
    pub fn complete(&mut self, code: &str) -> Completions {
        let limits = self.limits;
        self.limits.wall_time = Some(COMPLETION_TIMEOUT);
        self.limits.grace = limits.grace.max(COMPLETION_GRACE);
        let function = self.functions.complete;
        let reply = self.call_with_limits::<ShellResult, _>(function, "complete", &serde_json::json!({ "code": code }));
        self.limits = limits;
        let content = reply.and_then(Result::<serde_json::Value, Outcome>::from);
        content.ok().and_then(|content| serde_json::from_value(content).ok()).unwrap_or_default()
    }
}
