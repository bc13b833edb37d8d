//! Other systems than Linux, on which no process is forked.

use std::ffi::OsString;

/// Does nothing: native sandboxes are for Linux.
pub(crate) fn set_fork_server_command(_: Vec<OsString>) {}

/// Returns: native sandboxes are for Linux.
pub(crate) fn run_fork_server() {}

/// Returns: worker processes are for Linux.
pub(crate) fn run_template() {}
