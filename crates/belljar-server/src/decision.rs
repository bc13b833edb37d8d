//! Decisions of users about calls of tools.

use schemars::JsonSchema;
use serde::Deserialize;

/// A decision about a call of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Decision {
    /// This call
    Approve,
    /// All calls of this tool in this run
    ApproveRun,
    /// All calls of this tool in this session
    ApproveSession,
    /// Not this call; or no line
    Deny,
}

impl Decision {
    /// Returns the answer to the question, or `None` for a refusal.
    pub(crate) fn line(self) -> Option<&'static str> {
        match self {
            Self::Approve => Some("yes"),
            Self::ApproveRun => Some("run"),
            Self::ApproveSession => Some("session"),
            Self::Deny => None,
        }
    }
}
