//! Tool calls that become tasks, and polling of tasks to completion.
//!
//! On the modern era the server decides that a call becomes a task. On 2025-11-25 the client requests a task, and a
//! tool may require one; such a tool rejects an ordinary call and is then called as a task.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, CancelTaskParams, CancelTaskRequest, ClientRequest, CreateTaskResult,
    CustomRequest, ErrorCode, GetTaskParams, GetTaskRequest, ServerResult, TaskPayload, UpdateTaskParams,
    UpdateTaskRequest,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::McpServer;
use super::connection::Connection;
use super::options::{CallOptions, RequestOptions};
use super::rounds::{self, MAX_ROUNDS};
use crate::error::McpError;
use crate::handlers::Progress;
use crate::handlers::notifications::CallWatch;

/// The interval of polling if the server does not specify one, and the limits on the server's value.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// A task as described by a server of the legacy era.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyTask {
    task_id: String,
    status: String,
    status_message: Option<String>,
    poll_interval: Option<u64>,
}

/// Returns whether a tool rejected an ordinary call because it must be called as a task. The error code is then "method
/// not found"; one SDK reports it in a result.
pub(super) fn requires_task(outcome: &Result<CallToolResult, McpError>) -> bool {
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

/// Reports a task's status messages as progress, each message once.
struct StatusDedup<'a> {
    watch: &'a CallWatch,
    last: Option<String>,
    count: f64,
}

impl<'a> StatusDedup<'a> {
    fn new(watch: &'a CallWatch) -> Self {
        Self { watch, last: None, count: 0.0 }
    }

    fn report(&mut self, message: Option<&String>) {
        if message.is_some() && self.last.as_ref() != message {
            self.last = message.cloned();
            self.count += 1.0;
            self.watch.step(Progress { progress: self.count, total: None, message: self.last.clone() });
        }
    }
}

async fn pause(interval_ms: Option<u64>) {
    let wait = interval_ms.map_or(DEFAULT_POLL_INTERVAL, Duration::from_millis);
    tokio::time::sleep(wait.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)).await;
}

impl McpServer {
    /// Polls a task of the modern era to completion. Dropping the future cancels the task on the server.
    pub(super) async fn poll_to_completion(
        &self,
        connection: &Arc<Connection>,
        created: CreateTaskResult,
        watch: &CallWatch,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let id = created.task.task_id.clone();
        let cancel = CancelTaskOnDrop::new(connection, &id);
        let mut steps = StatusDedup::new(watch);
        let mut task = created.task;
        let mut questions = 0;
        loop {
            steps.report(task.status_message.as_ref());
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
                    return serde_json::from_value(Value::Object(result))
                        .map_err(|error| self.invalid_response(&error));
                }
                TaskPayload::Failed { error } => {
                    cancel.disarm();
                    let error: rmcp::ErrorData =
                        serde_json::from_value(Value::Object(error)).map_err(|error| self.invalid_response(&error))?;
                    return Err(connection.protocol_error(error));
                }
                TaskPayload::Cancelled => {
                    cancel.disarm();
                    return Err(McpError::Protocol {
                        server: self.label(),
                        code: ErrorCode::INTERNAL_ERROR.0,
                        message: task.status_message.unwrap_or_else(|| "the task was cancelled".to_owned()),
                        data: None,
                    });
                }
                TaskPayload::InputRequired { input_requests } => {
                    questions += 1;
                    if questions > MAX_ROUNDS {
                        return Err(rounds::too_many(connection, "tasks/get"));
                    }
                    let run = options.run.as_ref();
                    let responses = rounds::answer(connection, input_requests, "tasks/get", run).await?;
                    let update = UpdateTaskRequest::new(UpdateTaskParams::new(id.clone(), responses));
                    connection.request(ClientRequest::UpdateTaskRequest(update), options.request_options(self)).await?;
                }
                _ => {}
            }
        }
    }

    /// Calls a tool as a task of 2025-11-25, and polls it to completion.
    pub(super) async fn call_as_task(
        &self,
        connection: &Arc<Connection>,
        mut params: CallToolRequestParams,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        params.arguments.get_or_insert_default();
        let mut params = serde_json::to_value(params).map_err(|error| self.invalid_response(&error))?;
        // `rmcp` has the request's type of the modern era only, without this field.
        params["task"] = json!({});
        let request = ClientRequest::CustomRequest(CustomRequest::new("tools/call", Some(params)));
        let (result, watch) = connection.watched_request(request, options.request_options(self)).await?;
        let mut task = match result {
            ServerResult::CustomResult(created) => legacy_task(&created.0["task"]),
            // The server responded without creating a task.
            ServerResult::CallToolResult(result) => return Ok(result),
            _ => None,
        }
        .ok_or_else(|| connection.unexpected("tools/call"))?;
        let cancel = CancelTaskOnDrop::new(connection, &task.task_id);
        let id = json!({"taskId": task.task_id});
        let interval = task.poll_interval;
        let mut steps = StatusDedup::new(&watch);
        loop {
            steps.report(task.status_message.as_ref());
            // Requests of a task for input arrive while its result is awaited.
            if task.status != "working" {
                break;
            }
            pause(task.poll_interval.or(interval)).await;
            let request = ClientRequest::CustomRequest(CustomRequest::new("tasks/get", Some(id.clone())));
            let answer = connection.request(request, options.request_options(self)).await?;
            let answer = serde_json::to_value(answer).map_err(|error| self.invalid_response(&error))?;
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

/// Cancels a task on the server if the caller stops waiting for the result.
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
            let options = RequestOptions { idle_timeout: Duration::from_secs(5), ..Default::default() };
            if let Err(error) = connection.request(request, options).await {
                tracing::debug!(%error, "failed to cancel a task");
            }
        });
    }
}
