//! Files in memory on systems that have none.

use std::fs::File;
use std::io;
use std::path::PathBuf;

/// A file in the memory of this process, which never exists.
#[derive(Debug)]
pub(crate) enum MemoryFile {}

impl MemoryFile {
    /// Fails: this system cannot create files in memory that have a path.
    pub(crate) fn create() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the file, for writing.
    pub(crate) fn file(&mut self) -> &mut File {
        match *self {}
    }

    /// Returns the file's path.
    pub(crate) fn path(&self) -> PathBuf {
        match *self {}
    }
}
