//! Stopping a program that runs: a soft interrupt it can handle, and a hard stop it cannot.
//!
//! The hard stop is the JVM's safepoint page. The translator puts a load from a page at the end of linear memory's
//! address space at every loop header; taking away access to it turns the next load into an ordinary wasm trap. Host functions that
//! block or run long ask [`Stop::check`] and sleep through [`Stop::sleep`], which the same request ends.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::host::Termination;

/// The stop switch of one instance. Shared with whoever may stop it.
#[derive(Default)]
pub struct Stop {
    signal: AtomicI32,
    hard: OnceLock<StopReason>,
    trigger: Mutex<Option<Trigger>>,
    woken: Condvar,
}

/// Who asked for a hard stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The elapsed time reached its limit.
    WallTime,
    /// The processor time reached its limit.
    CpuTime,
    /// The embedder, or its user.
    Requested,
}

/// Why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The time was up.
    Elapsed,
    /// A soft signal is pending; the guest should look at it.
    Signal,
}

impl Stop {
    /// Leaves a signal number for the guest to find (2 is SIGINT) and ends a sleep in progress.
    pub fn interrupt(&self, signal: i32) {
        let _trigger = self.lock();
        self.signal.store(signal, Ordering::Release);
        self.woken.notify_all();
    }

    /// Takes the pending signal, 0 when there is none.
    pub fn take_signal(&self) -> i32 {
        self.signal.swap(0, Ordering::AcqRel)
    }

    /// Whether a signal is pending.
    pub fn signal_pending(&self) -> bool {
        self.signal.load(Ordering::Acquire) != 0
    }

    /// Ends the program at its next loop header, host call or sleep. Cannot be taken back; the first reason stays.
    pub fn stop(&self, reason: StopReason) {
        let trigger = self.lock();
        let _ = self.hard.set(reason);
        if let Some(trigger) = &*trigger {
            trigger.pull();
        }
        self.woken.notify_all();
    }

    /// Whether [`Stop::stop`] was called.
    pub fn stopped(&self) -> bool {
        self.hard.get().is_some()
    }

    /// Why the program was stopped, if it was.
    pub fn reason(&self) -> Option<StopReason> {
        self.hard.get().copied()
    }

    /// For host functions: an error once the program is to end.
    pub fn check(&self) -> Result<(), Termination> {
        if self.stopped() { Err(Termination::Stopped) } else { Ok(()) }
    }

    /// Sleeps for `time`, or until a signal or the hard stop comes.
    pub fn sleep(&self, time: Duration) -> Result<Wake, Termination> {
        let deadline = Instant::now().checked_add(time);
        let mut trigger = self.lock();
        loop {
            self.check()?;
            if self.signal_pending() {
                return Ok(Wake::Signal);
            }
            // A deadline past the end of the clock is as good as none.
            let left = deadline.map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(Wake::Elapsed);
            }
            trigger = self.woken.wait_timeout(trigger, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Names what makes running wasm notice a stop; pulls it at once when a stop came first.
    pub(crate) fn arm(&self, new: Trigger) {
        let mut trigger = self.lock();
        if self.stopped() {
            new.pull();
        }
        *trigger = Some(new);
    }

    /// Forgets the trigger. Must happen before the memory of a safepoint page is unmapped.
    pub(crate) fn disarm(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Trigger>> {
        self.trigger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What makes running wasm notice that it is to stop.
pub(crate) enum Trigger {
    /// Safepoint loads fault once this page is closed.
    Page(SafepointPage),
    /// Every instance of the engine looks at its stop switch when the epoch moves on.
    Epoch(wasmtime::Engine),
}

impl Trigger {
    fn pull(&self) {
        match self {
            Self::Page(page) => page.close(),
            Self::Epoch(engine) => engine.increment_epoch(),
        }
    }
}

/// The page that an instance's safepoints load from.
pub(crate) struct SafepointPage {
    address: *mut libc::c_void,
    length: usize,
}

// SAFETY: the address is only passed to `mprotect`, and only under the lock of `Stop::trigger`, where it stands from
// `arm` to `disarm`, that is while the mapping exists.
unsafe impl Send for SafepointPage {}

impl SafepointPage {
    /// # Safety
    /// `address` must be the page-aligned start of a mapping of `length` bytes that stays mapped until
    /// [`Stop::disarm`], and that nothing but guest code touches.
    pub(crate) unsafe fn new(address: *mut u8, length: usize) -> Self {
        Self { address: address.cast(), length }
    }

    fn close(&self) {
        // SAFETY: `new` vouches for the range; losing access to it can only make loads of the guest fault.
        let result = unsafe { libc::mprotect(self.address, self.length, libc::PROT_NONE) };
        if result != 0 {
            tracing::error!(error = %std::io::Error::last_os_error(), "cannot close the safepoint page");
        }
    }
}
