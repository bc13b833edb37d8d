//! Connections that are lost, refused or slow: shared attempts, restarts, repeated requests, and the end of children.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use belljar_mcp_client::transport::{ChildStderr, Connector, OpenTransport};
use belljar_mcp_client::{
    CallOptions, McpError, McpServer, McpServerStreamableHttp, ReconnectPolicy, RestartPolicy, RetryPolicy, RunContext,
    ToolOutcome, Toolset,
};
use futures::StreamExt;
use serde_json::{Map, Value, json};

use crate::harness::{START_TIMEOUT, TestServer, eventually, faulty, output, script};

/// A transport that works for a number of times, counts the attempts, and fails when the test allows it.
#[derive(Clone, Debug)]
struct Counted {
    attempts: Arc<AtomicUsize>,
    works: usize,
    /// The attempts that fail wait for a permit each.
    may_fail: Arc<tokio::sync::Semaphore>,
}

impl Counted {
    fn new(works: usize) -> Self {
        Self { attempts: Arc::default(), works, may_fail: Arc::new(tokio::sync::Semaphore::new(0)) }
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Connector for Counted {
    async fn connect(&self) -> Result<OpenTransport, McpError> {
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst);
        if attempt >= self.works {
            self.may_fail.acquire().await.unwrap().forget();
            let error = std::io::Error::other("nothing here");
            return Err(McpError::Spawn { command: "counted".to_owned(), error });
        }
        let mut child = tokio::process::Command::new("python3")
            .args(["-u", &script("faulty_server.py"), "dies"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        Ok(OpenTransport::new((child.stdout.take().unwrap(), child.stdin.take().unwrap())))
    }

    fn identity(&self) -> String {
        "counted".to_owned()
    }

    fn reconnects(&self) -> bool {
        true
    }
}

/// Makes four calls at once and lets the attempts to connect fail once all of them wait.
async fn four_failures(server: &McpServer, transport: &Counted) -> Vec<McpError> {
    let before = transport.attempts();
    let calls = (0..4).map(|_| {
        let server = server.clone();
        tokio::spawn(async move { server.call_tool_raw("fine", json!({}), CallOptions::new()).await.unwrap_err() })
    });
    let calls: Vec<_> = calls.collect();
    eventually("an attempt is made", || transport.attempts() > before).await;
    // On this runtime of one thread the other three tasks have run up to their wait by now.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    transport.may_fail.add_permits(100);
    let errors = futures::future::join_all(calls).await.into_iter().map(Result::unwrap).collect();
    transport.may_fail.forget_permits(1_000);
    errors
}

#[tokio::test]
async fn callers_that_wait_share_a_failed_attempt() {
    let transport = Counted::new(0);
    let server = McpServer::custom(transport.clone()).build();
    for error in four_failures(&server, &transport).await {
        assert!(matches!(error, McpError::Spawn { .. }) && error.to_string().contains("nothing here"), "{error:?}");
    }
    assert_eq!(transport.attempts(), 1);
    // A later caller tries again.
    four_failures(&server, &transport).await;
    assert_eq!(transport.attempts(), 2);
}

#[tokio::test]
async fn callers_that_wait_share_the_attempts_to_reconnect() {
    let transport = Counted::new(1);
    let policy = ReconnectPolicy::new(3).first_delay(Duration::from_millis(1));
    let server = McpServer::custom(transport.clone()).reconnect(policy).timeout(START_TIMEOUT).build();
    let running = server.connect().await.unwrap();
    server.call_tool_raw("act", json!({}), CallOptions::new()).await.unwrap_err();
    four_failures(&server, &transport).await;
    assert_eq!(transport.attempts(), 1 + 3);
    running.close().await.unwrap();
}

#[tokio::test]
async fn dropped_caller_leaves_the_attempt_to_the_next() {
    let transport = Counted::new(0);
    let server = McpServer::custom(transport.clone()).build();
    let first = tokio::spawn({
        let server = server.clone();
        async move { server.connect().await.map(drop) }
    });
    eventually("an attempt is made", || transport.attempts() == 1).await;
    let second = tokio::spawn({
        let server = server.clone();
        async move { server.connect().await.map(drop) }
    });
    tokio::task::yield_now().await;
    first.abort();
    transport.may_fail.add_permits(1);
    second.await.unwrap().unwrap_err();
    assert_eq!(transport.attempts(), 2);
}

#[tokio::test]
async fn legacy_server_is_asked_for_the_modern_era_only_once() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let server = faulty("ignores_discover").env("NOTES", notes.path().display().to_string());
    let server = server.timeout(Duration::from_secs(15)).build();
    for _ in 0..2 {
        assert_eq!(server.info().await.unwrap().protocol_version.as_str(), "2025-11-25");
    }
    assert_eq!(std::fs::read_to_string(notes.path()).unwrap(), "discover\n");
}

#[tokio::test]
async fn crashed_child_is_restarted_as_often_as_the_policy_allows() {
    let server = faulty("dies").restart(RestartPolicy::new(2)).build();
    let running = server.connect().await.unwrap();
    let mut processes = std::collections::BTreeSet::new();
    for _ in 0..3 {
        processes.insert(output(server.direct_call_tool("process_id", json!({})).await.unwrap()).to_text());
        let error = server.call_tool_raw("act", json!({}), CallOptions::new()).await.unwrap_err();
        assert!(error.to_string().contains("MemoryError"), "{error}");
    }
    assert_eq!(processes.len(), 3);
    let error = server.call_tool_raw("process_id", json!({}), CallOptions::new()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("MemoryError") && text.contains("restarted 2 times within 300 s"), "{text}");
    running.close().await.unwrap();
}

#[tokio::test]
async fn restart_reads_the_lists_again() {
    let server = faulty("dies").restart(RestartPolicy::new(1)).retry(RetryPolicy::new(1)).build();
    let running = server.connect().await.unwrap();
    assert_eq!(server.list_tools().await.unwrap().len(), 2);
    server.call_tool_raw("act", json!({}), CallOptions::new()).await.unwrap_err();
    assert_eq!(server.list_tools().await.unwrap().len(), 2);
    running.close().await.unwrap();
}

/// Returns a server that needs no token, and the number of requests with this name or method that arrived.
fn refusing() -> TestServer {
    TestServer::start_with("python3", &["-u", &script("identity_server.py")], &[("OPEN", "1".to_owned())])
}

async fn refuse(listening: &TestServer, refusals: Value) {
    reqwest::Client::new().post(listening.url("/refuse")).json(&refusals).send().await.unwrap();
}

async fn arrived(listening: &TestServer, name: &str) -> usize {
    let seen: Value = reqwest::get(listening.url("/seen")).await.unwrap().json().await.unwrap();
    seen.as_array().unwrap().iter().filter(|seen| seen["name"] == name || seen["method"] == name).count()
}

#[tokio::test]
async fn status_and_retry_after_are_part_of_the_error() {
    let listening = refusing();
    let server = McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT).build();
    let running = server.connect().await.unwrap();
    for (status, after) in [(429, Some(7)), (503, None), (403, None)] {
        refuse(&listening, json!([[status, after.map(|after: u64| after.to_string())]])).await;
        let error = server.call_tool_raw("look", json!({}), CallOptions::new()).await.unwrap_err();
        let McpError::Unreachable { status: seen, retry_after, .. } = error else { panic!("{error:?}") };
        assert_eq!((seen, retry_after), (Some(status), after.map(Duration::from_secs)));
    }
    running.close().await.unwrap();
}

#[tokio::test]
async fn only_safe_requests_are_repeated() {
    let listening = refusing();
    let policy = RetryPolicy::new(2).first_delay(Duration::from_millis(1)).max_delay(Duration::from_secs(5));
    let server = McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT).retry(policy);
    let server = server.build();
    let running = server.connect().await.unwrap();
    refuse(&listening, json!([[503, null], [429, "0"]])).await;
    server.list_tools().await.unwrap();
    assert_eq!(arrived(&listening, "tools/list").await, 3);
    refuse(&listening, json!([[503, null]])).await;
    server.call_tool_raw("look", json!({}), CallOptions::new()).await.unwrap();
    assert_eq!(arrived(&listening, "look").await, 2);
    // A tool that may change something: only after a refusal it is certain that the tool was not called.
    refuse(&listening, json!([[429, null]])).await;
    server.call_tool_raw("note", json!({"text": "x"}), CallOptions::new()).await.unwrap();
    assert_eq!(arrived(&listening, "note").await, 2);
    refuse(&listening, json!([[503, null]])).await;
    server.call_tool_raw("note", json!({"text": "x"}), CallOptions::new()).await.unwrap_err();
    assert_eq!(arrived(&listening, "note").await, 3);
    // A delay beyond the maximum is not waited for.
    refuse(&listening, json!([[429, "6"]])).await;
    server.read_resource("notes://x").await.unwrap_err();
    assert_eq!(arrived(&listening, "resources/read").await, 1);
    refuse(&listening, json!([[503, null], [503, null], [503, null]])).await;
    server.read_resource("notes://x").await.unwrap_err();
    assert_eq!(arrived(&listening, "resources/read").await, 4);
    running.close().await.unwrap();
}

#[tokio::test]
async fn subscription_ends_with_the_connection() {
    let listening =
        TestServer::start(&crate::harness::modern_python(), &[&script("modern_server.py"), "streamable-http"]);
    let server = McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT).build();
    let running = server.connect().await.unwrap();
    let mut updates = server.subscribe_resource("mem://note").await.unwrap();
    server.direct_call_tool("touch", json!({})).await.unwrap();
    assert_eq!(tokio::time::timeout(START_TIMEOUT, updates.next()).await.unwrap(), Some(()));
    drop(updates);
    running.close().await.unwrap();
    // A child that dies ends the stream without a further message.
    let server = faulty("subscribed").build();
    let running = server.connect().await.unwrap();
    let mut updates = server.subscribe_resource("mem://note").await.unwrap();
    server.call_tool_raw("act", json!({}), CallOptions::new()).await.unwrap_err();
    assert_eq!(tokio::time::timeout(START_TIMEOUT, updates.next()).await.unwrap(), None);
    running.close().await.unwrap();
}

/// Returns the number of connections to the server, without that of the question.
async fn connections(listening: &TestServer) -> usize {
    reqwest::get(listening.url("/connections")).await.unwrap().json().await.unwrap()
}

#[tokio::test]
async fn connections_are_kept_between_calls() {
    let variables = [("OPEN", "1".to_owned()), ("NODELAY", "1".to_owned())];
    let listening = TestServer::start_with("python3", &["-u", &script("identity_server.py")], &variables);
    let started = std::time::Instant::now();
    loop {
        let server = McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT).build();
        let running = server.connect().await.unwrap();
        server.direct_call_tool("look", json!({})).await.unwrap();
        let before = connections(&listening).await;
        for _ in 0..100 {
            server.direct_call_tool("look", json!({})).await.unwrap();
        }
        let added = connections(&listening).await - before;
        running.close().await.unwrap();
        // One is the question's own. The pauses of a busy machine cause comparisons with a new connection, and can be
        // taken for delays of the server: then it gets new connections until the next attempt.
        if added <= 20 {
            break;
        }
        assert!(started.elapsed() < START_TIMEOUT, "{added} connections for 100 calls");
    }
}

#[tokio::test]
async fn server_that_delays_on_kept_connections_gets_new_ones() {
    let listening = refusing();
    let server = McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT).build();
    let running = server.connect().await.unwrap();
    let started = std::time::Instant::now();
    loop {
        let before = connections(&listening).await;
        for _ in 0..10 {
            server.direct_call_tool("look", json!({})).await.unwrap();
        }
        if connections(&listening).await - before == 11 {
            break;
        }
        assert!(started.elapsed() < START_TIMEOUT, "the connections are kept");
    }
    running.close().await.unwrap();
}

/// Returns whether a process exists and has not ended.
fn is_alive(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

async fn descendant(server: &McpServer) -> String {
    output(server.direct_call_tool("starts_another", json!({})).await.unwrap()).to_text()
}

#[test]
fn descendants_end_with_the_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = faulty("none").build();
    let running = runtime.block_on(server.connect()).unwrap();
    let process = runtime.block_on(descendant(&server));
    assert!(is_alive(&process));
    drop(runtime);
    // The guard outlives the runtime, as one in a static does.
    runtime_free_wait(&process);
    drop(running);
}

#[test]
fn descendants_end_with_a_guard_that_is_dropped_outside_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = faulty("none").build();
    let running = runtime.block_on(server.connect()).unwrap();
    let process = runtime.block_on(descendant(&server));
    drop(running);
    runtime_free_wait(&process);
    // Without a guard, too: the call's own connection ends with it.
    let process = runtime.block_on(descendant(&server));
    runtime_free_wait(&process);
}

fn runtime_free_wait(process: &str) {
    let started = std::time::Instant::now();
    while is_alive(process) {
        assert!(started.elapsed() < Duration::from_secs(60), "process {process} is still alive");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn standard_error_goes_to_its_destination() {
    let lines = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = lines.clone();
    let server = faulty("none").stderr(ChildStderr::lines(move |line| seen.lock().push(line.to_owned()))).build();
    server.direct_call_tool("mutters", json!({})).await.unwrap();
    eventually("the lines arrive", || *lines.lock() == ["first line", "second line"]).await;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.log");
    let server = faulty("none").stderr(ChildStderr::file(&path)).build();
    for times in 1..3 {
        server.direct_call_tool("mutters", json!({})).await.unwrap();
        let expected = "first line\nsecond line\n".repeat(times);
        eventually("the file is written", || std::fs::read_to_string(&path).unwrap() == expected).await;
    }
    let error = faulty("none").stderr(ChildStderr::file(directory.path())).build().connect().await.err().unwrap();
    assert!(error.to_string().contains(&directory.path().display().to_string()), "{error}");
    // Errors contain the last lines of a captured one, but not of an inherited one.
    let act = async |stderr| {
        let server = faulty("dies").stderr(stderr).build();
        server.call_tool_raw("act", json!({}), CallOptions::new()).await.unwrap_err().to_string()
    };
    assert!(act(ChildStderr::lines(|_| {})).await.contains("MemoryError"));
    assert!(act(ChildStderr::Inherit).await.contains("exit status: 3"));
    assert!(!act(ChildStderr::Inherit).await.contains("MemoryError"));
}

#[tokio::test]
async fn timeout_of_a_call_includes_its_task() {
    let server = McpServer::custom(crate::tasks::Slow::default()).timeout(START_TIMEOUT).build();
    let options = CallOptions::new().timeout(Duration::from_millis(300));
    let outcome = server.call_tool_raw("endless", json!({}), options).await;
    assert!(matches!(&outcome, Err(McpError::Timeout { .. })), "{outcome:?}");
}

#[tokio::test]
async fn in_process_server_is_connected_for_each_guard() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    let server = McpServer::in_process("slow", move |stream| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            let server = rmcp::ServiceExt::serve(crate::tasks::Slow::default(), stream).await.unwrap();
            server.waiting().await.unwrap();
        }
    })
    .timeout(START_TIMEOUT)
    .build();
    assert_eq!(server.label(), "slow");
    for round in 1..3 {
        let running = server.connect().await.unwrap();
        assert_eq!(server.direct_call_tool("fails", json!({})).await.unwrap(), ToolOutcome::retry("no luck"));
        running.close().await.unwrap();
        assert_eq!(served.load(Ordering::SeqCst), round);
    }
    let running = server.connect().await.unwrap();
    let error = server.custom_request("example/unknown", Value::Null, CallOptions::new()).await.unwrap_err();
    assert!(matches!(error, McpError::Protocol { code: -32601, .. }), "{error:?}");
    server.custom_notification("notifications/example", json!({"a": 1})).await.unwrap();
    assert!(!server.peer().await.unwrap().peer_info().unwrap().protocol_version.as_str().is_empty());
    assert_eq!(server.direct_call_tool("fails", json!({})).await.unwrap(), ToolOutcome::retry("no luck"));
    running.close().await.unwrap();
}

#[tokio::test]
async fn trace_context_of_a_run_is_in_the_metadata_of_its_requests() {
    let listening = refusing();
    let server = McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT).build();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let run = RunContext::new().traceparent(parent);
    server.tools(&run).await.unwrap();
    server.call(&run, "look", Map::new()).await.unwrap();
    let seen: Value = reqwest::get(listening.url("/seen")).await.unwrap().json().await.unwrap();
    for method in ["tools/list", "tools/call"] {
        let one = seen.as_array().unwrap().iter().find(|seen| seen["method"] == method).unwrap();
        assert_eq!(one["traceparent"], parent, "{method}");
    }
}
