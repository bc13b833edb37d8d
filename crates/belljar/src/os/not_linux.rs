//! All systems but Linux: what requires Linux.

use std::error::Error;
use std::sync::Arc;

use belljar_core::Limits;
use belljar_core::kernel::Backend;
use belljar_python::isolation::InterpreterProcesses;
use belljar_python::{Options, Python};

use super::{NativeRequest, ServiceState};
use crate::command_error::CommandError;

/// Does nothing: there are neither sandboxes nor worker processes.
pub(crate) fn run_if_child() {}

/// Does nothing: servers report their state to systemd alone.
pub(crate) fn notify_service_manager(_: ServiceState) {}

/// Fails: worker processes require Linux.
pub(crate) fn check_worker_processes() -> Result<(), CommandError> {
    Err(no_worker_processes())
}

fn no_worker_processes() -> CommandError {
    CommandError::new("--isolation process requires Linux").with_hint("leave it out")
}

/// The worker processes of a server; this system does not have any.
#[derive(Clone)]
pub(crate) enum WorkerProcesses {}

impl WorkerProcesses {
    /// Fails: worker processes require Linux.
    pub(crate) fn new(_: &Options, _: &Limits, _: u64, _: u32) -> Result<Self, CommandError> {
        Err(no_worker_processes())
    }

    pub(crate) fn open(&self, _: &Python) -> Result<(), CommandError> {
        match *self {}
    }

    pub(crate) fn processes(&self) -> Arc<dyn InterpreterProcesses> {
        match *self {}
    }
}

/// Fails: native kernels require Linux.
pub(crate) fn check_native_kernels() -> Result<(), CommandError> {
    Err(no_native_kernels())
}

fn no_native_kernels() -> CommandError {
    CommandError::new("native kernels require Linux")
}

/// A backend of native kernels; this system does not have any.
pub(crate) enum NativeKernels {}

impl NativeKernels {
    /// Fails: native kernels require Linux.
    pub(crate) fn new(_: NativeRequest) -> Result<Self, CommandError> {
        Err(no_native_kernels())
    }

    pub(crate) fn with_limits(&self, _: Limits, _: bool, _: bool) -> Result<Self, CommandError> {
        match *self {}
    }

    pub(crate) fn python(&self) -> &str {
        match *self {}
    }

    pub(crate) fn is_sandboxed(&self) -> bool {
        match *self {}
    }

    pub(crate) fn installed(&self) -> &[String] {
        match *self {}
    }

    pub(crate) fn warm_up_in_background(self) -> Arc<dyn Backend> {
        match self {}
    }
}

/// Describes that the sandbox of native kernels is not available.
pub(crate) fn describe_sandbox() -> String {
    "unavailable: native kernels require Linux".into()
}

/// Returns `None`: errors of native kernels do not occur.
pub(crate) fn native_start_hint(_: &(dyn Error + Send + Sync + 'static)) -> Option<String> {
    None
}
