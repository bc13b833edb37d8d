//! Linux: what it does not have in common with other systems.

mod hints;
mod native_kernels;
mod worker_processes;

pub(crate) use super::unix::{
    EndingSignals, for_each_hangup, for_each_signal, on_parent_exit, start_in_own_process_group,
};
pub(crate) use hints::native_start_hint;
pub(crate) use native_kernels::{NativeKernels, check_native_kernels, describe_sandbox};
pub(crate) use worker_processes::{WorkerProcesses, check_worker_processes};

use super::ServiceState;

/// The file of Claude Desktop's configuration, from the home directory on.
pub(crate) const CLAUDE_DESKTOP_CONFIG: &[&str] = &[".config", "Claude", "claude_desktop_config.json"];

/// Becomes the fork server of sandboxes or the template of worker processes, and never returns, if this process was
/// started as one.
pub(crate) fn run_if_child() {
    belljar_sandbox::run_fork_server_if_child();
    belljar_worker::run_template_if_child();
}

/// Reports a state to systemd, if it started this process with `Type=notify`: see sd_notify(3).
pub(crate) fn notify_service_manager(state: ServiceState) {
    let state = match state {
        ServiceState::Ready => sd_notify::NotifyState::Ready,
        ServiceState::Stopping => sd_notify::NotifyState::Stopping,
    };
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "failed to notify the service manager");
    }
}
