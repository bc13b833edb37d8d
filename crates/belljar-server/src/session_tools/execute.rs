//! `execute_code`: a cell that is run for one call.

use std::time::Instant;

use belljar_core::kernel::CellRequest;
use belljar_core::{RecordedConnections, Report, Statistics};
use belljar_sessions::{CellReport, SessionError, SessionId};
use belljar_tools::CallLog;
use rmcp::model::CallToolResult;

use super::answer::{ExecuteCodeResult, SessionInfo};
use super::client_io::CellClient;
use super::{Caller, SessionTools, ToolAnswer};
use crate::apps::{self, Panel};
use crate::arrival::in_turn;
use crate::code_tools::CancelOnDrop;
use crate::input_rounds::CodeClient as _;
use crate::metrics::CallStatus;
use crate::report;

impl SessionTools {
    /// Runs a cell in a session, or in a new one, and waits for its result.
    pub(super) async fn execute(
        &self,
        mut cell: CellRequest,
        session: Option<String>,
        client: CellClient,
        caller: Caller,
    ) -> ToolAnswer {
        let is_new = session.is_none();
        let (limits, begin) = (self.sessions.limits().with_timeout(cell.timeout), Instant::now());
        cell.tools = self.tools.is_some();
        let (tool_run, observer) = match &self.tools {
            Some(tools) => {
                let (run, observer) = tools.for_cell(client.observer(), cell.scope.clone());
                (Some(CancelOnDrop(run)), observer)
            }
            None => (None, client.observer()),
        };
        let queued = in_turn(caller.turn.clone(), || -> Result<_, SessionError> {
            let id = match session {
                Some(name) => self.find(&name)?,
                None => self.sessions.create()?,
            };
            cell.scope.set_session(id.as_str());
            let report = self.sessions.execute(&id, cell, observer);
            Ok((id, report))
        });
        let (id, report) = match queued.await {
            Ok(queued) => queued,
            Err(error) => {
                client.detach();
                return not_run(&error);
            }
        };
        self.visible_sessions.lock().insert(id.clone());
        let report = report.await;
        client.detach();
        match report {
            Ok(report) => {
                let changed: Vec<&str> = report.files.iter().map(|change| change.file.path.as_str()).collect();
                self.notify(&id, report.list_changed, &changed, &caller).await;
                let status = CallStatus::from(&report.status);
                let whole = client.recording().map(|recording| {
                    let statistics = Statistics { run: begin.elapsed(), ..Statistics::default() };
                    let (status, outputs) = (report.status.clone(), report.outputs.clone());
                    let mut whole = Report::from_cell(status, outputs, &limits, &statistics);
                    recording.complete(&mut whole);
                    whole
                });
                let calls = tool_run.map(|run| run.0.log());
                let result = self.answer(&id, is_new, report, calls, client.take_connections(), client.shows_panel());
                let result = match whole {
                    Some(whole) => report::attach(result, whole),
                    None => result,
                };
                ToolAnswer { response: result.into(), status }
            }
            Err(error) => {
                // Remove a new session that failed to start.
                if is_new && self.sessions.clear(&id).await.is_ok() {
                    self.visible_sessions.lock().remove(&id);
                }
                not_run(&error)
            }
        }
    }

    /// Returns the result of a call whose cell was run, with what its client shows and records of it.
    pub(super) fn answer(
        &self,
        id: &SessionId,
        is_new: bool,
        report: CellReport,
        calls: Option<CallLog>,
        connections: RecordedConnections,
        shows_panel: bool,
    ) -> CallToolResult {
        let panel = shows_panel.then(|| {
            let panel = Panel::from_cell(id, &report, self.sessions.limits());
            panel.with_records(calls.clone(), connections.clone())
        });
        let info = is_new.then(|| SessionInfo::new(id, self.sessions.options().timeout));
        let result = ExecuteCodeResult::new(id, info, report, self.sessions.limits(), self.html);
        let result = result.with_calls(calls).with_connections(connections).result();
        match panel {
            Some(panel) => apps::attach(result, &panel),
            None => result,
        }
    }
}

/// Returns the answer to a call whose cell was not run.
pub(super) fn not_run(error: &SessionError) -> ToolAnswer {
    ToolAnswer { response: ExecuteCodeResult::from_error(error).result().into(), status: error.into() }
}
