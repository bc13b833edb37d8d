//! A server as a child process: lines of JSON on its standard input and output.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop};
use rmcp::RoleClient;
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};

use super::any::AnyTransport;
use super::network::Network;
use super::stderr::{ChildDiagnostics, ChildStderr, DIAGNOSTICS_TIMEOUT};
use super::{BoxTransport, Connector, Incoming, MAX_MESSAGE_BYTES, OpenTransport, Outgoing, message};
use crate::error::McpError;
use crate::os::process::{self, INHERITED_VARIABLES};

/// The times that a child has to exit after its standard input was closed, and then after SIGTERM.
const EXIT_GRACE: Duration = Duration::from_secs(2);
const SIGNAL_GRACE: Duration = Duration::from_secs(1);

/// The size of the buffer of a child's output, and the largest that the buffers of lines keep when they are empty.
const BUFFER_CAPACITY: usize = 64 * 1024;

/// The transport of a server that is started as a child process.
///
/// ```
/// # use belljar_mcp_client::{McpServerStdio, ServerBuilder, transport::ChildProcess};
/// fn with_timeout(server: McpServerStdio) -> ServerBuilder<ChildProcess> {
///     server.timeout(std::time::Duration::from_secs(60))
/// }
/// ```
#[derive(Clone)]
pub struct ChildProcess {
    pub(crate) command: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) inherits_env: bool,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) stderr: ChildStderr,
}

impl ChildProcess {
    pub(crate) fn new(command: &OsStr) -> Self {
        Self {
            command: command.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            inherits_env: false,
            cwd: None,
            stderr: ChildStderr::Capture,
        }
    }

    fn command_name(&self) -> String {
        self.command.to_string_lossy().into_owned()
    }
}

impl std::fmt::Debug for ChildProcess {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values of variables are often secrets, and so are arguments.
        let names: Vec<&OsString> = self.env.iter().map(|(name, _)| name).collect();
        formatter
            .debug_struct("Stdio")
            .field("command", &self.command)
            .field("args", &format_args!("{} omitted", self.args.len()))
            .field("env", &names)
            .field("cwd", &self.cwd)
            .finish()
    }
}

#[async_trait]
impl Connector for ChildProcess {
    async fn connect(&self) -> Result<OpenTransport, McpError> {
        let mut command = CommandWrap::with_new(&self.command, |command| {
            command.args(&self.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(self.stderr.stdio());
            if !self.inherits_env {
                command.env_clear().envs(inherited());
            }
            command.envs(self.env.iter().map(|(name, value)| (name, value)));
            if let Some(cwd) = &self.cwd {
                command.current_dir(cwd);
            }
        });
        process::separate(&mut command);
        command.wrap(KillOnDrop);
        let spawn_error = |error| McpError::Spawn { command: self.command_name(), error };
        let sink = self.stderr.open().await.map_err(spawn_error)?;
        let mut child = ChildGroup(command.spawn().map_err(spawn_error)?);
        let missing = || spawn_error(io::Error::other("its standard streams are missing"));
        let stdin = child.0.stdin().take().ok_or_else(missing)?;
        let stdout = child.0.stdout().take().ok_or_else(missing)?;
        let diagnostics = Arc::new(ChildDiagnostics::default());
        match child.0.stderr().take() {
            Some(stderr) => drop(tokio::spawn(ChildDiagnostics::collect(diagnostics.clone(), stderr, sink))),
            None => diagnostics.set_over(),
        }
        let transport = ChildTransport {
            child: Some(child),
            lines: LineReader::new(stdout),
            input: Arc::new(BatchedStdin::new(stdin)),
            diagnostics: diagnostics.clone(),
        };
        Ok(OpenTransport {
            transport: BoxTransport::new(transport),
            disconnect_reason: diagnostics,
            network: Network::pipe(),
        })
    }

    fn identity(&self) -> String {
        // A later value of a variable replaces an earlier one; the order of different variables does not matter.
        let env: BTreeMap<&OsString, &OsString> = self.env.iter().map(|(name, value)| (name, value)).collect();
        let inherits = if self.inherits_env { " inherits" } else { "" };
        format!("{:?} {:?} {env:?} {:?}{inherits}", self.command, self.args, self.cwd)
    }

    fn label(&self) -> String {
        self.command_name()
    }

    fn to_any(&self) -> Option<AnyTransport> {
        Some(self.clone().into())
    }
}

/// Returns the variables that every child inherits, except shell functions exported by bash (`() { …`).
fn inherited() -> impl Iterator<Item = (&'static str, OsString)> {
    INHERITED_VARIABLES.iter().filter_map(|name| {
        std::env::var_os(name)
            .filter(|value| !OsStr::as_encoded_bytes(value).starts_with(b"()"))
            .map(|value| (*name, value))
    })
}

/// A child process with its descendants. Dropping it kills them, also at the end of the program. On Windows the job
/// object does so.
struct ChildGroup(Box<dyn ChildWrapper>);

impl Drop for ChildGroup {
    fn drop(&mut self) {
        // It fails if the whole group has exited.
        let _ = self.0.start_kill();
    }
}

struct ChildTransport {
    child: Option<ChildGroup>,
    lines: LineReader,
    input: Arc<BatchedStdin>,
    diagnostics: Arc<ChildDiagnostics>,
}

/// A child's standard output. Its lines are bytes rather than text: one that is not UTF-8 is skipped.
struct LineReader {
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
    /// True if `line` is complete, and was returned.
    is_read: bool,
}

#[derive(Debug, thiserror::Error)]
enum ReadLineError {
    #[error("it sent a message of more than {MAX_MESSAGE_BYTES} bytes")]
    TooLong,
    #[error("failed to read its output: {0}")]
    Io(#[from] io::Error),
}

impl LineReader {
    fn new(stdout: ChildStdout) -> Self {
        Self { stdout: BufReader::with_capacity(BUFFER_CAPACITY, stdout), line: Vec::new(), is_read: false }
    }

    /// Returns the next line, or `None` at the end of the output. After a future of this function was dropped, the next
    /// one continues with the same line.
    async fn next(&mut self) -> Result<Option<&[u8]>, ReadLineError> {
        if std::mem::take(&mut self.is_read) {
            self.line.clear();
            self.line.shrink_to(BUFFER_CAPACITY);
        }
        let most = (MAX_MESSAGE_BYTES + 1).saturating_sub(self.line.len());
        (&mut self.stdout).take(most as u64).read_until(b'\n', &mut self.line).await?;
        if self.line.len() > MAX_MESSAGE_BYTES && !self.line.ends_with(b"\n") {
            return Err(ReadLineError::TooLong);
        }
        self.is_read = true;
        Ok((!self.line.is_empty()).then_some(&*self.line))
    }
}

/// A child's standard input. Lines are written in the order in which they were enqueued; pending lines are written
/// together.
struct BatchedStdin {
    pending: Mutex<PendingLines>,
    pipe: tokio::sync::Mutex<Option<ChildStdin>>,
}

#[derive(Default)]
struct PendingLines {
    lines: Vec<u8>,
    /// The number of lines enqueued, and the number of those written.
    enqueued: u64,
    written: u64,
    /// The error after which nothing more can be written.
    failed: Option<io::ErrorKind>,
}

impl BatchedStdin {
    fn new(pipe: ChildStdin) -> Self {
        Self { pending: Mutex::default(), pipe: tokio::sync::Mutex::new(Some(pipe)) }
    }

    fn pending(&self) -> MutexGuard<'_, PendingLines> {
        self.pending.lock()
    }

    /// Enqueues a line. Returns the number of lines enqueued so far.
    fn enqueue(&self, message: &Outgoing) -> Result<u64, io::Error> {
        let mut pending = self.pending();
        let start = pending.lines.len();
        if let Err(error) = message::write(message, &mut pending.lines) {
            pending.lines.truncate(start);
            return Err(error.into());
        }
        pending.lines.push(b'\n');
        pending.enqueued += 1;
        Ok(pending.enqueued)
    }

    /// Waits until this many lines are written. The first caller writes the lines of all; `rmcp` calls it on a separate
    /// task, so a caller that stops waiting does not leave a partial line behind.
    async fn flush_through(&self, count: u64) -> Result<(), io::Error> {
        let mut pipe = self.pipe.lock().await;
        let (mut lines, enqueued) = {
            let mut pending = self.pending();
            if let Some(kind) = pending.failed {
                return Err(kind.into());
            }
            if pending.written >= count {
                return Ok(());
            }
            (std::mem::take(&mut pending.lines), pending.enqueued)
        };
        let result = match pipe.as_mut() {
            Some(pipe) => pipe.write_all(&lines).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        let mut pending = self.pending();
        match &result {
            Ok(()) => {
                pending.written = enqueued;
                if pending.lines.is_empty() && lines.capacity() <= BUFFER_CAPACITY {
                    lines.clear();
                    pending.lines = lines;
                }
            }
            Err(error) => pending.failed = Some(error.kind()),
        }
        result
    }
}

impl Transport<RoleClient> for ChildTransport {
    type Error = io::Error;

    fn send(&mut self, message: Outgoing) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let enqueued = self.input.enqueue(&message);
        let input = self.input.clone();
        async move { input.flush_through(enqueued?).await }
    }

    async fn receive(&mut self) -> Option<Incoming> {
        loop {
            match self.lines.next().await {
                Ok(Some(line)) => {
                    if let Some(message) = parse_line(line, &self.diagnostics) {
                        return Some(message);
                    }
                }
                Err(error) => {
                    self.diagnostics.set_reason(error.to_string());
                    return None;
                }
                Ok(None) => {
                    if let Some(child) = self.child.as_mut()
                        && let Ok(Ok(status)) = tokio::time::timeout(DIAGNOSTICS_TIMEOUT, child.0.wait()).await
                    {
                        self.diagnostics.set_reason(format!("the program exited with {status}"));
                    }
                    self.diagnostics.set_reason("the program closed its output".to_owned());
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.diagnostics.set_reason("it was closed".to_owned());
        // A blocked write to a child that does not read holds the lock; the child then gets a signal without its
        // standard input being closed.
        let closed = tokio::time::timeout(SIGNAL_GRACE, self.input.pipe.lock()).await.map(|mut pipe| pipe.take());
        let Some(mut child) = self.child.take() else { return Ok(()) };
        // Dropping the group kills the descendants that are left.
        if closed.is_ok() && tokio::time::timeout(EXIT_GRACE, child.0.wait()).await.is_ok() {
            return Ok(());
        }
        if process::terminate(&*child.0).is_ok() && tokio::time::timeout(SIGNAL_GRACE, child.0.wait()).await.is_ok() {
            return Ok(());
        }
        child.0.start_kill()?;
        child.0.wait().await.map(|_| ())
    }
}

/// Parses a line. Lines that are not messages are skipped: servers print to standard output by mistake.
fn parse_line(line: &[u8], diagnostics: &ChildDiagnostics) -> Option<Incoming> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return None;
    }
    message::read(line)
        .inspect_err(|error| {
            tracing::debug!(%error, "skipping a line of standard output that is not a message");
            diagnostics.set_stray(line);
        })
        .ok()
}
