//! The program's hook around calls of tools.

use std::sync::Mutex;

use async_trait::async_trait;
use rmcp::model::CallToolResult;
use serde_json::{Map, Value};

use super::McpServer;
use super::options::CallOptions;
use crate::error::McpError;
use crate::run::RunContext;
use crate::toolset::ToolOutcome;

/// A hook around every call of a server's tools.
///
/// ```
/// use async_trait::async_trait;
/// use belljar_client::{CallTool, McpError, McpServerStdio, ProcessToolCall, RunContext, ToolOutcome};
/// use serde_json::{Map, Value, json};
///
/// /// Tells the server who asks.
/// struct Signed;
///
/// #[async_trait]
/// impl ProcessToolCall for Signed {
///     async fn process(
///         &self,
///         run: &RunContext,
///         call: CallTool<'_>,
///         name: &str,
///         mut arguments: Map<String, Value>,
///     ) -> Result<ToolOutcome, McpError> {
///         arguments.insert("user".into(), json!(run.get_deps::<String>()));
///         let metadata = Map::from_iter([("signature".to_owned(), json!("…"))]);
///         call.call_with_metadata(name, arguments, metadata).await
///     }
/// }
///
/// let server = McpServerStdio::new("server").process_tool_call(Signed).build();
/// ```
#[async_trait]
pub trait ProcessToolCall: Send + Sync + 'static {
    /// Makes the call, or does not. The name is the bare one, without a prefix.
    ///
    /// # Errors
    ///
    /// Those of the call, or the hook's own ([`McpError::Hook`]).
    async fn process(
        &self,
        run: &RunContext,
        call: CallTool<'_>,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError>;
}

/// The call itself, as a hook gets it. It may be made more than once.
///
/// ```
/// # use belljar_client::{CallTool, McpError, ToolOutcome};
/// # use serde_json::{Map, Value, json};
/// # async fn hook(call: CallTool<'_>, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
/// // Once more, if it did not work.
/// match call.call(name, arguments.clone()).await? {
///     ToolOutcome::Retry(_) => call.call(name, arguments).await,
///     outcome => Ok(outcome),
/// }
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct CallTool<'a> {
    server: &'a McpServer,
    run: &'a RunContext,
    /// Keeps the result of this tool.
    kept: Option<(&'a str, &'a Kept)>,
}

/// The last result of a tool, as the server gave it, with what was made of it.
pub(super) type Kept = Mutex<Option<(CallToolResult, ToolOutcome)>>;

impl<'a> CallTool<'a> {
    pub(super) fn new(server: &'a McpServer, run: &'a RunContext, kept: Option<(&'a str, &'a Kept)>) -> Self {
        Self { server, run, kept }
    }
}

impl CallTool<'_> {
    /// Calls a tool by its bare name.
    ///
    /// ```
    /// # use belljar_client::{CallTool, McpError, ToolOutcome};
    /// # use serde_json::{Map, Value, json};
    /// # async fn hook(call: CallTool<'_>, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
    /// call.call(name, arguments).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`McpServer::direct_call_tool`].
    pub async fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        self.call_with_metadata(name, arguments, Map::new()).await
    }

    /// Calls a tool by its bare name, with metadata that goes into `_meta` beside the run's.
    ///
    /// ```
    /// # use belljar_client::{CallTool, McpError, ToolOutcome};
    /// # use serde_json::{Map, Value, json};
    /// # async fn hook(call: CallTool<'_>, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
    /// call.call_with_metadata(name, arguments, Map::from_iter([("trace".into(), json!("abc"))])).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`McpServer::direct_call_tool`].
    pub async fn call_with_metadata(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        metadata: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        let mut options = CallOptions::of_run(self.run);
        options.metadata.extend(metadata);
        let kept = self.kept.filter(|(tool, _)| *tool == name).map(|(_, kept)| kept);
        self.server.call_tool_keeping(name, Value::Object(arguments), options, kept).await
    }
}

impl std::fmt::Debug for CallTool<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CallTool").field("server", self.server).finish_non_exhaustive()
    }
}

impl McpServer {
    /// Makes a call in the way that the hook wants it, if there is one.
    pub(super) async fn call_through_hook(
        &self,
        call: CallTool<'_>,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        match &self.inner.settings.process_tool_call {
            Some(hook) => hook.process(call.run, call, name, arguments).await,
            None => call.call(name, arguments).await,
        }
    }
}
