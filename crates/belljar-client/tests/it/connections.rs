//! Connections: opening, sharing, closing, reconnecting, concurrent calls.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use belljar_mcp_client::transport::{Connector, OpenTransport};
use belljar_mcp_client::{
    CallOptions, CallTool, McpError, McpServer, McpServerSse, McpServerStdio, McpServerStreamableHttp, ProcessToolCall,
    ProtocolEra, ReconnectPolicy, RunContext, ToolOutcome, Toolset,
};
use serde_json::{Map, Value, json};

use crate::harness::{START_TIMEOUT, TestServer, everything, faulty, free_port, npm_server, output};

/// Returns the result of the server's `environment` tool.
async fn environment(server: &McpServer) -> Value {
    output(server.direct_call_tool("environment", json!({})).await.unwrap()).as_json().unwrap().clone()
}

#[test]
fn servers_are_equal_by_id_prefix_and_identity() {
    let stdio = || faulty("none");
    assert_eq!(stdio().tool_prefix("a").build().id(), Some("a"));
    assert_eq!(stdio().tool_prefix("a").build(), stdio().tool_prefix("a").id("a").build());
    assert_ne!(stdio().tool_prefix("a").build(), stdio().build());
    assert_ne!(stdio().id("a").build(), stdio().build());
    assert_eq!(stdio().env("a", "1").env("b", "2").build(), stdio().env("b", "2").env("a", "1").build());
    assert_ne!(stdio().env("a", "1").build(), stdio().env("a", "2").build());
    assert_ne!(stdio().cwd("/").build(), stdio().build());
    let url = "http://localhost:1/sse";
    assert_ne!(McpServerSse::new(url).unwrap().build(), McpServerStreamableHttp::new(url).unwrap().build());
}

#[tokio::test]
async fn guards_share_a_connection_and_the_last_one_closes_it() {
    let server = faulty("none").build();
    assert!(!server.is_running());
    let outer = server.connect().await.unwrap();
    let other = server.clone();
    // A guard on another task shares the connection as well.
    let inner = tokio::spawn(async move { other.connect().await.unwrap() }).await.unwrap();
    assert!(server.is_running());
    inner.close().await.unwrap();
    assert!(server.is_running());
    server.list_tools().await.unwrap();
    outer.close().await.unwrap();
    assert!(!server.is_running());
}

#[tokio::test]
async fn child_exits_after_the_last_guard_is_dropped() {
    let server = faulty("none").build();
    let running = server.connect().await.unwrap();
    let directory = environment(&server).await;
    assert!(directory["CWD"].is_string());
    let before = children();
    drop(running);
    crate::harness::eventually("the child is gone", || children() < before).await;
}

/// Returns the number of child processes of this process.
fn children() -> usize {
    let me = std::process::id();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok())
        .filter(|stat| {
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            fields.get(1).is_some_and(|parent| *parent == me.to_string()) && fields[0] != "Z"
        })
        .count()
}

#[tokio::test]
async fn child_inherits_six_variables_and_configured_ones() {
    let directory = tempfile::tempdir().unwrap();
    let server = faulty("none").env("GIVEN", "yes").cwd(directory.path()).build();
    let seen = environment(&server).await;
    let names: Vec<&str> = seen.as_object().unwrap().keys().map(String::as_str).collect();
    // Python may set a variable for the locale, and wrapper scripts that start it may set others.
    let names: Vec<&str> =
        names.into_iter().filter(|name| !name.contains("PYENV") && !["PWD", "SHLVL"].contains(name)).collect();
    let allowed = ["CWD", "GIVEN", "HOME", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
    assert_eq!(seen["GIVEN"], "yes");
    assert_eq!(seen["CWD"], directory.path().canonicalize().unwrap().display().to_string());
    assert!(seen["PATH"].as_str().unwrap().ends_with(&std::env::var("PATH").unwrap()), "{}", seen["PATH"]);
}

#[tokio::test]
async fn a_thousand_calls_at_once_succeed_on_one_connection() {
    let server = faulty("none").build();
    let running = server.connect().await.unwrap();
    let calls = (0..1000).map(|number| {
        let server = server.clone();
        tokio::spawn(async move { server.direct_call_tool("received", json!({"number": number})).await })
    });
    for (number, call) in futures::future::join_all(calls).await.into_iter().enumerate() {
        let text = output(call.unwrap().unwrap());
        assert_eq!(text.as_json().unwrap()["arguments"]["number"], number);
    }
    running.close().await.unwrap();
}

#[tokio::test]
async fn a_thousand_calls_at_once_succeed_over_http() {
    let listening = TestServer::start("node", &[&npm_server("server-everything"), "streamableHttp"]);
    let server = McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT).build();
    let running = server.connect().await.unwrap();
    let calls = (0..1000).map(|number| {
        let server = server.clone();
        tokio::spawn(async move { server.direct_call_tool("echo", json!({"message": number.to_string()})).await })
    });
    for (number, call) in futures::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(call.unwrap().unwrap().to_text(), format!("Echo: {number}"));
    }
    running.close().await.unwrap();
}

struct Signed;

#[async_trait]
impl ProcessToolCall for Signed {
    async fn process(
        &self,
        run: &RunContext,
        call: CallTool<'_>,
        name: &str,
        mut arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        if name == "forbidden" {
            return Ok(ToolOutcome::retry("not this one"));
        }
        arguments.insert("user".into(), json!(run.get_deps::<String>()));
        call.call_with_metadata(name, arguments, Map::from_iter([("signature".to_owned(), json!("abc"))])).await
    }
}

#[tokio::test]
async fn hook_sees_bare_names_and_its_metadata_arrives() {
    let server = faulty("none").tool_prefix("p").process_tool_call(Signed).build();
    let run = RunContext::new().deps("me".to_owned()).metadata("trace", json!(7));
    let tools = server.tools(&run).await.unwrap();
    assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["p_act", "p_fine"]);
    let outcome = server.call(&run, "p_received", Map::new()).await.unwrap();
    let received = output(outcome).as_json().unwrap().clone();
    assert_eq!(received["name"], "received");
    assert_eq!(received["arguments"], json!({"user": "me"}));
    assert_eq!(received["_meta"]["signature"], "abc");
    assert_eq!(received["_meta"]["trace"], 7);
    assert_eq!(server.call(&run, "p_forbidden", Map::new()).await.unwrap(), ToolOutcome::retry("not this one"));
}

#[tokio::test]
async fn arguments_are_validated_if_configured() {
    let server = everything().validate_arguments(true).build();
    let running = server.connect().await.unwrap();
    let outcome = server.direct_call_tool("get-sum", json!({"a": "x"})).await.unwrap();
    let text = outcome.to_text();
    assert!(outcome.output().is_none() && text.contains("/a") && text.contains("\"b\""), "{text}");
    let outcome = server.direct_call_tool("get-sum", json!({"a": 1, "b": 2})).await.unwrap();
    assert!(outcome.to_text().contains('3'), "{outcome:?}");
    let outcome = server.direct_call_tool("get-sum", json!([1])).await.unwrap();
    assert!(outcome.output().is_none());
    running.close().await.unwrap();
}

#[tokio::test]
async fn lost_stream_is_reconnected() {
    let port = free_port();
    let everything = npm_server("server-everything");
    let start = || TestServer::start_on(port, "node", &[&everything, "sse"]);
    let first = start();
    let policy = ReconnectPolicy::new(400).max_delay(Duration::from_millis(500));
    let server = McpServerSse::new(first.url("/sse")).unwrap().timeout(START_TIMEOUT).reconnect(policy).build();
    let running = server.connect().await.unwrap();
    assert_eq!(server.direct_call_tool("echo", json!({"message": "1"})).await.unwrap().to_text(), "Echo: 1");
    drop(first);
    // A call on the broken stream fails at once.
    let started = Instant::now();
    while server.direct_call_tool("trigger-long-running-operation", json!({"duration": 1})).await.is_ok() {
        assert!(started.elapsed() < START_TIMEOUT);
    }
    let _second = start();
    assert_eq!(server.direct_call_tool("echo", json!({"message": "2"})).await.unwrap().to_text(), "Echo: 2");
    running.close().await.unwrap();
}

#[tokio::test]
async fn expired_session_is_reestablished() {
    let port = free_port();
    let everything = npm_server("server-everything");
    let start = || TestServer::start_on(port, "node", &[&everything, "streamableHttp"]);
    let first = start();
    let server = McpServerStreamableHttp::new(first.url("/mcp")).unwrap().timeout(START_TIMEOUT).build();
    let running = server.connect().await.unwrap();
    assert_eq!(server.direct_call_tool("echo", json!({"message": "1"})).await.unwrap().to_text(), "Echo: 1");
    drop(first);
    let _second = start();
    let started = Instant::now();
    loop {
        match server.direct_call_tool("echo", json!({"message": "2"})).await {
            Ok(ToolOutcome::Output(output)) => break assert_eq!(output.to_text(), "Echo: 2"),
            other => assert!(started.elapsed() < START_TIMEOUT, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    running.close().await.unwrap();
}

/// A custom transport: a child process of the test, over a pair of pipes.
#[derive(Debug)]
struct Pipes;

#[async_trait]
impl Connector for Pipes {
    async fn connect(&self) -> Result<OpenTransport, McpError> {
        let mut child = tokio::process::Command::new("python3")
            .args(["-u", &crate::harness::script("faulty_server.py"), "none"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        Ok(OpenTransport::new((child.stdout.take().unwrap(), child.stdin.take().unwrap())))
    }

    fn identity(&self) -> String {
        "pipes".to_owned()
    }
}

#[tokio::test]
async fn custom_transport_works_in_both_eras() {
    for era in [ProtocolEra::Auto, ProtocolEra::Legacy] {
        let server = McpServer::custom(Pipes).era(era).timeout(START_TIMEOUT).build();
        assert_eq!(server.direct_call_tool("fine", json!({})).await.unwrap().to_text(), "fine");
        assert_eq!(server.label(), "pipes");
    }
}

#[tokio::test]
async fn legacy_server_rejects_the_modern_era() {
    let error = everything().era(ProtocolEra::Modern).build().connect().await.err().unwrap();
    assert!(matches!(error, McpError::Protocol { .. } | McpError::Connect { .. }), "{error:?}");
}

/// Programs have thousands of these at the same time, and move them: what a call rarely needs, such as opening a
/// connection, is boxed.
#[test]
fn futures_of_calls_are_small() {
    const MAX_BYTES: usize = 2048;
    let server = McpServerStdio::new("unused").build();
    let options = CallOptions::new();
    let sizes = [
        size_of_val(&server.direct_call_tool("echo", json!({}))),
        size_of_val(&server.call_tool_with("echo", json!({}), options.clone())),
        size_of_val(&server.call_tool_raw("echo", json!({}), options)),
    ];
    assert!(sizes.iter().all(|size| *size <= MAX_BYTES), "{sizes:?}");
}
