//! Linux: what it does not have in common with other systems.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::time::Duration;

pub(crate) mod fault_handlers;
pub mod pagemap;

pub(crate) use super::unix::*;
pub use super::unix::{open_regular_file, read_at};
pub(crate) use pagemap::private_dirty_pages;

/// Creates a file that has no name and ends with its last descriptor and mapping: in memory.
pub(crate) fn anonymous_file() -> io::Result<File> {
    // SAFETY: the name is a C string; a valid result is a new descriptor with no other owner.
    unsafe {
        let descriptor = libc::memfd_create(c"belljar-snapshot".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(descriptor)) }
    }
}

impl Reservation {
    /// Makes `length` bytes from `start` on inaccessible and forgets their contents: they are zero after a commit.
    ///
    /// # Safety
    /// They must lie in this range behind its image, and no code may use them.
    pub(crate) unsafe fn discard(&mut self, start: usize, length: usize) -> io::Result<()> {
        // SAFETY: the caller guarantees the range. Released anonymous pages are zero when they are next used.
        let result = unsafe {
            let start = self.base().add(start).cast();
            libc::madvise(start, length, libc::MADV_DONTNEED) | libc::mprotect(start, length, libc::PROT_NONE)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Requests huge pages for `length` bytes from `start` on. Returns whether the system may use them.
    ///
    /// # Safety
    /// They must lie in this range.
    pub(crate) unsafe fn request_huge_pages(&mut self, start: usize, length: usize) -> bool {
        // SAFETY: the caller guarantees the range; the advice does not change its contents. The kernel may have been
        // built without them.
        unsafe { libc::madvise(self.base().add(start).cast(), length, libc::MADV_HUGEPAGE) == 0 }
    }
}

/// Has the kernel copy pages that are about to be written to. Errors are ignored.
///
/// # Safety
/// The bytes must be whole pages of the host, and a part of a mapping that is readable and writable.
pub(crate) unsafe fn prefault(start: *mut u8, length: usize) {
    // SAFETY: the caller guarantees the range; its contents do not change.
    unsafe { libc::madvise(start.cast(), length, libc::MADV_POPULATE_WRITE) };
}

/// The processor-time clock of one thread.
#[derive(Clone, Copy)]
pub(crate) struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// Returns the calling thread's clock. Other threads can read it until the thread ends.
    pub(crate) fn current() -> Self {
        let mut id = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: writes one clock id to a local; the calling thread exists.
        let result = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut id) };
        // On failure, the id is still the watchdog's own clock, which hardly advances: no CPU limit rather than a wrong
        // one.
        if result != 0 {
            tracing::error!(error = result, "failed to read the processor time of the thread: no CPU limit");
        }
        Self(id)
    }

    pub(crate) fn read(self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes one timespec to a local; an id whose thread has ended results in an error.
        let result = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        if result != 0 {
            return Duration::ZERO;
        }
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs().try_into().unwrap_or(0))
    }
}

/// Gives the calling thread the lowest priority. Where this is forbidden, it keeps its priority.
pub fn lower_thread_priority() {
    /// The highest nice value, which gives way to all other threads.
    const NICE: libc::c_int = 19;
    // SAFETY: sets a number of the calling thread. Linux takes 0 for the thread, not for its process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS as _, 0, NICE) };
}
