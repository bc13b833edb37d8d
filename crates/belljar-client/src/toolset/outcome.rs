//! The outcome of a tool call.

use std::sync::Arc;

use rmcp::model::CallToolResult;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::output::ToolOutput;

/// The outcome of a call.
///
/// ```
/// use belljar_mcp_client::ToolOutcome;
///
/// fn to_model(outcome: ToolOutcome) -> String {
///     match outcome {
///         ToolOutcome::Output(result) => result.output.to_text(),
///         ToolOutcome::Retry(retry) => format!("{}; try again", retry.message),
///         ToolOutcome::Failed(failure) => format!("failed: {}", failure.message),
///         ToolOutcome::Denied(reason) => format!("denied: {reason}"),
///         other => other.to_text(),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolOutcome {
    /// The tool returned this result.
    Output(ToolResult),
    /// The call failed in a way that the model may correct: pass it the message and let it try again up to
    /// [`max_retries`](crate::ToolDefinition::max_retries) times.
    Retry(Retry),
    /// The tool failed according to the server. The model sees the message and continues without the tool. It replaces
    /// a retry if the server is configured with [`ToolErrorBehavior::Failed`](crate::ToolErrorBehavior::Failed).
    Failed(Failure),
    /// The call was denied for this reason. The model may see the reason; it must not try again.
    Denied(String),
    /// The call was not made: it awaits an approval, or the program makes it elsewhere. See
    /// [`DeferredCalls`](crate::DeferredCalls).
    Deferred(Deferral),
}

impl ToolOutcome {
    /// Creates a retry with this message.
    ///
    /// ```
    /// use belljar_mcp_client::ToolOutcome;
    ///
    /// let outcome = ToolOutcome::retry("no such city");
    /// assert_eq!(outcome.to_text(), "no such city");
    /// assert!(outcome.output().is_none());
    /// ```
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Retry(Retry::new(message))
    }

    /// Creates a failure with this message.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolOutcome;
    /// assert_eq!(ToolOutcome::failed("out of paper").to_text(), "out of paper");
    /// ```
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(Failure { message: message.into(), raw: None })
    }

    /// Creates the outcome of a tool that returns text.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolOutcome;
    /// assert_eq!(ToolOutcome::text("done").to_text(), "done");
    /// ```
    pub fn text(text: impl Into<String>) -> Self {
        ToolOutput::Text(text.into()).into()
    }

    /// Creates the outcome of a tool that returns JSON.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolOutcome;
    /// assert_eq!(ToolOutcome::json(serde_json::json!([1, 2])).to_text(), "[1,2]");
    /// ```
    pub fn json(value: impl Into<Value>) -> Self {
        ToolOutput::Json(value.into()).into()
    }

    /// Creates the outcome of a call of a tool that does not exist: a retry that names tools that do, those with a
    /// similar name first, at most twenty.
    ///
    /// ```
    /// use belljar_mcp_client::ToolOutcome;
    ///
    /// let outcome = ToolOutcome::unknown_tool("read", ["git_log", "files_read"]);
    /// assert_eq!(outcome.to_text(), "unknown tool `read`; known tools: `files_read`, `git_log`");
    /// ```
    pub fn unknown_tool<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known = known.into_iter().map(str::to_owned).collect();
        let error = crate::McpError::UnknownTool { name: name.to_owned(), known };
        Self::Retry(Retry { message: error.to_string(), reason: RetryReason::UnknownTool, raw: None })
    }

    /// Returns the output, if the call succeeded.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolOutcome;
    /// assert!(ToolOutcome::text("yes").output().is_some());
    /// assert!(ToolOutcome::Denied("no".into()).output().is_none());
    /// ```
    pub fn output(&self) -> Option<&ToolOutput> {
        match self {
            Self::Output(result) => Some(&result.output),
            _ => None,
        }
    }

    /// Returns the server's whole result: structured content, `_meta`, and each part with its annotations; `None` if
    /// the server did not send a result, or if a hook replaced it.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolOutcome;
    /// assert!(ToolOutcome::text("of the program itself").raw().is_none());
    /// ```
    pub fn raw(&self) -> Option<&Arc<CallToolResult>> {
        match self {
            Self::Output(result) => result.raw.as_ref(),
            Self::Retry(retry) => retry.raw.as_ref(),
            Self::Failed(failure) => failure.raw.as_ref(),
            Self::Denied(_) | Self::Deferred(_) => None,
        }
    }

    /// Returns the text to show to a model that accepts only text.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolOutcome;
    /// assert_eq!(ToolOutcome::Denied("not today".into()).to_text(), "not today");
    /// ```
    pub fn to_text(&self) -> String {
        match self {
            Self::Output(result) => result.output.to_text(),
            Self::Retry(retry) => retry.message.clone(),
            Self::Failed(failure) => failure.message.clone(),
            Self::Denied(reason) => reason.clone(),
            Self::Deferred(deferral) => match deferral.kind {
                DeferralKind::Approval => "the call awaits approval".to_owned(),
                DeferralKind::External => "the call runs elsewhere".to_owned(),
            },
        }
    }

    pub(crate) fn is_unknown_tool(&self) -> bool {
        matches!(self, Self::Retry(Retry { reason: RetryReason::UnknownTool, .. }))
    }
}

impl From<String> for ToolOutcome {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolOutcome {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<Value> for ToolOutcome {
    fn from(value: Value) -> Self {
        Self::json(value)
    }
}

impl From<ToolOutput> for ToolOutcome {
    fn from(output: ToolOutput) -> Self {
        Self::Output(output.into())
    }
}

/// The result of a successful call: the output for the model, and the server's whole result for the program.
///
/// ```
/// use belljar_mcp_client::{ToolOutcome, ToolResult};
///
/// fn title(result: &ToolResult) -> Option<String> {
///     let raw = result.raw.as_ref()?;
///     Some(raw.structured_content.as_ref()?.get("title")?.as_str()?.to_owned())
/// }
///
/// let ToolOutcome::Output(result) = ToolOutcome::text("done") else { unreachable!() };
/// assert_eq!(result.to_text(), "done"); // the methods of `ToolOutput`
/// assert_eq!(title(&result), None);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The output for the model.
    pub output: ToolOutput,
    /// The server's result, unchanged; `None` if the tool is not a server's or a hook replaced the result.
    pub raw: Option<Arc<CallToolResult>>,
}

impl From<ToolOutput> for ToolResult {
    fn from(output: ToolOutput) -> Self {
        Self { output, raw: None }
    }
}

impl From<ToolResult> for ToolOutput {
    fn from(result: ToolResult) -> Self {
        result.output
    }
}

impl std::ops::Deref for ToolResult {
    type Target = ToolOutput;

    fn deref(&self) -> &ToolOutput {
        &self.output
    }
}

/// A request to the model to try again.
///
/// ```
/// # use belljar_mcp_client::{Retry, ToolOutcome};
/// let outcome = ToolOutcome::Retry(Retry::new("no such city"));
/// assert_eq!(outcome, ToolOutcome::retry("no such city"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Retry {
    /// The message of the server or of a hook.
    pub message: String,
    /// The cause.
    pub reason: RetryReason,
    /// The server's result, if it sent one.
    pub raw: Option<Arc<CallToolResult>>,
}

impl Retry {
    /// Creates a retry for a tool that failed.
    ///
    /// ```
    /// # use belljar_mcp_client::{Retry, RetryReason};
    /// assert_eq!(Retry::new("no such city").reason, RetryReason::ToolFailed);
    /// ```
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: RetryReason::ToolFailed, raw: None }
    }

    /// Sets the cause.
    ///
    /// ```
    /// # use belljar_mcp_client::{Retry, RetryReason};
    /// let retry = Retry::new("`city` is missing").with_reason(RetryReason::InvalidArguments);
    /// ```
    pub fn with_reason(mut self, reason: RetryReason) -> Self {
        self.reason = reason;
        self
    }
}

/// The cause of a [`Retry`].
///
/// ```
/// # use belljar_mcp_client::{Retry, RetryReason};
/// fn should_reconnect(retry: &Retry) -> bool {
///     retry.reason == RetryReason::Disconnected
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetryReason {
    /// The tool, or the server, reported a failure.
    ToolFailed,
    /// The toolset does not have the tool.
    UnknownTool,
    /// The arguments are not a JSON object or do not match the tool's schema.
    InvalidArguments,
    /// The server could not be reached, or refused the request for now.
    Unavailable,
    /// The server refused the request for good, with an HTTP status such as 403 or 404.
    Refused,
    /// The connection was closed during the call.
    Disconnected,
    /// The server did not respond in time.
    TimedOut,
    /// The server sent a response that violates the protocol.
    InvalidResponse,
}

impl RetryReason {
    /// Returns whether the same call could succeed later, without a change by the model.
    ///
    /// ```
    /// # use belljar_mcp_client::RetryReason;
    /// assert!(RetryReason::Unavailable.is_temporary() && !RetryReason::UnknownTool.is_temporary());
    /// ```
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Unavailable | Self::Disconnected | Self::TimedOut | Self::InvalidResponse)
    }
}

/// A failure that the model cannot correct.
///
/// ```
/// # use belljar_mcp_client::ToolOutcome;
/// let ToolOutcome::Failed(failure) = ToolOutcome::failed("out of paper") else { unreachable!() };
/// assert_eq!(failure.message, "out of paper");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The message for the model.
    pub message: String,
    /// The server's result, if it sent one.
    pub raw: Option<Arc<CallToolResult>>,
}

/// A call that was not made yet.
///
/// ```
/// use belljar_mcp_client::{Deferral, DeferralKind};
///
/// let deferral = Deferral::new(DeferralKind::External);
/// assert!(deferral.metadata.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Deferral {
    /// The input that the call awaits.
    pub kind: DeferralKind,
    /// Data for the program that answers.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Deferral {
    /// Creates a deferral without metadata.
    ///
    /// ```
    /// # use belljar_mcp_client::{Deferral, DeferralKind, ToolOutcome};
    /// let outcome = ToolOutcome::Deferred(Deferral::new(DeferralKind::Approval));
    /// ```
    pub fn new(kind: DeferralKind) -> Self {
        Self { kind, metadata: Map::new() }
    }

    /// Adds an entry to the metadata.
    ///
    /// ```
    /// # use belljar_mcp_client::{Deferral, DeferralKind};
    /// let deferral = Deferral::new(DeferralKind::Approval).with_metadata("risk", "high".into());
    /// ```
    pub fn with_metadata(mut self, name: impl Into<String>, value: Value) -> Self {
        self.metadata.insert(name.into(), value);
        self
    }
}

/// The input that a deferred call awaits.
///
/// ```
/// # use belljar_mcp_client::DeferralKind;
/// assert_eq!(serde_json::to_string(&DeferralKind::Approval).unwrap(), "\"approval\"");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeferralKind {
    /// A decision: the tool is called if the call is approved.
    Approval,
    /// The result itself: the program, a user or another system carries out the call.
    External,
}

/// A call of a tool that has a page, with the data for showing the page.
///
/// [`RunContext::app_handler`](crate::RunContext::app_handler) receives these.
///
/// ```
/// # use belljar_mcp_client::RunContext;
/// let run = RunContext::new().app_handler(|app| {
///     println!("show {} of {:?} with {:?}", app.resource_uri, app.server_id, app.result);
/// });
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AppResult {
    /// The page, a `ui://` URI, to be read with [`McpServer::read_resource_raw`](crate::McpServer::read_resource_raw).
    pub resource_uri: String,
    /// The model's arguments, before a hook changed them.
    pub arguments: Map<String, Value>,
    /// The server's complete result.
    pub result: Arc<CallToolResult>,
    /// The server's ID, if configured.
    pub server_id: Option<String>,
}
