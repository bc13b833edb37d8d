//! Linux: files in memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};

pub(crate) use super::unix::stamp;

/// A file in the memory of this process. It has a path while this value exists, also in processes that are forked from
/// this one.
#[derive(Debug)]
pub(crate) struct MemoryFile(File);

impl MemoryFile {
    /// Creates an empty file.
    ///
    /// # Errors
    /// Fails if the system cannot create files in memory.
    pub(crate) fn create() -> io::Result<Self> {
        Ok(Self(File::from(memfd_create("belljar-cache", MemfdFlags::CLOEXEC)?)))
    }

    /// Returns the file, for writing.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.0
    }

    /// Returns the file's path.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}
