//! The interrupt handle of a run, whose interpreter may be in memory or on the disk.

use std::sync::Arc;

use belljar_core::kernel::InterruptHandle;
use parking_lot::Mutex;

/// Interrupts the interpreter that a run is in, or the one that it will be in next.
#[derive(Default)]
pub(crate) struct RunInterrupt(Mutex<State>);

#[derive(Default)]
struct State {
    current: Option<Arc<dyn InterruptHandle>>,
    /// True if an interrupt arrived while the run was in no interpreter.
    interrupted: bool,
    killed: bool,
    /// The signals that have arrived since the last call of [`RunInterrupt::take`]: the run has not gone on since.
    arrived: Arrived,
}

#[derive(Default)]
struct Arrived {
    interrupt: bool,
    kill: bool,
}

impl RunInterrupt {
    /// Sets the interpreter that the run is in. It receives what arrived before.
    pub(crate) fn attach(&self, handle: Arc<dyn InterruptHandle>) {
        let mut state = self.0.lock();
        if std::mem::take(&mut state.interrupted) {
            handle.interrupt();
        }
        if state.killed {
            handle.kill();
        }
        state.current = Some(handle);
    }

    /// Returns whether the run was interrupted since the last call.
    pub(crate) fn take(&self) -> bool {
        let arrived = std::mem::take(&mut self.0.lock().arrived);
        arrived.interrupt || arrived.kill
    }

    /// Notes that the run is in no interpreter. The next one receives what this one cannot react to any more.
    pub(crate) fn detach(&self) {
        let mut state = self.0.lock();
        state.current = None;
        state.interrupted |= state.arrived.interrupt;
        state.killed |= state.arrived.kill;
    }
}

impl InterruptHandle for RunInterrupt {
    fn interrupt(&self) {
        let mut state = self.0.lock();
        state.arrived.interrupt = true;
        match &state.current {
            Some(handle) => handle.interrupt(),
            None => state.interrupted = true,
        }
    }

    fn kill(&self) {
        let mut state = self.0.lock();
        state.arrived.kill = true;
        match &state.current {
            Some(handle) => handle.kill(),
            None => state.killed = true,
        }
    }
}
