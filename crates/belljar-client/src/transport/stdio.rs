//! A server as a child process: lines of JSON on its standard input and output, its last words kept from standard error.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop};
use rmcp::RoleClient;
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Notify;
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, FramedRead};

use super::{BoxTransport, Connected, Connector, Diagnosis, Incoming, MAX_MESSAGE_BYTES, Outgoing, message};
use crate::error::McpError;

/// How long a child may take to go by itself once its standard input is closed, and then once it is asked to.
const GRACE: Duration = Duration::from_secs(2);
const GRACE_AFTER_SIGNAL: Duration = Duration::from_secs(1);

/// Bytes of standard error that are kept for error messages.
const STDERR_TAIL: usize = 4 * 1024;

/// How long to wait for a child's last words and status after its output ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The variables that a child inherits; all others it gets only when they are given. The list is that of MCP's own SDKs.
#[cfg(not(windows))]
const INHERITED: &[&str] = &["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
#[cfg(windows)]
const INHERITED: &[&str] = &[
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
];

/// A server that is started as a child process.
///
/// ```
/// # use belljar_client::{McpServerStdio, ServerBuilder, transport::ChildProcess};
/// fn patient(server: McpServerStdio) -> ServerBuilder<ChildProcess> {
///     server.timeout(std::time::Duration::from_secs(60))
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ChildProcess {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: Option<PathBuf>,
}

impl std::fmt::Debug for ChildProcess {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values of variables are often secrets.
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        formatter
            .debug_struct("Stdio")
            .field("command", &self.command)
            .field("args", &self.args)
            .field("env", &names)
            .field("cwd", &self.cwd)
            .finish()
    }
}

#[async_trait]
impl Connector for ChildProcess {
    async fn connect(&self) -> Result<Connected, McpError> {
        let mut command = CommandWrap::with_new(&self.command, |command| {
            command.args(&self.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.env_clear().envs(inherited());
            command.envs(self.env.iter().map(|(name, value)| (name, value)));
            if let Some(cwd) = &self.cwd {
                command.current_dir(cwd);
            }
        });
        // A group of its own, so that what the child starts (`npx` starts `node`) goes with it.
        #[cfg(unix)]
        command.wrap(process_wrap::tokio::ProcessGroup::leader());
        #[cfg(windows)]
        command.wrap(process_wrap::tokio::JobObject);
        command.wrap(KillOnDrop);
        let spawn_error = |source| McpError::Spawn { command: self.command.clone(), source };
        let mut child = command.spawn().map_err(spawn_error)?;
        let missing = || spawn_error(io::Error::other("it has no standard streams"));
        let stdin = child.stdin().take().ok_or_else(missing)?;
        let stdout = child.stdout().take().ok_or_else(missing)?;
        let stderr = child.stderr().take().ok_or_else(missing)?;
        let words = Arc::new(LastWords::default());
        tokio::spawn(LastWords::collect(words.clone(), stderr));
        // Bytes and not text: a line that is not UTF-8 is one that is passed over.
        let lines = AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), Vec::new(), MAX_MESSAGE_BYTES);
        let transport = ChildTransport {
            child: Some(child),
            lines: FramedRead::with_capacity(stdout, lines, 64 * 1024),
            input: Arc::new(Input::new(stdin)),
            words: words.clone(),
        };
        Ok(Connected { transport: BoxTransport::new(transport), diagnosis: words })
    }

    fn identity(&self) -> String {
        // A later value of a variable replaces an earlier one, whatever the order of the others.
        let env: BTreeMap<&str, &str> = self.env.iter().map(|(name, value)| (&**name, &**value)).collect();
        format!("{:?} {:?} {env:?} {:?}", self.command, self.args, self.cwd)
    }

    fn label(&self) -> String {
        self.command.clone()
    }
}

/// The variables that every child gets. Shell functions that bash exported (`() { …`) are none.
fn inherited() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    INHERITED.iter().filter_map(|name| {
        std::env::var_os(name)
            .filter(|value| !OsStr::as_encoded_bytes(value).starts_with(b"()"))
            .map(|value| (*name, value))
    })
}

struct ChildTransport {
    child: Option<Box<dyn ChildWrapper>>,
    lines: FramedRead<ChildStdout, AnyDelimiterCodec>,
    input: Arc<Input>,
    words: Arc<LastWords>,
}

/// A child's standard input. Lines go out in the order in which they were given; those that wait go together.
struct Input {
    waiting: Mutex<Waiting>,
    pipe: tokio::sync::Mutex<Option<ChildStdin>>,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    /// How many lines were given, and how many of them are out.
    given: u64,
    written: u64,
    /// Why no more can be written.
    failed: Option<io::ErrorKind>,
}

impl Input {
    fn new(pipe: ChildStdin) -> Self {
        Self { waiting: Mutex::default(), pipe: tokio::sync::Mutex::new(Some(pipe)) }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a line, and says how many were given with it.
    fn give(&self, message: &Outgoing) -> Result<u64, io::Error> {
        let line = serde_json::to_vec(message)?;
        let mut waiting = self.waiting();
        waiting.lines.extend_from_slice(&line);
        waiting.lines.push(b'\n');
        waiting.given += 1;
        Ok(waiting.given)
    }

    /// Waits until this many lines are out. Whoever comes first writes for all; `rmcp` waits in a task of its own, so that a
    /// caller that stops waiting leaves no half line behind.
    async fn written(&self, count: u64) -> Result<(), io::Error> {
        let mut pipe = self.pipe.lock().await;
        let (lines, given) = {
            let mut waiting = self.waiting();
            if let Some(kind) = waiting.failed {
                return Err(kind.into());
            }
            if waiting.written >= count {
                return Ok(());
            }
            (std::mem::take(&mut waiting.lines), waiting.given)
        };
        let result = match pipe.as_mut() {
            Some(pipe) => pipe.write_all(&lines).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        let mut waiting = self.waiting();
        match &result {
            Ok(()) => waiting.written = given,
            Err(error) => waiting.failed = Some(error.kind()),
        }
        result
    }
}

impl Transport<RoleClient> for ChildTransport {
    type Error = io::Error;

    fn send(&mut self, message: Outgoing) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let given = self.input.give(&message);
        let input = self.input.clone();
        async move { input.written(given?).await }
    }

    async fn receive(&mut self) -> Option<Incoming> {
        loop {
            match self.lines.next().await {
                Some(Ok(line)) => {
                    if let Some(message) = parse_line(&line, &self.words) {
                        return Some(message);
                    }
                }
                Some(Err(AnyDelimiterCodecError::MaxChunkLengthExceeded)) => {
                    self.words.set_reason(format!("it sent a message of more than {MAX_MESSAGE_BYTES} bytes"));
                    return None;
                }
                Some(Err(AnyDelimiterCodecError::Io(error))) => {
                    self.words.set_reason(format!("its output could not be read: {error}"));
                    return None;
                }
                None => {
                    if let Some(child) = self.child.as_mut()
                        && let Ok(Ok(status)) = tokio::time::timeout(LAST_WORDS, child.wait()).await
                    {
                        self.words.set_reason(format!("the program ended with {status}"));
                    }
                    self.words.set_reason("the program closed its output".to_owned());
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.words.set_reason("it was closed".to_owned());
        // A writer that a child does not read holds the lock; the child is then ended without being asked to.
        let closed = tokio::time::timeout(GRACE_AFTER_SIGNAL, self.input.pipe.lock()).await.map(|mut pipe| pipe.take());
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if closed.is_ok() && tokio::time::timeout(GRACE, child.wait()).await.is_ok() {
            return Ok(());
        }
        #[cfg(unix)]
        {
            const SIGTERM: i32 = 15;
            if child.signal(SIGTERM).is_ok() && tokio::time::timeout(GRACE_AFTER_SIGNAL, child.wait()).await.is_ok() {
                return Ok(());
            }
        }
        child.start_kill()?;
        child.wait().await.map(|_| ())
    }
}

/// Reads a line. What is no message is passed over, as servers print there by mistake.
fn parse_line(line: &Bytes, words: &LastWords) -> Option<Incoming> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return None;
    }
    message::read(line)
        .inspect_err(|error| {
            tracing::debug!(%error, "a line of standard output is no message");
            words.set_stray(line);
        })
        .ok()
}

/// What a child said last, and how it ended.
#[derive(Default)]
struct LastWords {
    state: Mutex<Words>,
    stderr_ended: Notify,
}

#[derive(Default)]
struct Words {
    stderr: VecDeque<u8>,
    stderr_is_over: bool,
    /// The first reason that was found; later ones follow from it.
    reason: Option<String>,
    /// The last line of standard output that was no message.
    stray: Option<String>,
}

impl LastWords {
    fn state(&self) -> MutexGuard<'_, Words> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_reason(&self, reason: String) {
        self.state().reason.get_or_insert(reason);
    }

    fn set_stray(&self, line: &[u8]) {
        const SHOWN: usize = 200;
        self.state().stray = Some(String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned());
    }

    /// Keeps the end of standard error, and passes each piece to the log.
    async fn collect(words: Arc<Self>, mut stderr: impl AsyncRead + Unpin) {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stderr.read(&mut piece).await {
            tracing::debug!(target: "belljar_client::stderr", "{}", String::from_utf8_lossy(&piece[..count]).trim_end());
            let mut state = words.state();
            state.stderr.extend(&piece[..count]);
            let excess = state.stderr.len().saturating_sub(STDERR_TAIL);
            state.stderr.drain(..excess);
        }
        words.state().stderr_is_over = true;
        words.stderr_ended.notify_waiters();
    }

    fn tail(&self) -> Option<String> {
        let state = self.state();
        let bytes: Vec<u8> = state.stderr.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

#[async_trait]
impl Diagnosis for LastWords {
    async fn closed(&self) -> Option<String> {
        let ended = self.stderr_ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if !self.state().stderr_is_over {
            // A grandchild may hold the pipe open for ever.
            let _ = tokio::time::timeout(LAST_WORDS, ended).await;
        }
        let reason = self.state().reason.clone();
        match (reason, self.tail()) {
            (Some(reason), Some(tail)) => Some(format!("{reason}; it last wrote to standard error:\n{tail}")),
            (Some(reason), None) => Some(reason),
            (None, Some(tail)) => Some(format!("it last wrote to standard error:\n{tail}")),
            (None, None) => None,
        }
    }

    fn silent(&self) -> Option<String> {
        let stray = self.state().stray.clone().map(|line| format!("its output had a line that is no message: {line}"));
        let tail = self.tail().map(|tail| format!("it last wrote to standard error:\n{tail}"));
        match (stray, tail) {
            (Some(stray), Some(tail)) => Some(format!("{stray}; {tail}")),
            (stray, tail) => stray.or(tail),
        }
    }
}
