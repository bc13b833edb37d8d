//! The means to stop the code of one interpreter in a worker, and to tell it of changes.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use belljar_core::kernel::InterruptHandle;
use belljar_python::isolation::ChangeObserver;
use parking_lot::Mutex;

use crate::image_workers::WorkerControl;
use crate::messages::{CHANGE_SIGNAL, END_SIGNAL, SeenSignals};

/// The time after which a worker is killed that has not ended the code of a session, although it was told to.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// Interrupts and kills the code of one interpreter. Does nothing once its worker is free for another one.
pub(crate) struct RemoteHandle {
    /// This handle.
    this: Weak<Self>,
    number: u64,
    state: Mutex<HandleState>,
    /// True if a connection has changed since the worker has asked for anything about connections.
    has_unseen_change: AtomicBool,
    /// Tells the worker of a change.
    notify: ChangeObserver,
}

struct HandleState {
    /// The worker, while the interpreter is in it.
    worker: Option<Arc<WorkerControl>>,
    was_killed: bool,
    /// The number of interrupts that the worker was sent.
    interrupts: u64,
    /// True if the worker has what is needed after the end of its interpreter: the files of a session.
    keeps_worker: bool,
    /// True while the broker waits for the end of a call.
    is_calling: bool,
}

/// A call of an interpreter, until it is dropped.
pub(crate) struct CallEnd<'a>(&'a RemoteHandle);

impl Drop for CallEnd<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_calling = false;
    }
}

impl RemoteHandle {
    pub(crate) fn new(number: u64, worker: Arc<WorkerControl>) -> Arc<Self> {
        let state = HandleState {
            worker: Some(worker),
            was_killed: false,
            interrupts: 0,
            keeps_worker: false,
            is_calling: false,
        };
        Arc::new_cyclic(|this: &Weak<Self>| {
            let handle = this.clone();
            let notify = Arc::new(move || {
                if let Some(handle) = handle.upgrade() {
                    handle.tell_of_change();
                }
            });
            Self {
                this: this.clone(),
                number,
                state: Mutex::new(state),
                has_unseen_change: AtomicBool::new(false),
                notify,
            }
        })
    }

    /// Has the end of the interpreter not be that of its worker.
    pub(crate) fn keep_worker(&self) {
        self.state.lock().keeps_worker = true;
    }

    /// Connects the handle to a worker that `start` returns, unless the code was killed. Returns the worker.
    pub(crate) fn replace_worker<T>(
        &self,
        start: impl FnOnce() -> Option<T>,
        control: impl FnOnce(&T) -> Arc<WorkerControl>,
    ) -> Option<T> {
        let mut state = self.state.lock();
        if state.was_killed {
            return None;
        }
        let worker = start()?;
        state.worker = Some(control(&worker));
        Some(worker)
    }

    /// Notes that the worker asks for something about its connections, and sees changes until now. Returns what tells
    /// it of later ones.
    pub(crate) fn begin_request(&self) -> &ChangeObserver {
        self.has_unseen_change.store(false, Ordering::SeqCst);
        &self.notify
    }

    /// Tells the worker that a connection may have changed, unless it has not asked since it was told.
    fn tell_of_change(&self) {
        if self.has_unseen_change.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(worker) = &self.state.lock().worker {
            // It may have ended. A worker that does not read its signals is one of an attacker's, and waits for ever.
            let _ = (&worker.interrupts).write_all(&(self.number | CHANGE_SIGNAL).to_le_bytes());
        }
    }

    /// Returns whether code was interrupted since it had received these signals, or before and has not received it.
    pub(crate) fn is_interrupted(&self, seen: SeenSignals) -> bool {
        seen.is_pending || self.state.lock().interrupts > seen.interrupts
    }

    /// Returns whether the code was killed.
    pub(crate) fn was_killed(&self) -> bool {
        self.state.lock().was_killed
    }

    /// Returns the number of interrupts so far.
    pub(crate) fn interrupts(&self) -> u64 {
        self.state.lock().interrupts
    }

    /// Begins a call, which ends when the result is dropped.
    pub(crate) fn begin_call(&self) -> CallEnd<'_> {
        let mut state = self.state.lock();
        state.is_calling = true;
        if state.was_killed {
            self.kill_later();
        }
        drop(state);
        CallEnd(self)
    }

    /// Kills the worker if it does not return from its call in time, although its interpreter was ended.
    fn kill_later(&self) {
        let handle = self.this.clone();
        let started = std::thread::Builder::new().name("kill worker".into()).spawn(move || {
            std::thread::sleep(KILL_GRACE);
            let Some(handle) = handle.upgrade() else { return };
            let state = handle.state.lock();
            if let Some(worker) = state.worker.as_ref().filter(|_| state.is_calling) {
                worker.process.kill();
            }
        });
        if let Err(error) = started {
            tracing::debug!(%error, "failed to start a thread: the limit of time ends the worker");
        }
    }

    /// Disconnects the handle. Returns whether it has killed the worker.
    pub(crate) fn disarm(&self) -> bool {
        let mut state = self.state.lock();
        state.worker = None;
        state.was_killed
    }
}

impl InterruptHandle for RemoteHandle {
    fn interrupt(&self) {
        let mut state = self.state.lock();
        state.interrupts += 1;
        if let Some(worker) = &state.worker {
            // It may have ended.
            let _ = (&worker.interrupts).write_all(&self.number.to_le_bytes());
        }
    }

    fn kill(&self) {
        let mut state = self.state.lock();
        state.was_killed = true;
        let Some(worker) = &state.worker else { return };
        if !state.keeps_worker {
            worker.process.kill();
            return;
        }
        // It may have ended.
        let _ = (&worker.interrupts).write_all(&(self.number | END_SIGNAL).to_le_bytes());
        if state.is_calling {
            self.kill_later();
        }
    }
}
