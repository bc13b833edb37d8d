//! OpenAI's chat completions.

use serde_json::{Value, json};

use super::{ProviderError, ProviderTurn, description, object, schema};
use crate::output::{Binary, ToolOutput};
use crate::runner::{ToolCall, ToolMessage};
use crate::toolset::ToolDefinition;

pub(super) fn tool(name: &str, tool: &ToolDefinition) -> Value {
    let function = object([
        ("name", json!(name)),
        ("description", json!(description(tool))),
        ("parameters", schema::json_schema(&tool.input_schema)),
    ]);
    json!({"type": "function", "function": function})
}

pub(super) fn read(response: &Value) -> Result<ProviderTurn, ProviderError> {
    let choice = response.pointer("/choices/0").ok_or(ProviderError::Missing("choices"))?;
    let message = choice.get("message").ok_or(ProviderError::Missing("a message"))?;
    let text = match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().or_else(|| message["refusal"].as_str()).unwrap_or_default().to_owned(),
    };
    let calls = message["tool_calls"].as_array().into_iter().flatten().enumerate().map(|(position, call)| {
        let function = &call["function"];
        // Some servers send no ID, or an object instead of its text.
        let id = call["id"].as_str().map_or_else(|| format!("call_{position}"), str::to_owned);
        let name = function["name"].as_str().unwrap_or_default();
        match &function["arguments"] {
            Value::String(arguments) => ToolCall::from_text(id, name, arguments),
            arguments => ToolCall::new(id, name, arguments.clone()),
        }
    });
    // Only what every endpoint accepts in a request: some reject other fields of their own responses.
    let kept = ["role", "content", "refusal", "tool_calls"].into_iter().filter_map(|key| {
        let value = message.get(key)?;
        let is_empty = (value.is_null() && key != "content") || value.as_array().is_some_and(Vec::is_empty);
        (!is_empty).then(|| (key.to_owned(), value.clone()))
    });
    let stop_reason = choice["finish_reason"].as_str().map(str::to_owned);
    Ok(ProviderTurn { text, calls: calls.collect(), messages: vec![Value::Object(kept.collect())], stop_reason })
}

/// Converts results. The message of a tool accepts only text: images and sounds follow in a message of the user, after
/// all results, because nothing may come between them.
pub(super) fn results(messages: &[ToolMessage]) -> Vec<Value> {
    let mut converted = Vec::new();
    let mut attached = Vec::new();
    for message in messages {
        let text = message.content.iter().map(|part| match part {
            ToolOutput::Binary(binary) => match attachment(binary) {
                Some(part) => {
                    let note = format!("{} of `{}` ({})", binary.media_type, message.name, message.id);
                    attached.extend([json!({"type": "text", "text": format!("The {note}:")}), part]);
                    format!("[{note}, attached below]")
                }
                None => part.to_text(),
            },
            part => part.to_text(),
        });
        let text = text.collect::<Vec<_>>().join("\n");
        converted.push(json!({"role": "tool", "tool_call_id": message.id, "content": text}));
    }
    if !attached.is_empty() {
        converted.push(json!({"role": "user", "content": attached}));
    }
    converted
}

fn attachment(binary: &Binary) -> Option<Value> {
    match binary.media_type.as_str() {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => {
            Some(json!({"type": "image_url", "image_url": {"url": binary.data_url()}}))
        }
        "audio/wav" | "audio/x-wav" => Some(audio(binary, "wav")),
        "audio/mpeg" | "audio/mp3" => Some(audio(binary, "mp3")),
        "application/pdf" => {
            Some(json!({"type": "file", "file": {"filename": "result.pdf", "file_data": binary.data_url()}}))
        }
        _ => None,
    }
}

fn audio(binary: &Binary, format: &str) -> Value {
    json!({"type": "input_audio", "input_audio": {"data": binary.base64(), "format": format}})
}
