//! The exit status of a sandbox's program.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The way in which a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// It was killed with all processes of the sandbox, because together they exceeded
    /// [`memory_bytes`](crate::ResourceLimits::memory_bytes).
    MemoryLimitExceeded,
    /// The sandbox was killed from outside.
    Killed,
}

impl ExitStatus {
    /// Decodes the status that `wait(2)` returns.
    pub(crate) fn from_wait_status(status: libc::c_int) -> Self {
        if libc::WIFEXITED(status) {
            Self::Exited(libc::WEXITSTATUS(status))
        } else {
            Self::Signalled(libc::WTERMSIG(status))
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(formatter, "exited with status {status}"),
            Self::Signalled(signal) => write!(formatter, "was ended by signal {signal}"),
            Self::MemoryLimitExceeded => formatter.write_str("was killed: its processes exceeded the memory limit"),
            Self::Killed => formatter.write_str("was killed with its sandbox"),
        }
    }
}
