//! The call of a cell: one step after the other, with waits between them in which it holds no thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use belljar_core::activity::trace::SpanName;
use belljar_core::kernel::{CellObserver, CellRequest, InterruptHandle};
use belljar_core::{CallCancellation, Wait, WakingInterruptHandle};

use super::held_run::HeldRun;
use super::queueing::{Work, WorkStep};
use super::table::Shared;
use crate::error::SessionError;
use crate::history::CellGuard;
use crate::parking::ParkedWork;
use crate::report::CellReport;
use crate::runs::{Run, RunCalls, RunEvent};
use crate::session::Session;
use crate::state::durable::{CellWaits, DurableCell};
use crate::state::{CellProgress, CellStart, SessionState};

/// The time of a wait after which a cell that can wait on the disk is saved. A cell that asks its client something is
/// saved at once.
pub(super) const SAVE_AFTER: Duration = Duration::from_secs(1);

/// The call of a cell.
pub(super) struct CellCall {
    pub(super) shared: Arc<Shared>,
    pub(super) cancellation: CallCancellation,
    pub(super) work: Arc<ParkedWork>,
    /// The run, if the cell can wait on the disk.
    pub(super) run: Option<Arc<Run>>,
    /// The time at which the call was queued.
    pub(super) arrival: SystemTime,
    /// The record for operators, if cells are recorded.
    pub(super) record: Option<CellGuard>,
}

impl CellCall {
    /// Runs the cell until it ends or waits. `calls` are those of the run.
    pub(super) fn begin(
        self,
        state: &mut SessionState,
        session: &Session,
        cell: CellRequest,
        observer: Arc<dyn CellObserver>,
        calls: Option<Arc<dyn RunCalls>>,
    ) -> WorkStep<CellReport> {
        cell.scope.add_span(SpanName::Queue, "", self.arrival, Vec::new);
        let begin_running = |inner: Arc<dyn InterruptHandle>| {
            let interrupt = self.interrupt_handle(inner);
            if !self.cancellation.begin_running(interrupt.clone()) {
                CellStart::Cancelled
            } else if session.begin_running(interrupt) {
                CellStart::Started
            } else {
                CellStart::Interrupted
            }
        };
        let observer = match &self.record {
            Some(CellGuard(record)) => {
                record.begin();
                record.observer(observer)
            }
            None => observer,
        };
        if let Some(run) = &self.run {
            run.set_waker(self.work.waker());
            run.advance(RunEvent::Begin);
        }
        let held = |run: &Arc<Run>| Arc::new(HeldRun::new(self.shared.clone(), run.clone()));
        let with_held = self.run.clone().map(|run| (held(&run), run));
        let durable = with_held.map(|(held, run)| DurableCell {
            run,
            calls,
            start: None,
            has_sent_calls: false,
            runs: self.shared.runs.clone(),
            waker: self.work.waker(),
            is_saved: false,
            since: Instant::now(),
            held,
        });
        let services = &self.shared.services;
        let now = self.shared.clock.now();
        let waits = CellWaits { waker: self.work.waker(), durable, cpu: self.cpu() };
        let progress = state.execute(services, cell, observer, now, begin_running, waits);
        self.after_step(state, session, progress)
    }

    /// Returns the processor time that operators see, if cells are recorded and it is measured.
    fn cpu(&self) -> Option<&AtomicU64> {
        let CellGuard(record) = self.record.as_ref()?;
        record.cpu(self.shared.services.cpu_clock())
    }

    /// Returns the handle that interrupts the cell in whatever interpreter it is.
    fn interrupt_handle(&self, inner: Arc<dyn InterruptHandle>) -> Arc<dyn InterruptHandle> {
        let inner = match &self.run {
            Some(run) => {
                run.interrupt.attach(inner);
                run.interrupt.clone()
            }
            None => inner,
        };
        Arc::new(WakingInterruptHandle { inner, waker: self.work.waker() })
    }

    /// Returns the handle of a cell whose interpreter is on the disk, and that can be called before it goes on.
    pub(super) fn begin_asleep(&self, run: &Run) -> Arc<dyn InterruptHandle> {
        let handle: Arc<dyn InterruptHandle> =
            Arc::new(WakingInterruptHandle { inner: run.interrupt.clone(), waker: self.work.waker() });
        // A run that was just read cannot have been cancelled.
        let _ = self.cancellation.begin_running(handle.clone());
        handle
    }

    /// Returns the work that continues the cell, which waits since now.
    pub(super) fn next(self, wait: Wait) -> Work<CellReport> {
        let parked = Instant::now();
        Box::new(move |state: &mut SessionState, session: &Session| {
            let elapsed = parked.elapsed();
            if let Some(run) = &self.run {
                if self.shared.is_ending.load(Ordering::Relaxed) {
                    // No client would receive the result here: the next process goes on with the cell.
                    let timer = wait.timer.map(|timer| timer.saturating_sub(elapsed));
                    self.save(state, Wait { timer, ..wait }, true);
                    return WorkStep::Waiting { work: self.work.clone(), timer: None, next: self.next(wait) };
                }
                let is_due = wait.timer.is_some_and(|timer| elapsed >= timer);
                // Asked once: the interrupt counts for one step only.
                let goes_on = run.interrupt.take() || is_due;
                if !goes_on && let Err(error) = state.wake_for_calls(&self.shared.services) {
                    return self.after_step(state, session, Err(error));
                }
                if !goes_on && !state.has_replies() {
                    // A question has been asked, or it is time to save the cell. It is not lost meanwhile.
                    let timer = wait.timer.map(|timer| timer.saturating_sub(elapsed));
                    return self.wait(state, Wait { timer, ..wait }, true);
                }
            }
            let progress = state.resume(&self.shared.services, self.shared.clock.now(), self.cpu());
            self.after_step(state, session, progress)
        })
    }

    /// Has the cell wait. With `save`, it is saved if anything has changed since it was saved.
    fn wait(self, state: &mut SessionState, wait: Wait, save: bool) -> WorkStep<CellReport> {
        let save_in = self.save(state, wait, save);
        let (work, timer) = (self.work.clone(), wait.timer.into_iter().chain(save_in).min());
        WorkStep::Waiting { work, timer, next: self.next(wait) }
    }

    /// Ends a step.
    fn after_step(
        self,
        state: &mut SessionState,
        session: &Session,
        progress: Result<CellProgress, SessionError>,
    ) -> WorkStep<CellReport> {
        let result = match progress {
            Ok(CellProgress::Waiting(wait)) => {
                // A cell that held its thread may be asleep.
                if let Some(run) = self.run.as_ref().filter(|run| !run.state().is_waiting()) {
                    run.advance(RunEvent::Wait);
                }
                if let Some(durable) = state.durable() {
                    durable.since = Instant::now();
                }
                return self.wait(state, wait, false);
            }
            Ok(CellProgress::Completed(report)) => Ok(*report),
            Err(error) => {
                if self.run.is_some()
                    && let Some(store) = &self.shared.services.store
                    && let Err(error) = store.remove_waiting(&session.id)
                {
                    tracing::warn!(%error, "failed to delete the state of a run that failed");
                }
                Err(error)
            }
        };
        if let Some(CellGuard(record)) = &self.record {
            record.complete(&result);
        }
        session.end_running();
        self.cancellation.finish();
        session.touch(self.shared.clock.now());
        WorkStep::Completed(result)
    }

    /// Saves the cell, which waits, if it is to be saved now: it asks something and is not saved with that, or `save`
    /// is set and it has waited for long. Returns the time after which it is to be saved else.
    fn save(&self, state: &mut SessionState, wait: Wait, save: bool) -> Option<Duration> {
        let run = self.run.as_ref()?;
        let durable = state.durable()?;
        let is_due = durable.since.elapsed() >= SAVE_AFTER;
        let is_wanted = run.has_questions() || (save && is_due);
        if run.has_hidden_questions() || (is_wanted && !durable.is_saved) {
            match state.save_waiting(&self.shared.services, wait.timer, self.shared.clock.now()) {
                Ok(true) => return None,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "a waiting cell is not saved: it would not survive the end of the server");
                    run.show_questions();
                }
            }
        }
        let is_saved = state.durable().is_some_and(|durable| durable.is_saved);
        (!is_saved).then_some(SAVE_AFTER)
    }
}
