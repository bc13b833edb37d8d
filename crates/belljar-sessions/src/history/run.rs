//! The record of code that runs once, in an interpreter of its own: a history with one cell, and no session.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use belljar_core::activity::CpuClock;
use belljar_core::kernel::CellObserver;
use belljar_core::{CallCancellation, RunReport};

use super::session::{HistoryKind, SessionHistory};
use super::{AbsenceReason, CellGuard, History, SessionChange};
use crate::id::SessionId;
use crate::sessions::Owner;

/// The record of a call that runs code once. Dropping it ends the record.
pub struct RunRecord {
    history: Arc<History>,
    /// A random ID, which nothing else has.
    id: SessionId,
    cell: CellGuard,
    has_ended: bool,
}

impl History {
    /// Records code that is about to be queued. `cancellation` is that of its call, which operators can stop by it.
    pub(crate) fn begin_run(
        self: &Arc<Self>,
        id: SessionId,
        owner: Option<&Owner>,
        code: &str,
        cancellation: CallCancellation,
    ) -> RunRecord {
        let session = SessionHistory::new(&id, owner, self.changes.clone(), HistoryKind::Run(cancellation));
        let session = Arc::new(session);
        self.known.lock().sessions.insert(id.clone(), session.clone());
        session.send(None, SessionChange::Created);
        let cell = CellGuard::new(self.begin_cell_of(&session, code, false));
        RunRecord { history: self.clone(), id, cell, has_ended: false }
    }
}

impl RunRecord {
    /// Notes that the code is about to begin. Returns the observer that records what it does, and passes it to `inner`.
    pub fn begin(&self, inner: Arc<dyn CellObserver>) -> Arc<dyn CellObserver> {
        let CellGuard(record) = &self.cell;
        record.begin();
        record.observer(inner)
    }

    /// Returns the nanoseconds of processor time of the code, to which the threads that continue it add. `clock` says
    /// whose time that is: without one, nothing is measured.
    pub fn cpu(&self, clock: CpuClock) -> Option<&AtomicU64> {
        let CellGuard(record) = &self.cell;
        record.cpu(clock)
    }

    /// Ends the record with the result of the code, or with the reason why it was not run. Dropping the record may take
    /// a while, since it forgets earlier calls: the client need not wait for that.
    pub fn end(&mut self, result: Result<&RunReport, String>) {
        let CellGuard(record) = &self.cell;
        record.complete_run(result);
        self.has_ended = true;
        self.history.note_absence(&self.id, AbsenceReason::Completed);
    }
}

impl Drop for RunRecord {
    fn drop(&mut self) {
        if !self.has_ended {
            let CellGuard(record) = &self.cell;
            record.abandon();
            self.history.note_absence(&self.id, AbsenceReason::Completed);
        }
        drop(self.history.forget_absent());
    }
}
