//! Gemini's `generateContent`.

use serde_json::{Value, json};

use super::{ProviderError, ProviderTurn, description, object, schema};
use crate::output::ToolOutput;
use crate::runner::{ToolCall, ToolMessage};
use crate::toolset::ToolDefinition;

/// The beginning of the ID of a call to which Gemini did not give one. Results then refer to calls by their order.
const NO_ID: &str = "gemini-call-";

pub(super) fn tool(name: &str, tool: &ToolDefinition) -> Value {
    object([
        ("name", json!(name)),
        ("description", json!(description(tool))),
        ("parameters", schema::gemini_schema(&tool.input_schema).unwrap_or_default()),
    ])
}

pub(super) fn read(response: &Value) -> Result<ProviderTurn, ProviderError> {
    let blocked = response.pointer("/promptFeedback/blockReason").and_then(Value::as_str);
    let Some(candidate) = response.pointer("/candidates/0") else {
        return Err(match blocked {
            Some(reason) => ProviderError::Refused(reason.to_owned()),
            None => ProviderError::Missing("candidates"),
        });
    };
    let content = candidate.get("content").filter(|content| content["parts"].is_array());
    let parts = content.and_then(|content| content["parts"].as_array()).map(Vec::as_slice).unwrap_or_default();
    let text = parts.iter().filter(|part| part["thought"] != true).filter_map(|part| part["text"].as_str());
    let calls = parts.iter().filter_map(|part| part.get("functionCall")).enumerate().map(|(position, call)| {
        let id = call["id"].as_str().map_or_else(|| format!("{NO_ID}{position}"), str::to_owned);
        ToolCall::new(id, call["name"].as_str().unwrap_or_default(), call["args"].clone())
    });
    Ok(ProviderTurn {
        text: text.collect(),
        calls: calls.collect(),
        messages: content.cloned().into_iter().collect(),
        stop_reason: candidate["finishReason"].as_str().map(str::to_owned),
    })
}

/// Converts results: all of them into one message, followed by their images, sounds, videos and PDFs.
pub(super) fn results(messages: &[ToolMessage]) -> Vec<Value> {
    let mut parts: Vec<Value> = messages.iter().map(response).collect();
    for message in messages {
        for part in &message.content {
            if let ToolOutput::Binary(binary) = part
                && let Some(media_type) = accepted(&binary.media_type)
            {
                parts.push(json!({"text": format!("The {media_type} of `{}`:", message.name)}));
                parts.push(json!({"inlineData": {"mimeType": media_type, "data": binary.base64()}}));
            }
        }
    }
    vec![json!({"role": "user", "parts": parts})]
}

/// Returns the media type under which Gemini accepts data of this type, if it does: a part of another type makes it
/// refuse the whole request.
fn accepted(media_type: &str) -> Option<&str> {
    match media_type {
        "audio/x-wav" => Some("audio/wav"),
        "image/png" | "image/jpeg" | "image/webp" | "image/heic" | "image/heif" | "audio/wav" | "audio/mp3"
        | "audio/mpeg" | "audio/aiff" | "audio/aac" | "audio/ogg" | "audio/flac" | "video/mp4" | "video/mpeg"
        | "video/webm" | "application/pdf" => Some(media_type),
        _ => None,
    }
}

fn response(message: &ToolMessage) -> Value {
    let value = match message.content.as_slice() {
        [ToolOutput::Json(value)] => value.clone(),
        _ => json!(message.text()),
    };
    let key = if message.is_error { "error" } else { "output" };
    let id = Some(message.id.as_str()).filter(|id| !id.starts_with(NO_ID));
    let response = object([("id", json!(id)), ("name", json!(message.name)), ("response", json!({key: value}))]);
    json!({"functionResponse": response})
}
