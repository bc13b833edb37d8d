//! Interrupts and kills a kernel from another thread.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use belljar_core::kernel::InterruptHandle;

use crate::linux::kernel_process::KernelProcess;

/// A request of another thread. A greater one replaces a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InterruptRequest {
    None = 0,
    Interrupt = 1,
    Kill = 2,
}

/// The pending interrupt of one kernel process, with a socket that wakes the thread that runs its cell.
pub(crate) struct InterruptFlag {
    process: Arc<KernelProcess>,
    request: AtomicU8,
    /// A byte written here makes `wakeup_rx` readable.
    wakeup_tx: UnixStream,
    wakeup_rx: UnixStream,
}

impl InterruptFlag {
    /// Creates the flag of a process.
    ///
    /// # Errors
    /// Returns an error if no sockets can be created.
    pub(crate) fn new(process: Arc<KernelProcess>) -> std::io::Result<Self> {
        let (wakeup_tx, wakeup_rx) = UnixStream::pair()?;
        wakeup_tx.set_nonblocking(true)?;
        wakeup_rx.set_nonblocking(true)?;
        Ok(Self { process, request: AtomicU8::new(InterruptRequest::None as u8), wakeup_tx, wakeup_rx })
    }

    /// Returns the descriptor that becomes readable with a request.
    pub(crate) fn wakeup_fd(&self) -> BorrowedFd<'_> {
        self.wakeup_rx.as_fd()
    }

    /// Returns the current request. An interrupt is reset by this, a kill is not.
    pub(crate) fn take(&self) -> InterruptRequest {
        let _ = (&self.wakeup_rx).read(&mut [0; 64]);
        let (interrupt, none) = (InterruptRequest::Interrupt as u8, InterruptRequest::None as u8);
        match self.request.compare_exchange(interrupt, none, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => InterruptRequest::Interrupt,
            Err(request) if request == InterruptRequest::Kill as u8 => InterruptRequest::Kill,
            Err(_) => InterruptRequest::None,
        }
    }

    fn set(&self, request: InterruptRequest) {
        self.request.fetch_max(request as u8, Ordering::AcqRel);
        // If the socket is full, it is readable already.
        let _ = (&self.wakeup_tx).write(&[1]);
    }
}

impl InterruptHandle for InterruptFlag {
    fn interrupt(&self) {
        self.set(InterruptRequest::Interrupt);
    }

    fn kill(&self) {
        self.set(InterruptRequest::Kill);
        self.process.kill();
    }
}
