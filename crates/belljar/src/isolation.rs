//! The isolation of interpreters within a server: threads of its process, or worker processes.

use belljar_core::Limits;
use clap::{Args, ValueEnum};

use crate::command_error::CommandError;

/// The options of the isolation of interpreters.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct IsolationOptions {
    /// Isolation of interpreters from the server.
    #[arg(long, value_enum, default_value_t, hide_short_help = true)]
    isolation: Isolation,
    /// Number of runs after which a worker process is replaced.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    worker_runs: u32,
}

/// The isolation of interpreters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Isolation {
    /// On threads of the server.
    #[default]
    Thread,
    /// In worker processes that reach files and the network through the server only. Each serves one client, or one
    /// session. Linux only.
    Process,
}

impl IsolationOptions {
    /// Returns whether interpreters run in worker processes.
    pub(crate) fn is_process(&self) -> bool {
        self.isolation == Isolation::Process
    }

    /// Checks that nothing is asked for that worker processes cannot do. `others` are options with whether they are
    /// given.
    pub(crate) fn check(&self, others: &[(&str, bool)]) -> Result<(), CommandError> {
        if !self.is_process() {
            return Ok(());
        }
        if !cfg!(target_os = "linux") {
            return Err(CommandError::new("--isolation process requires Linux").with_hint("leave it out"));
        }
        match others.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(CommandError::new(format!(
                "--isolation process cannot be used with {option}: worker processes do not support it yet"
            ))
            .with_hint(format!("leave out {option}, or use --isolation thread"))),
            None => Ok(()),
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
