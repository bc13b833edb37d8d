//! The only module that depends on the operating system: processes from which sandboxes are forked, on Linux.
//!
//! Linux and the other systems are one module each, with the same items, which [`self`] exports.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "other.rs"]
mod system;

pub(crate) use system::{run_fork_server, run_template, set_fork_server_command};
