//! The only module that depends on the operating system: the sandbox, which is for Linux.
//!
//! Linux and the other systems are one module each, with the same items, which [`self`] exports.

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "other/mod.rs"]
mod system;

pub use system::shared_folder;
pub(crate) use system::{run_fork_server_if_child, try_control_groups, try_sandbox};

/// A sandbox, named after its isolation.
pub(crate) enum SandboxKind {
    Full,
    Weak,
}
