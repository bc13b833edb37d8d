//! The only module that depends on the operating system: directories and files that are opened without following links.
//!
//! | file | subject |
//! | --- | --- |
//! | `private_directory` | the directories of the store |
//! | `host_directory` | directories of the host that hold the files of sessions |
//!
//! Each system is one module with the same items, which [`self`] exports. Windows was never run.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod system;
#[cfg(all(unix, not(target_os = "linux")))]
#[path = "macos.rs"]
mod system;
#[cfg(windows)]
#[path = "windows/mod.rs"]
mod system;

#[cfg(unix)]
mod unix;

pub(crate) use system::{host_directory, private_directory};
