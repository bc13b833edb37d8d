//! macOS: what it does not have in common with Linux. Never run.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

pub(crate) use super::unix::*;
pub use super::unix::{open_regular_file, read_at};

/// Does nothing: wasmtime catches faults by Mach exception ports, which come before signal handlers that others
/// install.
pub(crate) mod fault_handlers {
    pub(crate) fn record() {}

    pub(crate) fn restore() {}
}

/// Creates a file that has no name and ends with its last descriptor and mapping, in the directory for temporary files:
/// shared memory of POSIX has neither positioned writes nor holes here.
pub(crate) fn anonymous_file() -> io::Result<File> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let path = std::env::temp_dir().join(format!("belljar-{}", hex::encode(random)));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Fails: the kernel reports pages that were copied (`mach_vm_page_range_query`), but documents it for pages in memory
/// only. Callers compare the memory with its image.
pub(crate) fn private_dirty_pages(_: *const u8, _: usize) -> io::Result<Vec<(u32, u32)>> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Reservation {
    /// Makes `length` bytes from `start` on inaccessible and forgets their contents: they are zero after a commit.
    ///
    /// # Safety
    /// They must lie in this range behind its image, and no code may use them.
    pub(crate) unsafe fn discard(&mut self, start: usize, length: usize) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // Mapped again: no advice to this kernel makes anonymous pages zero.
        // SAFETY: the caller guarantees the range, which belongs to this value alone.
        let at = unsafe { libc::mmap(self.base().add(start).cast(), length, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns `false`: the system chooses sizes of pages itself.
    ///
    /// # Safety
    /// The bytes must lie in this range.
    pub(crate) unsafe fn request_huge_pages(&mut self, _: usize, _: usize) -> bool {
        false
    }
}

/// Does nothing: the system has no call that copies pages ahead of their faults.
///
/// # Safety
/// The bytes must be whole pages of the host, and a part of a mapping that is readable and writable.
pub(crate) unsafe fn prefault(_: *mut u8, _: usize) {}

/// The processor-time clock of one thread: the name of its Mach port.
#[derive(Clone, Copy)]
pub(crate) struct ThreadClock(libc::mach_port_t);

impl ThreadClock {
    /// Returns the calling thread's clock. Other threads can read it until the thread ends.
    pub(crate) fn current() -> Self {
        // SAFETY: the calling thread exists; the name is not a reference that has to be released.
        Self(unsafe { libc::pthread_mach_thread_np(libc::pthread_self()) })
    }

    pub(crate) fn read(self) -> Duration {
        let mut info = MaybeUninit::<libc::thread_basic_info>::zeroed();
        let mut count = libc::THREAD_BASIC_INFO_COUNT;
        // SAFETY: the kernel writes at most `count` words to the structure, for which zeros are valid, too. The name of
        // a thread that has ended results in an error.
        let (result, info) = unsafe {
            let out = info.as_mut_ptr().cast();
            let result =
                libc::thread_info(self.0, libc::THREAD_BASIC_INFO as libc::thread_flavor_t, out, &raw mut count);
            (result, info.assume_init())
        };
        if result != libc::KERN_SUCCESS {
            return Duration::ZERO;
        }
        let time = |time: libc::time_value_t| {
            Duration::from_secs(u64::from(time.seconds.unsigned_abs()))
                + Duration::from_micros(u64::from(time.microseconds.unsigned_abs()))
        };
        time(info.user_time) + time(info.system_time)
    }
}

/// Gives the calling thread the priority of background work.
pub fn lower_thread_priority() {
    /// `PRIO_DARWIN_THREAD` and `PRIO_DARWIN_BG` of `sys/resource.h`.
    const PRIO_DARWIN_THREAD: libc::c_int = 3;
    const PRIO_DARWIN_BG: libc::c_int = 0x1000;
    // SAFETY: sets a property of the calling thread.
    unsafe { libc::setpriority(PRIO_DARWIN_THREAD, 0, PRIO_DARWIN_BG) };
}
