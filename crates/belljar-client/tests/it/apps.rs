//! Tools with pages, with `rmcp`'s server in this process over a custom transport.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belljar_mcp_client::transport::{Connector, OpenTransport};
use belljar_mcp_client::{
    CallTool, McpError, McpServer, ProcessToolCall, ProtocolEra, RetryReason, RunContext, ToolOutcome, Toolset,
};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult, MetaObject,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};

use crate::harness::{START_TIMEOUT, output};

/// A server with a map tool visible to both audiences, one visible only to the map's page, and one visible only to
/// models.
#[derive(Clone, Debug)]
struct Maps;

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

impl ServerHandler for Maps {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |name: &'static str, ui: Value| {
            let mut tool = Tool::new(name, "…", object(json!({"type": "object"})));
            tool.meta = Some(MetaObject(object(json!({"ui": ui}))));
            tool
        };
        let mut tools = vec![
            tool("map", json!({"resourceUri": "ui://map.html"})),
            tool("tiles", json!({"visibility": ["app"]})),
            tool("words", json!({"visibility": ["model"]})),
        ];
        // Some servers offer pages only to clients that announce support.
        let extensions = context.peer.peer_info().and_then(|info| info.capabilities.extensions.clone());
        if extensions.is_some_and(|extensions| extensions.contains_key("io.modelcontextprotocol/ui")) {
            tools.push(tool("globe", json!({"resourceUri": "ui://globe.html"})));
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut result = CallToolResult::success(vec![ContentBlock::text(format!("{:?}", request.arguments))]);
        result.meta = Some(MetaObject(object(json!({"zoom": 3}))));
        Ok(result.into())
    }
}

#[async_trait]
impl Connector for Maps {
    async fn connect(&self) -> Result<OpenTransport, McpError> {
        let (client_end, server_end) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move { Maps.serve(server_end).await.unwrap().waiting().await });
        Ok(OpenTransport::new(client_end))
    }

    fn identity(&self) -> String {
        "maps".to_owned()
    }
}

fn names(tools: &belljar_mcp_client::ToolList) -> Vec<&str> {
    tools.iter().map(|tool| tool.name.as_str()).collect()
}

#[tokio::test]
async fn app_only_tools_are_hidden_from_models() {
    let server = McpServer::custom(Maps).timeout(START_TIMEOUT).build();
    let _running = server.connect().await.unwrap();
    let run = RunContext::new();
    let tools = server.tools(&run).await.unwrap();
    assert_eq!(names(&tools), ["map", "words"]);
    assert_eq!(tools[0].app_resource(), Some("ui://map.html"));
    assert_eq!(server.list_tools().await.unwrap().len(), 3);
    let outcome = server.call(&run, "tiles", Map::new()).await.unwrap();
    assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.reason == RetryReason::UnknownTool), "{outcome:?}");
}

#[tokio::test]
async fn app_support_is_announced_to_servers() {
    let server = McpServer::custom(Maps).era(ProtocolEra::Legacy).timeout(START_TIMEOUT).supports_apps(true).build();
    assert_eq!(names(&server.tools(&RunContext::new()).await.unwrap()), ["map", "words", "globe"]);
}

#[tokio::test]
async fn pages_call_only_tools_visible_to_apps() {
    let server = McpServer::custom(Maps).timeout(START_TIMEOUT).build();
    let _running = server.connect().await.unwrap();
    let result = server.call_tool_for_app("tiles", json!({"x": 1})).await.unwrap();
    assert_eq!(result.meta.unwrap().0["zoom"], 3);
    for refused in ["words", "no-such-tool"] {
        let error = server.call_tool_for_app(refused, json!({})).await.unwrap_err();
        assert!(matches!(error, McpError::Protocol { code: -32602, .. }), "{error:?}");
    }
    server.call_tool_for_app("map", json!([1])).await.unwrap_err();
}

/// A hook that adds a key and replaces the results of some calls.
struct Keyed;

#[async_trait]
impl ProcessToolCall for Keyed {
    async fn process(
        &self,
        _run: &RunContext,
        call: CallTool<'_>,
        name: &str,
        mut arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        let is_secret = arguments.contains_key("secret");
        arguments.insert("key".to_owned(), json!("k"));
        let outcome = call.call(name, arguments).await?;
        Ok(if is_secret { ToolOutcome::text("redacted") } else { outcome })
    }
}

#[tokio::test]
async fn app_handler_receives_the_complete_result() {
    let results = Arc::new(Mutex::new(Vec::new()));
    let log = results.clone();
    let run = RunContext::new().app_handler(move |app| log.lock().unwrap().push(app));
    let server = McpServer::custom(Maps).id("maps").timeout(START_TIMEOUT).process_tool_call(Keyed).build();
    let _running = server.connect().await.unwrap();
    output(server.call(&run, "words", Map::new()).await.unwrap());
    output(server.call(&run, "map", object(json!({"place": "Ulm"}))).await.unwrap());
    // The hook replaced this result.
    assert_eq!(server.call(&run, "map", object(json!({"secret": 1}))).await.unwrap().to_text(), "redacted");
    let results = results.lock().unwrap();
    assert_eq!(results.len(), 1);
    assert_eq!((results[0].resource_uri.as_str(), results[0].server_id.as_deref()), ("ui://map.html", Some("maps")));
    assert_eq!(Value::Object(results[0].arguments.clone()), json!({"place": "Ulm"}));
    assert_eq!(results[0].result.meta.as_ref().unwrap().0["zoom"], 3);
}
