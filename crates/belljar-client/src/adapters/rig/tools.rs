//! The tools of a run for agents of `rig`, kept up to date.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rig_core::message::{ImageMediaType, MimeType, ToolResultContent};
use rig_core::tool::{
    DynamicTool, ManagedToolSink, ManagedToolToken, ToolErrorKind, ToolExecutionError, ToolOutput as RigOutput,
};
use rig_core::wasm_compat::WasmBoxedFuture;
use serde_json::Value;

use crate::adapters::provider::{Names, description, json_schema};
use crate::error::{ConfigError, McpError};
use crate::output::ToolOutput;
use crate::run_context::RunContext;
use crate::runner::{Step, ToolCall, ToolRunner};
use crate::toolset::{ToolList, ToolOutcome};

/// The tools of a run for agents of `rig`.
///
/// The [`ToolRunner`] lists the tools, validates arguments, counts retries and asks for approval. A failure to which
/// the model can react is an error with feedback for the model.
///
/// ```no_run
/// use belljar_mcp_client::adapters::rig::RigTools;
/// use belljar_mcp_client::{McpServerStdio, RunContext, ToolRunner};
/// use rig_agent::AgentBuilder;
/// use rig_agent::tool::server::ToolServer;
///
/// # async fn run(
/// #     model: rig_core::DynModel<rig_core::operation::Completion>,
/// # ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let runner = ToolRunner::new(McpServerStdio::new("belljar").arg("stdio").build());
/// let tools = RigTools::new(runner, RunContext::new());
/// let connections = tools.enter().await?;
/// let server = ToolServer::new().run();
/// tools.install(server.clone()).await?;
/// let instructions = tools.instructions().await?.unwrap_or_default();
/// let agent = AgentBuilder::new(model).preamble(instructions).tool_server_handle(server).build();
/// let answer = agent.prompt("What is the 1000th prime?").max_turns(10).await?;
/// println!("{answer}");
/// connections.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RigTools(Arc<Tools>);

struct Tools {
    runner: ToolRunner,
    run: RunContext,
    installed: Mutex<Option<Installed>>,
    calls: AtomicU64,
}

/// The registrations in a tool server of `rig`.
struct Installed {
    sink: Box<dyn ManagedToolSink + Send + Sync>,
    tokens: HashMap<String, ManagedToolToken>,
    list: ToolList,
}

impl RigTools {
    /// Creates the tools of a run.
    ///
    /// ```
    /// use belljar_mcp_client::adapters::rig::RigTools;
    /// use belljar_mcp_client::{McpServerStdio, RunContext, ToolRunner};
    ///
    /// let tools = RigTools::new(ToolRunner::new(McpServerStdio::new("server").build()), RunContext::new());
    /// ```
    pub fn new(runner: ToolRunner, run: RunContext) -> Self {
        Self(Arc::new(Tools { runner, run, installed: Mutex::new(None), calls: AtomicU64::new(0) }))
    }

    /// Opens the connections of the tools and keeps them open until the guard is dropped. Without it each call opens a
    /// connection.
    ///
    /// ```no_run
    /// # async fn run(tools: belljar_mcp_client::adapters::rig::RigTools) -> Result<(), belljar_mcp_client::McpError> {
    /// let connections = tools.enter().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connections.
    pub async fn enter(&self) -> Result<crate::ToolsetGuard, McpError> {
        self.0.runner.enter(&self.0.run).await
    }

    /// Returns the instructions of the servers for the agent's preamble, if any.
    ///
    /// ```no_run
    /// # async fn run(tools: belljar_mcp_client::adapters::rig::RigTools) -> Result<(), belljar_mcp_client::McpError> {
    /// let preamble = tools.instructions().await?.unwrap_or_default();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connections.
    pub async fn instructions(&self) -> Result<Option<String>, McpError> {
        Ok(self.0.runner.step(&self.0.run).await?.instructions().map(str::to_owned))
    }

    /// Returns the current tools, for an agent whose tools do not change:
    /// `AgentBuilder::dynamic_tools(tools.list().await?)`.
    ///
    /// ```no_run
    /// # async fn run(tools: belljar_mcp_client::adapters::rig::RigTools) -> Result<(), belljar_mcp_client::McpError> {
    /// println!("{:?}", tools.list().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connections; [`McpError::Config`] for a tool without a name.
    pub async fn list(&self) -> Result<Vec<DynamicTool>, McpError> {
        let step = self.0.runner.step(&self.0.run).await?;
        self.dynamic_tools(step.tools())
    }

    /// Registers the tools in a tool server of `rig` and keeps them up to date: each call, and
    /// [`refresh`](Self::refresh), replaces them if the list of a server has changed.
    ///
    /// ```no_run
    /// # async fn run(tools: belljar_mcp_client::adapters::rig::RigTools) -> Result<(), belljar_mcp_client::McpError> {
    /// let server = rig_agent::tool::server::ToolServer::new().run();
    /// tools.install(server.clone()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connections; [`McpError::Config`] for a tool without a name.
    pub async fn install(&self, sink: impl ManagedToolSink + Send + Sync + 'static) -> Result<(), McpError> {
        let list = self.0.runner.step(&self.0.run).await?.tools().clone();
        let tokens = sink.add_managed_tools(self.dynamic_tools(&list)?);
        *self.0.installed.lock() = Some(Installed { sink: Box::new(sink), tokens, list });
        Ok(())
    }

    /// Updates the registered tools, for example before each prompt of a user.
    ///
    /// ```no_run
    /// # async fn run(tools: belljar_mcp_client::adapters::rig::RigTools) -> Result<(), belljar_mcp_client::McpError> {
    /// tools.refresh().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connections; [`McpError::Config`] for a tool without a name.
    pub async fn refresh(&self) -> Result<(), McpError> {
        let step = self.0.runner.step(&self.0.run).await?;
        self.update(&step)
    }

    fn update(&self, step: &Step) -> Result<(), McpError> {
        let mut installed = self.0.installed.lock();
        let Some(installed) = installed.as_mut().filter(|installed| !installed.list.is_same(step.tools())) else {
            return Ok(());
        };
        let tools = self.dynamic_tools(step.tools())?;
        let tokens = std::mem::take(&mut installed.tokens);
        installed.tokens = installed.sink.reconcile_managed_tools(tokens, tools);
        installed.list = step.tools().clone();
        Ok(())
    }

    fn dynamic_tools(&self, list: &ToolList) -> Result<Vec<DynamicTool>, McpError> {
        let names = Names::new(list.names(), true);
        let convert = |tool: &Arc<crate::ToolDefinition>| {
            let rig_name = names
                .to_provider(&tool.name)
                .try_into()
                .map_err(|_| ConfigError::UnnamedTool { toolset: tool.name.clone() })?;
            let (tools, name) = (self.clone(), tool.name.clone());
            let call = move |arguments: Value| -> WasmBoxedFuture<'static, _> {
                let (tools, name) = (tools.clone(), name.clone());
                Box::pin(async move { tools.call(name, arguments).await })
            };
            Ok(DynamicTool::new(rig_name, description(tool), json_schema(&tool.input_schema), call))
        };
        list.iter().map(convert).collect()
    }

    async fn call(&self, name: String, arguments: Value) -> Result<RigOutput, ToolExecutionError> {
        let number = self.0.calls.fetch_add(1, Ordering::Relaxed);
        let call = ToolCall::new(format!("rig-{number}"), name, arguments);
        let failed = ToolExecutionError::from_error::<McpError>;
        let step = self.0.runner.step(&self.0.run).await.map_err(failed)?;
        let result = step.call(&call).await.map_err(failed)?;
        // The call may have changed the tools.
        self.refresh().await.map_err(failed)?;
        let message = result.message();
        let feedback = |kind: ToolErrorKind| {
            ToolExecutionError::new(kind, result.outcome.to_text()).with_model_feedback(message.text())
        };
        match &result.outcome {
            ToolOutcome::Output(_) => output(message.content),
            ToolOutcome::Retry(_) => Err(feedback(ToolErrorKind::Other).with_retryable(true)),
            ToolOutcome::Denied(_) => Err(ToolExecutionError::refused(message.text())),
            _ => Err(feedback(ToolErrorKind::Other)),
        }
    }
}

impl std::fmt::Debug for RigTools {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("RigTools").field(&self.0.runner).finish()
    }
}

fn output(mut content: Vec<ToolOutput>) -> Result<RigOutput, ToolExecutionError> {
    match content.as_mut_slice() {
        [] => Ok(RigOutput::text("")),
        [ToolOutput::Text(text)] => Ok(RigOutput::text(std::mem::take(text))),
        [ToolOutput::Json(value)] => Ok(RigOutput::json(value.take())),
        _ => RigOutput::content(content.into_iter().map(part).collect()),
    }
}

/// Converts a part. Images stay images; binary data that `rig` does not support becomes a note.
fn part(part: ToolOutput) -> ToolResultContent {
    match part {
        ToolOutput::Json(value) => ToolResultContent::Json { value },
        ToolOutput::Binary(ref binary) => match ImageMediaType::from_mime_type(&binary.media_type) {
            Some(kind) => ToolResultContent::image_base64(binary.base64(), Some(kind), None),
            None => ToolResultContent::text(part.to_text()),
        },
        part => ToolResultContent::text(part.to_text()),
    }
}
