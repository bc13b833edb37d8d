//! The isolation of interpreters within a server: worker processes, or threads of its process.

use belljar_core::Limits;
use clap::{Args, ValueEnum};

use crate::command_error::CommandError;
use crate::os::{WorkerProcesses, check_worker_processes};

/// The options of the isolation of interpreters.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct IsolationOptions {
    /// Isolation of interpreters from the server [default: process, and thread on other systems than Linux].
    #[arg(long, value_enum, env = "BELLJAR_ISOLATION", hide_env_values = true, hide_short_help = true)]
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
        match self.isolation {
            Some(isolation) => isolation == Isolation::Process,
            None => check_worker_processes().is_ok(),
        }
    }

    /// Checks that worker processes are not asked for where there are none: `are_native` is true for native kernels.
    pub(crate) fn check(&self, are_native: bool) -> Result<(), CommandError> {
        if self.isolation != Some(Isolation::Process) {
            return Ok(());
        }
        check_worker_processes()?;
        if are_native {
            let reason =
                "--isolation process cannot be used with --sandbox native: native kernels have processes of their own";
            return Err(CommandError::new(reason).with_hint("leave out one of them"));
        }
        Ok(())
    }

    /// Creates the pool of worker processes for interpreters of the Python with these options, if it is selected, with
    /// the limits of code that is run once and of sessions.
    pub(crate) fn pool(
        &self,
        python: &belljar_python::Options,
        limits: &Limits,
        sessions: &Limits,
    ) -> Result<Option<WorkerProcesses>, CommandError> {
        if !self.is_process() {
            return Ok(None);
        }
        WorkerProcesses::new(python, limits, sessions.memory, self.worker_runs).map(Some)
    }
}
