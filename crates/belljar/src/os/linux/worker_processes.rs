//! Worker processes for the interpreters of a server.

use std::sync::Arc;

use belljar_core::Limits;
use belljar_python::isolation::InterpreterProcesses;
use belljar_python::{Options, Python};
use belljar_worker::{WorkerOptions, WorkerPool};

use crate::command_error::CommandError;

/// Checks that this system has worker processes.
pub(crate) fn check_worker_processes() -> Result<(), CommandError> {
    Ok(())
}

/// The worker processes of a server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct WorkerProcesses(WorkerPool);

impl WorkerProcesses {
    /// Creates the pool of worker processes for interpreters of the Python with these options. Code that is run once
    /// has the given limits, and a process is replaced after `runs` runs of it; sessions have `session_memory` bytes.
    pub(crate) fn new(python: &Options, limits: &Limits, session_memory: u64, runs: u32) -> Result<Self, CommandError> {
        let mut options = WorkerOptions { runs, session_memory, ..WorkerOptions::default() };
        if let Some(template) = crate::TEMPLATE.get() {
            options.command.clone_from(template);
        }
        Ok(Self(WorkerPool::new(python, limits, options)?))
    }

    /// Waits until the processes are ready for interpreters of `python`.
    pub(crate) fn open(&self, python: &Python) -> Result<(), CommandError> {
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
    pub(crate) fn processes(&self) -> Arc<dyn InterpreterProcesses> {
        Arc::new(self.0.clone())
    }
}
