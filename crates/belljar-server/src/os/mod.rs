//! The only module that depends on the operating system: the memory of the process, and an option of connections.
//!
//! Linux and the other systems are one module each, with the same items, which [`self`] exports.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "other.rs"]
mod system;

pub(crate) use system::{resident_memory, set_unread_timeout};
