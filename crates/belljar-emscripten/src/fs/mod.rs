//! In-memory files with POSIX semantics.

use serde::{Deserialize, Serialize};

/// Bounds on one instance's private files. Read-only layers do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Bytes in all files.
    pub bytes: u64,
    /// Files, directories, links and pipes.
    pub inodes: u32,
    /// Open descriptors.
    pub open_files: u32,
}

impl Default for Quota {
    fn default() -> Self {
        Self { bytes: 512 << 20, inodes: 100_000, open_files: 1024 }
    }
}

/// The files of one instance.
#[derive(Debug, Clone)]
pub struct Filesystem {}
