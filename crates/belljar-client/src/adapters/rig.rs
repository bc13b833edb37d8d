//! `rig`: tools of a toolset for its agents, and its models for servers.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use rig_core::DynModel;
use rig_core::completion::{CompletionRequest, FinishReason, ToolDefinition};
use rig_core::message::{
    AssistantContent, AssistantMessage, ImageMediaType, Message, MimeType, ToolCall, ToolChoice as RigToolChoice,
    ToolFunction, ToolName, ToolResultContent, UserContent,
};
use rig_core::operation::Completion;
use rig_core::tool::{DynamicTool, ToolErrorKind, ToolExecutionError, ToolOutput as RigOutput};
use serde_json::Value;

use crate::error::{ConfigError, McpError};
use crate::handlers::{
    Model, ModelError, SamplingContent, SamplingMessage, SamplingRequest, SamplingResponse, SamplingRole, StopReason,
    ToolChoice,
};
use crate::output::ToolOutput;
use crate::run_context::RunContext;
use crate::toolset::{ToolOutcome, Toolset};

/// Converts a toolset's tools to tools of `rig`. Each call belongs to the given run. A failed tool is an error with
/// feedback for the model.
///
/// Keep the toolset's [`enter`](Toolset::enter) guard while the tools are in use; without it each call opens a
/// connection.
///
/// ```no_run
/// use std::sync::Arc;
/// use belljar_client::adapters::rig::rig_tools;
/// use belljar_client::{McpServerStdio, RunContext, Toolset};
///
/// # async fn run() -> Result<(), belljar_client::McpError> {
/// let server = Arc::new(McpServerStdio::new("server").build());
/// let guard = server.enter().await?;
/// let tools = rig_tools(server, RunContext::new()).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Errors of the connection; [`McpError::Config`] for a tool without a name.
pub async fn rig_tools(toolset: Arc<dyn Toolset>, run: RunContext) -> Result<Vec<DynamicTool>, McpError> {
    let tools = toolset.tools(&run).await?;
    tools
        .iter()
        .map(|tool| {
            let name = tool.name.clone();
            let rig_name =
                name.clone().try_into().map_err(|_| ConfigError::UnnamedTool { toolset: toolset.label() })?;
            let (toolset, run) = (toolset.clone(), run.clone());
            let call = move |arguments: Value| -> rig_core::wasm_compat::WasmBoxedFuture<'static, _> {
                let (toolset, run, name) = (toolset.clone(), run.clone(), name.clone());
                Box::pin(async move { call_tool(&*toolset, &run, &name, arguments).await })
            };
            Ok(DynamicTool::new(
                rig_name,
                tool.description.clone().unwrap_or_default(),
                (*tool.input_schema).clone(),
                call,
            ))
        })
        .collect()
}

async fn call_tool(
    toolset: &dyn Toolset,
    run: &RunContext,
    name: &str,
    arguments: Value,
) -> Result<RigOutput, ToolExecutionError> {
    let arguments = match arguments {
        Value::Object(arguments) => arguments,
        Value::Null => serde_json::Map::new(),
        other => {
            return Err(ToolExecutionError::new(
                ToolErrorKind::InvalidArgs,
                format!("the arguments are not a JSON object: `{other}`"),
            ));
        }
    };
    match toolset.call(run, name, arguments).await {
        Ok(ToolOutcome::Output(result)) => output_for_rig(result.output),
        Ok(ToolOutcome::Retry(retry)) => Err(ToolExecutionError::new(ToolErrorKind::Other, retry.message.clone())
            .with_retryable(true)
            .with_model_feedback(retry.message)),
        Ok(ToolOutcome::Failed(failure)) => {
            Err(ToolExecutionError::new(ToolErrorKind::Other, failure.message.clone())
                .with_model_feedback(failure.message))
        }
        Ok(ToolOutcome::Denied(reason)) => Err(ToolExecutionError::refused(reason)),
        Ok(deferred @ ToolOutcome::Deferred(_)) => Err(ToolExecutionError::refused(deferred.to_text())),
        Err(error) => Err(ToolExecutionError::from_error(error)),
    }
}

fn output_for_rig(output: ToolOutput) -> Result<RigOutput, ToolExecutionError> {
    match output {
        ToolOutput::Text(text) => Ok(RigOutput::text(text)),
        ToolOutput::Json(value) => Ok(RigOutput::json(value)),
        other if other.binaries().is_empty() => Ok(RigOutput::text(other.to_text())),
        other => RigOutput::content(parts(other)),
    }
}

/// Converts parts. Images stay images; parts that `rig` does not support become a textual note.
fn parts(output: ToolOutput) -> Vec<ToolResultContent> {
    match output {
        ToolOutput::List(outputs) => outputs.into_iter().flat_map(parts).collect(),
        ToolOutput::Text(text) => vec![ToolResultContent::text(text)],
        ToolOutput::Json(value) => vec![ToolResultContent::Json { value }],
        ToolOutput::Binary(binary) => match ImageMediaType::from_mime_type(&binary.media_type) {
            Some(kind) => vec![ToolResultContent::image_base64(binary.base64(), Some(kind), None)],
            None => vec![ToolResultContent::text(ToolOutput::Binary(binary).to_text())],
        },
    }
}

/// A model of `rig` for servers to use. It accepts text, images and tools, and responds with text and tool calls.
///
/// ```no_run
/// use belljar_client::McpServerStdio;
/// use belljar_client::adapters::rig::RigModel;
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
    /// # use belljar_client::adapters::rig::RigModel;
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
    if turn.role == SamplingRole::Assistant {
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
        SamplingMessage { role: SamplingRole::User, content }
    }

    #[test]
    fn request_keeps_all_fields_that_rig_supports() {
        let image = SamplingContent::Image(Binary { data: vec![1, 2, 3], media_type: "image/png".into() });
        let input = Map::from_iter([("n".to_owned(), json!(1))]);
        let call = SamplingContent::ToolUse { id: "c1".into(), name: "add".into(), input };
        let result = vec![SamplingContent::Text("2".into())];
        let result = SamplingContent::ToolResult { id: "c1".into(), content: result, is_error: true };
        let request = SamplingRequest {
            system_prompt: Some("Be kind.".into()),
            messages: vec![
                user(vec![SamplingContent::Text("What is it?".into()), image]),
                SamplingMessage { role: SamplingRole::Assistant, content: vec![call] },
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
        let sound = SamplingContent::Audio(Binary { data: vec![1], media_type: "audio/wav".into() });
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
