//! The record of code that runs once, in an interpreter of its own: a history with one cell, and no session.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use belljar_core::activity::CpuClock;
use belljar_core::kernel::CellObserver;
use belljar_core::mime::Image;
use belljar_core::{CallCancellation, CellStatus, Outcome, RunReport};

use super::session::{HistoryKind, SessionHistory};
use super::{AbsenceReason, CellGuard, History, SessionChange};
use crate::id::{IdSequence, SessionId};
use crate::sessions::Owner;

/// The end of code that ran once, for its record.
pub struct RunEnd {
    pub(super) images: Vec<Image>,
    /// The plain text of the value of the last line.
    pub(super) value: Option<String>,
    /// The status of the code, or the reason why it was not run.
    pub(super) status: Result<CellStatus, String>,
    pub(super) peak_memory: u64,
}

impl From<Result<&RunReport, String>> for RunEnd {
    fn from(result: Result<&RunReport, String>) -> Self {
        let report = match result {
            Ok(report) => report,
            Err(reason) => return Self { images: Vec::new(), value: None, status: Err(reason), peak_memory: 0 },
        };
        let value = if let Outcome::Success(Some(value)) = &report.outcome { Some(value.text.clone()) } else { None };
        let (images, status) = (report.images.clone(), Ok(CellStatus::from(&report.outcome)));
        Self { images, value, status, peak_memory: report.statistics.peak_memory }
    }
}

/// The record of a call that runs code once. Dropping it ends the record.
pub struct RunRecord {
    history: Arc<History>,
    /// An ID that nothing else has.
    id: SessionId,
    cell: CellGuard,
    has_ended: bool,
}

impl History {
    /// Returns an ID for code that runs once. Returns `None` if the system's random number generator fails.
    pub(crate) fn next_run_id(&self) -> Option<SessionId> {
        if self.run_ids.get().is_none() {
            let _ = self.run_ids.set(IdSequence::random().ok()?);
        }
        self.run_ids.get().map(IdSequence::next_id)
    }

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

    /// Ends the record. The client need not wait for that, nor for the drop of the record, which forgets earlier calls.
    pub fn end(&mut self, result: RunEnd) {
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
