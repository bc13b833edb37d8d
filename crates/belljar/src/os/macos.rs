//! macOS: what it does not have in common with Linux. Never run.

pub(crate) use super::not_linux::{
    NativeKernels, WorkerProcesses, check_native_kernels, check_worker_processes, describe_sandbox, native_start_hint,
    notify_service_manager, run_if_child,
};
pub(crate) use super::unix::{
    EndingSignals, for_each_hangup, for_each_signal, on_parent_exit, start_in_own_process_group,
};

/// The file of Claude Desktop's configuration, from the home directory on.
pub(crate) const CLAUDE_DESKTOP_CONFIG: &[&str] =
    &["Library", "Application Support", "Claude", "claude_desktop_config.json"];
