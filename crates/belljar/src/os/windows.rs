//! Windows: Ctrl-C, and none of the other signals. Never run.

use std::io;
use std::process::Command;

pub(crate) use super::not_linux::{
    NativeKernels, WorkerProcesses, check_native_kernels, check_worker_processes, describe_sandbox, native_start_hint,
    notify_service_manager, run_if_child,
};

use super::Signal;

/// The file of Claude Desktop's configuration, from the home directory on.
pub(crate) const CLAUDE_DESKTOP_CONFIG: &[&str] = &["AppData", "Roaming", "Claude", "claude_desktop_config.json"];

/// Calls `handle` for each Ctrl-C from now on. Returns only if it cannot be handled.
pub(crate) fn for_each_signal(_: &[Signal], mut handle: impl FnMut(Signal)) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let error = runtime.block_on(async {
        loop {
            match tokio::signal::ctrl_c().await {
                Ok(()) => handle(Signal::Interrupt),
                Err(error) => break error,
            }
        }
    });
    Err(error)
}

/// Returns at once: the system does not have SIGHUP.
pub(crate) async fn for_each_hangup(_: impl FnMut()) {}

/// Ctrl-C.
pub(crate) struct EndingSignals;

impl EndingSignals {
    pub(crate) fn catch() -> Self {
        Self
    }

    /// Waits for Ctrl-C.
    pub(crate) async fn wait(self, _: bool) {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::warn!(%error, "failed to handle Ctrl-C");
            std::future::pending::<()>().await;
        }
    }
}

/// Does nothing: a process keeps the number of its parent, which the system may give to another process.
pub(crate) fn on_parent_exit(_: impl FnOnce() + Send + 'static) {}

/// Does nothing: Ctrl-C in this console is for the command's process, too.
pub(crate) fn start_in_own_process_group(_: &mut Command) {}
