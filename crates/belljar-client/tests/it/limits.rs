//! The limits on servers that are never satisfied: rounds of input, and entries of a list.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use belljar_mcp_client::protocol::{
    CallToolRequestParams, CallToolResponse, GetPromptRequestParams, GetPromptResponse, InputRequiredResult,
    ListPromptsResult, PaginatedRequestParams, Prompt, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig,
};
use belljar_mcp_client::{
    CallOptions, CustomTransport, Elicitation, ElicitationResponse, McpError, McpServer, ProtocolEra, ServerBuilder,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};

/// A server that answers each request with this number of questions, and has this number of prompts.
#[derive(Clone, Default)]
struct Insatiable {
    questions: usize,
    prompts: usize,
}

impl Insatiable {
    fn server(self) -> ServerBuilder<CustomTransport> {
        McpServer::in_process("insatiable", move |stream| {
            let own = self.clone();
            async move {
                if let Ok(running) = own.serve(stream).await {
                    let _ = running.waiting().await;
                }
            }
        })
        .era(ProtocolEra::Modern)
    }

    fn ask(&self) -> InputRequiredResult {
        let question = json!({"method": "elicitation/create", "params": {"mode": "form", "message": "Go on?",
            "requestedSchema": {"type": "object", "properties": {"go": {"type": "boolean"}}}}});
        let questions: Map<String, Value> =
            (0..self.questions).map(|number| (format!("q{number}"), question.clone())).collect();
        InputRequiredResult::from_input_requests(serde_json::from_value(Value::Object(questions)).unwrap())
    }
}

impl ServerHandler for Insatiable {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(self.ask().into())
    }

    async fn read_resource(
        &self,
        _: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(self.ask().into())
    }

    async fn get_prompt(
        &self,
        _: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Ok(self.ask().into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = (0..self.prompts).map(|number| Prompt::new(format!("p{number}"), None::<String>, None));
        Ok(ListPromptsResult::with_all_items(prompts.collect()))
    }
}

/// Returns a server with this number of questions at once, which are counted and declined.
fn asks(questions: usize, asked: &Arc<AtomicUsize>) -> McpServer {
    let counter = asked.clone();
    let server = Insatiable { questions, ..Insatiable::default() }.server();
    let server = server.elicitation_handler(move |_: Elicitation| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok(ElicitationResponse::Decline) }
    });
    server.build()
}

#[tokio::test]
async fn inputs_of_a_round_are_limited() {
    let asked = Arc::new(AtomicUsize::new(0));
    let error = asks(33, &asked).call_tool_raw("any", json!({}), CallOptions::new()).await.unwrap_err();
    assert!(matches!(error, McpError::InvalidResponse { .. }), "{error:?}");
    assert!(error.to_string().contains("more than 32 inputs at once"), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn rounds_of_input_are_limited() {
    let asked = Arc::new(AtomicUsize::new(0));
    let server = asks(1, &asked);
    let running = server.connect().await.unwrap();
    let errors = [
        server.call_tool_raw("any", json!({}), CallOptions::new()).await.unwrap_err(),
        server.read_resource_raw("mem://any").await.unwrap_err(),
        server.get_prompt("any", [("a", "b")]).await.unwrap_err(),
    ];
    for error in &errors {
        assert!(matches!(error, McpError::InvalidResponse { .. }), "{error:?}");
        assert!(error.to_string().contains("more than 32 rounds of input"), "{error}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), errors.len() * 32);
    running.close().await.unwrap();
}

#[tokio::test]
async fn entries_of_a_list_are_limited_on_a_single_page_too() {
    const LIMIT: usize = 100_000;
    let many = |prompts| Insatiable { prompts, ..Insatiable::default() }.server().build();
    let most = many(LIMIT);
    assert_eq!(most.list_prompts().await.unwrap().len(), LIMIT);
    let error = many(LIMIT + 1).list_prompts().await.unwrap_err();
    assert!(matches!(error, McpError::InvalidResponse { .. }), "{error:?}");
    assert!(error.to_string().contains("insatiable") && error.to_string().contains("100000 entries"), "{error}");
}
