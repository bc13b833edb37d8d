//! `rig`: its agents get a toolset's tools, and servers get its models.

use std::sync::Arc;

use async_trait::async_trait;
use rig_core::DynModel;
use rig_core::completion::CompletionRequest;
use rig_core::message::{AssistantContent, ImageMediaType, Message, MimeType, ToolResultContent, UserContent};
use rig_core::operation::Completion;
use rig_core::tool::{DynamicTool, ToolErrorKind, ToolExecutionError, ToolOutput as RigOutput};
use serde_json::Value;

use crate::error::McpError;
use crate::handlers::{
    Model, ModelError, SamplingContent, SamplingMessage, SamplingRequest, SamplingResponse, SamplingRole,
};
use crate::output::ToolOutput;
use crate::run::RunContext;
use crate::toolset::{ToolOutcome, Toolset};

/// A toolset's tools, as `rig` has them. Each call is one of this run. A failed tool is an error that the model may mend.
///
/// Keep the toolset's [`enter`](Toolset::enter) guard while the tools are in use, lest each call connects anew.
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
/// Those of the connection; [`McpError::Config`] for a tool without a name.
pub async fn rig_tools(toolset: Arc<dyn Toolset>, run: RunContext) -> Result<Vec<DynamicTool>, McpError> {
    let tools = toolset.tools(&run).await?;
    tools
        .into_iter()
        .map(|tool| {
            let name = tool.name.clone();
            let rig_name = name
                .clone()
                .try_into()
                .map_err(|_| McpError::Config(format!("{} has a tool without a name", toolset.label())))?;
            let (toolset, run) = (toolset.clone(), run.clone());
            let call = move |arguments: Value| -> rig_core::wasm_compat::WasmBoxedFuture<'static, _> {
                let (toolset, run, name) = (toolset.clone(), run.clone(), name.clone());
                Box::pin(async move { called(&*toolset, &run, &name, arguments).await })
            };
            Ok(DynamicTool::new(rig_name, tool.description.unwrap_or_default(), tool.input_schema, call))
        })
        .collect()
}

async fn called(
    toolset: &dyn Toolset,
    run: &RunContext,
    name: &str,
    arguments: Value,
) -> Result<RigOutput, ToolExecutionError> {
    let arguments = match arguments {
        Value::Object(arguments) => arguments,
        Value::Null => serde_json::Map::new(),
        other => {
            return Err(ToolExecutionError::new(ToolErrorKind::InvalidArgs, format!("`{other}` is no JSON object")));
        }
    };
    match toolset.call(run, name, arguments).await {
        Ok(ToolOutcome::Output(output)) => output_for_rig(output),
        Ok(ToolOutcome::Retry(retry)) => Err(ToolExecutionError::new(ToolErrorKind::Other, retry.message.clone())
            .with_retryable(true)
            .with_model_feedback(retry.message)),
        Ok(ToolOutcome::Denied(reason)) => Err(ToolExecutionError::refused(reason)),
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

/// Images stay images; what `rig` has no part for becomes a note.
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

/// A model of `rig`, for servers to use. It is given text and images, and answers in text.
pub struct RigModel {
    model: DynModel<Completion>,
    name: String,
}

impl RigModel {
    /// This model, which servers are told is called so.
    pub fn new(model: DynModel<Completion>, name: impl Into<String>) -> Self {
        Self { model, name: name.into() }
    }
}

#[async_trait]
impl Model for RigModel {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
        let mut wanted = CompletionRequest::new("");
        let system = request.system_prompt.into_iter().map(|content| Message::System { content });
        let turns = request.messages.iter().map(message).collect::<Result<Vec<_>, _>>()?;
        wanted.chat_history = system.chain(turns).collect();
        wanted.max_tokens = Some(u64::from(request.max_tokens));
        wanted.temperature = request.temperature.map(f64::from);
        let response = self.model.call(wanted).await.map_err(|error| ModelError::new(error.to_string()))?;
        let texts: Vec<String> = response
            .choice
            .into_iter()
            .filter_map(|part| match part {
                AssistantContent::Text(text) => Some(text.text),
                _ => None,
            })
            .collect();
        Ok(SamplingResponse::text(texts.join("")))
    }
}

fn message(turn: &SamplingMessage) -> Result<Message, ModelError> {
    if turn.role == SamplingRole::Assistant {
        return Ok(Message::assistant(turn.text()));
    }
    let content = turn.content.iter().map(|part| match part {
        SamplingContent::Text(text) => Ok(UserContent::text(text)),
        SamplingContent::Image(image) => {
            let kind = ImageMediaType::from_mime_type(&image.media_type);
            Ok(UserContent::image_base64(image.base64(), kind, None))
        }
        _ => Err(ModelError::new("this model is given text and images only")),
    });
    Ok(Message::User { content: content.collect::<Result<_, _>>()? })
}
