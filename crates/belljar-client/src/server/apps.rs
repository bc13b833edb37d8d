//! [MCP Apps](https://modelcontextprotocol.io/extensions/apps/overview): tools that come with a page, which the program shows
//! to the user, and calls that it makes for such a page.

use rmcp::model::{CallToolResult, ErrorCode, Tool};
use serde_json::{Map, Value};

use super::McpServer;
use super::hook::{CallTool, Kept};
use super::options::CallOptions;
use crate::error::McpError;
use crate::run::RunContext;
use crate::toolset::ToolOutcome;

/// What a page of an app is shown with: a call of the tool that it belongs to.
///
/// [`RunContext::app_handler`] gets them.
///
/// ```
/// # use belljar_client::RunContext;
/// let run = RunContext::new().app_handler(|app| {
///     println!("show {} of {:?} with {:?}", app.resource_uri, app.server_id, app.result);
/// });
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AppResult {
    /// The page, a `ui://` URI, to be read with [`McpServer::read_resource_raw`].
    pub resource_uri: String,
    /// What the model called the tool with, before a hook changed it.
    pub arguments: Map<String, Value>,
    /// The server's whole answer.
    pub result: CallToolResult,
    /// The id of the server, if it was given one.
    pub server_id: Option<String>,
}

/// Who can see a tool. One that does not say can be seen by both.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Audience {
    Model,
    App,
}

/// Whether a tool shows itself to these, as its `_meta.ui.visibility` says.
pub(crate) fn is_visible_to(metadata: &Map<String, Value>, audience: Audience) -> bool {
    let name = match audience {
        Audience::Model => "model",
        Audience::App => "app",
    };
    match metadata.get("ui").and_then(|ui| ui.get("visibility")?.as_array()) {
        Some(listed) => listed.iter().any(|one| one == name),
        None => true,
    }
}

/// The page of a tool, as its `_meta` names it; `ui/resourceUri` is the older way.
pub(crate) fn resource_uri(metadata: &Map<String, Value>) -> Option<&str> {
    let nested = metadata.get("ui").and_then(|ui| ui.get("resourceUri"));
    nested.or_else(|| metadata.get("ui/resourceUri"))?.as_str()
}

pub(crate) fn metadata(tool: &Tool) -> Option<&Map<String, Value>> {
    tool.meta.as_ref().map(|meta| &meta.0)
}

impl McpServer {
    /// Calls a tool for a page of the server's, which cannot reach it. The answer goes to the page as it is.
    ///
    /// Only tools that show themselves to apps can be called so. Prefix, hook and validation take no part.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer, name: &str, from_page: serde_json::Value)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let result = server.call_tool_for_app(name, from_page).await?;
    /// let to_page = serde_json::to_value(result)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection, and [`McpError::Protocol`], also for a tool that apps cannot call.
    pub async fn call_tool_for_app(&self, name: &str, arguments: Value) -> Result<CallToolResult, McpError> {
        let session = self.session().await?;
        let tools = self.tools_in(&session).await?;
        let is_callable = tools
            .iter()
            .find(|tool| tool.name == name)
            .is_some_and(|tool| metadata(tool).is_none_or(|metadata| is_visible_to(metadata, Audience::App)));
        if !is_callable {
            return Err(McpError::Protocol {
                code: ErrorCode::INVALID_PARAMS.0,
                message: format!("apps cannot call a tool `{name}`"),
                data: None,
            });
        }
        self.call_tool_raw(name, arguments, CallOptions::new()).await
    }

    /// The page of one of the server's tools.
    pub(super) async fn app_resource(&self, name: &str) -> Result<Option<String>, McpError> {
        let session = self.session().await?;
        let tools = self.tools_in(&session).await?;
        let tool = tools.iter().find(|tool| tool.name == name);
        Ok(tool.and_then(metadata).and_then(resource_uri).map(str::to_owned))
    }

    /// Calls a tool that has a page, and hands the result on to the run's handler for that, unless a hook made another of it.
    pub(super) async fn call_with_app(
        &self,
        run: &RunContext,
        name: &str,
        arguments: Map<String, Value>,
        resource_uri: String,
    ) -> Result<ToolOutcome, McpError> {
        let kept = Kept::default();
        let of_model = arguments.clone();
        let outcome = self.call_through_hook(CallTool::new(self, run, Some((name, &kept))), name, arguments).await?;
        let kept = kept.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let (Some(handler), Some((result, unchanged)), ToolOutcome::Output(_)) = (&run.app, kept, &outcome)
            && unchanged == outcome
        {
            let server_id = self.id().map(str::to_owned);
            handler(AppResult { resource_uri, arguments: of_model, result, server_id });
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tool_is_seen_by_whom_it_lists() {
        let seen = |meta: Value| {
            let meta = meta.as_object().unwrap();
            (is_visible_to(meta, Audience::Model), is_visible_to(meta, Audience::App))
        };
        assert_eq!(seen(json!({})), (true, true));
        assert_eq!(seen(json!({"ui": {"visibility": ["app"]}})), (false, true));
        assert_eq!(seen(json!({"ui": {"visibility": ["model"]}})), (true, false));
        assert_eq!(seen(json!({"ui": {"visibility": "app"}})), (true, true));
    }

    #[test]
    fn a_page_is_named_in_two_ways() {
        let named = |meta: Value| resource_uri(meta.as_object().unwrap()).map(str::to_owned);
        assert_eq!(named(json!({"ui": {"resourceUri": "ui://a"}})).as_deref(), Some("ui://a"));
        assert_eq!(named(json!({"ui/resourceUri": "ui://b"})).as_deref(), Some("ui://b"));
        assert_eq!(named(json!({"ui": {"resourceUri": 1}})), None);
    }
}
