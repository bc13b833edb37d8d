//! The options of servers that keep sessions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Limits, parse_size};
use belljar_server::Runner;
use belljar_sessions::{Backend, Options, Sessions, Store, Wasm};
use clap::{Args, ValueEnum};

use crate::cli::seconds;
use crate::held::Held;

/// How sessions are kept.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sessions")]
pub(crate) struct SessionOptions {
    /// End a session in which nothing happens for so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "1800", env = "BELLJAR_SESSION_TIMEOUT", hide_env_values = true)]
    session_timeout: Duration,
    /// Sessions that may be open: of interpreters, and over HTTP of clients.
    #[arg(long, value_name = "N", default_value_t = 1000, env = "BELLJAR_MAX_SESSIONS", hide_env_values = true)]
    pub(crate) max_sessions: usize,
    /// Memory of one session.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1GB", env = "BELLJAR_SESSION_MEMORY", hide_env_values = true)]
    session_memory: u64,
    /// Bytes in the files of one session.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "512MB", env = "BELLJAR_SESSION_DISK", hide_env_values = true)]
    session_disk: u64,
    /// Put a session to sleep in which nothing happens for so many seconds: it takes no memory then, and wakes when it is
    /// called.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "300", env = "BELLJAR_SLEEP_AFTER", hide_env_values = true)]
    sleep_after: Duration,
    /// Keep sessions in this directory, so that they survive the server.
    #[arg(long, value_name = "DIR", env = "BELLJAR_DATA_DIR", hide_env_values = true)]
    data_dir: Option<PathBuf>,
    /// Whether tracebacks have colours (ANSI), as IPython's have.
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    tracebacks: Tracebacks,
}

/// What tracebacks look like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Tracebacks {
    /// With colours.
    #[default]
    Color,
    /// Without.
    Plain,
}

/// Output of one cell that is taken in; what is too much for an answer is put into a file.
const OUTPUT: u64 = 16 << 20;

impl SessionOptions {
    /// The sessions of a server whose pieces of code have these limits.
    pub(crate) fn sessions(&self, limits: Limits, runner: &Runner, held: &Held) -> Result<Sessions, String> {
        let limits = self.limits(limits);
        let store = match &self.data_dir {
            Some(directory) => Store::open(directory)
                .map_err(|error| format!("--data-dir: cannot use {}: {error}", directory.display()))?,
            None => Store::temporary().map_err(|error| format!("cannot make a directory for sessions: {error}"))?,
        };
        let opener = runner.clone();
        let backend = Wasm::new(limits, self.color(), move |progress| opener.workplace(progress));
        let warm = backend.clone();
        let submitted = runner.pool().submit(move |_place| {
            if let Err(error) = warm.warm_up() {
                tracing::error!("sessions are not ready: {error}");
            }
        });
        if let Err(error) = submitted {
            tracing::error!(%error, "sessions are made ready by the first call");
        }
        let backend: Arc<dyn Backend> = Arc::new(backend);
        if self.data_dir.is_none() {
            held.add(&backend);
        }
        Ok(Sessions::new(backend, Some(store), runner.pool(), self.options()))
    }

    /// Sessions of native kernels: they live as long as the server, and do not sleep.
    pub(crate) fn native_sessions(&self, backend: Arc<dyn Backend>, runner: &Runner) -> Result<Sessions, String> {
        if self.data_dir.is_some() {
            return Err("--data-dir: native kernels cannot be saved\nhint: leave it out, or use --sandbox wasm".into());
        }
        Ok(Sessions::new(backend, None, runner.pool(), self.options()))
    }

    /// Those of a session, where these are the limits of a piece of code.
    pub(crate) fn limits(&self, limits: Limits) -> Limits {
        Limits { memory: self.session_memory, disk: self.session_disk, output: limits.output.max(OUTPUT), ..limits }
    }

    /// Whether tracebacks have colours.
    pub(crate) fn color(&self) -> bool {
        self.tracebacks == Tracebacks::Color
    }

    fn options(&self) -> Options {
        Options {
            timeout: self.session_timeout,
            sleep_after: self.sleep_after,
            most: self.max_sessions,
            ..Options::default()
        }
    }
}
