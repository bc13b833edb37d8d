//! Servers of the Python SDK 2, in both eras and on every transport.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belljar_mcp_client::{
    BoxError, CallOptions, Elicitation, ElicitationResponse, LogLevel, McpServer, McpServerSse, McpServerStdio,
    McpServerStreamableHttp, Model, ModelError, ProtocolEra, Root, RunContext, SamplingRequest, SamplingResponse,
    ServerBuilder, ToolOutcome, Toolset,
};
use serde_json::{Map, json};

use crate::harness::{START_TIMEOUT, TestServer, eventually, modern_python, output, script};

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

async fn ada(question: Elicitation) -> Result<ElicitationResponse, BoxError> {
    assert_eq!(question.message(), "Who is there?");
    Ok(ElicitationResponse::Accept(Some(Map::from_iter([("name".to_owned(), json!("Ada"))]))))
}

fn equipped<T>(server: ServerBuilder<T>) -> ServerBuilder<T> {
    server
        .timeout(START_TIMEOUT)
        .sampling_model(Critic)
        .elicitation_handler(ada)
        .roots([Root::new("file:///home/ada/project")])
}

fn stdio() -> McpServerStdio {
    equipped(McpServerStdio::new(modern_python()).args([script("modern_server.py"), "stdio".to_owned()]))
}

fn over_http() -> (TestServer, McpServerStreamableHttp) {
    let listening = TestServer::start(&modern_python(), &[&script("modern_server.py"), "streamable-http"]);
    let server = equipped(McpServerStreamableHttp::new(listening.url("/mcp")).unwrap());
    (listening, server)
}

/// Exercises the features common to both eras.
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

/// Exercises the tool that logs and reports progress.
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
    let listening = TestServer::start(&modern_python(), &[&script("modern_server.py"), "sse"]);
    let server = equipped(McpServerSse::new(listening.url("/sse")).unwrap()).era(ProtocolEra::Legacy).build();
    let running = server.connect().await.unwrap();
    exercise(&server, "2025-11-25").await;
    running.close().await.unwrap();
}

#[tokio::test]
async fn input_rounds_reach_the_same_handlers() {
    let server = stdio().build();
    let answer = output(server.direct_call_tool("ask", json!({})).await.unwrap());
    // The age is the schema's default.
    assert_eq!(answer.as_text(), Some("asked, Ada: What of Ada, 7? Fine. (file:///home/ada/project)"));
    let (_listening, server) = over_http();
    let answer = output(server.build().direct_call_tool("ask", json!({})).await.unwrap());
    assert_eq!(answer.as_text(), Some("asked, Ada: What of Ada, 7? Fine. (file:///home/ada/project)"));
}

#[tokio::test]
async fn runs_have_separate_headers() {
    let (_listening, server) = over_http();
    let server = server.header("x-user", "guest").unwrap().bearer_token("the server's").build();
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
    assert_eq!([&*first, &*second, &*third, &*fourth], ["ada", "guest", "Bearer ada's", "Bearer the server's"]);
    running.close().await.unwrap();
}

#[tokio::test]
async fn header_provider_is_called_for_each_request() {
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
async fn changed_list_is_requested_again() {
    // This server announces changes on the modern era only; for the legacy era `server-everything` covers it.
    let (_listening, server) = over_http();
    let server = server.build();
    let running = server.connect().await.unwrap();
    let before = server.list_tools().await.unwrap().len();
    let started = std::time::Instant::now();
    // The subscription is made in the background: only a change after it is announced.
    while server.list_tools().await.unwrap().len() == before {
        server.direct_call_tool("grow", json!({})).await.unwrap();
        assert!(started.elapsed() < START_TIMEOUT, "the list is still the old one");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.close().await.unwrap();
}

#[tokio::test]
async fn resource_update_reaches_the_subscriber() {
    let (_listening, server) = over_http();
    let server = server.build();
    let running = server.connect().await.unwrap();
    let mut updates = server.subscribe_resource("mem://note").await.unwrap();
    server.direct_call_tool("touch", json!({})).await.unwrap();
    tokio::time::timeout(START_TIMEOUT, updates.changed()).await.unwrap().unwrap();
    running.close().await.unwrap();
}

/// Calls `sleep` and drops the call as soon as it reports progress.
async fn drop_when_started(server: &McpServer) {
    let started = Arc::new(tokio::sync::Notify::new());
    let notify = started.clone();
    let options = CallOptions::new().progress_handler(move |_| notify.notify_one());
    tokio::select! {
        outcome = server.call_tool_with("sleep", json!({}), options) => panic!("{outcome:?}"),
        () = started.notified() => {}
    }
}

#[tokio::test]
async fn dropped_call_is_cancelled_on_both_transports() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let server = stdio().env("NOTES", notes.path().display().to_string()).build();
    let running = server.connect().await.unwrap();
    drop_when_started(&server).await;
    eventually("the tool is cancelled", || std::fs::read_to_string(notes.path()).unwrap() == "cancelled\n").await;
    running.close().await.unwrap();

    for era in [ProtocolEra::Modern, ProtocolEra::Legacy] {
        let notes = tempfile::NamedTempFile::new().unwrap();
        let script = script("modern_server.py");
        let noting = [("NOTES", notes.path().display().to_string())];
        let listening = TestServer::start_with(&modern_python(), &[&script, "streamable-http"], &noting);
        let server = equipped(McpServerStreamableHttp::new(listening.url("/mcp")).unwrap()).era(era).build();
        let running = server.connect().await.unwrap();
        drop_when_started(&server).await;
        eventually("the tool is cancelled", || std::fs::read_to_string(notes.path()).unwrap() == "cancelled\n").await;
        running.close().await.unwrap();
    }
}
