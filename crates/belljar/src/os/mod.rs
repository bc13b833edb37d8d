//! The only module that depends on the host's operating system: signals, processes, native kernels and worker
//! processes.
//!
//! | subject | Linux | macOS | Windows |
//! | --- | --- | --- | --- |
//! | signals of terminals and frontends | SIGINT, SIGTERM | SIGINT, SIGTERM | Ctrl-C |
//! | signals that end a server | SIGINT, SIGTERM, SIGHUP | SIGINT, SIGTERM, SIGHUP | Ctrl-C |
//! | request to read files again | SIGHUP | SIGHUP | none |
//! | end of the parent process | its children have another parent | its children have another parent | not noticed |
//! | a process without the terminal's signals | process group | process group | none |
//! | service manager | systemd | none | none |
//! | worker processes | `belljar-worker` | an error | an error |
//! | native kernels | `belljar-native` in `belljar-sandbox` | an error | an error |
//! | folder of Claude Desktop's configuration | `.config` | `Library/Application Support` | `AppData/Roaming` |
//!
//! Each system is one module with the same items, which [`self`] exports; the compiler checks that none is missing.
//! Only Linux was ever run: the others are type-checked by `cargo xtask check-targets`.

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod system;
#[cfg(all(unix, not(target_os = "linux")))]
#[path = "macos.rs"]
mod system;
#[cfg(windows)]
#[path = "windows.rs"]
mod system;

#[cfg(unix)]
mod unix;

#[cfg(not(target_os = "linux"))]
mod not_linux;

#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "native kernels require Linux"))]
mod native_request;

pub(crate) use native_request::{NativeInstalls, NativeRequest};
pub(crate) use system::{
    CLAUDE_DESKTOP_CONFIG, EndingSignals, NativeKernels, WorkerProcesses, check_native_kernels, check_worker_processes,
    describe_sandbox, for_each_hangup, for_each_signal, native_start_hint, notify_service_manager, on_parent_exit,
    run_if_child, start_in_own_process_group,
};

/// A signal to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT, or Ctrl-C.
    Interrupt,
    /// SIGTERM, which Windows does not have.
    Terminate,
}

/// A state of the server that a service manager waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ServiceState {
    /// Requests are accepted.
    Ready,
    /// Calls in flight have a few seconds to end.
    Stopping,
}
