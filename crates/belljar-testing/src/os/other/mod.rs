//! Other systems than Linux.

use super::SandboxKind;

pub mod shared_folder;

/// Returns the reason why this machine lacks the sandbox.
pub(crate) fn try_sandbox(_: SandboxKind, _: bool) -> Result<(), String> {
    Err("the sandbox is for Linux".to_owned())
}

/// Returns the reason why this machine lacks control groups.
pub(crate) fn try_control_groups() -> Result<(), String> {
    Err("control groups are a feature of Linux".to_owned())
}

/// Returns: the sandbox has no fork server here.
pub(crate) fn run_fork_server_if_child() {}
