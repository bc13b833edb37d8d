//! The conversion of sampling requests from the protocol's types, and of responses to them.

use rmcp::model::{self as wire, CreateMessageRequestParams, CreateMessageResult, SamplingMessageContentBlock};

use super::{
    ModelPreferences, Role, SamplingContent, SamplingMessage, SamplingRequest, SamplingResponse, SamplingTool,
    StopReason, ToolChoice,
};
use crate::handlers::RequestOrigin;
use crate::output::{Binary, InvalidBase64, decode};

/// An unsupported or invalid sampling request.
#[derive(Debug, thiserror::Error)]
pub(in crate::handlers) enum InvalidRequest {
    #[error("unsupported kind of message content")]
    MessageContent,
    #[error("unsupported kind of tool result content")]
    ToolResultContent,
    #[error(transparent)]
    Base64(#[from] InvalidBase64),
}

/// Converts a request from the protocol's types.
pub(in crate::handlers) fn request(
    params: CreateMessageRequestParams,
    origin: RequestOrigin,
) -> Result<SamplingRequest, InvalidRequest> {
    let preferences = params.model_preferences.map(|preferences| ModelPreferences {
        hints: preferences.hints.into_iter().flatten().filter_map(|hint| hint.name).collect(),
        cost: preferences.cost_priority,
        speed: preferences.speed_priority,
        intelligence: preferences.intelligence_priority,
    });
    let tools = params.tools.into_iter().flatten().map(|tool| SamplingTool {
        name: tool.name.into_owned(),
        description: tool.description.map(|text| text.into_owned()),
        input_schema: (*tool.input_schema).clone(),
    });
    Ok(SamplingRequest {
        system_prompt: params.system_prompt,
        messages: params.messages.into_iter().map(message).collect::<Result<_, _>>()?,
        max_tokens: params.max_tokens,
        temperature: params.temperature,
        stop_sequences: params.stop_sequences.unwrap_or_default(),
        preferences: preferences.unwrap_or_default(),
        tools: tools.collect(),
        tool_choice: match params.tool_choice.and_then(|choice| choice.mode) {
            Some(wire::ToolChoiceMode::Required) => ToolChoice::Required,
            Some(wire::ToolChoiceMode::None) => ToolChoice::None,
            _ => ToolChoice::Auto,
        },
        include_context: params
            .include_context
            .and_then(|context| serde_json::to_value(context).ok())
            .and_then(|context| context.as_str().map(str::to_owned)),
        metadata: params.metadata,
        origin,
    })
}

fn message(message: wire::SamplingMessage) -> Result<SamplingMessage, InvalidRequest> {
    Ok(SamplingMessage {
        role: match message.role {
            wire::Role::Assistant => Role::Assistant,
            _ => Role::User,
        },
        content: match message.content {
            wire::SamplingContent::Single(part) => vec![content(part)?],
            wire::SamplingContent::Multiple(parts) => parts.into_iter().map(content).collect::<Result<_, _>>()?,
        },
    })
}

fn content(part: SamplingMessageContentBlock) -> Result<SamplingContent, InvalidRequest> {
    Ok(match part {
        SamplingMessageContentBlock::Text(text) => SamplingContent::Text(text.text),
        SamplingMessageContentBlock::Image(image) => SamplingContent::Image(binary(&image.data, image.mime_type)?),
        SamplingMessageContentBlock::Audio(audio) => SamplingContent::Audio(binary(&audio.data, audio.mime_type)?),
        SamplingMessageContentBlock::ToolUse(call) => {
            SamplingContent::ToolUse { id: call.id, name: call.name, input: call.input }
        }
        SamplingMessageContentBlock::ToolResult(result) => SamplingContent::ToolResult {
            id: result.tool_use_id,
            content: result.content.into_iter().map(tool_result_part).collect::<Result<_, _>>()?,
            is_error: result.is_error.unwrap_or(false),
        },
        _ => return Err(InvalidRequest::MessageContent),
    })
}

fn tool_result_part(part: wire::ContentBlock) -> Result<SamplingContent, InvalidRequest> {
    Ok(match part {
        wire::ContentBlock::Text(text) => SamplingContent::Text(text.text),
        wire::ContentBlock::Image(image) => SamplingContent::Image(binary(&image.data, image.mime_type)?),
        wire::ContentBlock::Audio(audio) => SamplingContent::Audio(binary(&audio.data, audio.mime_type)?),
        wire::ContentBlock::Resource(embedded) => SamplingContent::Text(embedded.get_text()),
        wire::ContentBlock::ResourceLink(link) => SamplingContent::Text(link.uri),
        _ => return Err(InvalidRequest::ToolResultContent),
    })
}

fn binary(data: &str, media_type: String) -> Result<Binary, InvalidRequest> {
    Ok(Binary::new(decode(data)?, media_type))
}

/// Converts a response to the protocol's types. A response of one part is not a list: clients before 2025-11-25 expect
/// the part itself.
pub(in crate::handlers) fn response(response: SamplingResponse, model: String) -> CreateMessageResult {
    let stop_reason = match response.stop_reason {
        StopReason::EndTurn => CreateMessageResult::STOP_REASON_END_TURN.to_owned(),
        StopReason::StopSequence => CreateMessageResult::STOP_REASON_END_SEQUENCE.to_owned(),
        StopReason::MaxTokens => CreateMessageResult::STOP_REASON_END_MAX_TOKEN.to_owned(),
        StopReason::ToolUse => CreateMessageResult::STOP_REASON_TOOL_USE.to_owned(),
        StopReason::Other(reason) => reason,
    };
    let mut parts: Vec<_> = response.content.into_iter().map(block).collect();
    let content = match parts.pop() {
        Some(only) if parts.is_empty() => wire::SamplingContent::Single(only),
        Some(last) => {
            parts.push(last);
            wire::SamplingContent::Multiple(parts)
        }
        None => wire::SamplingContent::Single(SamplingMessageContentBlock::Text(wire::TextContent::new(""))),
    };
    let mut message = wire::SamplingMessage::assistant_text("");
    message.content = content;
    CreateMessageResult::new(message, response.model.unwrap_or(model)).with_stop_reason(stop_reason)
}

fn block(part: SamplingContent) -> SamplingMessageContentBlock {
    match part {
        SamplingContent::Text(text) => SamplingMessageContentBlock::Text(wire::TextContent::new(text)),
        SamplingContent::Image(image) => {
            SamplingMessageContentBlock::Image(wire::ImageContent::new(image.base64(), image.media_type))
        }
        SamplingContent::Audio(audio) => {
            SamplingMessageContentBlock::Audio(wire::AudioContent::new(audio.base64(), audio.media_type))
        }
        SamplingContent::ToolUse { id, name, input } => {
            SamplingMessageContentBlock::ToolUse(wire::ToolUseContent::new(id, name, input))
        }
        SamplingContent::ToolResult { id, content, is_error } => {
            let content = content.into_iter().filter_map(|part| match part {
                SamplingContent::Text(text) => Some(wire::ContentBlock::text(text)),
                SamplingContent::Image(image) => Some(wire::ContentBlock::image(image.base64(), image.media_type)),
                SamplingContent::Audio(audio) => Some(wire::ContentBlock::audio(audio.base64(), audio.media_type)),
                SamplingContent::ToolUse { .. } | SamplingContent::ToolResult { .. } => None,
            });
            let mut result = wire::ToolResultContent::new(id, content.collect());
            result.is_error = is_error.then_some(true);
            SamplingMessageContentBlock::ToolResult(result)
        }
    }
}
