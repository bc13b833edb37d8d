//! Code of `run_python_code` as runs: it waits on the disk like the cells of persistent sessions.
//!
//! The code is the only cell of a session that no client sees (`belljar_core::kernel::Backend::program`). Code that
//! does not contain `await` or `async` cannot wait without its thread, and is not a run: it costs nothing more. Only a
//! call that asks for a task makes it one.

use std::sync::Arc;

use belljar_core::Output;
use belljar_core::kernel::{CellRequest, KernelError, OneShotRequest};
use belljar_sessions::{CellReport, Run, SessionError};
use belljar_tools::{CallLog, SavedRun};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, JsonObject};
use rmcp::service::RequestContext;
use serde_json::Value;

use super::client_io::CellClient;
use super::live_runs::{LiveRun, calls_of};
use super::{SessionTools, ToolAnswer, is_modern};
use crate::answer::{ReturnMode, RunAnswer};
use crate::apps::{self, Panel};
use crate::handler::tool_error;
use crate::input_rounds::CodeClient as _;
use crate::metrics::CallStatus;
use crate::notifier::ClientNotifier;
use crate::refusals;
use crate::runner::{self, RunError};

/// The format of the results of programs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProgramAnswers {
    pub(crate) mode: ReturnMode,
    /// The maximum size of a result, in bytes.
    pub(crate) max_bytes: usize,
}

impl ProgramAnswers {
    /// Returns the result of a program, and its status.
    pub(super) fn answer(
        self,
        ended: Result<CellReport, SessionError>,
        client: Option<&CellClient>,
        calls: Option<CallLog>,
    ) -> (CallToolResult, CallStatus) {
        let (outputs, report) = match ended {
            Ok(ended) => (ended.outputs, client.and_then(CellClient::take_report)),
            Err(SessionError::Kernel(error)) => {
                let error = RunError::from(error);
                return (tool_error(error.to_string()), CallStatus::from(&error));
            }
            Err(SessionError::Refused(refusal)) => {
                return (refusals::refused(&refusal), CallStatus::Refused((&refusal).into()));
            }
            Err(error) => return (tool_error(error.to_string()), CallStatus::from(&error)),
        };
        let Some(report) = report else {
            let reason = outputs.iter().find_map(|output| match output {
                Output::Text { text, .. } => Some(text.clone()),
                _ => None,
            });
            let error = RunError::from(KernelError::Failed(
                reason.unwrap_or_else(|| "the code ended without a result".into()).into(),
            ));
            return (tool_error(error.to_string()), CallStatus::from(&error));
        };
        let text = |output: Output| match output {
            Output::Text { text, .. } => text.into_bytes(),
            Output::Display(_) | Output::ExecuteResult(_) => Vec::new(),
        };
        let output = outputs.into_iter().flat_map(text).collect();
        let status = CallStatus::from(&report.outcome);
        let connections = client.map(CellClient::take_connections).unwrap_or_default();
        let mut answer = RunAnswer { report, output, calls, connections };
        if let Some(client) = client {
            runner::log_error(&answer, &client.notifier());
        }
        answer.truncate(self.max_bytes);
        let result = answer.result(self.mode);
        let result = match client {
            Some(client) if client.shows_panel() => apps::attach(result, &Panel::from_run(&answer)),
            _ => result,
        };
        (result, status)
    }
}

impl SessionTools {
    /// Returns whether the code can wait on the disk, and may do so.
    pub(crate) fn runs_durably(&self, request: &OneShotRequest) -> bool {
        let can_wait = request.code.contains("await") || request.code.contains("async");
        can_wait && request.exchange.is_none() && self.sessions.are_durable()
    }

    /// Runs code in an interpreter of its own as a run, and returns its result or its first question.
    ///
    /// # Errors
    /// Returns the request if programs of the backend cannot wait on the disk.
    pub(crate) async fn run_program(
        &self,
        request: OneShotRequest,
        arguments: Option<JsonObject>,
        notifier: ClientNotifier,
        context: &RequestContext<RoleServer>,
    ) -> Option<ToolAnswer> {
        let (client, _) = CellClient::new(notifier, context, None);
        match self.begin_program(request, arguments, &client, context, false) {
            Ok(run) => Some(self.attend(&run?, &client, context).await),
            Err(error) => {
                let status = CallStatus::from(&error);
                Some(ToolAnswer { response: tool_error(error.to_string()).into(), status })
            }
        }
    }

    /// Begins a run of code in an interpreter of its own, which no call waits for if `is_task` is set. Returns `None`
    /// if programs of the backend cannot wait on the disk.
    ///
    /// # Errors
    /// Fails if the code is not run.
    pub(super) fn begin_program(
        &self,
        mut request: OneShotRequest,
        arguments: Option<JsonObject>,
        client: &CellClient,
        context: &RequestContext<RoleServer>,
        is_task: bool,
    ) -> Result<Option<Arc<Run>>, SessionError> {
        request.tools = self.tools.is_some();
        let cell = CellRequest { code: request.code.clone(), scope: request.scope.clone(), ..CellRequest::default() };
        let arguments = arguments.map_or(Value::Null, Value::Object);
        let Some(run) = self.sessions.create_program(request, arguments)? else { return Ok(None) };
        cell.scope.set_run(run.info.id.as_str());
        if is_task {
            run.detach();
        }
        client.set_run(run.clone(), (is_task || is_modern(context)).then(|| self.live.inputs.clone()));
        let (calls, observer) = calls_of(&run, client, self.tools.as_ref(), SavedRun::default(), &cell.scope);
        self.live.insert(&run, LiveRun::new(client.clone(), calls.clone()));
        self.visible_programs.lock().insert(run.session.clone());
        let report = self.sessions.execute_run(&run, cell, observer, calls);
        self.complete_later(run.clone(), report, None);
        if is_task {
            client.detach();
        }
        Ok(Some(run))
    }
}
