//! Stopping a running program: a soft interrupt that it can handle, and a hard stop that it cannot.
//!
//! The hard stop uses a safepoint page, as the JVM does. The translator inserts at every loop header a load from a page
//! at the end of linear memory's address space; removing access to that page turns the next load into an ordinary wasm
//! trap. Host functions that block or run long call [`StopHandle::check`] and sleep through [`StopHandle::sleep`],
//! which a stop request ends.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::os::{self, fault_handlers};
use crate::termination::Termination;

/// A handle that interrupts and stops one instance from any thread.
#[derive(Default)]
pub struct StopHandle {
    signal: AtomicI32,
    hard: OnceLock<StopReason>,
    mechanism: Mutex<Option<StopMechanism>>,
    woken: Condvar,
    /// The number of calls of [`StopHandle::notify`].
    changes: AtomicU64,
    /// The function that [`StopHandle::notify`] calls.
    change_observer: Mutex<Option<ChangeObserver>>,
    sleep_observer: OnceLock<SleepObserver>,
}

/// A function that observes a program's sleeps, each of which holds its thread: its argument sleeps.
pub type SleepObserver = fn(sleep: &mut dyn FnMut());

/// A function that is called after each change of what the program may wait for.
pub type ChangeObserver = Arc<dyn Fn() + Send + Sync>;

/// The reason for a hard stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The elapsed time reached its limit.
    WallTime,
    /// The processor time reached its limit.
    CpuTime,
    /// The time of waiting reached its limit.
    WaitTime,
    /// The embedder or its user requested it.
    Requested,
}

/// The result of a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleepResult {
    /// The time has elapsed.
    Elapsed,
    /// A soft signal is pending, which the guest should handle.
    Signal,
    /// Something that the program may wait for has changed.
    Changed,
}

impl StopHandle {
    /// Sets the pending signal (2 is SIGINT) and ends a sleep in progress.
    pub fn interrupt(&self, signal: i32) {
        let _mechanism = self.mechanism.lock();
        self.signal.store(signal, Ordering::Release);
        self.woken.notify_all();
    }

    /// Takes the pending signal; returns 0 if no signal is pending.
    pub fn take_signal(&self) -> i32 {
        self.signal.swap(0, Ordering::AcqRel)
    }

    /// Returns whether a signal is pending.
    pub fn signal_pending(&self) -> bool {
        self.signal.load(Ordering::Acquire) != 0
    }

    /// Ends the program at its next loop header, host call or sleep. Cannot be undone; the first reason is kept.
    pub fn stop(&self, reason: StopReason) {
        let mechanism = self.mechanism.lock();
        let _ = self.hard.set(reason);
        if let Some(mechanism) = &*mechanism {
            mechanism.trigger();
        }
        self.woken.notify_all();
    }

    /// Returns whether [`StopHandle::stop`] was called.
    pub fn stopped(&self) -> bool {
        self.hard.get().is_some()
    }

    /// Returns the reason for the stop, `None` if the program was not stopped.
    pub fn reason(&self) -> Option<StopReason> {
        self.hard.get().copied()
    }

    /// Fails once the program was stopped. For use in host functions.
    pub fn check(&self) -> Result<(), Termination> {
        if self.stopped() { Err(Termination::Stopped) } else { Ok(()) }
    }

    /// Sets the observer of later sleeps. Later calls of this function have no effect.
    pub fn observe_sleeps(&self, observer: SleepObserver) {
        let _ = self.sleep_observer.set(observer);
    }

    /// Ends waits for a change: a connection of the program has become readable or writable, or has failed.
    pub fn notify(&self) {
        {
            let _mechanism = self.mechanism.lock();
            self.changes.fetch_add(1, Ordering::Release);
            self.woken.notify_all();
        }
        let observer = self.change_observer.lock().clone();
        if let Some(observe) = observer {
            observe();
        }
    }

    /// Returns the number of changes so far, for [`StopHandle::sleep_until_change`].
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Sets or removes the function that is called after each change.
    pub fn observe_changes(&self, observer: Option<ChangeObserver>) {
        *self.change_observer.lock() = observer;
    }

    /// Sleeps for `time`, or until a signal or the hard stop arrives.
    pub fn sleep(&self, time: Duration) -> Result<SleepResult, Termination> {
        self.sleep_observed(time, None)
    }

    /// Sleeps for `time`, until a signal or the hard stop arrives, or until there have been more than `seen` changes.
    pub fn sleep_until_change(&self, seen: u64, time: Duration) -> Result<SleepResult, Termination> {
        self.sleep_observed(time, Some(seen))
    }

    fn sleep_observed(&self, time: Duration, seen: Option<u64>) -> Result<SleepResult, Termination> {
        let Some(observe) = self.sleep_observer.get() else { return self.sleep_unobserved(time, seen) };
        let mut result = Ok(SleepResult::Elapsed);
        observe(&mut || result = self.sleep_unobserved(time, seen));
        result
    }

    fn sleep_unobserved(&self, time: Duration, seen: Option<u64>) -> Result<SleepResult, Termination> {
        let deadline = Instant::now().checked_add(time);
        let mut mechanism = self.mechanism.lock();
        loop {
            self.check()?;
            if self.signal_pending() {
                return Ok(SleepResult::Signal);
            }
            if seen.is_some_and(|seen| seen != self.changes()) {
                return Ok(SleepResult::Changed);
            }
            // A deadline beyond the clock's range never passes.
            let left = deadline.map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(SleepResult::Elapsed);
            }
            self.woken.wait_for(&mut mechanism, left);
        }
    }

    /// Sets the mechanism that makes running wasm notice a stop, and triggers it at once if a stop was already
    /// requested.
    pub(crate) fn arm(&self, new: StopMechanism) {
        fault_handlers::restore();
        let mut mechanism = self.mechanism.lock();
        if self.stopped() {
            new.trigger();
        }
        *mechanism = Some(new);
    }

    /// Removes the mechanism. Must be called before the memory of a safepoint page is unmapped.
    pub(crate) fn disarm(&self) {
        *self.mechanism.lock() = None;
    }
}

/// The mechanism that makes running wasm notice a stop.
pub(crate) enum StopMechanism {
    /// Safepoint loads fault once this page is inaccessible.
    Page(SafepointPage),
    /// Every instance of the engine checks its stop handle when the epoch advances.
    Epoch(wasmtime::Engine),
}

impl StopMechanism {
    fn trigger(&self) {
        match self {
            Self::Page(page) => {
                fault_handlers::restore();
                page.protect();
            }
            Self::Epoch(engine) => engine.increment_epoch(),
        }
    }
}

/// The page that an instance's safepoints load from.
pub(crate) struct SafepointPage {
    address: *mut u8,
    length: usize,
}

// SAFETY: the address is only used to protect the page, and only under the lock of `StopHandle::mechanism`, which holds
// it from `arm` to `disarm`, that is, while the mapping exists.
unsafe impl Send for SafepointPage {}

impl SafepointPage {
    /// Creates a handle to a safepoint page.
    ///
    /// # Safety
    /// `address` must be the page-aligned start of a mapping of `length` bytes that stays mapped until
    /// [`StopHandle::disarm`] is called, and that only guest code accesses.
    pub(crate) unsafe fn new(address: *mut u8, length: usize) -> Self {
        Self { address, length }
    }

    fn protect(&self) {
        // SAFETY: the caller of `new` guarantees the range; removing access to it can only make loads of the guest
        // fault.
        if let Err(error) = unsafe { os::make_inaccessible(self.address, self.length) } {
            tracing::error!(%error, "failed to protect the safepoint page");
        }
    }
}
