//! The part of the crate that depends on the operating system: open directories, and the clock of a thread.

pub use system::{DirectoryHandle, thread_time};

#[cfg(unix)]
mod system {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    /// An open directory of the host.
    pub type DirectoryHandle = std::os::fd::OwnedFd;

    /// Returns the processor time of the calling thread.
    pub fn thread_time() -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
    }
}

#[cfg(not(unix))]
mod system {
    use std::time::Duration;

    /// An open directory of the host.
    pub type DirectoryHandle = std::os::windows::io::OwnedHandle;

    /// Returns zero: the processor time of code is neither recorded nor counted towards quotas. Limits of single calls
    /// do not depend on it: their clock is that of `belljar-emscripten`.
    pub fn thread_time() -> Duration {
        Duration::ZERO
    }
}
