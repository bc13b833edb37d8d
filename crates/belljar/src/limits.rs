//! The options that limit a piece of code.

use std::time::Duration;

use belljar_core::{Limits, parse_size};
use clap::Args;

use crate::value_parsers::seconds;

/// The limits of one piece of code.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// Time limit [default: none for `run`, 300 for servers].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Limit on the time for which code of a server's calls waits for tools, approvals and timers without computing. It
    /// does not count towards --timeout [default: 600 for servers; the time of --run-ttl for sessions in a --data-dir].
    #[arg(long, value_name = "SECONDS", value_parser = seconds, hide_short_help = true)]
    pub(crate) max_wait: Option<Duration>,
    /// Limit on processor time.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, hide_short_help = true)]
    cpu: Option<Duration>,
    /// Raise KeyboardInterrupt at a time limit, and stop the code this many seconds later.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "0", hide_short_help = true)]
    grace: Duration,
    /// Memory limit of the interpreter.
    ///
    /// Exceeding it raises MemoryError. For sessions see --session-memory.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "2GB")]
    memory: u64,
    /// Output limit; exceeding it stops the code. At least 16MB for a cell of a session [default: 64MB for `run`, 4MB
    /// for servers].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, hide_short_help = true)]
    max_output: Option<u64>,
    /// Limit on the bytes in files that the code creates.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "512MB", hide_short_help = true)]
    disk: u64,
}

/// The default time limit of servers: clients give up after five minutes without a message.
const SERVER_TIMEOUT: Duration = Duration::from_secs(300);
/// The default limit on the time for which a server's code waits: a person may have to approve a call.
const SERVER_MAX_WAIT: Duration = Duration::from_secs(600);
/// The default output limit of servers, in bytes: a model has to read the output.
const SERVER_MAX_OUTPUT: u64 = 4 << 20;

impl LimitOptions {
    /// Returns the limits for `belljar run`.
    pub(crate) fn for_run(&self) -> Limits {
        self.limits(None, Limits::default().output)
    }

    /// Returns the limits for the calls of a server.
    pub(crate) fn for_server(&self) -> Limits {
        let wait_time = Some(self.max_wait.unwrap_or(SERVER_MAX_WAIT));
        Limits { wait_time, ..self.limits(Some(SERVER_TIMEOUT), SERVER_MAX_OUTPUT) }
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
