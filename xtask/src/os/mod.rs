//! The only module that depends on the operating system: scripts as programs, and where Python has its own.
//!
//! Each system is one module with the same items, which [`self`] exports.

#[cfg(unix)]
#[path = "unix.rs"]
mod system;
#[cfg(windows)]
#[path = "windows.rs"]
mod system;

pub(crate) use system::{ENVIRONMENT_PROGRAMS, PYTHON, write_script};
