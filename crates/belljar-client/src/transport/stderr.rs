//! The standard error of a child process: its destination, and its last lines for error messages.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use super::DisconnectReason;
use crate::handlers::notifications::catch_panic;

/// The number of bytes of standard error that are kept for error messages.
const MAX_STDERR_TAIL: usize = 4 * 1024;

/// The maximum length of a line that is passed to a handler; longer ones are passed in pieces.
const MAX_LINE: usize = 8 * 1024;

/// The time to wait for a child's standard error after its output ended.
pub(super) const DIAGNOSTICS_TIMEOUT: Duration = Duration::from_millis(500);

/// The destination of a child's standard error, for [`ServerBuilder::stderr`](crate::ServerBuilder::stderr).
///
/// ```
/// use belljar_mcp_client::McpServerStdio;
/// use belljar_mcp_client::transport::ChildStderr;
///
/// let server = McpServerStdio::new("server").stderr(ChildStderr::lines(|line| eprintln!("server: {line}")));
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum ChildStderr {
    /// Error messages contain its last lines, and it is logged at the level "debug" with the target
    /// `belljar_mcp_client::stderr`. The other destinations but [`Inherit`](Self::Inherit) get it in addition.
    #[default]
    Capture,
    /// The standard error of this process. Error messages do not contain it.
    Inherit,
    /// A file, which is created if it does not exist; new output is appended.
    File(PathBuf),
    /// A handler that is called for each line, without its end. It must not block. Bytes that are not UTF-8 are
    /// replaced.
    Lines(LineHandler),
}

/// A handler of lines.
///
/// ```
/// let handler: belljar_mcp_client::transport::LineHandler = std::sync::Arc::new(|line| eprintln!("{line}"));
/// ```
pub type LineHandler = Arc<dyn Fn(&str) + Send + Sync>;

impl ChildStderr {
    /// Passes each line to a handler.
    ///
    /// ```
    /// # use belljar_mcp_client::transport::ChildStderr;
    /// let stderr = ChildStderr::lines(|line| eprintln!("server: {line}"));
    /// ```
    pub fn lines(handler: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self::Lines(Arc::new(handler))
    }

    /// Writes it to a file.
    ///
    /// ```
    /// # use belljar_mcp_client::transport::ChildStderr;
    /// let stderr = ChildStderr::file("/var/log/server.log");
    /// ```
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File(path.into())
    }

    pub(super) fn stdio(&self) -> Stdio {
        if matches!(self, Self::Inherit) { Stdio::inherit() } else { Stdio::piped() }
    }

    /// Opens the destination.
    pub(super) async fn open(&self) -> std::io::Result<StderrSink> {
        Ok(match self {
            Self::Capture | Self::Inherit => StderrSink::None,
            Self::File(path) => {
                let file = File::options().create(true).append(true).open(path).await;
                StderrSink::File(file.map_err(|error| {
                    let path = path.display();
                    std::io::Error::new(error.kind(), format!("failed to open {path} for its standard error: {error}"))
                })?)
            }
            Self::Lines(handler) => StderrSink::Lines { handler: handler.clone(), line: Vec::new() },
        })
    }
}

impl fmt::Debug for ChildStderr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capture => formatter.write_str("Capture"),
            Self::Inherit => formatter.write_str("Inherit"),
            Self::File(path) => formatter.debug_tuple("File").field(path).finish(),
            Self::Lines(_) => formatter.write_str("Lines"),
        }
    }
}

/// An open destination.
pub(super) enum StderrSink {
    None,
    File(File),
    /// A handler, and the incomplete line.
    Lines {
        handler: LineHandler,
        line: Vec<u8>,
    },
}

impl StderrSink {
    async fn write(&mut self, piece: &[u8]) {
        match self {
            Self::None => {}
            Self::File(file) => {
                let written = async {
                    file.write_all(piece).await?;
                    file.flush().await
                };
                if let Err(error) = written.await {
                    tracing::warn!(%error, "failed to write the standard error of a child to its file");
                    *self = Self::None;
                }
            }
            Self::Lines { handler, line } => {
                for byte in piece {
                    if *byte == b'\n' {
                        emit(handler, line);
                        continue;
                    }
                    if line.len() == MAX_LINE {
                        emit(handler, line);
                    }
                    line.push(*byte);
                }
            }
        }
    }

    fn finish(&mut self) {
        if let Self::Lines { handler, line } = self
            && !line.is_empty()
        {
            emit(handler, line);
        }
    }
}

fn emit(handler: &LineHandler, line: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(line);
    catch_panic("standard error", || handler(text.strip_suffix('\r').unwrap_or(&text)));
    line.clear();
}

/// A child's last output and exit status, for error messages.
#[derive(Default)]
pub(super) struct ChildDiagnostics {
    state: Mutex<ChildDiagnosticsState>,
    stderr_ended: Notify,
}

#[derive(Default)]
struct ChildDiagnosticsState {
    stderr: VecDeque<u8>,
    stderr_is_over: bool,
    /// The first reason that was found; later ones follow from it.
    reason: Option<String>,
    /// The last line of standard output that was not a message.
    stray: Option<String>,
}

impl ChildDiagnostics {
    fn state(&self) -> MutexGuard<'_, ChildDiagnosticsState> {
        self.state.lock()
    }

    pub(super) fn set_reason(&self, reason: String) {
        self.state().reason.get_or_insert(reason);
    }

    pub(super) fn set_stray(&self, line: &[u8]) {
        const MAX_STRAY: usize = 200;
        self.state().stray = Some(String::from_utf8_lossy(&line[..line.len().min(MAX_STRAY)]).into_owned());
    }

    /// Records that no more standard error follows.
    pub(super) fn set_over(&self) {
        self.state().stderr_is_over = true;
        self.stderr_ended.notify_waiters();
    }

    /// Keeps the end of standard error, logs each piece, and passes it to its destination.
    pub(super) async fn collect(diagnostics: Arc<Self>, mut stderr: impl AsyncRead + Unpin, mut sink: StderrSink) {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stderr.read(&mut piece).await {
            let text = String::from_utf8_lossy(&piece[..count]);
            tracing::debug!(target: "belljar_mcp_client::stderr", "{}", text.trim_end());
            {
                let mut state = diagnostics.state();
                state.stderr.extend(&piece[..count]);
                let excess = state.stderr.len().saturating_sub(MAX_STDERR_TAIL);
                state.stderr.drain(..excess);
            }
            sink.write(&piece[..count]).await;
        }
        sink.finish();
        diagnostics.set_over();
    }

    fn tail(&self) -> Option<String> {
        let state = self.state();
        let bytes: Vec<u8> = state.stderr.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

#[async_trait]
impl DisconnectReason for ChildDiagnostics {
    async fn reason(&self) -> Option<String> {
        let ended = self.stderr_ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if !self.state().stderr_is_over {
            // A grandchild may keep the pipe open.
            let _ = tokio::time::timeout(DIAGNOSTICS_TIMEOUT, ended).await;
        }
        let reason = self.state().reason.clone();
        match (reason, self.tail()) {
            (Some(reason), Some(tail)) => Some(format!("{reason}; it last wrote to standard error:\n{tail}")),
            (Some(reason), None) => Some(reason),
            (None, Some(tail)) => Some(format!("it last wrote to standard error:\n{tail}")),
            (None, None) => None,
        }
    }

    fn timeout_diagnostics(&self) -> Option<String> {
        let stray =
            self.state().stray.clone().map(|line| format!("its output had a line that is not a message: {line}"));
        let tail = self.tail().map(|tail| format!("it last wrote to standard error:\n{tail}"));
        match (stray, tail) {
            (Some(stray), Some(tail)) => Some(format!("{stray}; {tail}")),
            (stray, tail) => stray.or(tail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_passed_whole_and_bounded() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let lines = seen.clone();
        let mut sink = ChildStderr::lines(move |line| lines.lock().push(line.to_owned())).open().await.unwrap();
        sink.write(b"one\r\ntw").await;
        sink.write(b"o\n\n").await;
        sink.write(&vec![b'x'; MAX_LINE + 1]).await;
        sink.finish();
        assert_eq!(*seen.lock(), ["one", "two", "", "x".repeat(MAX_LINE).as_str(), "x"]);
    }
}
