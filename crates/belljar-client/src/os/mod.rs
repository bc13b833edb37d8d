//! The only module that depends on the operating system: child processes, files for one user, and desktops.
//!
//! Each system is one module with the same items, which [`self`] exports.

#[cfg(unix)]
#[path = "unix/mod.rs"]
mod system;
#[cfg(windows)]
#[path = "windows/mod.rs"]
mod system;

#[cfg(feature = "config")]
pub(crate) use system::HOME_VARIABLE;
#[cfg(feature = "stdio")]
pub(crate) use system::process;
#[cfg(feature = "oauth")]
pub(crate) use system::{HAS_DESKTOP, private_files};
