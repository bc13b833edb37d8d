//! Calls of which the server makes a task, followed to their end.
//!
//! On the modern era the server decides that a call becomes a task. As of 2025-11-25 the client asks for it, and a tool may
//! insist; such a tool refuses an ordinary call, and is then called as a task.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolResult, CancelTaskParams, CancelTaskRequest, ClientRequest, CreateTaskResult, CustomRequest, ErrorCode,
    GetTaskParams, GetTaskRequest, ServerResult, TaskPayload, UpdateTaskParams, UpdateTaskRequest,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::McpServer;
use super::connection::{Connection, RequestOptions};
use super::options::CallOptions;
use crate::error::McpError;
use crate::handlers::notifications::CallWatch;
use crate::handlers::{Progress, respond};

/// How often a task is asked after, when the server does not say, and the bounds on what it may say.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const SHORTEST_POLL: Duration = Duration::from_millis(20);
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// What a server of the legacy era says of a task.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyTask {
    task_id: String,
    status: String,
    status_message: Option<String>,
    poll_interval: Option<u64>,
}

/// Whether a tool refused an ordinary call because it wants to be called as a task: it is "not a method" then. One SDK says so
/// in a result.
pub(super) fn wants_task(outcome: &Result<CallToolResult, McpError>) -> bool {
    const CODE: i32 = ErrorCode::METHOD_NOT_FOUND.0;
    match outcome {
        Ok(result) if result.is_error == Some(true) => result.content.iter().any(|part| {
            part.as_text().is_some_and(|part| part.text.contains(&CODE.to_string()) && part.text.contains("task"))
        }),
        Ok(_) => false,
        Err(McpError::Protocol { code, message, .. }) => *code == CODE && message.to_lowercase().contains("task"),
        Err(_) => false,
    }
}

/// Tells of a task's steps, each message once.
struct Steps<'a> {
    watch: &'a CallWatch,
    told: Option<String>,
    count: f64,
}

impl<'a> Steps<'a> {
    fn new(watch: &'a CallWatch) -> Self {
        Self { watch, told: None, count: 0.0 }
    }

    fn tell(&mut self, message: Option<&String>) {
        if message.is_some() && self.told.as_ref() != message {
            self.told = message.cloned();
            self.count += 1.0;
            self.watch.step(Progress { progress: self.count, total: None, message: self.told.clone() });
        }
    }
}

async fn pause(interval_ms: Option<u64>) {
    let wait = interval_ms.map_or(POLL_INTERVAL, Duration::from_millis);
    tokio::time::sleep(wait.clamp(SHORTEST_POLL, LONGEST_POLL)).await;
}

impl McpServer {
    /// Follows a task of the modern era to its end. When the future is dropped, the server is told to stop.
    pub(super) async fn follow(
        &self,
        connection: &Arc<Connection>,
        created: CreateTaskResult,
        watch: &CallWatch,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let id = created.task.task_id.clone();
        let cancel = CancelTaskOnDrop::new(connection, &id);
        let mut steps = Steps::new(watch);
        let mut task = created.task;
        loop {
            steps.tell(task.status_message.as_ref());
            pause(task.poll_interval_ms).await;
            let request = ClientRequest::GetTaskRequest(GetTaskRequest::new(GetTaskParams::new(id.clone())));
            let answer = match connection.request(request, options.request_options(self)).await? {
                ServerResult::GetTaskResult(answer) => answer.task,
                _ => return Err(connection.unexpected("tasks/get")),
            };
            task = answer.task;
            match answer.payload {
                TaskPayload::Completed { result } => {
                    cancel.disarm();
                    return serde_json::from_value(Value::Object(result)).map_err(|error| self.bad_answer(&error));
                }
                TaskPayload::Failed { error } => {
                    cancel.disarm();
                    let error: rmcp::ErrorData =
                        serde_json::from_value(Value::Object(error)).map_err(|error| self.bad_answer(&error))?;
                    return Err(McpError::protocol(error));
                }
                TaskPayload::Cancelled => {
                    cancel.disarm();
                    return Err(McpError::Protocol {
                        code: ErrorCode::INTERNAL_ERROR.0,
                        message: task.status_message.unwrap_or_else(|| "the task was cancelled".to_owned()),
                        data: None,
                    });
                }
                TaskPayload::InputRequired { input_requests } => {
                    let responses = respond::answer_all(connection.responder(), input_requests)
                        .await
                        .map_err(McpError::protocol)?;
                    let update = UpdateTaskRequest::new(UpdateTaskParams::new(id.clone(), responses));
                    connection.request(ClientRequest::UpdateTaskRequest(update), options.request_options(self)).await?;
                }
                _ => {}
            }
        }
    }

    /// Calls a tool as a task of 2025-11-25, and follows it to its end.
    pub(super) async fn call_as_task(
        &self,
        connection: &Arc<Connection>,
        name: &str,
        arguments: Option<Map<String, Value>>,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let params = json!({"name": name, "arguments": arguments.unwrap_or_default(), "task": {}});
        let request = ClientRequest::CustomRequest(CustomRequest::new("tools/call", Some(params)));
        let (result, watch) = connection.watched_request(request, options.request_options(self)).await?;
        let mut task = match result {
            ServerResult::CustomResult(created) => legacy_task(&created.0["task"]),
            // It did without a task.
            ServerResult::CallToolResult(result) => return Ok(result),
            _ => None,
        }
        .ok_or_else(|| connection.unexpected("tools/call"))?;
        let cancel = CancelTaskOnDrop::new(connection, &task.task_id);
        let id = json!({"taskId": task.task_id});
        let interval = task.poll_interval;
        let mut steps = Steps::new(&watch);
        loop {
            steps.tell(task.status_message.as_ref());
            // Questions of a task come while its result is waited for.
            if task.status != "working" {
                break;
            }
            pause(task.poll_interval.or(interval)).await;
            let request = ClientRequest::CustomRequest(CustomRequest::new("tasks/get", Some(id.clone())));
            let answer = connection.request(request, options.request_options(self)).await?;
            let answer = serde_json::to_value(answer).map_err(|error| self.bad_answer(&error))?;
            task = legacy_task(&answer).ok_or_else(|| connection.unexpected("tasks/get"))?;
        }
        let request = ClientRequest::CustomRequest(CustomRequest::new("tasks/result", Some(id)));
        let result = connection.request(request, options.request_options(self)).await?;
        cancel.disarm();
        match result {
            ServerResult::CallToolResult(result) => Ok(result),
            _ => Err(connection.unexpected("tasks/result")),
        }
    }
}

fn legacy_task(value: &Value) -> Option<LegacyTask> {
    LegacyTask::deserialize(value).ok()
}

/// Tells the server about a task whose result nobody waits for any more.
struct CancelTaskOnDrop {
    connection: Arc<Connection>,
    id: Option<String>,
}

impl CancelTaskOnDrop {
    fn new(connection: &Arc<Connection>, id: &str) -> Self {
        Self { connection: connection.clone(), id: Some(id.to_owned()) }
    }

    fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for CancelTaskOnDrop {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let connection = self.connection.clone();
        runtime.spawn(async move {
            let request = ClientRequest::CancelTaskRequest(CancelTaskRequest::new(CancelTaskParams::new(id)));
            let options = RequestOptions { silence: Duration::from_secs(5), ..Default::default() };
            if let Err(error) = connection.request(request, options).await {
                tracing::debug!(%error, "a task could not be cancelled");
            }
        });
    }
}
