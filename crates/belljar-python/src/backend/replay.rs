//! A cell of a snapshot that is run again with its recording, until it waits as it did when it was saved.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{CellObserver, KernelError};
use belljar_core::{HeldWaitKind, Outcome, OutputCollector, Progress, ReplySender, Waker};

use super::exchange::RunCalls;
use super::held_cell::{HeldCell, ReplayObserver, ReplayedCell, SleepingCell};
use super::running_cell::RunningCell;
use super::session_calls::InputHandler;
use super::session_kernel::WasmKernel;
use super::wait_clock::{SavedClock, WaitClock};
use crate::guest_protocol::ShellCell;
use crate::steps::Step;

impl WasmKernel {
    /// Connects the cell of a restored snapshot, which is to be replayed, to an observer.
    ///
    /// # Errors
    /// Fails if the recording is damaged, or a package of the cell is not available.
    pub(super) fn attach_replayed_cell(
        &mut self,
        cell: ReplayedCell,
        recording: &[u8],
        observer: Arc<dyn CellObserver>,
        waker: Waker,
    ) -> Result<ReplySender, KernelError> {
        let recorder =
            self.recorder.take().ok_or(KernelError::Unsupported("the waiting cell needs a recorder".into()))?;
        self.install_for_replay(&cell, &*observer)?;
        let is_replaying = self.interpreter.start_replay(recording, recorder.max_bytes)?;
        let observer: Arc<dyn CellObserver> = Arc::new(ReplayObserver { inner: observer, is_replaying });
        // The cell's output is made again, and collected again.
        let outputs = match self.unattached.take() {
            Some(waiting) => OutputCollector::restored(observer.clone(), waiting.output),
            None => OutputCollector::new(observer.clone()),
        };
        let ReplayedCell { members, tried, calls, own_timeout, spent, kind, .. } = cell;
        let own = own_timeout.map(Duration::from_micros);
        let limits = self.backend.session_limits();
        let held = Arc::new(HeldCell::new(recorder, limits, own));
        held.set_packages(members, tried.clone());
        let installer = self.installer(&observer);
        let scrubber = self.backend.shared.scrubber();
        let calls = calls.map(|saved| {
            let (observer, waker, scrubber) = (observer.clone(), waker.clone(), scrubber.clone());
            RunCalls::restored(saved, observer, waker, Some(held.clone()), scrubber)
        });
        if let Some(calls) = &calls {
            self.interpreter.register_calls(calls);
        }
        let input =
            InputHandler { observer: observer.clone(), held: Some(held.clone()), calls: calls.clone(), scrubber };
        self.connect(&outputs, &installer, input, Some(&waker));
        let replies = match &calls {
            Some(calls) => calls.replies(),
            // The cell makes no calls: nothing is sent.
            None => ReplySender::new(std::sync::mpsc::channel().0, None),
        };
        // The arguments of the recorded steps have what the cell renews.
        self.interpreter.drop_renewal();
        self.interpreter.set_sleep_saver(Arc::new(SleepingCell { held: held.clone(), calls: calls.clone() }));
        self.interpreter.set_spent(Duration::from_micros(spent));
        let limits = limits.with_timeout(own);
        self.interpreter.set_wall_time(limits.wall_time);
        let clock = WaitClock::restored(&limits, SavedClock::running(own_timeout, spent), Duration::ZERO);
        self.awaited = Some(Awaited { kind, replies: calls.as_ref().map_or(0, RunCalls::replies_left) });
        self.running = Some(RunningCell {
            observer,
            outputs,
            installer,
            tried,
            calls,
            is_resumable: true,
            clock,
            held: Some(held),
        });
        Ok(replies)
    }

    /// Adds the packages that were installed for the cell before it began.
    fn install_for_replay(&mut self, cell: &ReplayedCell, progress: &dyn Progress) -> Result<(), KernelError> {
        let present: Vec<_> = self.packages.wheel_ids().cloned().collect();
        if present == cell.members {
            return Ok(());
        }
        let runtime = &self.session_runtime.runtime;
        let packages = runtime.python.package_set(&cell.members, &*runtime.installer, progress);
        let packages = packages.map_err(|error| {
            KernelError::IncompatibleSnapshot(format!("its packages are not available: {error}").into())
        })?;
        self.interpreter.add_packages(&packages, &self.packages, progress)?;
        self.packages = packages;
        Ok(())
    }

    /// Returns whether the cell, which is to be replayed, goes on after that: the line of input that is asked for again
    /// is there, or a reply, or its time is over.
    pub(super) fn has_replies_for_replay(&self) -> bool {
        let Some(Awaited { kind, replies }) = &self.awaited else { return true };
        let calls = self.running.as_ref().and_then(|running| running.calls.as_ref());
        *kind != HeldWaitKind::Calls || calls.is_none_or(|calls| calls.replies_left() > *replies)
    }

    /// Repeats the steps of the cell, and continues the last one.
    pub(super) fn replay(&mut self, running: &RunningCell) -> Result<Step<ShellCell>, Outcome> {
        self.awaited = None;
        let spent = self.interpreter.spent();
        if let Some(held) = &running.held {
            held.begin_step(spent);
        }
        loop {
            let step = self.interpreter.resume_cell();
            if !self.interpreter.is_replaying() {
                return step;
            }
            match step {
                Ok(Step::Waiting(_)) => {}
                Ok(Step::Completed(_)) => {
                    self.interpreter.note_early_end();
                    return Err(Outcome::Success(None));
                }
                Err(outcome) => return Err(outcome),
            }
            // The time of a replay does not count.
            self.interpreter.set_spent(spent);
        }
    }
}

/// The object of the wait of a cell that is to be replayed.
pub(super) struct Awaited {
    kind: HeldWaitKind,
    /// The number of replies that do not end the wait.
    replies: usize,
}
