//! Calls of a model, their results, and the messages for the model.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::output::ToolOutput;
use crate::toolset::{Retry, RetryReason, ToolOutcome};

/// A call that a model made.
///
/// ```
/// use belljar_mcp_client::ToolCall;
/// use serde_json::json;
///
/// let call = ToolCall::new("call_1", "echo", json!({"message": "hi"}));
/// assert_eq!(ToolCall::from_text("call_1", "echo", r#"{"message": "hi"}"#), call);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// The ID of the call, as assigned by the model's provider.
    pub id: String,
    /// The name of the tool, as the model wrote it.
    pub name: String,
    /// The arguments, as the model wrote them: not necessarily an object.
    pub arguments: Value,
}

impl ToolCall {
    /// Creates a call.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolCall;
    /// let call = ToolCall::new("call_1", "now", serde_json::json!({}));
    /// ```
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        Self { id: id.into(), name: name.into(), arguments }
    }

    /// Creates a call whose arguments are JSON text, as some providers send them. Text that is not JSON is kept: the
    /// call is then a retry.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolCall;
    /// assert_eq!(ToolCall::from_text("call_1", "now", "").arguments, serde_json::json!({}));
    /// assert_eq!(ToolCall::from_text("call_1", "now", "{").arguments, "{");
    /// ```
    pub fn from_text(id: impl Into<String>, name: impl Into<String>, arguments: &str) -> Self {
        let arguments = match arguments.trim() {
            "" => Value::Object(Map::new()),
            text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(arguments.to_owned())),
        };
        Self::new(id, name, arguments)
    }

    /// Returns the arguments as an object.
    pub(super) fn object(&self) -> Result<Map<String, Value>, ToolOutcome> {
        let problem = match &self.arguments {
            Value::Object(arguments) => return Ok(arguments.clone()),
            Value::Null => return Ok(Map::new()),
            Value::String(text) => match serde_json::from_str::<Value>(text) {
                // Some models encode the arguments twice.
                Ok(Value::Object(arguments)) => return Ok(arguments),
                Ok(_) => "a JSON object is required".to_owned(),
                Err(error) => format!("invalid JSON: {error}"),
            },
            _ => "a JSON object is required".to_owned(),
        };
        let message = format!("the arguments of `{}` are invalid: {problem}", self.name);
        Err(ToolOutcome::Retry(Retry::new(message).with_reason(RetryReason::InvalidArguments)))
    }
}

/// The outcome of a call of a model.
///
/// ```
/// use belljar_mcp_client::{ToolCall, ToolOutcome, ToolReturn};
///
/// let call = ToolCall::new("call_1", "now", serde_json::json!({}));
/// let result = ToolReturn::new(&call, ToolOutcome::text("noon"));
/// assert_eq!((result.id.as_str(), result.message().text().as_str()), ("call_1", "noon"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolReturn {
    /// The ID of the call.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The outcome.
    pub outcome: ToolOutcome,
}

impl ToolReturn {
    /// Creates the result of a call.
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolCall, ToolOutcome, ToolReturn};
    /// let call = ToolCall::new("call_1", "now", serde_json::json!({}));
    /// let result = ToolReturn::new(&call, ToolOutcome::Denied("not today".into()));
    /// ```
    pub fn new(call: &ToolCall, outcome: ToolOutcome) -> Self {
        Self { id: call.id.clone(), name: call.name.clone(), outcome }
    }

    /// Returns the message for the model.
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolCall, ToolOutcome, ToolReturn};
    /// let call = ToolCall::new("call_1", "weather", serde_json::json!({}));
    /// let message = ToolReturn::new(&call, ToolOutcome::retry("no such city")).message();
    /// assert!(message.is_error);
    /// assert_eq!(message.text(), "no such city\n\nFix the error and try again.");
    /// ```
    pub fn message(&self) -> ToolMessage {
        let text = |text: String| vec![ToolOutput::Text(text)];
        let (content, is_error) = match &self.outcome {
            ToolOutcome::Output(result) => (flat(&result.output), false),
            ToolOutcome::Retry(retry) if retry.reason.is_temporary() => {
                (text(format!("{}\n\nTry again later, or continue without this tool.", retry.message)), true)
            }
            ToolOutcome::Retry(retry) if retry.reason == RetryReason::Refused => {
                (text(format!("{}\n\nContinue without this tool.", retry.message)), true)
            }
            ToolOutcome::Retry(retry) => (text(format!("{}\n\nFix the error and try again.", retry.message)), true),
            ToolOutcome::Failed(failure) => (text(failure.message.clone()), true),
            ToolOutcome::Denied(reason) => (text(format!("The call was denied: {reason}")), true),
            ToolOutcome::Deferred(_) => (text(self.outcome.to_text()), false),
        };
        ToolMessage { id: self.id.clone(), name: self.name.clone(), content, is_error }
    }
}

/// Returns the parts of an output, without lists.
fn flat(output: &ToolOutput) -> Vec<ToolOutput> {
    match output {
        ToolOutput::List(parts) => parts.iter().flat_map(flat).collect(),
        part => vec![part.clone()],
    }
}

/// The message with the result of a call, independent of the model's provider.
///
/// ```
/// use belljar_mcp_client::{ToolMessage, ToolOutput};
///
/// fn show(message: &ToolMessage) {
///     for part in &message.content {
///         match part {
///             ToolOutput::Binary(binary) => println!("{}", binary.data_url()),
///             other => println!("{}", other.to_text()),
///         }
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolMessage {
    /// The ID of the call.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The parts: text, JSON and binary data, but not lists. Empty if the tool returned an empty list.
    pub content: Vec<ToolOutput>,
    /// True if the call failed or was denied.
    pub is_error: bool,
}

impl ToolMessage {
    /// Returns the whole content as text, for models that accept only text.
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolCall, ToolOutcome, ToolReturn};
    /// # let call = ToolCall::new("call_1", "now", serde_json::json!({}));
    /// let message = ToolReturn::new(&call, ToolOutcome::json(vec![1, 2])).message();
    /// assert_eq!(message.text(), "[1,2]");
    /// ```
    pub fn text(&self) -> String {
        self.content.iter().map(ToolOutput::to_text).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_become_an_object_or_a_retry() {
        let object = |arguments: Value| ToolCall::new("1", "t", arguments).object();
        assert_eq!(object(json!({"a": 1})).unwrap(), *json!({"a": 1}).as_object().unwrap());
        assert_eq!(object(Value::Null).unwrap(), Map::new());
        assert_eq!(object(json!("{\"a\": 1}")).unwrap(), *json!({"a": 1}).as_object().unwrap());
        for invalid in [json!([1]), json!("[1]"), json!("{\"a\": "), json!(true)] {
            let outcome = object(invalid).unwrap_err();
            let ToolOutcome::Retry(retry) = outcome else { panic!("{outcome:?}") };
            assert_eq!(retry.reason, RetryReason::InvalidArguments);
        }
    }

    #[test]
    fn nested_lists_become_parts() {
        let part = |text: &str| ToolOutput::Text(text.to_owned());
        let output = ToolOutput::List(vec![part("a"), ToolOutput::List(vec![part("b"), ToolOutput::Json(json!([1]))])]);
        let message = ToolReturn::new(&ToolCall::new("1", "t", json!({})), output.into()).message();
        assert_eq!(message.content, [part("a"), part("b"), ToolOutput::Json(json!([1]))]);
        assert_eq!(message.text(), "a\nb\n[1]");
    }
}
