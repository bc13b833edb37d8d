//! macOS.

pub(crate) use super::no_memory_file::MemoryFile;
pub(crate) use super::unix::stamp;
