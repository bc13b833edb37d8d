//! Code that may pause: it runs in steps, and between them its thread waits for replies and timers, until only its
//! caller can continue it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::kernel::{CompletedRun, Kernel, KernelError};
use belljar_core::{CellResult, CellStatus, CellStep, ExitReason, RunStep, Wait, WaitingRun, Waker};
use parking_lot::{Condvar, Mutex};

use crate::client::Client;

/// The time for which code that waits for its caller may go on with its own timers before it pauses.
const TIMERS_BEFORE_PAUSE: Duration = Duration::from_secs(1);

/// The interval at which it is looked whether code waits for its caller only.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Notifies a thread that waiting code can go on.
#[derive(Default)]
pub(crate) struct WakeSignal {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl WakeSignal {
    /// Returns the waker of the code.
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        let signal = self.clone();
        Waker::new(move || signal.wake())
    }

    /// Notifies the thread.
    pub(crate) fn wake(&self) {
        *self.is_woken.lock() = true;
        self.changed.notify_all();
    }

    /// Returns whether the code was woken since the last call.
    fn take(&self) -> bool {
        std::mem::take(&mut *self.is_woken.lock())
    }

    /// Waits until the code is woken, or for `timeout`. Returns whether it was woken.
    fn wait(&self, timeout: Option<Duration>) -> bool {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut is_woken = self.is_woken.lock();
        while !*is_woken {
            match deadline {
                None => self.changed.wait(&mut is_woken),
                Some(deadline) => {
                    if self.changed.wait_until(&mut is_woken, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        std::mem::take(&mut is_woken)
    }
}

/// The waits of code between its steps, from its start or its last pause on.
pub(crate) struct Waits<'a> {
    client: &'a Client,
    signal: &'a WakeSignal,
    /// The time since which the code has waited for its caller and for its own timers only.
    since: Option<Instant>,
}

impl<'a> Waits<'a> {
    pub(crate) fn new(client: &'a Client, signal: &'a WakeSignal) -> Self {
        Self { client, signal, since: None }
    }

    /// Waits until the code can go on. Returns false if it pauses instead.
    fn wait(&mut self, wait: Wait) -> bool {
        let begin = Instant::now();
        while !self.client.waits_for_caller() {
            self.since = None;
            let left = wait.timer.map(|timer| timer.saturating_sub(begin.elapsed()));
            if !self.client.deferred().has_pending() {
                self.signal.wait(left);
                return true;
            }
            // The last of the other calls may begin to wait for the caller without waking the code.
            let interval = left.map_or(LOOK_INTERVAL, |left| left.min(LOOK_INTERVAL));
            if self.signal.wait(Some(interval)) || left.is_some_and(|left| left <= interval) {
                return true;
            }
        }
        // A reply is sent before its call is not in progress any more.
        if self.signal.take() {
            return true;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        match wait.timer.filter(|timer| since.elapsed().saturating_add(*timer) < TIMERS_BEFORE_PAUSE) {
            Some(timer) => drop(self.signal.wait(Some(timer))),
            None => return false,
        }
        true
    }

    /// Runs code until it ends or pauses.
    pub(crate) fn run(&mut self, step: Result<RunStep, KernelError>) -> Result<RunEnd, KernelError> {
        let mut step = step?;
        loop {
            step = match step {
                RunStep::Completed(completed) => return Ok(RunEnd::Completed(completed)),
                RunStep::Waiting(wait, run) => {
                    if !self.wait(wait) {
                        return Ok(RunEnd::Paused(run));
                    }
                    run.resume()?
                }
            }
        }
    }

    /// Runs a cell until it ends or pauses. Returns `None` if it pauses.
    pub(crate) fn run_cell(&mut self, kernel: &mut dyn Kernel, mut step: CellStep) -> Option<CellResult> {
        loop {
            step = match step {
                CellStep::Completed(result) => return Some(result),
                CellStep::Waiting(wait) => {
                    if !self.wait(wait) {
                        return None;
                    }
                    kernel.resume()
                }
                // Cells of this package are not recorded.
                CellStep::Suspended | CellStep::Failed(_) => {
                    let status = CellStatus::KernelDied(ExitReason::Crash("the cell cannot be continued".into()));
                    return Some(CellResult { execution_count: 0, status, outputs: Vec::new() });
                }
            }
        }
    }
}

/// The end of the steps of code that is run once.
pub(crate) enum RunEnd {
    Completed(Box<CompletedRun>),
    Paused(Box<dyn WaitingRun>),
}
