//! Anthropic's messages.

use serde_json::{Value, json};

use super::{ProviderError, ProviderTurn, description, object, schema};
use crate::output::ToolOutput;
use crate::runner::{ToolCall, ToolMessage};
use crate::toolset::ToolDefinition;

pub(super) fn tool(name: &str, tool: &ToolDefinition) -> Value {
    object([
        ("name", json!(name)),
        ("description", json!(description(tool))),
        ("input_schema", schema::json_schema(&tool.input_schema)),
    ])
}

pub(super) fn read(response: &Value) -> Result<ProviderTurn, ProviderError> {
    let content = response.get("content").and_then(Value::as_array).ok_or(ProviderError::Missing("a content"))?;
    let text = content.iter().filter(|block| block["type"] == "text").filter_map(|block| block["text"].as_str());
    let calls = content.iter().filter(|block| block["type"] == "tool_use").map(|block| {
        let field = |key: &str| block[key].as_str().unwrap_or_default();
        ToolCall::new(field("id"), field("name"), block["input"].clone())
    });
    // An empty message would be rejected.
    let message = (!content.is_empty()).then(|| json!({"role": "assistant", "content": content}));
    Ok(ProviderTurn {
        text: text.collect(),
        calls: calls.collect(),
        messages: message.into_iter().collect(),
        stop_reason: response["stop_reason"].as_str().map(str::to_owned),
    })
}

/// Converts results: all of them into one message.
pub(super) fn results(messages: &[ToolMessage]) -> Vec<Value> {
    let blocks = messages.iter().map(|message| {
        // Blocks of empty text are rejected, and errors accept only text.
        let content = message.content.iter().filter(|part| !part.to_text().is_empty());
        let content: Vec<Value> = content.map(|part| block(part, message.is_error)).collect();
        let mut result = json!({"type": "tool_result", "tool_use_id": message.id});
        match content.as_slice() {
            [] => {}
            [only] if only["type"] == "text" => result["content"] = only["text"].clone(),
            _ => result["content"] = Value::Array(content),
        }
        if message.is_error {
            result["is_error"] = json!(true);
        }
        result
    });
    vec![json!({"role": "user", "content": blocks.collect::<Vec<_>>()})]
}

fn block(part: &ToolOutput, is_error: bool) -> Value {
    if let ToolOutput::Binary(binary) = part
        && !is_error
    {
        let source = json!({"type": "base64", "media_type": binary.media_type, "data": binary.base64()});
        match binary.media_type.as_str() {
            "image/png" | "image/jpeg" | "image/gif" | "image/webp" => {
                return json!({"type": "image", "source": source});
            }
            "application/pdf" => return json!({"type": "document", "source": source}),
            _ => {}
        }
    }
    json!({"type": "text", "text": part.to_text()})
}
