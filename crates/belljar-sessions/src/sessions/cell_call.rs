//! The call of a cell: one step after the other, with waits between them in which it holds no thread.

use std::sync::Arc;

use belljar_core::kernel::{CellObserver, CellRequest, InterruptHandle};
use belljar_core::{CallCancellation, WakingInterruptHandle};

use super::queueing::WorkStep;
use super::table::Shared;
use crate::error::SessionError;
use crate::parking::ParkedWork;
use crate::report::CellReport;
use crate::session::Session;
use crate::state::{CellProgress, CellStart, SessionState};

/// The call of a cell.
pub(super) struct CellCall {
    pub(super) shared: Arc<Shared>,
    pub(super) cancellation: CallCancellation,
    pub(super) work: Arc<ParkedWork>,
}

impl CellCall {
    /// Runs the cell until it ends or waits.
    pub(super) fn begin(
        self,
        state: &mut SessionState,
        session: &Session,
        cell: CellRequest,
        observer: Arc<dyn CellObserver>,
    ) -> WorkStep<CellReport> {
        let begin_running = |inner: Arc<dyn InterruptHandle>| {
            let interrupt = Arc::new(WakingInterruptHandle { inner, waker: self.work.waker() });
            if !self.cancellation.begin_running(interrupt.clone()) {
                CellStart::Cancelled
            } else if session.begin_running(interrupt) {
                CellStart::Started
            } else {
                CellStart::Interrupted
            }
        };
        let services = &self.shared.services;
        let now = self.shared.clock.now();
        let progress = state.execute(services, cell, observer, now, begin_running, self.work.waker());
        self.after_step(session, progress)
    }

    fn after_step(self, session: &Session, progress: Result<CellProgress, SessionError>) -> WorkStep<CellReport> {
        let result = match progress {
            Ok(CellProgress::Waiting(wait)) => {
                let work = self.work.clone();
                let next = move |state: &mut SessionState, session: &Session| {
                    let progress = state.resume(&self.shared.services, self.shared.clock.now());
                    self.after_step(session, progress)
                };
                return WorkStep::Waiting { work, timer: wait.timer, next: Box::new(next) };
            }
            Ok(CellProgress::Completed(report)) => Ok(*report),
            Err(error) => Err(error),
        };
        session.end_running();
        self.cancellation.finish();
        session.touch(self.shared.clock.now());
        WorkStep::Completed(result)
    }
}
