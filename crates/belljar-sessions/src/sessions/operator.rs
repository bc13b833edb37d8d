//! The view of operators on all sessions, and their operations in place of the sessions' clients.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::CallCancellation;
use belljar_core::kernel::ShellRequest;
use serde_json::Value;

use super::queueing::result;
use super::table::SessionEntry;
use super::{Owner, Sessions};
use crate::error::SessionError;
use crate::history::{CellGuard, History, RunRecord, SessionActivity, SessionHandle, SessionOverview};
use crate::id::SessionId;
use crate::session::Session;

impl Sessions {
    /// Records the last cells of all sessions from now on, and lets operators answer what they ask. Must be called
    /// before the first session is used.
    pub fn record_history(&self) {
        self.shared.history.get_or_init(Arc::default);
    }

    /// Returns the history of the sessions, if it is recorded.
    pub fn history(&self) -> Option<&Arc<History>> {
        self.shared.history.get()
    }

    /// Returns the same sessions as their client `owner` sees them, for an operator who acts in place of it.
    #[must_use]
    pub fn for_operator(&self, owner: Option<Owner>) -> Self {
        Self { owner, by_operator: true, ..self.clone() }
    }

    pub(super) fn record_cell(&self, session: &Session, code: &str) -> Option<CellGuard> {
        self.record_cell_of(&session.id, session.owner.as_ref(), code)
    }

    pub(super) fn record_cell_of(&self, id: &SessionId, owner: Option<&Owner>, code: &str) -> Option<CellGuard> {
        let history = self.shared.history.get()?;
        Some(CellGuard::new(history.begin_cell(id, owner, code, self.by_operator)))
    }

    /// Records code that this client runs once, without a session, if cells are recorded. `cancellation` is that of the
    /// call.
    pub fn record_run(&self, code: &str, cancellation: &CallCancellation) -> Option<RunRecord> {
        let history = self.shared.history.get()?;
        Some(history.begin_run(history.next_run_id()?, self.owner.as_ref(), code, cancellation.clone()))
    }

    /// Returns all sessions of all clients, and those that have ended, or that this server has given up to the
    /// cluster's store, as far as they are recorded. To ask is not a use.
    pub fn overview(&self) -> Vec<SessionOverview> {
        let history = self.shared.history.get();
        let mut recorded = history.map(|history| history.all_by_id()).unwrap_or_default();
        let entries: Vec<SessionOverview> = {
            let table = self.shared.table.lock();
            table
                .iter()
                .filter_map(|(id, entry)| overview_of(id, entry, recorded.get(id).map(|one| one.handle())))
                .collect()
        };
        let mut all: Vec<SessionOverview> = Vec::with_capacity(entries.len() + recorded.len());
        for entry in entries {
            all.push(match recorded.remove(&entry.id) {
                Some(history) => entry.with_history(&history),
                None => entry,
            });
        }
        all.extend(recorded.into_iter().map(|(id, history)| SessionOverview::for_absent_session(id, &history)));
        all
    }

    /// Returns the overview of one session.
    pub fn overview_of(&self, handle: &SessionHandle) -> Option<SessionOverview> {
        let recorded = self.shared.history.get().and_then(|history| history.find_handle(handle));
        let entry = {
            let table = self.shared.table.lock();
            match &recorded {
                Some((id, history)) => table.get(id).and_then(|entry| overview_of(id, entry, Some(history.handle()))),
                None => {
                    let mut entries = table.iter();
                    let found = entries.find(|(id, _)| SessionHandle::from_id(id) == *handle);
                    found.and_then(|(id, entry)| overview_of(id, entry, Some(handle)))
                }
            }
        };
        match (entry, recorded) {
            (Some(entry), Some((_, history))) => Some(entry.with_history(&history)),
            (Some(entry), None) => Some(entry),
            (None, Some((id, history))) => Some(SessionOverview::for_absent_session(id, &history)),
            (None, None) => None,
        }
    }

    /// Returns the cells of a session in the store, as cells of a notebook: those of earlier servers, too.
    ///
    /// # Errors
    /// Fails if the cells cannot be read.
    pub fn stored_cells(&self, id: &SessionId) -> Result<Vec<Value>, SessionError> {
        let store = self.shared.services.store.as_ref().filter(|store| store.is_persistent());
        Ok(store.map(|store| store.cells(id)).transpose()?.unwrap_or_default())
    }

    /// Puts a session on the disk if no call runs, or if its cell waits and is saved. Returns whether it sleeps now.
    ///
    /// # Errors
    /// Fails if the session does not exist, or cannot be saved.
    pub async fn sleep(&self, id: &SessionId) -> Result<bool, SessionError> {
        if self.shared.services.store.is_none() {
            return Ok(false);
        }
        let session = match self.shared.table.lock().get(id) {
            Some(SessionEntry::Active(session)) => session.clone(),
            Some(SessionEntry::Hibernated(_)) => return Ok(true),
            Some(SessionEntry::Ending) | None => return Err(self.shared.expired(id.as_str())),
        };
        if session.is_idle() {
            self.hibernate(session).await;
        } else {
            let (shared, session) = (self.shared.clone(), session);
            let slept = tokio::task::spawn_blocking(move || {
                session.save_waiting(&shared.services, shared.clock.now());
                session.sleep_waiting(&shared.services, Duration::ZERO);
            });
            if let Err(error) = slept.await {
                tracing::error!(%error, "failed to put a waiting cell to sleep");
            }
        }
        let overview = self.overview_of(&SessionHandle::from_id(id));
        let is_asleep =
            |overview: SessionOverview| matches!(overview.activity, SessionActivity::Asleep | SessionActivity::Away);
        Ok(overview.is_some_and(is_asleep) || self.run_is_asleep(id))
    }

    fn run_is_asleep(&self, id: &SessionId) -> bool {
        self.shared.runs.all().iter().any(|run| run.session == *id && run.state() == crate::RunState::Asleep)
    }

    /// Evaluates an expression in a session that runs no cell, for an operator. Returns its plain text, which the code
    /// of the session can choose.
    ///
    /// # Errors
    /// Fails if the session does not exist, or its kernel cannot evaluate expressions now.
    pub fn evaluate(
        &self,
        id: &SessionId,
        expression: String,
    ) -> impl Future<Output = Result<Option<String>, SessionError>> + Send + use<> {
        let request = ShellRequest::UserExpressions { expressions: [("value".to_owned(), expression)].into() };
        let reply = result(self.on(id, 0, move |state, services, _| state.shell_request(services, &request)));
        async move {
            let reply = reply.await?;
            let text = reply.pointer("/user_expressions/value/data/text~1plain").and_then(Value::as_str);
            Ok(text.map(str::to_owned))
        }
    }
}

/// Returns the overview of an entry of the table. `handle` is that of the session, if it is known.
fn overview_of(id: &SessionId, entry: &SessionEntry, handle: Option<&SessionHandle>) -> Option<SessionOverview> {
    let handle = || handle.cloned().unwrap_or_else(|| SessionHandle::from_id(id));
    match entry {
        SessionEntry::Active(session) => {
            let activity = if session.is_idle() { SessionActivity::Idle } else { SessionActivity::Running };
            let (owner, last_used) = (session.owner.clone(), Some(session.last_used()));
            let overview = SessionOverview::new(handle(), id.clone(), owner, activity, last_used);
            Some(SessionOverview { waiting_calls: session.waiting(), ..overview })
        }
        SessionEntry::Hibernated(hibernated) => {
            let (owner, last_used) = (hibernated.owner.clone(), Some(hibernated.last_used));
            Some(SessionOverview::new(handle(), id.clone(), owner, SessionActivity::Asleep, last_used))
        }
        SessionEntry::Ending => None,
    }
}
