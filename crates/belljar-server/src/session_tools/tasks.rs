//! Tasks of the protocol: runs that a client polls. The ID of a task is that of its run.
//!
//! | method | modern era, extension `io.modelcontextprotocol/tasks` | 2025-11-25 |
//! | --- | --- | --- |
//! | `tools/call` that runs code | returns a task once the code asks or has waited | returns a task at once, if `task` is set |
//! | `tasks/get` | the status, and the open questions or the result | the status |
//! | `tasks/update` | answers questions | - |
//! | `tasks/result` | - | asks the questions, and returns the result |
//! | `tasks/list` | - | the tasks that the client may list |
//! | `tasks/cancel` | interrupts the code | interrupts the code |
//!
//! The code is a cell, or that of `run_python_code` (`programs`).
//! The user of a client answers questions, by elicitation in both eras. The model has no part in these methods.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::InputError;
use belljar_core::{NETWORK_KEY, Party};
use belljar_sessions::{NoSuchQuestion, Question, Run, RunAnswer, RunState, RunUpdate, SessionError};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, CreateTaskResult, DetailedTask, ElicitRequest, ErrorCode, ErrorData,
    GetTaskResult, InputRequest, InputResponses, JsonObject, MetaObject, Task, TaskPayload, TaskStatus,
};
use rmcp::service::RequestContext;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::session_error;
use super::client_io::CellClient;
use super::runs::answer_in;
use super::{Caller, EXECUTE, SessionTools, ToolAnswer, is_modern};
use crate::activity::scope_of;
use crate::apps;
use crate::arguments::{self, ArgumentError, ExecuteCode, RunPythonCode};
use crate::arrival::turn_of;
use crate::elicitation::{can_ask, elicit_line, elicit_with};
use crate::metrics::CallStatus;
use crate::notifier::{ClientNotifier, NotificationFilter};
use crate::report;
use crate::task_transport::TASK;
use crate::tool;

/// The time for which a cell waits before its call becomes a task. The cell is saved by then, so that the task survives
/// the server.
const TASK_AFTER: Duration = Duration::from_secs(2);
/// The interval at which a cell is looked at for this.
const WAIT_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The limits on the interval of polling that is suggested to clients: a tenth of the time since the last change.
const MIN_POLL_INTERVAL: u64 = 100;
const MAX_POLL_INTERVAL: u64 = 5000;
/// The entry in `_meta` with the task of a message, in the protocol version 2025-11-25.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// The entry in the `_meta` of the result of a run whose task was cancelled.
const CANCELLED: &str = "io.github.belljar/cancelled";

/// Returns whether the call of a request may return a task instead of a result.
pub(super) fn accepts_task(context: &RequestContext<RoleServer>) -> bool {
    is_modern(context) && context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
}

/// Waits until a run has waited for as long as its call is answered with a task.
pub(super) async fn has_waited(run: &Run) {
    while !run.has_waited_for(TASK_AFTER) {
        tokio::time::sleep(WAIT_CHECK_INTERVAL).await;
    }
}

/// Adds to the result of a run that its task was cancelled.
pub(super) fn mark_cancelled(result: &mut Value) {
    add_meta(result, CANCELLED, true.into());
}

fn add_meta(result: &mut Value, key: &str, value: Value) {
    if let Value::Object(fields) = result
        && let Value::Object(meta) = fields.entry("_meta").or_insert_with(|| json!({}))
    {
        meta.insert(key.to_owned(), value);
    }
}

/// The parameters that name a task.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskName {
    task_id: String,
}

impl SessionTools {
    /// Returns whether runs can be tasks.
    pub(crate) fn offer_tasks(&self) -> bool {
        self.sessions.are_durable()
    }

    /// Returns whether calls of a tool can begin as tasks.
    pub(crate) fn can_be_task(&self, name: &str) -> bool {
        match name {
            EXECUTE => self.offer_tasks(),
            tool::NAME => self.sessions.supports_programs(),
            _ => false,
        }
    }

    /// Returns the answer of a call that became a task.
    pub(super) fn created_task(&self, run: &Run, context: &RequestContext<RoleServer>) -> ToolAnswer {
        let DetailedTask { task, .. } = self.described_task(run, can_ask(context));
        ToolAnswer { response: CreateTaskResult::new(task).into(), status: CallStatus::Task }
    }

    /// Returns the result of `tasks/get` in the modern era.
    ///
    /// # Errors
    /// Fails if the client has no such task.
    pub(crate) fn get_task(&self, id: &str, context: &RequestContext<RoleServer>) -> Result<GetTaskResult, ErrorData> {
        let run = self.find_task(id)?;
        let mut task = self.described_task(&run, can_ask(context));
        if let TaskPayload::Completed { result } = &mut task.payload
            && !apps::shows_panels(context)
        {
            apps::withhold(result);
        }
        if task.status().is_terminal() {
            run.set_fetched();
        }
        Ok(GetTaskResult::new(task))
    }

    /// Answers questions of a task. Answers to questions that are not open are ignored.
    ///
    /// # Errors
    /// Fails if the client has no such task.
    pub(crate) fn update_task(
        &self,
        id: &str,
        responses: &InputResponses,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let run = self.find_task(id)?;
        if !can_ask(context) {
            return Ok(());
        }
        let open = run.visible_questions();
        for (key, response) in responses {
            if let Some(Question { call, .. }) = open.iter().find(|question| is_key_of(key, question)) {
                // An operator may have answered in the meantime.
                let (Ok(()) | Err(NoSuchQuestion)) = run.answer(*call, answer_in(response), Party::Client);
            }
        }
        Ok(())
    }

    /// Cancels a task. One that has ended stays as it is.
    ///
    /// # Errors
    /// Fails if the client has no such task.
    pub(crate) fn cancel_task(&self, id: &str) -> Result<(), ErrorData> {
        let run = self.find_task(id)?;
        self.cancel_task_of(&run);
        Ok(())
    }

    /// Answers a request of the protocol version 2025-11-25 about tasks.
    ///
    /// # Errors
    /// Fails if the method is not known, its parameters are not valid, or the client has no such task.
    pub(crate) async fn answer_task_request(
        &self,
        method: &str,
        params: Option<Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Value, ErrorData> {
        if method == "tasks/list" {
            if params.is_some_and(|params| params.get("cursor").is_some_and(|cursor| !cursor.is_null())) {
                return Err(ErrorData::invalid_params("unknown cursor: the list of tasks has one page", None));
            }
            let runs = self.sessions.runs();
            let listed = runs.iter().filter(|run| self.may_list(&run.session, &run.info, run.has_owner()));
            let tasks: Vec<Value> = listed.map(|run| self.legacy_task(run, context)).collect();
            return Ok(json!({ "tasks": tasks }));
        }
        if !["tasks/get", "tasks/result", "tasks/cancel"].contains(&method) {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None));
        }
        let named = TaskName::deserialize(params.unwrap_or_default());
        let TaskName { task_id } = named.map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        let run = self.find_task(&task_id)?;
        match method {
            "tasks/result" => Ok(self.result_of_task(&run, context).await),
            "tasks/cancel" if !self.cancel_task_of(&run) => {
                Err(ErrorData::invalid_params("the task has ended and cannot be cancelled", None))
            }
            _ => Ok(self.legacy_task(&run, context)),
        }
    }

    /// Begins a task of the protocol version 2025-11-25, for a call that requests one. The result has the task in its
    /// `_meta`, from where `task_transport` takes it.
    ///
    /// # Errors
    /// Fails if the tool cannot be called as a task, an argument is invalid, or the code is not run.
    pub(crate) async fn begin_task(
        &self,
        call: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let is_cell = call.name == EXECUTE;
        let cannot_be_task = || {
            let message = format!("the tool `{}` cannot be called as a task", call.name);
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None)
        };
        if !self.can_be_task(&call.name) {
            return Err(cannot_be_task());
        }
        let invalid = |error: ArgumentError| ErrorData::invalid_params(error.to_string(), None);
        if report::requested(context).map_err(invalid)?.is_some() {
            return Err(ErrorData::invalid_params("the result of a task has no report", None));
        }
        // Tasks send no progress and no messages: their call has ended.
        let (notifier, _) = ClientNotifier::new(NotificationFilter { level: None, progress: false });
        let (client, _) = CellClient::new(notifier, context, None);
        let not_run = |error: SessionError| ErrorData::invalid_params(session_error(&error), None);
        let (arguments, network) = (call.arguments, context.meta.0.0.get(NETWORK_KEY).cloned());
        let run = if is_cell {
            let (mut cell, session) = arguments::parse::<ExecuteCode>(arguments.clone()).map_err(invalid)?.into_cell();
            (cell.network, cell.scope) = (network, scope_of(context));
            let caller = Caller { peer: context.peer.clone(), modern: false, turn: turn_of(context) };
            self.begin_unattended(cell, session, arguments, client, caller).await.map_err(not_run)?
        } else {
            let parsed = arguments::parse::<RunPythonCode>(arguments.clone()).and_then(RunPythonCode::into_request);
            let mut request = parsed.map_err(invalid)?;
            (request.network, request.scope) = (network, scope_of(context));
            let begun = self.begin_program(request, arguments, &client, context, true).map_err(not_run)?;
            let run = begun.ok_or_else(cannot_be_task)?;
            self.sessions.publish_run(&run).await;
            run
        };
        let mut result = CallToolResult::success(Vec::new());
        result.meta.get_or_insert_default().insert(TASK.to_owned(), self.legacy_task(&run, context));
        Ok(result)
    }

    fn find_task(&self, id: &str) -> Result<Arc<Run>, ErrorData> {
        let missing = || ErrorData::invalid_params("there is no such task, or its time is over", None);
        self.sessions.find_run(id).ok_or_else(missing)
    }

    /// Returns a run as a task, for a client that can be asked or not.
    fn described_task(&self, run: &Run, can_ask: bool) -> DetailedTask {
        let (questions, result) = (run.visible_questions(), run.result());
        let id = run.info.id.as_str();
        let is_cancelled = match &result {
            Some(result) => result["_meta"].get(CANCELLED).is_some(),
            None => self.live.get(run).is_some_and(|live| live.is_cancelled()),
        };
        let (payload, message) = match result {
            _ if is_cancelled => (TaskPayload::Cancelled, Some("the task was cancelled".to_owned())),
            Some(result) => {
                let result = result.as_object().cloned().unwrap_or_default();
                (TaskPayload::Completed { result }, None)
            }
            None if questions.is_empty() => {
                let waits = matches!(run.state(), RunState::Waiting | RunState::Asleep);
                (TaskPayload::Working, Some(if waits { "the code waits" } else { "the code runs" }.to_owned()))
            }
            None if can_ask => {
                let elicitation = |message| InputRequest::Elicitation(ElicitRequest::new(elicit_line(message)));
                let requests = questions
                    .into_iter()
                    .map(|question| (self.key_of(&question), elicitation(question.message)))
                    .collect();
                (
                    TaskPayload::InputRequired { input_requests: requests },
                    Some("the code waits for an answer".to_owned()),
                )
            }
            None => (TaskPayload::Working, Some(format!("the code waits for an answer: belljar runs show {id}"))),
        };
        let (began, updated) = (run.info.began, run.updated());
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        // A wait, or a result, lasts this long from now on.
        let ttl = milliseconds(self.sessions.options().run_ttl).saturating_add(updated.saturating_sub(began));
        let poll = milliseconds(run.since_update() / 10);
        let mut task = Task::new(id, payload.status(), timestamp(began), timestamp(updated))
            .with_ttl_ms(ttl)
            .with_poll_interval_ms(poll.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL));
        task.status_message = message;
        DetailedTask::new(task, payload)
    }

    /// Returns the key of a question. After a restart of the server it is another one, as the answer to the question
    /// may have been lost.
    fn key_of(&self, question: &Question) -> String {
        format!("{}-{:08x}", question.call, self.live.process)
    }

    fn legacy_task(&self, run: &Run, context: &RequestContext<RoleServer>) -> Value {
        let DetailedTask { task, payload, .. } = self.described_task(run, can_ask(context));
        let has_failed =
            matches!(&payload, TaskPayload::Completed { result } if result.get("isError") == Some(&true.into()));
        let mut fields = json!({
            "taskId": task.task_id,
            "status": if has_failed { TaskStatus::Failed } else { task.status },
            "createdAt": task.created_at,
            "lastUpdatedAt": task.last_updated_at,
            "ttl": task.ttl_ms,
            "pollInterval": task.poll_interval_ms,
        });
        if let Some(message) = task.status_message {
            fields["statusMessage"] = message.into();
        }
        fields
    }

    /// Waits for the result of a task. Asks the client what the run asks; a client that does not answer leaves the
    /// questions open.
    async fn result_of_task(&self, run: &Arc<Run>, context: &RequestContext<RoleServer>) -> Value {
        let related = json!({ "taskId": run.info.id.as_str() });
        loop {
            let Question { call, message } = match run.next_update().await {
                RunUpdate::Completed(result) => {
                    run.set_fetched();
                    let mut result = Value::clone(&result);
                    if let Value::Object(fields) = &mut result {
                        fields.remove("resultType");
                        fields.remove("_meta");
                    }
                    add_meta(&mut result, RELATED_TASK, related);
                    return result;
                }
                RunUpdate::Question(question) => question,
            };
            if !can_ask(context) {
                run.answered(call).await;
                continue;
            }
            let meta = MetaObject(JsonObject::from_iter([(RELATED_TASK.to_owned(), related.clone())]));
            let reply = tokio::select! {
                reply = elicit_with(&context.peer, message, meta) => reply,
                () = run.answered(call) => continue,
            };
            let answer = match reply {
                Ok(line) => RunAnswer::Text(line),
                Err(InputError::Declined) => RunAnswer::Declined,
                Err(error) => {
                    tracing::debug!(%error, "the client of a task did not answer");
                    run.answered(call).await;
                    continue;
                }
            };
            // Another client may have answered in the meantime.
            let (Ok(()) | Err(NoSuchQuestion)) = run.answer(call, answer, Party::Client);
        }
    }
}

/// Returns whether a key is that of a question, in this process or an earlier one.
fn is_key_of(key: &str, question: &Question) -> bool {
    key.split_once('-').is_some_and(|(call, _)| call.parse() == Ok(question.call))
}

/// Returns a time, in milliseconds since 1970, in the form of RFC 3339.
fn timestamp(time: u64) -> String {
    const DAYS_BEFORE_1970: u64 = 719_468;
    const DAYS_AN_ERA: u64 = 146_097;
    let (days, of_day) = (time / 86_400_000 + DAYS_BEFORE_1970, time % 86_400_000);
    // The years of this calculation begin in March, so that a leap day is the last day of its year.
    let (era, day) = (days / DAYS_AN_ERA, days % DAYS_AN_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (seconds, milliseconds) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_dates_of_the_calendar() {
        for (time, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_210_096_789, "2024-02-29T12:34:56.789Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(time), text);
        }
    }
}
