//! The isolation that a caller requires, and the levels of isolation that exist.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// User IDs for sessions, if this process is root: each session takes one that no other session has. Distributions,
/// systemd and container runtimes do not assign numbers of this range.
pub const SESSION_USERS: Range<u32> = 1_900_000_000..2_000_000_000;

/// The user ID of worker processes, if this process is root: the one after those of sessions.
pub(crate) const WORKER_USER: u32 = SESSION_USERS.end;

/// The isolation that the code must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// All layers. On a machine that cannot provide them, nothing runs.
    #[default]
    Full,
    /// Landlock and system call filters alone. The code sees that the machine's processes and network interfaces exist,
    /// and quotas are not enforced.
    Weak,
    /// No isolation: the code can do whatever the user of this process can.
    Unsandboxed,
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Full => "full",
            Self::Weak => "weak",
            Self::Unsandboxed => "unsandboxed",
        })
    }
}

/// A level of isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IsolationLevel {
    /// Namespaces, a root of its own, limits, Landlock and seccomp.
    Full,
    /// Landlock and seccomp.
    Weak,
}
