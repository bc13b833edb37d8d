//! npm's `server-everything` on every transport, with all of its features.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belljar_mcp_client::{
    BoxError, CallOptions, CompletionArgument, Elicitation, ElicitationResponse, LogLevel, McpServer, McpServerSse,
    McpServerStreamableHttp, Model, ModelError, PromptContent, Role, Root, SamplingRequest, SamplingResponse,
    ServerBuilder, ToolOutcome, ToolOutput,
};
use serde_json::{Map, Value, json};

use crate::harness::{START_TIMEOUT, TestServer, everything, npm_server, output};

/// A model that repeats its request.
struct Repeater;

#[async_trait]
impl Model for Repeater {
    fn name(&self) -> String {
        "repeater".to_owned()
    }

    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
        let last = request.messages.last().unwrap().text();
        Ok(SamplingResponse::text(format!("{} {} {last}", request.system_prompt.unwrap(), request.max_tokens)))
    }
}

async fn answer(question: Elicitation) -> Result<ElicitationResponse, BoxError> {
    match question {
        Elicitation::Form { schema, .. } if !schema["properties"]["interpretation"].is_null() => {
            let values = Map::from_iter([("interpretation".to_owned(), json!("snake"))]);
            Ok(ElicitationResponse::Accept(Some(values)))
        }
        Elicitation::Url { url, .. } if !url.starts_with("https://refuse.") => Ok(ElicitationResponse::Accept(None)),
        Elicitation::Form { .. } => {
            let values = Map::from_iter([("name".to_owned(), json!("Ada")), ("check".to_owned(), json!(true))]);
            Ok(ElicitationResponse::Accept(Some(values)))
        }
        _ => Ok(ElicitationResponse::Decline),
    }
}

fn equipped<T>(server: ServerBuilder<T>, log: &Arc<Mutex<Vec<String>>>) -> ServerBuilder<T> {
    let log = log.clone();
    server
        .timeout(START_TIMEOUT)
        .sampling_model(Repeater)
        .elicitation_handler(answer)
        .roots([Root::new("file:///home/ada/project").named("project")])
        .log_level(LogLevel::Debug)
        .log_handler(move |message| log.lock().unwrap().push(message.text()))
}

async fn call(server: &McpServer, tool: &str, arguments: Value) -> ToolOutput {
    output(server.direct_call_tool(tool, arguments).await.unwrap())
}

/// Exercises all features of the server.
async fn exercise(server: McpServer, log: Arc<Mutex<Vec<String>>>) {
    let running = server.connect().await.unwrap();
    assert!(server.server_info().await.unwrap().unwrap().name.contains("everything"));
    assert!(server.capabilities().await.unwrap().tools.is_some());
    assert!(server.server_instructions().await.unwrap().unwrap().contains("Everything"));
    assert!(server.ping().await.unwrap() < START_TIMEOUT);

    // The tools that depend on the client's capabilities appear once the server knows these.
    let tools = loop {
        let tools = server.list_tools().await.unwrap();
        if tools.iter().any(|tool| tool.name == "get-roots-list") {
            break tools;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let structured = tools.iter().find(|tool| tool.name == "get-structured-content").unwrap();
    assert!(structured.output_schema.as_ref().unwrap().contains_key("properties"));
    let long = tools.iter().find(|tool| tool.name == "trigger-long-running-operation").unwrap();
    assert_eq!(long.annotations.as_ref().unwrap().read_only_hint, Some(true));

    assert_eq!(call(&server, "echo", json!({"message": "hello"})).await.as_text(), Some("Echo: hello"));
    let weather = call(&server, "get-structured-content", json!({"location": "Chicago"})).await;
    assert!(weather.as_json().unwrap()["temperature"].is_number(), "{weather:?}");
    let image = call(&server, "get-tiny-image", json!({})).await;
    assert_eq!(image.binaries().len(), 1);
    assert!(image.binaries()[0].is_image() && image.binaries()[0].data.starts_with(b"\x89PNG"));
    let annotated =
        call(&server, "get-annotated-message", json!({"messageType": "success", "includeImage": true})).await;
    assert_eq!(annotated.binaries().len(), 1);
    let reference = call(&server, "get-resource-reference", json!({"resourceType": "Text", "resourceId": 1})).await;
    assert!(matches!(&reference, ToolOutput::List(parts) if parts.len() == 3), "{reference:?}");
    // Links are read.
    let links = call(&server, "get-resource-links", json!({"count": 2})).await;
    assert!(links.to_text().contains("Resource 2: This is a plaintext"), "{links:?}");

    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = steps.clone();
    let options = CallOptions::new().progress_handler(move |step| seen.lock().unwrap().push(step.progress));
    let arguments = json!({"duration": 0.2, "steps": 4});
    output(server.call_tool_with("trigger-long-running-operation", arguments, options).await.unwrap());
    assert_eq!(*steps.lock().unwrap(), [1.0, 2.0, 3.0, 4.0]);

    let sampled = call(&server, "trigger-sampling-request", json!({"prompt": "why?", "maxTokens": 33})).await.to_text();
    assert!(sampled.contains("You are a helpful test server. 33 ") && sampled.contains("why?"), "{sampled}");
    let elicited = call(&server, "trigger-elicitation-request", json!({})).await.to_text();
    // An omitted value gets its default.
    assert!(elicited.contains("Ada") && elicited.contains("It was a dark and stormy night"), "{elicited}");
    let page = json!({"url": "https://example.org/agree", "message": "Agree?"});
    assert!(call(&server, "trigger-url-elicitation", page).await.to_text().contains("completed"));
    // The server requires the page first: the call is repeated after the user accepted.
    let page = json!({"url": "https://example.org/agree", "errorPath": true});
    assert!(call(&server, "trigger-url-elicitation", page).await.to_text().contains("completed"));
    let page = json!({"url": "https://refuse.example.org/"});
    assert!(call(&server, "trigger-url-elicitation", page).await.to_text().contains("declined"));
    assert!(call(&server, "get-roots-list", json!({})).await.to_text().contains("file:///home/ada/project"));

    let failed = server.direct_call_tool("get-sum", json!({"a": "x", "b": 1})).await.unwrap();
    assert!(matches!(failed, ToolOutcome::Retry(_)), "{failed:?}");
    let missing = server.direct_call_tool("no-such-tool", json!({})).await.unwrap();
    assert!(matches!(&missing, ToolOutcome::Retry(retry) if retry.message.contains("no-such-tool")), "{missing:?}");

    let prompts = server.list_prompts().await.unwrap();
    assert!(prompts.iter().any(|prompt| prompt.name == "args-prompt"));
    let prompt = server.get_prompt("args-prompt", [("city", "Paris")]).await.unwrap();
    assert_eq!(prompt.messages[0].role, Role::User);
    assert!(matches!(&prompt.messages[0].content, PromptContent::Text(text) if text.contains("Paris")));
    let prompt = server.get_prompt("resource-prompt", [("resourceType", "Text"), ("resourceId", "1")]).await.unwrap();
    assert!(prompt.messages.iter().any(|message| matches!(message.content, PromptContent::Embedded { .. })));
    let departments =
        server.complete(CompletionArgument::for_prompt("completable-prompt", "department", "S")).await.unwrap();
    assert_eq!(departments.values, ["Sales", "Support"]);
    let people = CompletionArgument::for_prompt("completable-prompt", "name", "").with_context("department", "Sales");
    assert_eq!(server.complete(people).await.unwrap().values, ["David", "Eve", "Frank"]);

    let resources = server.list_resources().await.unwrap();
    assert!(server.read_resource(&resources[0].uri).await.unwrap().as_text().is_some());
    let templates = server.list_resource_templates().await.unwrap();
    assert!(templates.iter().any(|template| template.uri_template.contains("dynamic/blob")));
    let blob = server.read_resource("demo://resource/dynamic/blob/1").await.unwrap();
    assert!(matches!(blob, ToolOutput::Binary(_)), "{blob:?}");
    server.read_resource("demo://no/such/thing").await.unwrap_err();

    let mut updates = server.subscribe_resource("demo://resource/dynamic/text/1").await.unwrap();
    call(&server, "toggle-subscriber-updates", json!({})).await;
    tokio::time::timeout(START_TIMEOUT, updates.changed()).await.unwrap().unwrap();
    drop(updates);
    assert!(log.lock().unwrap().iter().any(|line| line.contains("Subscribe")), "{log:?}");
    server.notify_roots_changed().await.unwrap();
    running.close().await.unwrap();
    assert!(!server.is_running());
}

/// Calls the tool that must be called as a task, which asks a question while it runs.
async fn research<T>(server: ServerBuilder<T>, build: fn(ServerBuilder<T>) -> McpServer) {
    let server = build(equipped(server, &Arc::default()));
    let running = server.connect().await.unwrap();
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = steps.clone();
    let options = CallOptions::new().progress_handler(move |step| seen.lock().unwrap().push(step.message.unwrap()));
    let arguments = json!({"topic": "python", "ambiguous": true});
    let report = output(server.call_tool_with("simulate-research-query", arguments, options).await.unwrap()).to_text();
    assert!(report.contains("Research Report: python (snake)"), "{report}");
    let steps = steps.lock().unwrap().clone();
    assert!(steps.iter().any(|step| step.contains("Gathering")), "{steps:?}");
    // The client now knows that the tool must be called as a task. Dropping the call cancels the task; the connection
    // still works.
    let call = server.direct_call_tool("simulate-research-query", json!({"topic": "rust"}));
    tokio::time::timeout(Duration::from_millis(500), call).await.unwrap_err();
    assert_eq!(call_echo(&server).await, "Echo: hello");
    running.close().await.unwrap();
}

async fn call_echo(server: &McpServer) -> String {
    call(server, "echo", json!({"message": "hello"})).await.to_text()
}

#[tokio::test]
async fn tool_that_requires_a_task_works_on_every_transport() {
    research(everything(), |server| server.build()).await;
    let listening = TestServer::start("node", &[&npm_server("server-everything"), "streamableHttp"]);
    research(McpServerStreamableHttp::new(listening.url("/mcp")).unwrap(), |server| server.build()).await;
    let listening = TestServer::start("node", &[&npm_server("server-everything"), "sse"]);
    research(McpServerSse::new(listening.url("/sse")).unwrap(), |server| server.build()).await;
}

#[tokio::test]
async fn changed_roots_are_requested_again() {
    let root = Arc::new(Mutex::new("file:///one".to_owned()));
    let current = root.clone();
    let server = everything().roots_handler(move || {
        let root = current.lock().unwrap().clone();
        async move { Ok(vec![Root::new(root)]) }
    });
    let server = server.build();
    let running = server.connect().await.unwrap();
    let shows = async |root: &str| {
        let started = std::time::Instant::now();
        while !server.direct_call_tool("get-roots-list", json!({})).await.unwrap().to_text().contains(root) {
            assert!(started.elapsed() < START_TIMEOUT, "{root} is never listed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    shows("file:///one").await;
    *root.lock().unwrap() = "file:///two".to_owned();
    server.notify_roots_changed().await.unwrap();
    shows("file:///two").await;
    running.close().await.unwrap();
}

#[tokio::test]
async fn everything_works_over_standard_streams() {
    let log = Arc::default();
    exercise(equipped(everything(), &log).build(), log).await;
}

#[tokio::test]
async fn everything_works_over_streamable_http() {
    let listening = TestServer::start("node", &[&npm_server("server-everything"), "streamableHttp"]);
    let log = Arc::default();
    exercise(equipped(McpServerStreamableHttp::new(listening.url("/mcp")).unwrap(), &log).build(), log).await;
}

#[tokio::test]
async fn everything_works_over_server_sent_events() {
    let listening = TestServer::start("node", &[&npm_server("server-everything"), "sse"]);
    let log = Arc::default();
    exercise(equipped(McpServerSse::new(listening.url("/sse")).unwrap(), &log).build(), log).await;
}
