//! The reasons why a call of a tool has no result. The code receives each as an exception.

use std::borrow::Cow;
use std::time::Duration;

use belljar_core::FunctionError;

use crate::call_log::CallStatus;

/// The type of the error of a call whose result is an error, by the semantic conventions for MCP.
pub(crate) const TOOL_ERROR: &str = "tool_error";

/// An exceeded limit of [`ToolLimits`](crate::ToolLimits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExceededLimit {
    /// The number of calls.
    #[error("the run has made {0} tool calls, the maximum")]
    Calls(u32),
    /// The size of one result.
    #[error("the result has {size} bytes, and the maximum is {limit}")]
    ResultBytes {
        /// The size of the result, in bytes.
        size: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The size of all results.
    #[error("the results of the run's tool calls exceed {0} bytes")]
    TotalBytes(u64),
    /// The time of waiting for calls.
    #[error("the run has waited {} s for tools, the maximum", .0.as_secs_f64())]
    Wait(Duration),
}

/// The reason why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolFailure {
    /// The call failed, or its arguments are not valid: `ToolError`.
    #[error("{0}")]
    Failed(String),
    /// The tool failed: its result is an error. `ToolError`.
    #[error("{0}")]
    ErrorResult(String),
    /// The server has answered the request with an error of JSON-RPC: `ToolError`.
    #[error("{message}")]
    ErrorResponse {
        /// The code, which the server has chosen.
        code: i32,
        /// The message of the server.
        message: String,
    },
    /// The policy or the user denied the call: `ToolDenied`.
    #[error("{0}")]
    Denied(String),
    /// The tool did not respond in time: `ToolTimeout`.
    #[error("{tool} did not respond within {} s", .timeout.as_secs_f64())]
    TimedOut {
        /// The names of the server and of the tool.
        tool: String,
        /// The time waited.
        timeout: Duration,
    },
    /// The server could not be reached: `ToolUnavailable`.
    #[error("{0}")]
    Unavailable(String),
    /// A limit was exceeded: `ToolLimitExceeded`.
    #[error(transparent)]
    Limit(#[from] ExceededLimit),
    /// The process that had sent the call ended before the result arrived: `ToolInterrupted`.
    #[error("the server was restarted while the call of {0} was in progress: it may have been done")]
    Interrupted(String),
}

impl ToolFailure {
    /// Returns the name of the exception's class in the module `tools`.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Failed(_) | Self::ErrorResult(_) | Self::ErrorResponse { .. } => "ToolError",
            Self::Denied(_) => "ToolDenied",
            Self::TimedOut { .. } => "ToolTimeout",
            Self::Unavailable(_) => "ToolUnavailable",
            Self::Limit(_) => "ToolLimitExceeded",
            Self::Interrupted(_) => "ToolInterrupted",
        }
    }

    /// Returns the type of the error in spans: by the semantic conventions, or else as the log of calls names it.
    pub(crate) fn error_type(&self) -> Cow<'static, str> {
        match self {
            Self::ErrorResult(_) => TOOL_ERROR.into(),
            Self::ErrorResponse { code, .. } => code.to_string().into(),
            other => CallStatus::from(other).name().into(),
        }
    }
}

impl From<ToolFailure> for FunctionError {
    fn from(failure: ToolFailure) -> Self {
        Self { name: format!("tools.{}", failure.class()), message: failure.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_errors_are_those_of_the_conventions() {
        let types = [
            (ToolFailure::ErrorResult("no".into()), "tool_error"),
            (ToolFailure::ErrorResponse { code: -32602, message: "no".into() }, "-32602"),
            (ToolFailure::Failed("no".into()), "error"),
            (ToolFailure::Unavailable("no".into()), "unavailable"),
            (ExceededLimit::Calls(1).into(), "limit"),
        ];
        for (failure, expected) in types {
            assert_eq!(failure.error_type(), expected, "{failure:?}");
        }
    }
}
