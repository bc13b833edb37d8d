//! The only module that depends on the operating system: open directories, permissions of files, and the clock and the
//! priority of a thread.
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

pub(crate) use system::set_idle_policy;
pub use system::{DirectoryHandle, create_private_directory, make_public, thread_time};
