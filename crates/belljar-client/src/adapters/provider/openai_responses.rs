//! OpenAI's responses.

use serde_json::{Value, json};

use super::{ProviderError, ProviderTurn, description, object, schema};
use crate::output::ToolOutput;
use crate::runner::{ToolCall, ToolMessage};
use crate::toolset::ToolDefinition;

pub(super) fn tool(name: &str, tool: &ToolDefinition) -> Value {
    // Without `strict: false` this API changes the schema: every property would be required.
    object([
        ("type", json!("function")),
        ("name", json!(name)),
        ("description", json!(description(tool))),
        ("parameters", schema::json_schema(&tool.input_schema)),
        ("strict", json!(false)),
    ])
}

pub(super) fn read(response: &Value) -> Result<ProviderTurn, ProviderError> {
    let items = response.get("output").and_then(Value::as_array).ok_or(ProviderError::Missing("an output"))?;
    let mut turn = ProviderTurn {
        text: String::new(),
        calls: Vec::new(),
        messages: items.clone(),
        stop_reason: response["status"].as_str().map(str::to_owned),
    };
    for item in items {
        match item["type"].as_str() {
            Some("message") => {
                for part in item["content"].as_array().into_iter().flatten() {
                    turn.text.push_str(part["text"].as_str().or_else(|| part["refusal"].as_str()).unwrap_or_default());
                }
            }
            Some("function_call") => {
                let field = |key: &str| item[key].as_str().unwrap_or_default();
                turn.calls.push(ToolCall::from_text(field("call_id"), field("name"), field("arguments")));
            }
            _ => {}
        }
    }
    if let Some(reason) = response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
        turn.stop_reason = Some(reason.to_owned());
    }
    Ok(turn)
}

pub(super) fn results(messages: &[ToolMessage]) -> Vec<Value> {
    let convert = |message: &ToolMessage| {
        let output = if message.content.iter().any(|part| matches!(part, ToolOutput::Binary(_))) {
            message.content.iter().map(part).collect()
        } else {
            json!(message.text())
        };
        json!({"type": "function_call_output", "call_id": message.id, "output": output})
    };
    messages.iter().map(convert).collect()
}

fn part(part: &ToolOutput) -> Value {
    match part {
        ToolOutput::Binary(binary) => match binary.media_type.as_str() {
            "image/png" | "image/jpeg" | "image/gif" | "image/webp" => {
                json!({"type": "input_image", "image_url": binary.data_url()})
            }
            "application/pdf" => {
                json!({"type": "input_file", "filename": "result.pdf", "file_data": binary.data_url()})
            }
            _ => json!({"type": "input_text", "text": part.to_text()}),
        },
        part => json!({"type": "input_text", "text": part.to_text()}),
    }
}
