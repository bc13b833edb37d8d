//! The only module that depends on the operating system: files in memory, and the metadata of files by which changes
//! are noticed.
//!
//! Each system is one module with the same items, which [`self`] exports.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod system;
#[cfg(all(unix, not(target_os = "linux")))]
#[path = "macos.rs"]
mod system;
#[cfg(windows)]
#[path = "windows.rs"]
mod system;

#[cfg(unix)]
mod unix;

#[cfg(not(target_os = "linux"))]
mod no_memory_file;

pub(crate) use system::{MemoryFile, stamp};
