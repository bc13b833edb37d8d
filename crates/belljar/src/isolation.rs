//! The isolation of interpreters within a server: worker processes, or threads of its process.

use belljar_core::Limits;
use clap::{Args, ValueEnum};

use crate::command_error::CommandError;

/// The options of the isolation of interpreters.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct IsolationOptions {
    /// Isolation of interpreters from the server [default: process, and thread on other systems than Linux].
    #[arg(long, value_enum, hide_short_help = true)]
    isolation: Option<Isolation>,
    /// Number of runs after which a worker process is replaced.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    worker_runs: u32,
}

/// The isolation of interpreters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Isolation {
    /// In worker processes that reach files and the network through the server only. Each serves one client, or one
    /// session. Linux only.
    Process,
    /// On threads of the server.
    Thread,
}

impl IsolationOptions {
    /// Returns whether interpreters run in worker processes.
    pub(crate) fn is_process(&self) -> bool {
        self.isolation.unwrap_or(if cfg!(target_os = "linux") { Isolation::Process } else { Isolation::Thread })
            == Isolation::Process
    }

    /// Checks that worker processes are not asked for where there are none: `are_native` is true for native kernels.
    pub(crate) fn check(&self, are_native: bool) -> Result<(), CommandError> {
        let fail = |reason: &str, hint: &str| Err(CommandError::new(reason).with_hint(hint));
        match self.isolation {
            Some(Isolation::Process) if !cfg!(target_os = "linux") => {
                fail("--isolation process requires Linux", "leave it out")
            }
            Some(Isolation::Process) if are_native => fail(
                "--isolation process cannot be used with --sandbox native: native kernels have processes of their own",
                "leave out one of them",
            ),
            _ => Ok(()),
        }
    }

    /// Creates the pool of worker processes for interpreters of the Python with these options, if it is selected, with
    /// the limits of code that is run once and of sessions.
    #[cfg(target_os = "linux")]
    pub(crate) fn pool(
        &self,
        python: &belljar_python::Options,
        limits: &Limits,
        sessions: &Limits,
    ) -> Result<Option<WorkerProcesses>, CommandError> {
        if !self.is_process() {
            return Ok(None);
        }
        let (runs, session_memory) = (self.worker_runs, sessions.memory);
        let mut options = belljar_worker::WorkerOptions { runs, session_memory, ..Default::default() };
        if let Some(template) = crate::TEMPLATE.get() {
            options.command.clone_from(template);
        }
        Ok(Some(WorkerProcesses(belljar_worker::WorkerPool::new(python, limits, options)?)))
    }

    /// Returns nothing: worker processes require Linux.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn pool(
        &self,
        _: &belljar_python::Options,
        _: &Limits,
        _: &Limits,
    ) -> Result<Option<WorkerProcesses>, CommandError> {
        let _ = self.worker_runs;
        Ok(None)
    }
}

/// The worker processes of a server. Cheap to clone.
#[derive(Clone)]
#[cfg(target_os = "linux")]
pub(crate) struct WorkerProcesses(belljar_worker::WorkerPool);

#[cfg(target_os = "linux")]
impl WorkerProcesses {
    /// Waits until the processes are ready for interpreters of `python`.
    pub(crate) fn open(&self, python: &belljar_python::Python) -> Result<(), CommandError> {
        let report = self.0.open(python)?;
        let missing = [("namespaces", report.without_namespaces), ("Landlock", report.without_landlock)];
        for (layer, reason) in missing {
            if let Some(reason) = reason {
                tracing::warn!("worker processes run without {layer}: {reason}");
            }
        }
        Ok(())
    }

    /// Returns the processes for a backend.
    pub(crate) fn processes(&self) -> std::sync::Arc<dyn belljar_python::isolation::InterpreterProcesses> {
        std::sync::Arc::new(self.0.clone())
    }
}

/// The worker processes of a server; there are none on this system.
#[derive(Clone)]
#[cfg(not(target_os = "linux"))]
pub(crate) enum WorkerProcesses {}

#[cfg(not(target_os = "linux"))]
impl WorkerProcesses {
    pub(crate) fn open(&self, _: &belljar_python::Python) -> Result<(), CommandError> {
        match *self {}
    }

    pub(crate) fn processes(&self) -> std::sync::Arc<dyn belljar_python::isolation::InterpreterProcesses> {
        match *self {}
    }
}
