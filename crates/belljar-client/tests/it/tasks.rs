//! Calls that a server makes tasks of, with `rmcp`'s server in this process, over a transport that is plugged in.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belljar_client::transport::{Connected, Connector};
use belljar_client::{CallOptions, Elicitation, ElicitationResponse, McpError, McpServer, ToolOutcome};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CreateTaskResult, DetailedTask, GetTaskParams,
    GetTaskResult, ServerCapabilities, ServerConfig, Task, TaskPayload, TaskStatus, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};

use crate::harness::{PATIENT, eventually, output};

/// What the server's one task is at, and what was done to it.
#[derive(Default)]
struct State {
    asked: usize,
    answer: Option<Value>,
    cancelled: bool,
}

/// A server that makes a task of every call.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<State>>);

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
        self.0.lock().unwrap().answer = Some(json!(request.name));
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
            (_, Some(_)) => {
                let input_requests = serde_json::from_value(json!({"q": question})).unwrap();
                TaskPayload::InputRequired { input_requests }
            }
            (_, None) => {
                let text = answer["content"].to_string();
                TaskPayload::Completed { result: object(json!({"content": [{"type": "text", "text": text}]})) }
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
    async fn connect(&self) -> Result<Connected, McpError> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let server = self.clone();
        tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
        Ok(Connected::new(ours))
    }

    fn identity(&self) -> String {
        "slow".to_owned()
    }
}

fn server(slow: &Slow) -> McpServer {
    let agree =
        async |_: Elicitation| Ok(ElicitationResponse::Accept(Some(Map::from_iter([("go".to_owned(), json!(true))]))));
    McpServer::custom(slow.clone()).timeout(PATIENT).elicitation_handler(agree).build()
}

#[tokio::test]
async fn a_task_is_followed_to_its_end_with_questions_and_progress() {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = steps.clone();
    let options = CallOptions::new().progress_handler(move |step| seen.lock().unwrap().push(step.message.unwrap()));
    let outcome = server(&Slow::default()).call_tool_with("works", json!({}), options).await.unwrap();
    assert_eq!(output(outcome).as_json(), Some(&json!({"go": true})));
    assert_eq!(*steps.lock().unwrap(), ["started", "half done"]);
}

#[tokio::test]
async fn a_task_that_fails_is_a_retry() {
    let outcome = server(&Slow::default()).direct_call_tool("fails", json!({})).await.unwrap();
    assert_eq!(outcome, ToolOutcome::retry("no luck"));
}

#[tokio::test]
async fn a_task_whose_call_is_dropped_is_cancelled() {
    let slow = Slow::default();
    let server = server(&slow);
    let running = server.connect().await.unwrap();
    let call = server.direct_call_tool("endless", json!({}));
    tokio::time::timeout(Duration::from_millis(300), call).await.unwrap_err();
    eventually("the task is cancelled", || slow.0.lock().unwrap().cancelled).await;
    running.close().await.unwrap();
}
