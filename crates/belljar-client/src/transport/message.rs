//! Parsing and writing of messages.
//!
//! `rmcp` parses a message by trying one shape after another, and a result by trying the results of all methods, on a
//! copy of the whole. It writes the parameters of a request through a copy, too. Frequent messages, calls of tools,
//! their results and progress notifications, are handled here in their own shape.

use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResult, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage,
    JsonRpcNotification, JsonRpcRequest, JsonRpcVersion2_0, LoggingMessageNotification, MetaObject,
    ProgressNotification, RequestId, RequestMetaObject, ServerResult,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::{Incoming, Outgoing};

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

/// The fields of a frequent message.
#[derive(Deserialize)]
struct FrequentMessage<'a> {
    jsonrpc: Option<&'a str>,
    id: Option<RequestId>,
    method: Option<&'a str>,
    result: Option<CallToolResult>,
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

/// Parses a tool result, a progress notification or a log message; returns `None` for anything else, and for the few
/// that need the general parser.
fn read_frequent(bytes: &[u8]) -> Option<Incoming> {
    let notification = match serde_json::from_slice(bytes).ok()? {
        FrequentMessage { jsonrpc: Some("2.0"), id: Some(id), method: None, result: Some(result), error: None } => {
            return Some(JsonRpcMessage::response(ServerResult::CallToolResult(result), id));
        }
        FrequentMessage { id: None, method: Some(method), result: None, error: None, .. } => match method {
            "notifications/progress" => serde_json::from_slice::<ProgressNotification>(bytes).ok()?.into(),
            "notifications/message" => serde_json::from_slice::<LoggingMessageNotification>(bytes).ok()?.into(),
            _ => return None,
        },
        _ => return None,
    };
    Some(JsonRpcMessage::Notification(JsonRpcNotification { jsonrpc: JsonRpcVersion2_0, notification }))
}

/// Appends a message as JSON. After an error, part of it may have been appended.
///
/// # Errors
///
/// The message cannot be represented as JSON.
pub(crate) fn write(message: &Outgoing, buffer: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    match ToolCall::new(message) {
        Some(call) => serde_json::to_writer(buffer, &call),
        None => serde_json::to_writer(buffer, message),
    }
}

/// A call of a tool, whose metadata is in one place.
#[derive(Serialize)]
struct ToolCall<'a> {
    jsonrpc: &'a JsonRpcVersion2_0,
    id: &'a RequestId,
    method: &'a CallToolRequestMethod,
    params: ToolCallParams<'a>,
}

#[derive(Serialize)]
struct ToolCallParams<'a> {
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RequestMetaObject>,
    #[serde(flatten)]
    params: &'a CallToolRequestParams,
}

impl<'a> ToolCall<'a> {
    /// Returns `None` for another message, and for metadata that has to be merged from several places.
    fn new(message: &'a Outgoing) -> Option<Self> {
        let JsonRpcMessage::Request(JsonRpcRequest { jsonrpc, id, request }) = message else { return None };
        let ClientRequest::CallToolRequest(call) = request else { return None };
        if call.params.meta.is_some() || call.extensions.get::<MetaObject>().is_some() {
            return None;
        }
        let params = ToolCallParams { meta: call.extensions.get(), params: &call.params };
        Some(Self { jsonrpc, id, method: &call.method, params })
    }
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
    use rmcp::model::CallToolRequest;
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
    fn calls_are_written_as_by_the_general_writer() {
        let mut params = CallToolRequestParams::new("echo \"\u{e9}\"");
        let plain = CallToolRequest::new(params.clone());
        params.arguments = json!({"z": 1, "a": {"y": [null, 1.5], "b": "\n"}}).as_object().cloned();
        params.request_state = Some("state".to_owned());
        let mut metadata = CallToolRequest::new(params.clone());
        metadata.extensions.insert(RequestMetaObject(MetaObject(
            json!({"progressToken": 1, "trace": {"b": 1, "a": 2}}).as_object().cloned().unwrap(),
        )));
        let mut merged = metadata.clone();
        merged.params.meta = Some(RequestMetaObject(MetaObject(json!({"x": 1}).as_object().cloned().unwrap())));
        let mut legacy = metadata.clone();
        legacy.extensions.insert(MetaObject(json!({"x": 1}).as_object().cloned().unwrap()));
        for (request, is_frequent) in [(plain, true), (metadata, true), (merged, false), (legacy, false)] {
            for id in [RequestId::Number(7), RequestId::String("seven".into())] {
                let message = Outgoing::request(ClientRequest::CallToolRequest(request.clone()), id);
                assert_eq!(ToolCall::new(&message).is_some(), is_frequent);
                let mut written = b"before".to_vec();
                write(&message, &mut written).unwrap();
                let general = serde_json::to_string(&message).unwrap();
                assert_eq!(String::from_utf8(written).unwrap(), format!("before{general}"));
            }
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
