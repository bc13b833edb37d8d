//! The conversion of results, resources and binary data from the protocol's types.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use super::{Binary, ToolOutput};
use crate::server::ResultMapping;

/// A protocol result that is not an error, before its resource links are read.
pub(crate) enum MappedResult {
    /// A complete output.
    Done(ToolOutput),
    /// Parts, some of which may be links that have to be read.
    Parts(Vec<Part>),
}

/// A part of a result.
pub(crate) enum Part {
    Output(ToolOutput),
    /// The URI of a resource of the server, which replaces the link.
    Link(String),
}

/// The error of decoding invalid base64.
#[derive(Debug, thiserror::Error)]
#[error("the server sent binary data that is not base64: {0}")]
pub(crate) struct InvalidBase64(base64::DecodeError);

/// Returns the text of a failed call: its text parts on separate lines, or its structured content.
pub(crate) fn failure_message(
    tool: &str,
    result: &CallToolResult,
    mapping: ResultMapping,
) -> Result<String, InvalidBase64> {
    let text = match mapping {
        ResultMapping::PydanticAi1 => return Ok(failure_text(result)),
        ResultMapping::PydanticAi2 => match &result.structured_content {
            Some(structured) => match unwrap_lone_result(structured.clone()) {
                Value::Null => String::new(),
                value => from_json(value).to_text(),
            },
            None if result.content.is_empty() => String::new(),
            None => failure_parts(result)?,
        },
    };
    Ok(if text.is_empty() { format!("Tool '{tool}' returned an error") } else { text })
}

/// Returns the parts of a failed call without binary data: text as it is, several parts as JSON.
fn failure_parts(result: &CallToolResult) -> Result<String, InvalidBase64> {
    let mut parts = Vec::new();
    for part in &result.content {
        match map_part(part)? {
            Part::Output(ToolOutput::Text(text)) | Part::Link(text) => parts.push(Value::String(text)),
            Part::Output(ToolOutput::Json(value)) => parts.push(value),
            Part::Output(_) => {}
        }
    }
    Ok(match parts.pop() {
        None => String::new(),
        Some(only) if parts.is_empty() => from_json(only).to_text(),
        Some(last) => {
            parts.push(last);
            Value::Array(parts).to_string()
        }
    })
}

fn failure_text(result: &CallToolResult) -> String {
    let texts: Vec<&str> = result.content.iter().filter_map(|part| part.as_text()).map(|part| &*part.text).collect();
    let text = texts.join("\n");
    if text.is_empty() { "MCP tool call failed".to_owned() } else { text }
}

/// Converts a result as pydantic-ai does.
///
/// Structured content is used if all other parts are text (which then repeats it); a lone `{"result": x}` is a wrapper
/// that SDKs put around `x`. Otherwise the parts are used.
pub(crate) fn map_result(result: &CallToolResult, mapping: ResultMapping) -> Result<MappedResult, InvalidBase64> {
    if let Some(structured) = &result.structured_content
        && (mapping == ResultMapping::PydanticAi2 || is_truthy(structured))
        && result.content.iter().all(|part| matches!(part, ContentBlock::Text(_)))
    {
        return Ok(MappedResult::Done(from_json(unwrap_lone_result(structured.clone()))));
    }
    let part = |part: &ContentBlock| -> Result<Part, InvalidBase64> {
        Ok(match (map_part(part)?, mapping) {
            (Part::Link(uri), ResultMapping::PydanticAi2) => Part::Output(ToolOutput::Text(uri)),
            (part, _) => part,
        })
    };
    result.content.iter().map(part).collect::<Result<Vec<_>, _>>().map(MappedResult::Parts)
}

/// Returns the only output itself, or several outputs as a list.
pub(crate) fn unwrap_single(mut outputs: Vec<ToolOutput>) -> ToolOutput {
    match outputs.pop() {
        Some(only) if outputs.is_empty() => only,
        Some(last) => {
            outputs.push(last);
            ToolOutput::List(outputs)
        }
        None => ToolOutput::List(outputs),
    }
}

/// Converts the contents of a resource: text, or binary data.
pub(crate) fn map_resource(contents: ResourceContents) -> Result<ToolOutput, InvalidBase64> {
    Ok(match contents {
        ResourceContents::TextResourceContents { text, .. } => ToolOutput::Text(text),
        ResourceContents::BlobResourceContents { blob, mime_type, .. } => ToolOutput::Binary(Binary::new(
            decode(&blob)?,
            mime_type.unwrap_or_else(|| "application/octet-stream".to_owned()),
        )),
        _ => ToolOutput::Text(String::new()),
    })
}

/// Converts a part of a result; a link is its URI.
pub(crate) fn from_content(part: &ContentBlock) -> Result<ToolOutput, InvalidBase64> {
    Ok(match map_part(part)? {
        Part::Output(output) => output,
        Part::Link(uri) => ToolOutput::Text(uri),
    })
}

fn map_part(part: &ContentBlock) -> Result<Part, InvalidBase64> {
    Ok(Part::Output(match part {
        ContentBlock::Text(text) => parse_text(&text.text),
        ContentBlock::Image(image) => ToolOutput::Binary(Binary::new(decode(&image.data)?, image.mime_type.clone())),
        ContentBlock::Audio(audio) => ToolOutput::Binary(Binary::new(decode(&audio.data)?, audio.mime_type.clone())),
        ContentBlock::Resource(embedded) => map_resource(embedded.resource.clone())?,
        ContentBlock::ResourceLink(link) => return Ok(Part::Link(link.uri.clone())),
        _ => ToolOutput::Text(String::new()),
    }))
}

/// Parses text that starts like a JSON object or array; other text stays text.
fn parse_text(text: &str) -> ToolOutput {
    if text.starts_with(['[', '{'])
        && let Ok(value) = serde_json::from_str(text)
    {
        return ToolOutput::Json(value);
    }
    ToolOutput::Text(text.to_owned())
}

/// Converts a JSON value; a string becomes text.
fn from_json(value: Value) -> ToolOutput {
    match value {
        Value::String(text) => ToolOutput::Text(text),
        value => ToolOutput::Json(value),
    }
}

fn unwrap_lone_result(structured: Value) -> Value {
    match structured {
        Value::Object(mut fields) if fields.len() == 1 && fields.contains_key("result") => {
            fields.remove("result").unwrap_or(Value::Null)
        }
        other => other,
    }
}

/// Implements Python's truth test: empty values and zero are false.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Decodes base64, ignoring characters outside its alphabet (usually line ends), as Python's `b64decode` does.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, InvalidBase64> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    match LENIENT.decode(text) {
        Ok(data) => Ok(data),
        Err(_) => {
            let clean: Vec<u8> =
                text.bytes().filter(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte)).collect();
            LENIENT.decode(clean).map_err(InvalidBase64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mapped(result: Value) -> ToolOutput {
        match map_result(&serde_json::from_value(result).unwrap(), ResultMapping::PydanticAi1).unwrap() {
            MappedResult::Done(output) => output,
            MappedResult::Parts(parts) => unwrap_single(
                parts
                    .into_iter()
                    .map(|part| match part {
                        Part::Output(output) => output,
                        Part::Link(uri) => ToolOutput::Text(format!("link {uri}")),
                    })
                    .collect(),
            ),
        }
    }

    #[test]
    fn structured_content_is_used_only_with_text_parts() {
        let structured = json!({"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}});
        assert_eq!(mapped(structured), ToolOutput::Json(json!({"a": 1})));
        let with_image = json!({"content": [{"type": "image", "data": "AQ==", "mimeType": "image/png"}],
            "structuredContent": {"a": 1}});
        assert_eq!(mapped(with_image), ToolOutput::Binary(Binary::new(vec![1], "image/png")));
    }

    #[test]
    fn lone_result_is_unwrapped() {
        assert_eq!(mapped(json!({"content": [], "structuredContent": {"result": [1]}})), ToolOutput::Json(json!([1])));
        assert_eq!(
            mapped(json!({"content": [], "structuredContent": {"result": "a"}})),
            ToolOutput::Text("a".to_owned())
        );
        let two = json!({"content": [], "structuredContent": {"result": 1, "more": 2}});
        assert_eq!(mapped(two), ToolOutput::Json(json!({"result": 1, "more": 2})));
    }

    #[test]
    fn base64_with_line_ends_is_decoded() {
        assert_eq!(decode("AQ\nID\r\n").unwrap(), [1, 2, 3]);
        assert!(decode("A").is_err());
    }

    #[test]
    fn text_becomes_json_with_two_differences_to_python() {
        assert_eq!(parse_text("[NaN]"), ToolOutput::Text("[NaN]".to_owned()));
        let ToolOutput::Json(value) = parse_text("[18446744073709551616]") else { panic!("not JSON") };
        assert!(value[0].is_f64(), "{value}");
        assert_eq!(parse_text("[18446744073709551615]"), ToolOutput::Json(json!([u64::MAX])));
    }
}
