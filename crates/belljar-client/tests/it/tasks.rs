//! Calls that a server turns into tasks, with `rmcp`'s server in this process over a custom transport.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belljar_mcp_client::transport::{Connector, OpenTransport};
use belljar_mcp_client::{
    CallOptions, Elicitation, ElicitationResponse, McpError, McpServer, ProtocolEra, ToolOutcome,
};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CreateTaskResult, DetailedTask, GetTaskParams,
    GetTaskResult, ServerCapabilities, ServerConfig, Task, TaskPayload, TaskStatus, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};

use crate::harness::{START_TIMEOUT, eventually, faulty, output};

/// The state of the server's only task.
#[derive(Default)]
struct State {
    asked: usize,
    answer: Option<Value>,
    /// True to ask for input again after each answer.
    insists: bool,
    cancelled: bool,
}

/// A server that turns every call into a task.
#[derive(Clone, Default)]
pub(crate) struct Slow(Arc<Mutex<State>>);

fn task(message: &str) -> Task {
    Task::new("t1", TaskStatus::Working, "2026-07-28T00:00:00Z", "2026-07-28T00:00:00Z")
        .with_status_message(message)
        .with_poll_interval_ms(20)
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

impl ServerHandler for Slow {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut state = self.0.lock().unwrap();
        state.insists = request.name == "insists";
        state.answer = Some(json!(request.name));
        Ok(CallToolResponse::Task(CreateTaskResult::new(task("started"))))
    }

    async fn get_task(
        &self,
        _request: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let mut state = self.0.lock().unwrap();
        state.asked += 1;
        let answer = state.answer.clone().unwrap();
        let question = json!({"method": "elicitation/create", "params": {"mode": "form", "message": "Go on?",
            "requestedSchema": {"type": "object", "properties": {"go": {"type": "boolean"}}}}});
        let payload = match (state.asked, answer.as_str()) {
            (1, _) | (_, Some("endless")) => TaskPayload::Working,
            (_, Some("fails")) => TaskPayload::Failed { error: object(json!({"code": -32603, "message": "no luck"})) },
            (_, None) if !state.insists => {
                let text = answer["content"].to_string();
                TaskPayload::Completed { result: object(json!({"content": [{"type": "text", "text": text}]})) }
            }
            _ => {
                let input_requests = serde_json::from_value(json!({"q": question})).unwrap();
                TaskPayload::InputRequired { input_requests }
            }
        };
        Ok(GetTaskResult::new(DetailedTask::new(task("half done"), payload)))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.lock().unwrap().answer = request.input_responses.get("q").cloned();
        Ok(())
    }

    async fn cancel_task(
        &self,
        _request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.lock().unwrap().cancelled = true;
        Ok(())
    }
}

impl std::fmt::Debug for Slow {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Slow")
    }
}

#[async_trait]
impl Connector for Slow {
    async fn connect(&self) -> Result<OpenTransport, McpError> {
        let (client_end, server_end) = tokio::io::duplex(64 * 1024);
        let server = self.clone();
        tokio::spawn(async move { server.serve(server_end).await.unwrap().waiting().await });
        Ok(OpenTransport::new(client_end))
    }

    fn identity(&self) -> String {
        "slow".to_owned()
    }
}

fn server(slow: &Slow) -> McpServer {
    let agree =
        async |_: Elicitation| Ok(ElicitationResponse::Accept(Some(Map::from_iter([("go".to_owned(), json!(true))]))));
    McpServer::custom(slow.clone()).timeout(START_TIMEOUT).elicitation_handler(agree).build()
}

#[tokio::test]
async fn task_is_polled_with_elicitation_and_progress() {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = steps.clone();
    let options = CallOptions::new().progress_handler(move |step| seen.lock().unwrap().push(step.message.unwrap()));
    let outcome = server(&Slow::default()).call_tool_with("works", json!({}), options).await.unwrap();
    assert_eq!(output(outcome).as_json(), Some(&json!({"go": true})));
    assert_eq!(*steps.lock().unwrap(), ["started", "half done"]);
}

#[tokio::test]
async fn failed_task_is_a_retry() {
    let outcome = server(&Slow::default()).direct_call_tool("fails", json!({})).await.unwrap();
    assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.message == "no luck"), "{outcome:?}");
}

#[tokio::test]
async fn questions_of_a_task_are_limited() {
    let slow = Slow::default();
    let server = server(&slow);
    let running = server.connect().await.unwrap();
    let error = server.call_tool_raw("insists", json!({}), CallOptions::new()).await.unwrap_err();
    assert!(matches!(&error, McpError::InvalidResponse { .. }), "{error:?}");
    assert!(error.to_string().contains("more than 32 rounds of input"), "{error}");
    // The first poll finds it at work, 32 questions are answered, and the next one is not.
    assert_eq!(slow.0.lock().unwrap().asked, 34);
    eventually("the task is cancelled", || slow.0.lock().unwrap().cancelled).await;
    running.close().await.unwrap();
}

#[tokio::test]
async fn dropped_call_cancels_its_task() {
    let slow = Slow::default();
    let server = server(&slow);
    let running = server.connect().await.unwrap();
    tokio::select! {
        outcome = server.direct_call_tool("endless", json!({})) => panic!("{outcome:?}"),
        () = eventually("the task is polled", || slow.0.lock().unwrap().asked > 0) => {}
    }
    eventually("the task is cancelled", || slow.0.lock().unwrap().cancelled).await;
    running.close().await.unwrap();
}

#[tokio::test]
async fn tasks_of_the_legacy_era_that_fail_or_expire_are_retries() {
    for (fault, message) in [("task_fails", "out of paper"), ("task_expires", "unknown task t1")] {
        let server = faulty(fault).era(ProtocolEra::Legacy).build();
        let running = server.connect().await.unwrap();
        for _ in 0..2 {
            let outcome = server.direct_call_tool("act", json!({})).await.unwrap();
            assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.message == message), "{outcome:?}");
        }
        assert_eq!(output(server.direct_call_tool("fine", json!({})).await.unwrap()).to_text(), "fine");
        running.close().await.unwrap();
    }
}

#[tokio::test]
async fn error_that_only_mentions_a_task_is_the_outcome_of_the_call() {
    let server = faulty("mentions_task").era(ProtocolEra::Legacy).build();
    let running = server.connect().await.unwrap();
    let outcome = server.direct_call_tool("act", json!({})).await.unwrap();
    assert!(
        matches!(&outcome, ToolOutcome::Retry(retry) if retry.message == "there is no such task list"),
        "{outcome:?}"
    );
    running.close().await.unwrap();
}
