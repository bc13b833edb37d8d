//! The settings common to all servers, with their defaults.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::Implementation;
use serde::{Deserialize, Serialize};

use super::hook::ProcessToolCall;
use super::identity::PoolLimits;
use super::restart::RestartPolicy;
use super::retry::RetryPolicy;
use crate::handlers::{Handlers, LogLevel};

/// The era of the protocol.
///
/// ```
/// # use belljar_mcp_client::{McpServerStdio, ProtocolEra};
/// let server = McpServerStdio::new("server").era(ProtocolEra::Modern);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProtocolEra {
    /// The modern era if the server supports it: sends `server/discover`, and `initialize` if the response is missing
    /// or invalid.
    #[default]
    Auto,
    /// Up to 2025-11-25: `initialize`, sessions, requests from the server.
    Legacy,
    /// From 2026-07-28: no session; each request carries the state that the server needs.
    Modern,
}

/// The treatment of a tool that reports failure.
///
/// ```
/// # use belljar_mcp_client::{McpServerStdio, ToolErrorBehavior};
/// let server = McpServerStdio::new("server").tool_error_behavior(ToolErrorBehavior::Failed);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolErrorBehavior {
    /// [`ToolOutcome::Retry`](crate::ToolOutcome::Retry), so that the model can correct its call.
    #[default]
    Retry,
    /// [`ToolOutcome::Failed`](crate::ToolOutcome::Failed): the model sees the message, and no retry is counted.
    /// Protocol errors (such as invalid arguments) and errors of the connection remain retries.
    Failed,
    /// [`McpError::ToolFailed`](crate::McpError::ToolFailed), and the errors of the protocol and of the connection.
    Error,
}

/// The conversion of results to the output for models. The server's whole result is in
/// [`ToolResult::raw`](crate::ToolResult::raw) in any case.
///
/// ```
/// # use belljar_mcp_client::{McpServerStdio, ResultMapping};
/// let server = McpServerStdio::new("server").result_mapping(ResultMapping::PydanticAi2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResultMapping {
    /// That of `MCPServer` of pydantic-ai 1: a link is replaced by the resource behind it, if the server can read it;
    /// a failure is the text of its text parts.
    #[default]
    PydanticAi1,
    /// That of `MCPToolset` of pydantic-ai 2: a link is its URI; a failure is its structured content as JSON, or else
    /// its parts; empty structured content is used.
    PydanticAi2,
}

/// The policy for reconnecting after an HTTP connection is lost.
///
/// ```
/// use std::time::Duration;
/// use belljar_mcp_client::{McpServerSse, ReconnectPolicy};
///
/// let policy = ReconnectPolicy::new(10).first_delay(Duration::from_millis(100));
/// let server = McpServerSse::new("http://localhost:8000/sse").unwrap().reconnect(policy);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ReconnectPolicy {
    /// The number of attempts; 0 disables reconnecting.
    pub attempts: u32,
    /// The delay before the second attempt; doubles with every attempt.
    pub first_delay: Duration,
    /// The maximum delay.
    pub max_delay: Duration,
}

impl Default for ReconnectPolicy {
    /// Five attempts, after 0, 0.25, 0.5, 1 and 2 seconds.
    fn default() -> Self {
        Self { attempts: 5, first_delay: Duration::from_millis(250), max_delay: Duration::from_secs(10) }
    }
}

impl ReconnectPolicy {
    /// Creates a policy with this number of attempts and the default delays.
    ///
    /// ```
    /// assert_eq!(belljar_mcp_client::ReconnectPolicy::new(5), belljar_mcp_client::ReconnectPolicy::default());
    /// ```
    pub fn new(attempts: u32) -> Self {
        Self { attempts, ..Self::default() }
    }

    /// Creates a policy that does not reconnect.
    ///
    /// ```
    /// assert_eq!(belljar_mcp_client::ReconnectPolicy::never().attempts, 0);
    /// ```
    pub fn never() -> Self {
        Self::new(0)
    }

    /// Sets the delay before the second attempt; it doubles with every attempt.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let policy = belljar_mcp_client::ReconnectPolicy::new(3).first_delay(Duration::from_secs(1));
    /// ```
    pub fn first_delay(mut self, delay: Duration) -> Self {
        self.first_delay = delay;
        self
    }

    /// Sets the maximum delay.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let policy = belljar_mcp_client::ReconnectPolicy::new(100).max_delay(Duration::from_secs(60));
    /// ```
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// Returns the delay before an attempt, counted from 0.
    pub(crate) fn delay(&self, attempt: u32) -> Duration {
        match attempt.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => self.first_delay.saturating_mul(2u32.saturating_pow(doublings)).min(self.max_delay),
        }
    }
}

/// The settings common to all transports.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) id: Option<String>,
    pub(crate) tool_prefix: Option<String>,
    pub(crate) era: ProtocolEra,
    pub(crate) log_level: Option<LogLevel>,
    pub(crate) timeout: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) max_retries: Option<u32>,
    pub(crate) cache_tools: bool,
    pub(crate) cache_resources: bool,
    pub(crate) cache_prompts: bool,
    pub(crate) include_instructions: bool,
    pub(crate) include_return_schema: Option<bool>,
    pub(crate) validate_arguments: bool,
    pub(crate) enabled_tools: Option<Vec<String>>,
    pub(crate) disabled_tools: Vec<String>,
    pub(crate) tool_error_behavior: ToolErrorBehavior,
    pub(crate) result_mapping: ResultMapping,
    pub(crate) client_info: Implementation,
    pub(crate) process_tool_call: Option<Arc<dyn ProcessToolCall>>,
    pub(crate) handlers: Handlers,
    pub(crate) allow_sampling: bool,
    pub(crate) reconnect: ReconnectPolicy,
    pub(crate) restart: Option<RestartPolicy>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) identities: PoolLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            id: None,
            tool_prefix: None,
            era: ProtocolEra::Auto,
            log_level: None,
            timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(300),
            max_retries: None,
            cache_tools: true,
            cache_resources: true,
            cache_prompts: true,
            include_instructions: false,
            include_return_schema: None,
            validate_arguments: false,
            enabled_tools: None,
            disabled_tools: Vec::new(),
            tool_error_behavior: ToolErrorBehavior::Retry,
            result_mapping: ResultMapping::default(),
            client_info: Implementation::new("belljar", env!("CARGO_PKG_VERSION")),
            process_tool_call: None,
            handlers: Handlers::default(),
            allow_sampling: true,
            reconnect: ReconnectPolicy::default(),
            restart: None,
            retry: None,
            identities: PoolLimits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ReconnectPolicy;
    use std::time::Duration;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let policy = ReconnectPolicy { max_delay: Duration::from_secs(1), ..Default::default() };
        let waits: Vec<u128> = (0..6).map(|attempt| policy.delay(attempt).as_millis()).collect();
        assert_eq!(waits, [0, 250, 500, 1000, 1000, 1000]);
        assert_eq!(policy.delay(u32::MAX), Duration::from_secs(1));
    }
}
