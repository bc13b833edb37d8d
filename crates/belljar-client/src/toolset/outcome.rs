//! The outcome of a tool call.

use rmcp::model::CallToolResult;
use serde_json::{Map, Value};

use crate::output::ToolOutput;

/// The outcome of a call.
///
/// ```
/// use belljar_client::{ToolOutcome, ToolOutput};
///
/// fn to_model(outcome: ToolOutcome) -> String {
///     match outcome {
///         ToolOutcome::Output(ToolOutput::Json(value)) => value.to_string(),
///         ToolOutcome::Output(output) => output.to_text(),
///         ToolOutcome::Retry(retry) => format!("{}; try again", retry.message),
///         ToolOutcome::Failed(message) => format!("failed: {message}"),
///         ToolOutcome::Denied(reason) => format!("denied: {reason}"),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum ToolOutcome {
    /// The tool returned this output.
    Output(ToolOutput),
    /// The tool failed in a way that the model may correct: pass it the message and let it try again up to
    /// [`max_retries`](crate::ToolDefinition::max_retries) times.
    Retry(Retry),
    /// The tool failed according to the server. The model sees the message and continues without the tool. It replaces
    /// a retry if the server is configured with [`ToolErrorBehavior::Failed`](crate::ToolErrorBehavior::Failed).
    Failed(String),
    /// The call was denied for this reason. The model may see the reason; it must not try again.
    Denied(String),
}

impl ToolOutcome {
    /// Creates a retry with this message.
    ///
    /// ```
    /// use belljar_client::ToolOutcome;
    ///
    /// let outcome = ToolOutcome::retry("no such city");
    /// assert_eq!(outcome.to_text(), "no such city");
    /// assert!(outcome.output().is_none());
    /// ```
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Retry(Retry { message: message.into() })
    }

    /// Returns the output, if the call succeeded.
    ///
    /// ```
    /// # use belljar_client::{ToolOutcome, ToolOutput};
    /// assert!(ToolOutcome::Output(ToolOutput::Text("yes".into())).output().is_some());
    /// assert!(ToolOutcome::Denied("no".into()).output().is_none());
    /// ```
    pub fn output(&self) -> Option<&ToolOutput> {
        match self {
            Self::Output(output) => Some(output),
            Self::Retry(_) | Self::Failed(_) | Self::Denied(_) => None,
        }
    }

    /// Returns the text to show to a model that accepts only text.
    ///
    /// ```
    /// # use belljar_client::ToolOutcome;
    /// assert_eq!(ToolOutcome::Denied("not today".into()).to_text(), "not today");
    /// ```
    pub fn to_text(&self) -> String {
        match self {
            Self::Output(output) => output.to_text(),
            Self::Retry(retry) => retry.message.clone(),
            Self::Failed(message) => message.clone(),
            Self::Denied(reason) => reason.clone(),
        }
    }
}

/// A request to the model to try again.
///
/// ```
/// # use belljar_client::{Retry, ToolOutcome};
/// let outcome = ToolOutcome::Retry(Retry { message: "no such city".into() });
/// assert_eq!(outcome, ToolOutcome::retry("no such city"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// The message of the server or of a hook.
    pub message: String,
}

/// A call of a tool that has a page, with the data for showing the page.
///
/// [`RunContext::app_handler`](crate::RunContext::app_handler) receives these.
///
/// ```
/// # use belljar_client::RunContext;
/// let run = RunContext::new().app_handler(|app| {
///     println!("show {} of {:?} with {:?}", app.resource_uri, app.server_id, app.result);
/// });
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AppResult {
    /// The page, a `ui://` URI, to be read with [`McpServer::read_resource_raw`](crate::McpServer::read_resource_raw).
    pub resource_uri: String,
    /// The model's arguments, before a hook changed them.
    pub arguments: Map<String, Value>,
    /// The server's complete result.
    pub result: CallToolResult,
    /// The server's ID, if configured.
    pub server_id: Option<String>,
}
