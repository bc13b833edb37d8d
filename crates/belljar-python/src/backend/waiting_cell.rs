//! A cell that waits, as part of a snapshot: the host's half of it, for another interpreter in this process or another.
//!
//! The guest's half is in the memory: the tasks of its event loop, and the generator that continues the cell.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{CellObserver, KernelError};
use belljar_core::{OutputCollector, ReplySender, SavedOutput, Waker};
use serde::{Deserialize, Serialize};

use super::exchange::{RunCalls, SavedCalls};
use super::held_cell::{HeldCell, SleepingCell};
use super::running_cell::RunningCell;
use super::session_calls::InputHandler;
use super::session_kernel::WasmKernel;
use super::since_1970::{microseconds, now};
use super::wait_clock::{SavedClock, WaitClock};

/// The maximum size of the output of a waiting cell in a snapshot, in bytes of JSON.
const MAX_OUTPUT: usize = 8 << 20;

/// The host's half of a waiting cell, which is serialized as JSON into saved sessions.
#[derive(Serialize, Deserialize)]
pub(super) struct WaitingCell {
    pub(super) output: SavedOutput,
    tried: Vec<String>,
    /// The calls of functions of the host, if the cell can make calls.
    calls: Option<SavedCalls>,
    clock: SavedClock,
    /// The time that the cell has run, in microseconds.
    spent: u64,
    /// The time of the snapshot, in microseconds since 1970.
    taken: u64,
}

impl WasmKernel {
    /// Returns the host's half of the waiting cell, if a cell waits.
    ///
    /// # Errors
    /// Fails if the cell can go on at once, or exchanges values with its caller.
    pub(super) fn waiting_cell(&self) -> Result<Option<WaitingCell>, KernelError> {
        let Some(running) = &self.running else { return Ok(None) };
        let unsupported = |reason: &'static str| Err(KernelError::Unsupported(reason.into()));
        if !running.is_resumable {
            return unsupported("a cell that exchanges values with its caller waits in its process only");
        }
        let calls = match running.calls.as_ref().map(RunCalls::save) {
            Some(None) => return unsupported("the waiting cell can go on"),
            Some(saved) => saved,
            None => None,
        };
        let output = running.outputs.save();
        if serde_json::to_vec(&output).map_or(true, |json| json.len() > MAX_OUTPUT) {
            return unsupported("the output of the waiting cell is too long to be saved");
        }
        Ok(Some(WaitingCell {
            output,
            tried: running.tried.clone(),
            calls,
            clock: running.clock.save(),
            spent: microseconds(self.interpreter.spent()),
            taken: microseconds(now()),
        }))
    }

    /// Connects the waiting cell of a restored snapshot to an observer.
    ///
    /// # Errors
    /// Fails if no cell waits in the snapshot.
    pub(super) fn attach_waiting_cell(
        &mut self,
        observer: Arc<dyn CellObserver>,
        waker: Waker,
    ) -> Result<ReplySender, KernelError> {
        let waiting = self.unattached.take().ok_or(KernelError::Unsupported("no cell waits in the snapshot".into()))?;
        let WaitingCell { output, tried, calls, clock, spent, taken } = waiting;
        let outputs = OutputCollector::restored(observer.clone(), output);
        let installer = self.installer(&observer);
        // The cell is recorded from now on, for waits in which it holds its thread.
        let limits = self.backend.session_limits();
        let own_timeout = clock.own_timeout();
        let held = self.recorder.take().map(|recorder| Arc::new(HeldCell::new(recorder, limits, own_timeout)));
        let scrubber = self.backend.shared.scrubber();
        let calls = calls.map(|saved| {
            let (observer, waker, scrubber) = (observer.clone(), waker.clone(), scrubber.clone());
            RunCalls::restored(saved, observer, waker, held.clone(), scrubber)
        });
        if let Some(calls) = &calls {
            self.interpreter.register_calls(calls);
        }
        let input = InputHandler { observer: observer.clone(), held: held.clone(), calls: calls.clone(), scrubber };
        self.connect(&outputs, &installer, input, Some(&waker));
        let replies = match &calls {
            Some(calls) => calls.replies(),
            // The cell makes no calls: nothing is sent.
            None => ReplySender::new(std::sync::mpsc::channel().0, None),
        };
        // The waiting cell's clock went on while it was in no interpreter.
        let asleep = now().saturating_sub(Duration::from_micros(taken));
        self.interpreter.set_times(Duration::from_micros(spent), asleep);
        let limits = limits.with_timeout(own_timeout);
        self.interpreter.set_wall_time(limits.wall_time);
        let clock = WaitClock::restored(&limits, clock, asleep);
        if let Some(held) = &held {
            held.set_packages(self.packages.wheel_ids().cloned().collect(), tried.clone());
            let saver = Arc::new(SleepingCell { held: held.clone(), calls: calls.clone() });
            self.interpreter.start_recording(held.recorder.max_bytes, saver);
        }
        self.running =
            Some(RunningCell { observer, outputs, installer, tried, calls, is_resumable: true, clock, held });
        Ok(replies)
    }
}
