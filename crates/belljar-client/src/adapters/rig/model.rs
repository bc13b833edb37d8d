//! A model of `rig` for servers.

use std::collections::HashMap;

use async_trait::async_trait;
use rig_core::DynModel;
use rig_core::completion::{CompletionRequest, FinishReason, ToolDefinition};
use rig_core::message::{
    AssistantContent, AssistantMessage, ImageMediaType, Message, MimeType, ToolCall, ToolChoice as RigToolChoice,
    ToolFunction, ToolName, ToolResultContent, UserContent,
};
use rig_core::operation::Completion;
use serde_json::Value;

use crate::handlers::{
    Model, ModelError, Role, SamplingContent, SamplingMessage, SamplingRequest, SamplingResponse, StopReason,
    ToolChoice,
};

/// A model of `rig` for servers to use. It accepts text, images and tools, and responds with text and tool calls.
///
/// ```no_run
/// use belljar_mcp_client::McpServerStdio;
/// use belljar_mcp_client::adapters::rig::RigModel;
/// # use rig_core::{DynModel, operation::Completion};
///
/// # fn build(model: DynModel<Completion>) {
/// let server = McpServerStdio::new("server").sampling_model(RigModel::new(model, "the model's name")).build();
/// # }
/// ```
pub struct RigModel {
    model: DynModel<Completion>,
    name: String,
}

impl RigModel {
    /// Wraps a model; `name` is the name reported to servers.
    ///
    /// ```
    /// # use belljar_mcp_client::adapters::rig::RigModel;
    /// # fn wrap(model: rig_core::DynModel<rig_core::operation::Completion>) -> RigModel {
    /// RigModel::new(model, "the model's name")
    /// # }
    /// ```
    pub fn new(model: DynModel<Completion>, name: impl Into<String>) -> Self {
        Self { model, name: name.into() }
    }
}

#[async_trait]
impl Model for RigModel {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn supports_tools(&self) -> bool {
        true
    }

    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
        let completion = request_for_rig(request)?;
        let response = self.model.call(completion).await.map_err(|error| ModelError::new(error.to_string()))?;
        let finish = response.finish_reason();
        Ok(response_from_rig(response.choice, finish))
    }
}

fn request_for_rig(request: SamplingRequest) -> Result<CompletionRequest, ModelError> {
    let mut completion = CompletionRequest::new("");
    let system = request.system_prompt.into_iter().map(|content| Message::System { content });
    let mut names = HashMap::new();
    let turns = request.messages.iter().map(|turn| message(turn, &mut names)).collect::<Result<Vec<_>, _>>()?;
    completion.chat_history = system.chain(turns).collect();
    completion.max_tokens = Some(u64::from(request.max_tokens));
    completion.temperature = request.temperature.map(f64::from);
    completion.options.stop = request.stop_sequences;
    let tools = request.tools.into_iter().map(|tool| {
        let name = tool_name(&tool.name)?;
        Ok(ToolDefinition::new(name, tool.description.unwrap_or_default(), Value::Object(tool.input_schema)))
    });
    completion.tools = tools.collect::<Result<_, ModelError>>()?;
    if !completion.tools.is_empty() {
        completion.tool_choice = Some(match request.tool_choice {
            ToolChoice::Auto => RigToolChoice::Auto,
            ToolChoice::Required => RigToolChoice::Required,
            ToolChoice::None => RigToolChoice::None,
        });
    }
    Ok(completion)
}

fn tool_name(name: &str) -> Result<ToolName, ModelError> {
    name.to_owned().try_into().map_err(|_| ModelError::new("a tool does not have a name"))
}

/// Converts a turn. A tool result must name its tool, which only the preceding call contains.
fn message(turn: &SamplingMessage, names: &mut HashMap<String, ToolName>) -> Result<Message, ModelError> {
    let unknown = || ModelError::new("this model supports only text, images, tool calls and tool results");
    if turn.role == Role::Assistant {
        let content = turn.content.iter().map(|part| match part {
            SamplingContent::Text(text) => Ok(AssistantContent::text(text)),
            SamplingContent::ToolUse { id, name, input } => {
                let name = tool_name(name)?;
                names.insert(id.clone(), name.clone());
                Ok(AssistantContent::tool_call(id, name, Value::Object(input.clone())))
            }
            _ => Err(unknown()),
        });
        return Ok(Message::Assistant(AssistantMessage::new(content.collect::<Result<_, _>>()?)));
    }
    let content = turn.content.iter().map(|part| match part {
        SamplingContent::Text(text) => Ok(UserContent::text(text)),
        SamplingContent::Image(image) => {
            let kind = ImageMediaType::from_mime_type(&image.media_type);
            Ok(UserContent::image_base64(image.base64(), kind, None))
        }
        SamplingContent::ToolResult { id, content, is_error } => {
            let name = names
                .get(id)
                .cloned()
                .ok_or_else(|| ModelError::new("a tool result does not belong to any tool call"))?;
            let content = content.iter().map(|part| match part {
                SamplingContent::Text(text) => Ok(ToolResultContent::text(text)),
                SamplingContent::Image(image) => {
                    let kind = ImageMediaType::from_mime_type(&image.media_type);
                    Ok(ToolResultContent::image_base64(image.base64(), kind, None))
                }
                _ => Err(unknown()),
            });
            let mut result = ToolCall::from_wire(id, ToolFunction::new(name, Value::Null))
                .result(content.collect::<Result<_, _>>()?);
            result.is_error = *is_error;
            Ok(UserContent::ToolResult(result))
        }
        _ => Err(unknown()),
    });
    Ok(Message::User { content: content.collect::<Result<_, _>>()? })
}

fn response_from_rig(choice: Vec<AssistantContent>, finish: Option<FinishReason>) -> SamplingResponse {
    let content = choice.into_iter().filter_map(|part| match part {
        AssistantContent::Text(text) => Some(SamplingContent::Text(text.text)),
        AssistantContent::ToolCall(call) => Some(SamplingContent::ToolUse {
            id: call.id.wire().into_owned(),
            name: call.function.name.to_string(),
            input: call.function.arguments,
        }),
        _ => None,
    });
    let stop_reason = match finish {
        None | Some(FinishReason::Stop) => StopReason::EndTurn,
        Some(FinishReason::Length) => StopReason::MaxTokens,
        Some(FinishReason::ToolCalls) => StopReason::ToolUse,
        Some(FinishReason::ContentFilter) => StopReason::Other("contentFilter".to_owned()),
        Some(FinishReason::Other(reason)) => StopReason::Other(reason),
        Some(_) => StopReason::Other("unknown".to_owned()),
    };
    SamplingResponse { content: content.collect(), stop_reason, model: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::SamplingTool;
    use crate::output::Binary;
    use serde_json::{Map, json};

    fn user(content: Vec<SamplingContent>) -> SamplingMessage {
        SamplingMessage { role: Role::User, content }
    }

    #[test]
    fn request_keeps_all_fields_that_rig_supports() {
        let image = SamplingContent::Image(Binary::new(vec![1, 2, 3], "image/png"));
        let input = Map::from_iter([("n".to_owned(), json!(1))]);
        let call = SamplingContent::ToolUse { id: "c1".into(), name: "add".into(), input };
        let result = vec![SamplingContent::Text("2".into())];
        let result = SamplingContent::ToolResult { id: "c1".into(), content: result, is_error: true };
        let request = SamplingRequest {
            system_prompt: Some("Be kind.".into()),
            messages: vec![
                user(vec![SamplingContent::Text("What is it?".into()), image]),
                SamplingMessage { role: Role::Assistant, content: vec![call] },
                user(vec![result]),
            ],
            max_tokens: 7,
            temperature: Some(0.5),
            stop_sequences: vec!["END".into()],
            tools: vec![SamplingTool { name: "add".into(), description: None, input_schema: Map::new() }],
            tool_choice: ToolChoice::Required,
            ..Default::default()
        };
        let completion = request_for_rig(request).unwrap();
        assert_eq!(completion.system_instructions(), Some("Be kind."));
        assert_eq!((completion.max_tokens, completion.temperature), (Some(7), Some(0.5)));
        assert_eq!(completion.options.stop, ["END"]);
        assert_eq!((completion.tools.len(), completion.tool_choice), (1, Some(RigToolChoice::Required)));
        let [_, Message::User { content }, Message::Assistant(turn), Message::User { content: results }] =
            completion.chat_history.as_slice()
        else {
            panic!("{:?}", completion.chat_history)
        };
        assert!(matches!(content.as_slice(), [UserContent::Text(_), UserContent::Image(_)]), "{content:?}");
        assert_eq!(turn.tool_calls().next().unwrap().function.arguments["n"], 1);
        let [UserContent::ToolResult(result)] = results.as_slice() else { panic!("{results:?}") };
        assert!(result.is_error && result.name == "add" && result.call.wire() == "c1", "{result:?}");
    }

    #[test]
    fn unsupported_content_is_an_error() {
        let sound = SamplingContent::Audio(Binary::new(vec![1], "audio/wav"));
        let orphan = SamplingContent::ToolResult { id: "c".into(), content: Vec::new(), is_error: false };
        for part in [sound, orphan] {
            let request = SamplingRequest { messages: vec![user(vec![part])], ..Default::default() };
            request_for_rig(request).unwrap_err();
        }
    }

    #[test]
    fn tool_calls_and_stop_reason_are_converted() {
        let call = AssistantContent::tool_call("c1", tool_name("add").unwrap(), json!({"n": 1}));
        let response =
            response_from_rig(vec![AssistantContent::text("Let me see."), call], Some(FinishReason::ToolCalls));
        assert_eq!(response.stop_reason, StopReason::ToolUse);
        let input = Map::from_iter([("n".to_owned(), json!(1))]);
        let call = SamplingContent::ToolUse { id: "c1".into(), name: "add".into(), input };
        assert_eq!(response.content, [SamplingContent::Text("Let me see.".into()), call]);
        let response = response_from_rig(vec![AssistantContent::text("a")], Some(FinishReason::Length));
        assert_eq!(response.stop_reason, StopReason::MaxTokens);
    }
}
