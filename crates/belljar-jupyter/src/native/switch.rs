//! What stops a kernel from another thread.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use belljar_core::kernel::Interrupt;

use crate::native::nursery::Process;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    Nothing = 0,
    Interrupt = 1,
    Stop = 2,
}

/// Stops what a kernel runs: good for one process of it.
pub(crate) struct Switch {
    process: Arc<Process>,
    wish: AtomicU8,
    /// What is written to one end wakes whoever waits at the other.
    ring: UnixStream,
    bell: UnixStream,
}

impl Switch {
    /// A switch for a process.
    ///
    /// # Errors
    /// When the system has no sockets left.
    pub(crate) fn new(process: Arc<Process>) -> std::io::Result<Self> {
        let (ring, bell) = UnixStream::pair()?;
        ring.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        Ok(Self { process, wish: AtomicU8::new(Wish::Nothing as u8), ring, bell })
    }

    /// Becomes readable when something is asked for.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// What is asked for now. An interrupt is taken by this, a stop stays.
    pub(crate) fn take(&self) -> Wish {
        let _ = (&self.bell).read(&mut [0; 64]);
        let interrupt = Wish::Interrupt as u8;
        match self.wish.compare_exchange(interrupt, Wish::Nothing as u8, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Wish::Interrupt,
            Err(wish) if wish == Wish::Stop as u8 => Wish::Stop,
            Err(_) => Wish::Nothing,
        }
    }

    fn wish(&self, wish: Wish) {
        self.wish.fetch_max(wish as u8, Ordering::AcqRel);
        // When it is full, it has rung.
        let _ = (&self.ring).write(&[1]);
    }
}

impl Interrupt for Switch {
    fn interrupt(&self) {
        self.wish(Wish::Interrupt);
    }

    fn stop(&self) {
        self.wish(Wish::Stop);
        self.process.kill();
    }
}
