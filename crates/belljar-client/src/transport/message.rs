//! Parsing of messages.
//!
//! `rmcp` parses a message by trying one shape after another, and a result by trying the results of all methods, on a
//! copy of the whole. Frequent messages, tool results and progress notifications, are parsed here in their own shape
//! first.

use std::borrow::Cow;

use rmcp::model::{
    CallToolResult, ErrorCode, ErrorData, JsonRpcMessage, JsonRpcNotification, JsonRpcResponse, JsonRpcVersion2_0,
    LoggingMessageNotification, ProgressNotification, RequestId, ServerResult,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Incoming;

/// The key in an error's data that marks a response which could not be parsed.
const UNPARSABLE: &str = "io.belljar/unparsable";

/// Returns the error that replaces a response which could not be parsed.
pub(crate) fn unparsable(reason: impl std::fmt::Display) -> ErrorData {
    let data = serde_json::json!({ UNPARSABLE: true });
    ErrorData::new(ErrorCode::PARSE_ERROR, format!("failed to parse the response: {reason}"), Some(data))
}

/// Returns whether an error is from [`unparsable`].
pub(crate) fn is_unparsable(error: &ErrorData) -> bool {
    error.data.as_ref().is_some_and(|data| data.get(UNPARSABLE).is_some())
}

/// The fields of a message that determine its kind.
#[derive(Deserialize)]
struct Shape<'a> {
    id: Option<IgnoredAny>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// Parses one message. A response that has an ID but cannot be parsed becomes an error response with that ID.
///
/// # Errors
///
/// The bytes are neither a message nor a response with an ID.
pub(crate) fn read(bytes: &[u8]) -> Result<Incoming, serde_json::Error> {
    if let Some(message) = read_frequent(bytes) {
        return Ok(message);
    }
    serde_json::from_slice(bytes).or_else(|error| unreadable_answer(bytes, &error).ok_or(error))
}

/// Parses a tool result, a progress notification or a log message; returns `None` for anything else.
fn read_frequent(bytes: &[u8]) -> Option<Incoming> {
    let shape: Shape<'_> = serde_json::from_slice(bytes).ok()?;
    let notification = match shape {
        Shape { id: Some(_), method: None, result: Some(_), error: None } => {
            let answer: JsonRpcResponse<CallToolResult> = serde_json::from_slice(bytes).ok()?;
            return Some(JsonRpcMessage::response(ServerResult::CallToolResult(answer.result), answer.id));
        }
        Shape { id: None, method: Some(method), result: None, error: None } => match &*method {
            "notifications/progress" => serde_json::from_slice::<ProgressNotification>(bytes).ok()?.into(),
            "notifications/message" => serde_json::from_slice::<LoggingMessageNotification>(bytes).ok()?.into(),
            _ => return None,
        },
        _ => return None,
    };
    Some(JsonRpcMessage::Notification(JsonRpcNotification { jsonrpc: JsonRpcVersion2_0, notification }))
}

/// Returns an error response for JSON that has an ID but not the shape of a response.
fn unreadable_answer(bytes: &[u8], error: &serde_json::Error) -> Option<Incoming> {
    #[derive(Deserialize)]
    struct Answer {
        id: RequestId,
        method: Option<IgnoredAny>,
    }
    let answer: Answer = serde_json::from_slice(bytes).ok()?;
    answer.method.is_none().then(|| JsonRpcMessage::error(unparsable(error), Some(answer.id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Parses a message both ways and returns the results as JSON.
    fn both_ways(message: &Value) -> (Option<Value>, Option<Value>) {
        let bytes = message.to_string().into_bytes();
        let show = |message: Incoming| serde_json::to_value(message).unwrap();
        (read_frequent(&bytes).map(show), serde_json::from_slice::<Incoming>(&bytes).ok().map(show))
    }

    #[test]
    fn fast_path_agrees_with_general_parser() {
        let text = json!({"type": "text", "text": "a \"b\"\n\u{e9}"});
        let image = json!({"type": "image", "data": "AQ==", "mimeType": "image/png", "_meta": {"a": 1}});
        for message in [
            json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [text, image]}}),
            json!({"jsonrpc": "2.0", "id": "x", "result": {"content": [], "isError": true, "_meta": {"k": [1]}}}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {"structuredContent": null}}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [], "resultType": "complete"}}),
            json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": "7", "progress": 1.5, "total": 3, "message": "m"}}),
            json!({"jsonrpc": "2.0", "method": "notifications/message",
                "params": {"level": "info", "logger": "l", "data": {"a": [1]}, "_meta": {"s": "t"}}}),
        ] {
            let (frequent, general) = both_ways(&message);
            assert!(frequent.is_some(), "{message}");
            assert_eq!(frequent, general, "{message}");
        }
    }

    #[test]
    fn other_messages_use_the_general_parser() {
        for message in [
            json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {"resultType": "input_required", "requestState": "s"}}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "hologram"}]}}),
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "m"}}),
            json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "result": {"content": []}}),
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
            json!({"jsonrpc": "1.0", "id": 1, "result": {"content": []}}),
            json!([1]),
        ] {
            assert_eq!(both_ways(&message).0, None, "{message}");
        }
    }

    #[test]
    fn unparsable_response_becomes_an_error_response() {
        let broken = br#"{"jsonrpc": "2.0", "id": 7, "outcome": {"content": []}}"#;
        let JsonRpcMessage::Error(error) = read(broken).unwrap() else { panic!("no error") };
        assert_eq!(error.id, Some(RequestId::Number(7)));
        assert!(is_unparsable(&error.error));
        assert!(read(br#"{"jsonrpc": "2.0", "method": "no\xffutf8"}"#).is_err());
        assert!(read(b"{}").is_err());
    }
}
