//! Linux.

use belljar_sandbox::{Policy, SESSION_USERS, cgroup2_mount_point, probe};

use super::SandboxKind;

pub(crate) use belljar_sandbox::run_fork_server_if_child;

pub mod shared_folder;

/// Returns the reason if this machine lacks the sandbox.
pub(crate) fn try_sandbox(kind: SandboxKind, is_root: bool) -> Result<(), String> {
    let findings = probe(is_root.then_some(SESSION_USERS.start)).map_err(|error| error.to_string())?;
    let policy = match kind {
        SandboxKind::Full => Policy::Full,
        SandboxKind::Weak => Policy::Weak,
    };
    findings.check(policy).map_err(|error| error.to_string())
}

/// Returns the reason if this machine lacks control groups.
pub(crate) fn try_control_groups() -> Result<(), String> {
    cgroup2_mount_point().map(drop).ok_or_else(|| "no control groups of version 2 are mounted".to_owned())
}
