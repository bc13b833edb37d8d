//! The program's hook around tool calls.

use std::sync::Arc;

use parking_lot::Mutex;

use async_trait::async_trait;
use futures::future::BoxFuture;
use rmcp::model::CallToolResult;
use serde_json::{Map, Value};

use super::McpServer;
use super::options::CallOptions;
use crate::error::McpError;
use crate::run_context::RunContext;
use crate::toolset::ToolOutcome;

/// A hook around every tool call of a server.
///
/// ```
/// use belljar_mcp_client::async_trait;
/// use belljar_mcp_client::{CallTool, McpError, McpServerStdio, ProcessToolCall, RunContext, ToolOutcome};
/// use serde_json::{Map, Value, json};
///
/// /// Adds the user to the arguments.
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
    /// Makes the call, changes it or replaces it. `name` is the bare name, without a prefix.
    ///
    /// # Errors
    ///
    /// Errors of the call, or of the hook itself ([`McpError::Hook`]).
    async fn process(
        &self,
        run: &RunContext,
        call: CallTool<'_>,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError>;
}

/// A hook that is a closure.
pub(super) struct ClosureHook<F>(pub(super) F);

#[async_trait]
impl<F> ProcessToolCall for ClosureHook<F>
where
    F: for<'a> Fn(
            &'a RunContext,
            CallTool<'a>,
            &'a str,
            Map<String, Value>,
        ) -> BoxFuture<'a, Result<ToolOutcome, McpError>>
        + Send
        + Sync
        + 'static,
{
    async fn process(
        &self,
        run: &RunContext,
        call: CallTool<'_>,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        (self.0)(run, call, name, arguments).await
    }
}

/// The call that a hook wraps. It may be made more than once.
///
/// ```
/// # use belljar_mcp_client::{CallTool, McpError, ToolOutcome};
/// # use serde_json::{Map, Value, json};
/// # async fn hook(call: CallTool<'_>, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
/// // Try once more after a failure.
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
    /// The tool whose result is recorded, and the place for the result.
    last_result: Option<(&'a str, &'a LastResult)>,
}

/// The last result of a tool in the protocol's types, with the outcome derived from it.
pub(super) type LastResult = Mutex<Option<(Arc<CallToolResult>, ToolOutcome)>>;

impl<'a> CallTool<'a> {
    pub(super) fn new(
        server: &'a McpServer,
        run: &'a RunContext,
        last_result: Option<(&'a str, &'a LastResult)>,
    ) -> Self {
        Self { server, run, last_result }
    }
}

impl CallTool<'_> {
    /// Calls a tool by its bare name.
    ///
    /// ```
    /// # use belljar_mcp_client::{CallTool, McpError, ToolOutcome};
    /// # use serde_json::{Map, Value, json};
    /// # async fn hook(call: CallTool<'_>, name: &str, arguments: Map<String, Value>)
    /// # -> Result<ToolOutcome, McpError> {
    /// call.call(name, arguments).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`McpServer::direct_call_tool`].
    pub async fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        self.call_with_metadata(name, arguments, Map::new()).await
    }

    /// Calls a tool by its bare name, with metadata that is added to the run's in `_meta`.
    ///
    /// ```
    /// # use belljar_mcp_client::{CallTool, McpError, ToolOutcome};
    /// # use serde_json::{Map, Value, json};
    /// # async fn hook(call: CallTool<'_>, name: &str, arguments: Map<String, Value>)
    /// # -> Result<ToolOutcome, McpError> {
    /// call.call_with_metadata(name, arguments, Map::from_iter([("trace".into(), json!("abc"))])).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`McpServer::direct_call_tool`].
    pub async fn call_with_metadata(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        metadata: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        let mut options = CallOptions::from_run(self.run);
        options.metadata.extend(metadata);
        self.call_with(name, arguments, options).await
    }

    /// Calls a tool by its bare name with these options. Start from [`CallOptions::from_run`] to keep the run's
    /// metadata, headers and progress handler.
    ///
    /// ```
    /// # use belljar_mcp_client::{CallOptions, CallTool, McpError, RunContext, ToolOutcome};
    /// # use serde_json::{Map, Value};
    /// # async fn hook(run: &RunContext, call: CallTool<'_>, name: &str, arguments: Map<String, Value>)
    /// # -> Result<ToolOutcome, McpError> {
    /// let options = CallOptions::from_run(run).timeout(std::time::Duration::from_secs(30));
    /// let outcome = call.call_with(name, arguments, options).await?;
    /// println!("{:?}", outcome.raw());
    /// # Ok(outcome)
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`McpServer::direct_call_tool`].
    pub async fn call_with(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        options: CallOptions,
    ) -> Result<ToolOutcome, McpError> {
        let last_result = self.last_result.filter(|(tool, _)| *tool == name).map(|(_, last_result)| last_result);
        let outcome = self.server.call_tool_recording(name, Value::Object(arguments), options, last_result).await?;
        Ok(self.server.with_known_tools(name, outcome).await)
    }
}

impl std::fmt::Debug for CallTool<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CallTool").field("server", self.server).finish_non_exhaustive()
    }
}

impl McpServer {
    /// Makes a call through the configured hook, or directly without one.
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
