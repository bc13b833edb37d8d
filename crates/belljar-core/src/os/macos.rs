//! macOS: the priority of a thread.

pub use super::unix::*;

/// Does nothing: this system treats all threads alike.
pub(crate) fn set_idle_policy() {}
