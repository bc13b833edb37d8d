//! The only module that depends on the operating system: scripts as programs, where Python has its own, and an option
//! of compilers.
//!
//! Each system is one module with the same items, which [`self`] exports.

#[cfg(unix)]
#[path = "unix.rs"]
mod system;
#[cfg(windows)]
#[path = "windows.rs"]
mod system;

pub(crate) use system::{C_PREFIX_MAP, ENVIRONMENT_PROGRAMS, PYTHON, write_script};
