//! The only module that depends on the operating system: Jupyter's data directory, and sockets as files.
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

pub(crate) use system::{default_data, is_socket};
