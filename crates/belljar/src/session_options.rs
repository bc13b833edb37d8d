//! The options of sessions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::Backend;
use belljar_core::{Limits, parse_size};
use belljar_monty::DumpKey;
use belljar_sessions::{AnswerOptions, Cluster, SessionFolders, SessionOptions as SessionsConfig, Store};
use clap::{Args, ValueEnum};

use crate::cluster_options::{ClusterArguments, SessionTimes};
use crate::command_error::CommandError;
use crate::mount::existing_directory;
use crate::shutdown::BackendTracker;
use crate::value_parsers::seconds;

/// The options of sessions.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sessions")]
pub(crate) struct SessionOptions {
    /// Time until an idle session ends.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "1800", env = "BELLJAR_SESSION_TIMEOUT", hide_env_values = true, hide_short_help = true)]
    session_timeout: Duration,
    /// Maximum number of interpreter sessions.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        env = "BELLJAR_MAX_SESSIONS",
        hide_env_values = true,
        hide_short_help = true
    )]
    pub(crate) max_sessions: usize,
    /// Memory limit of a session.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1GB", env = "BELLJAR_SESSION_MEMORY", hide_env_values = true, hide_short_help = true)]
    session_memory: u64,
    /// Limit on the bytes in the files of a session.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "512MB", env = "BELLJAR_SESSION_DISK", hide_env_values = true, hide_short_help = true)]
    session_disk: u64,
    /// Time until an idle session sleeps: it then takes no memory, and the next call wakes it.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "300", env = "BELLJAR_SLEEP_AFTER", hide_env_values = true, hide_short_help = true)]
    sleep_after: Duration,
    /// Save sessions in this directory.
    ///
    /// They survive the server: the next one continues them.
    #[arg(long, value_name = "DIR", env = "BELLJAR_DATA_DIR", hide_env_values = true)]
    data_dir: Option<PathBuf>,
    /// Time for which a run of --data-dir may wait for answers, and for which its result stays if the client has left.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "86400", env = "BELLJAR_RUN_TTL", hide_env_values = true, hide_short_help = true)]
    run_ttl: Duration,
    /// Maximum size of the recording of a cell of --data-dir, with which it survives the server while it holds its
    /// thread: in input(), or waiting for a tool without await. 0 records nothing.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MB", env = "BELLJAR_REPLAY_MEMORY", hide_env_values = true, hide_short_help = true)]
    replay_memory: u64,
    /// Keep the files of sessions in this directory.
    ///
    /// The directory is on this machine, and has a folder for each session. The files stay when the session ends.
    #[arg(long, value_name = "DIR", env = "BELLJAR_FILES", hide_env_values = true)]
    files: Option<PathBuf>,
    /// Format of tracebacks.
    #[arg(long, value_enum, default_value_t, value_name = "HOW", hide_short_help = true)]
    tracebacks: Tracebacks,
    /// Return the HTML of tables and other values that have plain text, too.
    #[arg(long, hide_short_help = true)]
    pub(crate) html: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
}

/// A format of tracebacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Tracebacks {
    /// Without colours, and without the frames of libraries in the middle.
    #[default]
    Plain,
    /// Without colours, with all frames.
    Full,
    /// With ANSI colours and all frames, as in IPython.
    Color,
}

/// The minimum output limit of a cell, in bytes. Output that is too long for a result is written to a file.
const MIN_CELL_OUTPUT: u64 = 16 << 20;

impl SessionOptions {
    /// Opens the store of the sessions of `backend`. Native kernels have none: they live as long as the server, and
    /// cannot be saved or hibernated.
    pub(crate) fn store(
        &self,
        backend: &Arc<dyn Backend>,
        is_native: bool,
        tracker: &BackendTracker,
        cluster: Option<Arc<Cluster>>,
    ) -> Result<Option<Store>, CommandError> {
        if is_native {
            for (option, is_given) in [("--data-dir", self.data_dir.is_some()), ("--store", cluster.is_some())] {
                if is_given {
                    return Err(CommandError::new(format!("{option}: native kernels cannot be saved"))
                        .with_hint("leave it out, or use --sandbox wasm"));
                }
            }
            return Ok(None);
        }
        let failed = |error| format!("failed to create a directory for sessions: {error}");
        let store = match (&self.data_dir, cluster) {
            (_, Some(cluster)) => Store::in_cluster(cluster).map_err(failed)?,
            (Some(directory), None) => {
                let store = Store::open(directory)
                    .map_err(|error| format!("--data-dir: failed to open {}: {error}", directory.display()))?;
                // Otherwise the server would start, and each call would fail.
                tempfile::tempfile_in(directory)
                    .map_err(|error| format!("--data-dir: failed to write to {}: {error}", directory.display()))?;
                store
            }
            (None, None) => {
                // The temporary files are deleted with the backend.
                tracker.add(backend);
                Store::temporary().map_err(failed)?
            }
        };
        Ok(Some(store))
    }

    /// Joins the cluster that the options describe. `max_wait` is the limit of waiting if the user has set one.
    pub(crate) fn join_cluster(
        &self,
        address: Option<&str>,
        max_wait: Option<Duration>,
    ) -> Result<Option<Arc<Cluster>>, CommandError> {
        let Self { session_timeout, run_ttl, .. } = *self;
        let times = SessionTimes { session_timeout, run_ttl, max_wait: max_wait.unwrap_or(run_ttl) };
        self.cluster.join(address, times)
    }

    /// Returns the key of the placeholders of secrets, if sessions outlive the server.
    pub(crate) fn placeholder_key(&self, cluster: Option<&Arc<Cluster>>) -> Result<Option<[u8; 32]>, CommandError> {
        self.derived_key("placeholders of secrets", cluster)
    }

    /// Returns a key that outlives the server, if sessions do.
    fn derived_key(&self, purpose: &str, cluster: Option<&Arc<Cluster>>) -> Result<Option<[u8; 32]>, CommandError> {
        let store = match (cluster, &self.data_dir) {
            (Some(cluster), _) => {
                Store::in_cluster(cluster.clone()).map_err(|error| CommandError::from_error(&error))?
            }
            (None, Some(directory)) => Store::open(directory)
                .map_err(|error| format!("--data-dir: failed to open {}: {error}", directory.display()))?,
            (None, None) => return Ok(None),
        };
        Ok(Some(store.derive_key(purpose).map_err(|error| CommandError::from_error(&error).context("--data-dir"))?))
    }

    /// Returns the key that signs sessions of Monty's protocol: one that outlives the server if sessions do.
    pub(crate) fn dump_key(&self, cluster: Option<&Arc<Cluster>>) -> Result<DumpKey, CommandError> {
        match self.derived_key("sessions of Monty's protocol", cluster)? {
            Some(key) => Ok(DumpKey::new(key)),
            None => DumpKey::random().map_err(|error| format!("failed to make a key: {error}").into()),
        }
    }

    /// Returns whether the files of sessions are kept in a directory of this machine.
    pub(crate) fn have_folders(&self) -> bool {
        self.files.is_some()
    }

    /// Returns whether sessions are saved in a directory of this machine.
    pub(crate) fn has_data_dir(&self) -> bool {
        self.data_dir.is_some()
    }

    /// Opens the directory in which the files of sessions are kept.
    pub(crate) fn folders(&self) -> Result<Option<SessionFolders>, CommandError> {
        let Some(directory) = &self.files else { return Ok(None) };
        let path = existing_directory(directory).map_err(|reason| {
            CommandError::new(format!("--files: {reason}"))
                .with_hint("name an existing directory; the folders of sessions are created in it")
        })?;
        // Both have a directory for each session, by the same names.
        if self.data_dir.as_ref().is_some_and(|data| data.canonicalize().is_ok_and(|data| data == path)) {
            return Err(CommandError::new("--files: the directory is that of --data-dir")
                .with_hint("name another directory: this one contains saved states"));
        }
        let folders = SessionFolders::open(&path);
        Ok(Some(folders.map_err(|error| format!("--files: failed to open {}: {error}", directory.display()))?))
    }

    /// Returns the limits of a session, based on those of a piece of code. `max_wait` is the limit of waiting if the
    /// user has set one.
    pub(crate) fn limits(&self, limits: Limits, max_wait: Option<Duration>) -> Limits {
        // A cell that waits on the disk takes no memory.
        let durable_wait = (self.data_dir.is_some() || self.cluster.is_given()).then_some(self.run_ttl);
        Limits {
            wait_time: max_wait.or(durable_wait).or(limits.wait_time),
            memory: self.session_memory,
            disk: self.session_disk,
            output: limits.output.max(MIN_CELL_OUTPUT),
            ..limits
        }
    }

    /// Returns whether tracebacks have colours.
    pub(crate) fn color(&self) -> bool {
        self.tracebacks == Tracebacks::Color
    }

    pub(crate) fn options(&self, max_answer: usize) -> SessionsConfig {
        let all_frames = self.tracebacks != Tracebacks::Plain;
        SessionsConfig {
            answers: AnswerOptions { max_bytes: max_answer, all_frames },
            timeout: self.session_timeout,
            sleep_after: self.sleep_after,
            max_sessions: self.max_sessions,
            run_ttl: self.run_ttl,
            replay_memory: usize::try_from(self.replay_memory).unwrap_or(usize::MAX),
            ..SessionsConfig::default()
        }
    }
}
