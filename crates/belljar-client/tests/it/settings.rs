//! Settings whose effect no other test shows: handlers of progress, hooks, policies, and toolsets of the program.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar_mcp_client::{
    CallOptions, CombinedToolset, FunctionToolset, McpError, McpServerSse, ReconnectPolicy, RunContext, ToolCall,
    ToolDefinition, ToolList, ToolOutcome, ToolRunner, Toolset, async_trait,
};
use serde_json::{Map, Value, json};

use crate::harness::{START_TIMEOUT, TestServer, everything, faulty, npm_server};

type Seen = Arc<Mutex<Vec<&'static str>>>;

#[tokio::test]
async fn progress_goes_to_the_call_or_the_run_or_the_server() {
    let seen = Seen::default();
    let note = |name: &'static str| {
        let seen = seen.clone();
        move |_| seen.lock().unwrap().push(name)
    };
    let last = || seen.lock().unwrap().pop();
    let server = everything().progress_handler(note("server")).build();
    let running = server.connect().await.unwrap();
    let (tool, arguments) = ("trigger-long-running-operation", json!({"duration": 0.05, "steps": 1}));
    server.direct_call_tool(tool, &arguments).await.unwrap();
    assert_eq!(last(), Some("server"));
    let run = RunContext::new().progress_handler(note("run"));
    server.call(&run, tool, arguments.as_object().unwrap().clone()).await.unwrap();
    assert_eq!(last(), Some("run"));
    let options = CallOptions::from_run(&run).progress_handler(note("call"));
    server.call_tool_with(tool, &arguments, options).await.unwrap();
    assert_eq!(last(), Some("call"));
    assert_eq!(seen.lock().unwrap().len(), 0);
    running.close().await.unwrap();
}

#[tokio::test]
async fn message_handler_sees_every_notification_before_the_other_handlers() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (methods, lines, steps) = (seen.clone(), seen.clone(), seen.clone());
    let server = faulty("logs_and_steps")
        .message_handler(move |notification| {
            let method = serde_json::to_value(notification).unwrap()["method"].as_str().unwrap().to_owned();
            methods.lock().unwrap().push(method);
        })
        .log_handler(move |message| lines.lock().unwrap().push(message.text()))
        .progress_handler(move |step| steps.lock().unwrap().push(format!("{:?}", step.progress)))
        .build();
    assert_eq!(server.direct_call_tool("act", json!({})).await.unwrap().to_text(), "done");
    assert_eq!(*seen.lock().unwrap(), ["notifications/message", "a line", "notifications/progress", "1.0"]);
}

#[tokio::test]
async fn hook_knows_the_call_and_its_failure_is_an_error() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let calls = seen.clone();
    let server = faulty("none").process_tool_call_with(move |run, call, name, arguments| {
        calls.lock().unwrap().push((run.tool_call_id.clone(), run.retry));
        Box::pin(async move {
            if arguments.contains_key("forbidden") {
                return Err(McpError::Hook("the policy forbids it".into()));
            }
            call.call(name, arguments).await
        })
    });
    let run = RunContext::new();
    let runner = ToolRunner::new(server.build());
    let connections = runner.enter(&run).await.unwrap();
    let step = runner.step(&run).await.unwrap();
    let result = step.call(&ToolCall::new("call_7", "fine", json!({}))).await.unwrap();
    assert_eq!(result.message().text(), "fine");
    let error = step.call(&ToolCall::new("call_8", "fine", json!({"forbidden": true}))).await.unwrap_err();
    assert!(matches!(&error, McpError::Hook(_)), "{error:?}");
    assert_eq!(error.to_string(), "the policy forbids it");
    assert_eq!(*seen.lock().unwrap(), [(Some("call_7".to_owned()), 0), (Some("call_8".to_owned()), 0)]);
    connections.close().await.unwrap();
}

#[tokio::test]
async fn lost_stream_stays_lost_if_reconnecting_is_off() {
    let listening = TestServer::start("node", &[&npm_server("server-everything"), "sse"]);
    let server = McpServerSse::new(listening.url("/sse")).unwrap().timeout(START_TIMEOUT);
    let server = server.reconnect(ReconnectPolicy::never()).build();
    let running = server.connect().await.unwrap();
    assert_eq!(server.direct_call_tool("echo", json!({"message": "1"})).await.unwrap().to_text(), "Echo: 1");
    drop(listening);
    let started = std::time::Instant::now();
    let error = loop {
        match server.call_tool_raw("echo", json!({"message": "2"}), CallOptions::new()).await {
            Err(error @ McpError::Closed { .. }) => break error,
            // A request that is posted before the end of the stream is noticed cannot be delivered.
            other => assert!(started.elapsed() < Duration::from_secs(60), "{other:?}"),
        }
    };
    assert!(error.is_connection_loss(), "{error:?}");
    running.close().await.unwrap();
}

/// A toolset of the program with instructions and a suggestion of its own.
struct Own(ToolList);

#[async_trait]
impl Toolset for Own {
    fn label(&self) -> String {
        "own".to_owned()
    }

    fn name_clash_hint(&self) -> String {
        "configure `own` with other names".to_owned()
    }

    async fn tools(&self, _: &RunContext) -> Result<ToolList, McpError> {
        Ok(self.0.clone())
    }

    async fn call(&self, _: &RunContext, name: &str, _: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        Ok(ToolOutcome::text(format!("{name} of the program")))
    }

    async fn instructions(&self, _: &RunContext) -> Result<Option<String>, McpError> {
        Ok(Some("Use the tools of the program.".to_owned()))
    }
}

fn own(name: &str) -> Own {
    Own(vec![ToolDefinition::new(name, json!({"type": "object"}))].into())
}

#[tokio::test]
async fn toolsets_of_the_program_combine_with_servers() {
    let run = RunContext::new();
    let all: CombinedToolset = [CombinedToolset::new().with(own("wink")).with(faulty("none").build())]
        .into_iter()
        .fold(CombinedToolset::new(), CombinedToolset::with);
    let guard = all.enter().await.unwrap();
    assert_eq!(all.tools(&run).await.unwrap().names().collect::<Vec<_>>(), ["wink", "act", "fine"]);
    assert_eq!(all.call(&run, "wink", Map::new()).await.unwrap().to_text(), "wink of the program");
    assert_eq!(all.call(&run, "fine", Map::new()).await.unwrap().to_text(), "fine");
    // The instructions of a combined toolset within another one.
    assert_eq!(all.instructions(&run).await.unwrap().as_deref(), Some("Use the tools of the program."));
    guard.close().await.unwrap();

    let clash = CombinedToolset::new().with(
        FunctionToolset::new("other")
            .tool(ToolDefinition::new("wink", json!({"type": "object"})), |_: RunContext, _: Map<String, Value>| {
                std::future::ready(Ok("no"))
            }),
    );
    let error = clash.with(own("wink")).tools(&run).await.unwrap_err();
    assert!(error.to_string().contains("own"), "{error}");
    assert_eq!(error.hint().as_deref(), Some("configure `own` with other names"));
}
