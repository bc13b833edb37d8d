//! Servers of the Python SDK 2, in both eras and on every transport.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belljar_client::{
    CallOptions, Elicitation, ElicitationResponse, LogLevel, McpServer, McpServerSse, McpServerStdio,
    McpServerStreamableHttp, Model, ModelError, ProtocolEra, Root, RunContext, SamplingRequest, SamplingResponse,
    ServerBuilder, ToolOutcome, Toolset,
};
use serde_json::{Map, json};

use crate::harness::{Listening, PATIENT, eventually, modern_python, output, script};

struct Critic;

#[async_trait]
impl Model for Critic {
    fn name(&self) -> String {
        "critic".to_owned()
    }

    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
        assert_eq!((request.max_tokens, request.system_prompt.as_deref()), (9, Some("Be kind.")));
        Ok(SamplingResponse::text(format!("{} Fine.", request.messages[0].text())))
    }
}

async fn ada(question: Elicitation) -> Result<ElicitationResponse, String> {
    assert_eq!(question.message(), "Who is there?");
    Ok(ElicitationResponse::Accept(Some(Map::from_iter([("name".to_owned(), json!("Ada"))]))))
}

fn equipped<T>(server: ServerBuilder<T>) -> ServerBuilder<T> {
    server
        .timeout(PATIENT)
        .sampling_model(Critic)
        .elicitation_handler(ada)
        .roots([Root::new("file:///home/ada/project")])
}

fn stdio() -> McpServerStdio {
    equipped(McpServerStdio::new(modern_python()).args([script("modern_server.py"), "stdio".to_owned()]))
}

fn over_http() -> (Listening, McpServerStreamableHttp) {
    let listening = Listening::start(&modern_python(), &[&script("modern_server.py"), "streamable-http"]);
    let server = equipped(McpServerStreamableHttp::new(listening.url("/mcp")).unwrap());
    (listening, server)
}

/// Goes through what both eras have.
async fn exercise(server: &McpServer, version: &str) {
    let info = server.info().await.unwrap();
    assert_eq!(info.protocol_version.as_str(), version);
    assert_eq!(info.instructions.as_deref(), Some("Ask and you will be asked."));
    server.ping().await.unwrap();
    let tools = server.list_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "add" && tool.output_schema.is_some()));
    let sum = output(server.direct_call_tool("add", json!({"a": 1, "b": 2})).await.unwrap());
    assert_eq!(sum.as_json(), Some(&json!(3)));
    let failed = server.direct_call_tool("fail", json!({})).await.unwrap();
    assert!(matches!(&failed, ToolOutcome::Retry(retry) if retry.message.contains("fail")), "{failed:?}");
    assert_eq!(server.read_resource("mem://note").await.unwrap().as_text(), Some("a note"));
    let prompt = server.get_prompt("greet", [("name", "Ada")]).await.unwrap();
    assert_eq!(prompt.messages.len(), 1);
}

/// Goes through the tool that talks while it works.
async fn talk(server: &McpServer, log: &Arc<Mutex<Vec<String>>>) {
    let options = CallOptions::new().progress_handler({
        let log = log.clone();
        move |step| log.lock().unwrap().push(step.message.unwrap())
    });
    assert_eq!(output(server.call_tool_with("talk", json!({}), options).await.unwrap()).to_text(), "said");
    assert_eq!(*log.lock().unwrap(), ["line 0", "step 0", "line 1", "step 1", "line 2", "step 2"]);
}

#[tokio::test]
async fn the_modern_era_works_over_standard_streams() {
    let log = Arc::<Mutex<Vec<String>>>::default();
    let lines = log.clone();
    let server =
        stdio().log_level(LogLevel::Info).log_handler(move |line| lines.lock().unwrap().push(line.text())).build();
    let running = server.connect().await.unwrap();
    exercise(&server, "2026-07-28").await;
    talk(&server, &log).await;
    running.close().await.unwrap();
}

#[tokio::test]
async fn the_modern_era_works_over_http() {
    let log = Arc::<Mutex<Vec<String>>>::default();
    let lines = log.clone();
    let (_listening, server) = over_http();
    let server =
        server.log_level(LogLevel::Info).log_handler(move |line| lines.lock().unwrap().push(line.text())).build();
    let running = server.connect().await.unwrap();
    exercise(&server, "2026-07-28").await;
    talk(&server, &log).await;
    running.close().await.unwrap();
}

#[tokio::test]
async fn the_legacy_era_works_with_the_same_server() {
    let server = stdio().era(ProtocolEra::Legacy).build();
    let running = server.connect().await.unwrap();
    exercise(&server, "2025-11-25").await;
    running.close().await.unwrap();
    let (_listening, server) = over_http();
    let server = server.era(ProtocolEra::Legacy).build();
    let running = server.connect().await.unwrap();
    exercise(&server, "2025-11-25").await;
    running.close().await.unwrap();
}

#[tokio::test]
async fn the_legacy_era_works_over_server_sent_events() {
    let listening = Listening::start(&modern_python(), &[&script("modern_server.py"), "sse"]);
    let server = equipped(McpServerSse::new(listening.url("/sse")).unwrap()).era(ProtocolEra::Legacy).build();
    let running = server.connect().await.unwrap();
    exercise(&server, "2025-11-25").await;
    running.close().await.unwrap();
}

#[tokio::test]
async fn rounds_that_want_input_reach_the_same_handlers() {
    let server = stdio().build();
    let answer = output(server.direct_call_tool("ask", json!({})).await.unwrap());
    // The age is the default that the schema has for it.
    assert_eq!(answer.as_text(), Some("asked, Ada: What of Ada, 7? Fine. (file:///home/ada/project)"));
    let (_listening, server) = over_http();
    let answer = output(server.build().direct_call_tool("ask", json!({})).await.unwrap());
    assert_eq!(answer.as_text(), Some("asked, Ada: What of Ada, 7? Fine. (file:///home/ada/project)"));
}

#[tokio::test]
async fn runs_have_headers_of_their_own_on_one_connection() {
    let (_listening, server) = over_http();
    let server = server.header("x-user", "nobody").unwrap().bearer_token("the server's").build();
    let running = server.connect().await.unwrap();
    let ask = async |run: RunContext, name: &str| {
        let arguments = Map::from_iter([("name".to_owned(), json!(name))]);
        output(server.call(&run, "header", arguments).await.unwrap()).to_text()
    };
    let ada = RunContext::new().header("x-user", "ada").unwrap().bearer_token("ada's").unwrap();
    let (first, second, third, fourth) = tokio::join!(
        ask(ada.clone(), "x-user"),
        ask(RunContext::new(), "x-user"),
        ask(ada, "authorization"),
        ask(RunContext::new(), "authorization"),
    );
    assert_eq!([&*first, &*second, &*third, &*fourth], ["ada", "nobody", "Bearer ada's", "Bearer the server's"]);
    running.close().await.unwrap();
}

#[tokio::test]
async fn headers_can_be_fetched_anew_for_each_request() {
    let (_listening, server) = over_http();
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let server = server
        .header_provider(move || {
            let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            async move { Ok(http::HeaderMap::from_iter([("x-count".parse().unwrap(), number.into())])) }
        })
        .build();
    let running = server.connect().await.unwrap();
    let ask = async || {
        let answer = server.direct_call_tool("header", json!({"name": "x-count"})).await.unwrap();
        output(answer).to_text().parse::<usize>().unwrap()
    };
    let first = ask().await;
    assert!(ask().await > first);
    running.close().await.unwrap();
}

#[tokio::test]
async fn a_list_that_changed_is_asked_for_again() {
    // This server tells of changes on the modern era only; on the legacy one `server-everything` does.
    let (_listening, server) = over_http();
    let server = server.build();
    let running = server.connect().await.unwrap();
    // The subscription to changes is taken in the background.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = server.list_tools().await.unwrap().len();
    server.direct_call_tool("grow", json!({})).await.unwrap();
    let started = std::time::Instant::now();
    while server.list_tools().await.unwrap().len() == before {
        assert!(started.elapsed() < PATIENT, "the list is still the old one");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.close().await.unwrap();
}

#[tokio::test]
async fn a_resource_that_changes_is_told_of() {
    let (_listening, server) = over_http();
    let server = server.build();
    let running = server.connect().await.unwrap();
    let mut updates = server.subscribe_resource("mem://note").await.unwrap();
    server.direct_call_tool("touch", json!({})).await.unwrap();
    tokio::time::timeout(PATIENT, updates.changed()).await.unwrap().unwrap();
    running.close().await.unwrap();
}

#[tokio::test]
async fn a_dropped_call_ends_the_servers_work_on_both_transports() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let server = stdio().env("NOTES", notes.path().display().to_string()).build();
    let running = server.connect().await.unwrap();
    let call = server.direct_call_tool("sleep", json!({}));
    tokio::time::timeout(Duration::from_millis(500), call).await.unwrap_err();
    eventually("the work ends", || std::fs::read_to_string(notes.path()).unwrap() == "cancelled\n").await;
    running.close().await.unwrap();

    for era in [ProtocolEra::Modern, ProtocolEra::Legacy] {
        let notes = tempfile::NamedTempFile::new().unwrap();
        let script = script("modern_server.py");
        let noting = [("NOTES", notes.path().display().to_string())];
        let listening = Listening::start_with(&modern_python(), &[&script, "streamable-http"], &noting);
        let server = equipped(McpServerStreamableHttp::new(listening.url("/mcp")).unwrap()).era(era).build();
        let running = server.connect().await.unwrap();
        let call = server.direct_call_tool("sleep", json!({}));
        tokio::time::timeout(Duration::from_millis(500), call).await.unwrap_err();
        eventually("the work ends", || std::fs::read_to_string(notes.path()).unwrap() == "cancelled\n").await;
        running.close().await.unwrap();
    }
}
