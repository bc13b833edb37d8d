//! Operations of operators on the sessions of clients.

use std::sync::Arc;

use belljar_core::activity::trace::Trace;
use belljar_core::kernel::{CellObserver, CellRequest, NullObserver};
use belljar_sessions::{Owner, SessionError, SessionId};
use belljar_tools::SavedRun;
use serde_json::Value;

use super::SessionTools;
use super::client_io::CellClient;
use super::live_runs::{LiveRun, calls_of};
use crate::code_tools::CancelOnDrop;

/// The name of the admin API and the console in records.
pub(crate) const OPERATOR_PROTOCOL: &str = "admin";

impl SessionTools {
    /// Returns the tools for acting in place of the client `owner`.
    pub(crate) fn for_operator(&self, owner: Option<Owner>) -> Self {
        Self { sessions: self.sessions.for_operator(owner), ..self.clone() }
    }

    /// Submits a cell of an operator, who follows it by its record. Returns its number.
    ///
    /// # Errors
    /// Fails if the session does not exist, or ends.
    pub(crate) fn run_for_operator(&self, id: &SessionId, cell: CellRequest) -> Result<u64, SessionError> {
        let id = self.sessions.find(id.as_str())?;
        let scope = self.activity.scope(OPERATOR_PROTOCOL, self.sessions.owner(), Trace::default());
        scope.set_session(id.as_str());
        let cell = CellRequest { tools: self.tools.is_some(), scope: scope.clone(), ..cell };
        if self.sessions.are_durable() {
            let run = self.sessions.create_run(&id, &cell.code, Value::Null, false)?;
            let client = CellClient::absent();
            client.set_run(run.clone(), Some(self.live.inputs.clone()));
            scope.set_run(run.info.id.as_str());
            let (calls, observer) = calls_of(&run, &client, self.tools.as_ref(), SavedRun::default(), &scope);
            self.live.insert(&run, LiveRun::new(client, calls.clone()));
            let report = self.sessions.execute_run(&run, cell, observer, calls);
            let number = run.cell_number();
            self.complete_later(run, report, None);
            return number.ok_or(SessionError::Gone);
        }
        let observer: Arc<dyn CellObserver> = Arc::new(NullObserver);
        let (tool_run, observer) = match &self.tools {
            Some(tools) => {
                let (run, observer) = tools.for_cell(observer, scope);
                (Some(CancelOnDrop(run)), observer)
            }
            None => (None, observer),
        };
        let (number, report) = self.sessions.execute_recorded(&id, cell, observer);
        tokio::spawn(async move {
            // The record has the result.
            if let Err(error) = report.await {
                tracing::debug!(%error, "a cell of an operator was not run");
            }
            drop(tool_run);
        });
        number.ok_or(SessionError::Gone)
    }

    /// Forks a session. If its cell waits, that of the new session waits, too.
    ///
    /// # Errors
    /// Fails if the session does not exist, or cannot be forked.
    pub(crate) async fn fork_for_operator(&self, id: &SessionId) -> Result<SessionId, SessionError> {
        match self.sessions.fork_run(id) {
            Ok(Some((forked, run, report))) => {
                self.follow(run, report);
                Ok(forked)
            }
            Ok(None) => self.sessions.fork(id).await,
            Err(error) => {
                tracing::warn!(%error, "a session is forked after its waiting cell");
                self.sessions.fork(id).await
            }
        }
    }
}
