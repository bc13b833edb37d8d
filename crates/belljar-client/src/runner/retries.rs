//! The failures of each tool in a run, and their limit.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::McpError;
use crate::toolset::ToolOutcome;

/// The treatment of a tool whose retries are used up.
///
/// ```
/// # use belljar_mcp_client::{McpServerStdio, RetryLimitBehavior, ToolRunner};
/// let runner = ToolRunner::new(McpServerStdio::new("server").build()).retry_limit(RetryLimitBehavior::Error);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetryLimitBehavior {
    /// [`ToolOutcome::Failed`](crate::ToolOutcome::Failed): the model sees that the tool failed. Further calls of it
    /// fail without being made.
    #[default]
    Fail,
    /// [`McpError::RetriesExhausted`](crate::McpError::RetriesExhausted), as in pydantic-ai.
    Error,
}

/// The number of failures in a row of each tool.
#[derive(Default)]
pub(super) struct Failures(Mutex<HashMap<String, u32>>);

impl Failures {
    pub(super) fn of(&self, tool: &str) -> u32 {
        self.0.lock().get(tool).copied().unwrap_or(0)
    }

    /// Records an outcome. A retry beyond the limit becomes a failure or an error.
    pub(super) fn record(
        &self,
        tool: &str,
        outcome: ToolOutcome,
        limit: u32,
        behavior: RetryLimitBehavior,
    ) -> Result<ToolOutcome, McpError> {
        let ToolOutcome::Retry(retry) = outcome else {
            // A call that was not made says nothing about the tool.
            if matches!(outcome, ToolOutcome::Output(_) | ToolOutcome::Failed(_)) {
                self.0.lock().remove(tool);
            }
            return Ok(outcome);
        };
        let failures = {
            let mut failures = self.0.lock();
            let failures = failures.entry(tool.to_owned()).or_default();
            *failures = failures.saturating_add(1);
            *failures
        };
        match behavior {
            _ if failures <= limit => Ok(ToolOutcome::Retry(retry)),
            RetryLimitBehavior::Fail => {
                let message = format!("{}\n\n{}", retry.message, exhausted(tool, failures));
                Ok(ToolOutcome::Failed(crate::toolset::Failure { message, raw: retry.raw }))
            }
            RetryLimitBehavior::Error => {
                Err(McpError::RetriesExhausted { tool: tool.to_owned(), failures, message: retry.message })
            }
        }
    }

    /// Returns the outcome of a call of a tool whose retries are used up already.
    pub(super) fn refusal(&self, tool: &str, limit: u32) -> Option<ToolOutcome> {
        let failures = self.of(tool);
        (failures > limit).then(|| ToolOutcome::failed(exhausted(tool, failures)))
    }
}

fn exhausted(tool: &str, failures: u32) -> String {
    format!("The tool `{tool}` failed {failures} times in a row. Do not call it again.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_counted_per_tool_until_a_success() {
        let failures = Failures::default();
        let record = |tool: &str, outcome| failures.record(tool, outcome, 1, RetryLimitBehavior::Fail).unwrap();
        let retry = || ToolOutcome::retry("no");
        assert_eq!(record("a", retry()), retry());
        assert_eq!(record("b", retry()), retry());
        record("a", ToolOutcome::text("yes"));
        assert_eq!(record("a", retry()), retry());
        assert!(failures.refusal("a", 1).is_none());
        let last = record("a", retry());
        assert!(matches!(&last, ToolOutcome::Failed(failure) if failure.message.starts_with("no")), "{last:?}");
        assert!(failures.refusal("a", 1).is_some() && failures.refusal("b", 1).is_none());
        let error = failures.record("b", retry(), 1, RetryLimitBehavior::Error).unwrap_err();
        assert!(matches!(error, McpError::RetriesExhausted { failures: 2, .. }), "{error:?}");
    }
}
