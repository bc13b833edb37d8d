//! The options that say what one piece of code may use.

use std::time::Duration;

use belljar_core::{Limits, parse_size};
use clap::Args;

use crate::cli::seconds;

/// What one piece of code may use.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// End the code after so many seconds [default: never for `run`, 300 for servers].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// End the code after so many seconds of processor time.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    cpu: Option<Duration>,
    /// Raise KeyboardInterrupt when the time is up, and end the code so many seconds later.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "0")]
    grace: Duration,
    /// Memory for the interpreter; more raises MemoryError. A session has --session-memory instead.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "2GB")]
    memory: u64,
    /// Output to pass on; more ends the code. A session's cell may write 16MB at least [default: 64MB for `run`, 4MB for
    /// servers].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_output: Option<u64>,
    /// Bytes in files that the code makes.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "512MB")]
    disk: u64,
}

/// What servers allow unless they are told otherwise: clients give up after five minutes of silence, and output is for a
/// model to read.
const SERVER: (Option<Duration>, u64) = (Some(Duration::from_secs(300)), 4 << 20);

impl LimitOptions {
    /// For `belljar run`.
    pub(crate) fn of_run(&self) -> Limits {
        self.limits(None, Limits::default().output)
    }

    /// For a server's calls.
    pub(crate) fn of_server(&self) -> Limits {
        self.limits(SERVER.0, SERVER.1)
    }

    fn limits(&self, timeout: Option<Duration>, output: u64) -> Limits {
        Limits {
            wall_time: self.timeout.or(timeout),
            cpu_time: self.cpu,
            grace: self.grace,
            memory: self.memory,
            output: self.max_output.unwrap_or(output),
            disk: self.disk,
            ..Limits::default()
        }
    }
}
