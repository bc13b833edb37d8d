//! Code that waits without a thread: what it waits for, and how it goes on.
//!
//! A cell that awaits timers or functions of the host gives its thread back ([`CellStep::Waiting`]). Its caller
//! continues it when the time is over or when the [`Waker`] was called, on any thread. Continuing it too early does no
//! harm: it waits again.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{SendError, Sender};
use std::time::Duration;

use crate::exchange::FunctionReply;
use crate::execution::CellResult;
use crate::kernel::{CompletedRun, InterruptHandle, KernelError, KernelSnapshot};

/// A handle that continues waiting code. Can be called from any thread, at any time, and again.
/// Cheap to clone.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// Creates a waker that calls `wake`, which must not block.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Continues the code, or keeps its next wait from beginning.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Waker").finish_non_exhaustive()
    }
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The time after which the code can go on; `None` if only its waker can end the wait.
    pub timer: Option<Duration>,
    /// True if the code waits for functions of the host, too.
    pub for_host: bool,
}

/// A step of a cell.
#[derive(Debug)]
pub enum CellStep {
    /// The cell has ended.
    Completed(CellResult),
    /// The cell waits: [`Kernel::resume`](crate::kernel::Kernel::resume) continues it.
    Waiting(Wait),
    /// The cell held its thread while it waited, and its interpreter has ended: it goes on from what its
    /// [`HeldCellSaver`](crate::HeldCellSaver) has saved. The kernel cannot be used any more.
    Suspended,
    /// The cell cannot be continued. The kernel cannot be used any more.
    Failed(KernelError),
}

/// A step of code that is run once.
pub enum RunStep {
    /// The run has ended.
    Completed(Box<CompletedRun>),
    /// The code waits.
    Waiting(Wait, Box<dyn WaitingRun>),
}

/// A run whose code waits. Dropping it ends the code.
pub trait WaitingRun: Send {
    /// Continues the code until it ends or waits again. Must be called on a thread of
    /// [`Backend::thread_runner`](crate::kernel::Backend::thread_runner).
    ///
    /// # Errors
    /// Fails if code that was to be run again with another package was not run.
    fn resume(self: Box<Self>) -> Result<RunStep, KernelError>;

    /// Returns whether replies have arrived for the code: see [`Kernel::has_replies`](crate::kernel::Kernel::has_replies).
    fn has_replies(&mut self) -> bool {
        true
    }

    /// Takes a snapshot, from which [`Backend::restore_run`](crate::kernel::Backend::restore_run) continues the code in
    /// this process or another.
    ///
    /// # Errors
    /// Fails if the backend does not support snapshots of runs, or the code can go on at once.
    fn snapshot(&mut self) -> Result<KernelSnapshot, KernelError> {
        Err(KernelError::Unsupported("this backend's runs wait in their process only".into()))
    }

    /// Excludes the current wait so far from the limits of time: the caller, and not the code, was waited for.
    fn exclude_wait(&mut self) {}
}

/// A run that continues from a snapshot.
pub struct RestoredRun {
    /// The run, which waits.
    pub run: Box<dyn WaitingRun>,
    /// The sender of the replies to the calls of functions of the host that the code waits for.
    pub replies: ReplySender,
}

/// An interrupt handle for code that may wait without a thread: after each signal, the code goes on to receive it.
pub struct WakingInterruptHandle {
    /// The handle without the waker.
    pub inner: Arc<dyn InterruptHandle>,
    /// The waker of the code.
    pub waker: Waker,
}

impl InterruptHandle for WakingInterruptHandle {
    fn interrupt(&self) {
        self.inner.interrupt();
        self.waker.wake();
    }

    fn kill(&self) {
        self.inner.kill();
        self.waker.wake();
    }
}

/// The sender of replies to calls of functions of the host. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReplySender {
    replies: Sender<FunctionReply>,
    waker: Option<Waker>,
}

impl ReplySender {
    /// Creates a sender to the receiver of `replies`. `waker` is called after each reply.
    pub fn new(replies: Sender<FunctionReply>, waker: Option<Waker>) -> Self {
        Self { replies, waker }
    }

    /// Sends a reply.
    ///
    /// # Errors
    /// Fails if the receiver is gone, since the code has ended.
    pub fn send(&self, reply: FunctionReply) -> Result<(), SendError<FunctionReply>> {
        self.replies.send(reply)?;
        if let Some(waker) = &self.waker {
            waker.wake();
        }
        Ok(())
    }
}

impl From<Sender<FunctionReply>> for ReplySender {
    fn from(replies: Sender<FunctionReply>) -> Self {
        Self::new(replies, None)
    }
}
