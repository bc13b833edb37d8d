//! From bytes to messages.
//!
//! `rmcp` reads a message by trying one shape after another, and a result by trying the results of all methods, on a copy of
//! the whole. What comes often, answers of tools and notifications of their progress, is read here in its own shape first.

use std::borrow::Cow;

use rmcp::model::{
    CallToolResult, ErrorCode, ErrorData, JsonRpcMessage, JsonRpcNotification, JsonRpcResponse, JsonRpcVersion2_0,
    LoggingMessageNotification, ProgressNotification, RequestId, ServerResult,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Incoming;

/// How the message of an error begins that stands for an answer which could not be read.
pub(crate) const UNREADABLE: &str = "the answer is not what the protocol says: ";

/// What a message has, by which its kind is known.
#[derive(Deserialize)]
struct Shape<'a> {
    id: Option<IgnoredAny>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// Reads one message. An answer that has an id and cannot be understood becomes an error for the one who waits for it.
///
/// # Errors
///
/// It is no message, and answers nobody.
pub(crate) fn read(bytes: &[u8]) -> Result<Incoming, serde_json::Error> {
    if let Some(message) = read_frequent(bytes) {
        return Ok(message);
    }
    serde_json::from_slice(bytes).or_else(|error| unreadable_answer(bytes, &error).ok_or(error))
}

/// Reads the answer of a tool, a step of progress, or a line of a log; nothing else.
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

/// An error in place of an answer that is JSON and has an id, but not the shape of an answer.
fn unreadable_answer(bytes: &[u8], error: &serde_json::Error) -> Option<Incoming> {
    #[derive(Deserialize)]
    struct Answer {
        id: RequestId,
        method: Option<IgnoredAny>,
    }
    let answer: Answer = serde_json::from_slice(bytes).ok()?;
    let data = ErrorData::new(ErrorCode::PARSE_ERROR, format!("{UNREADABLE}{error}"), None);
    answer.method.is_none().then(|| JsonRpcMessage::error(data, Some(answer.id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// What both ways of reading make of a message, as JSON.
    fn both_ways(message: &Value) -> (Option<Value>, Option<Value>) {
        let bytes = message.to_string().into_bytes();
        let show = |message: Incoming| serde_json::to_value(message).unwrap();
        (read_frequent(&bytes).map(show), serde_json::from_slice::<Incoming>(&bytes).ok().map(show))
    }

    #[test]
    fn what_comes_often_is_read_as_the_general_way_reads_it() {
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
    fn everything_else_is_left_to_the_general_way() {
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
    fn an_answer_that_cannot_be_read_is_an_error_for_who_asked() {
        let broken = br#"{"jsonrpc": "2.0", "id": 7, "outcome": {"content": []}}"#;
        let JsonRpcMessage::Error(error) = read(broken).unwrap() else { panic!("no error") };
        assert_eq!(error.id, Some(RequestId::Number(7)));
        assert!(error.error.message.starts_with(UNREADABLE));
        assert!(read(br#"{"jsonrpc": "2.0", "method": "no\xffutf8"}"#).is_err());
        assert!(read(b"{}").is_err());
    }
}
