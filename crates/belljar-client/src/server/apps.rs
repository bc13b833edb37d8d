//! [MCP Apps](https://modelcontextprotocol.io/extensions/apps/overview): tools with a page that the program shows to
//! the user, and tool calls on behalf of such a page.

use rmcp::model::{CallToolResult, ErrorCode, Tool};
use serde_json::{Map, Value};

use super::McpServer;
use super::hook::{CallTool, LastResult};
use super::options::CallOptions;
use crate::error::McpError;
use crate::run_context::RunContext;
use crate::toolset::definition::{Audience, is_visible_to, resource_uri};
use crate::toolset::{AppResult, ToolOutcome};

fn metadata(tool: &Tool) -> Option<&Map<String, Value>> {
    tool.meta.as_ref().map(|meta| &meta.0)
}

impl McpServer {
    /// Calls a tool on behalf of one of the server's pages, which has no connection to the server. The result is
    /// returned to the page unchanged.
    ///
    /// Only tools that are visible to apps can be called. Prefix, hook and validation do not apply.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer, name: &str, from_page: serde_json::Value)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let result = server.call_tool_for_app(name, from_page).await?;
    /// let to_page = serde_json::to_value(result)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection, and [`McpError::Protocol`], also for a tool that is not visible to apps.
    pub async fn call_tool_for_app(&self, name: &str, arguments: Value) -> Result<CallToolResult, McpError> {
        let session = self.session().await?;
        let tools = self.tools_in(&session).await?;
        let is_callable = tools
            .iter()
            .find(|tool| tool.name == name)
            .is_some_and(|tool| metadata(tool).is_none_or(|metadata| is_visible_to(metadata, Audience::App)));
        if !is_callable {
            return Err(McpError::Protocol {
                server: self.label(),
                code: ErrorCode::INVALID_PARAMS.0,
                message: format!("apps cannot call the tool `{name}`"),
                data: None,
            });
        }
        self.call_tool_raw(name, arguments, CallOptions::new()).await
    }

    /// Returns the page of a tool, if it has one.
    pub(super) async fn app_resource(&self, name: &str) -> Result<Option<String>, McpError> {
        let session = self.session().await?;
        let tools = self.tools_in(&session).await?;
        let tool = tools.iter().find(|tool| tool.name == name);
        Ok(tool.and_then(metadata).and_then(resource_uri).map(str::to_owned))
    }

    /// Calls a tool that has a page and passes the result to the run's app handler, unless a hook replaced the result.
    pub(super) async fn call_with_app(
        &self,
        run: &RunContext,
        name: &str,
        arguments: Map<String, Value>,
        resource_uri: String,
    ) -> Result<ToolOutcome, McpError> {
        let last_result = LastResult::default();
        let model_arguments = arguments.clone();
        let outcome =
            self.call_through_hook(CallTool::new(self, run, Some((name, &last_result))), name, arguments).await?;
        let last_result = last_result.into_inner();
        if let (Some(handler), Some((result, unchanged)), ToolOutcome::Output(_)) = (&run.app, last_result, &outcome)
            && unchanged == outcome
        {
            let server_id = self.id().map(str::to_owned);
            handler(AppResult { resource_uri, arguments: model_arguments, result, server_id });
        }
        Ok(outcome)
    }
}
