//! The standard streams of this process: the output of the code, forwarded as it is written, and Belljar's own results.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Arc;

use belljar_emscripten::console::{OutputSink, Stream};
use parking_lot::Mutex;

use crate::exit_code::{BROKEN_PIPE, NOT_STARTED, exit};
use crate::outcome::fail;
use crate::terminal_filter::TerminalFilter;
use crate::untrusted_text::escape_in_json;

/// The sink that forwards output to the standard streams. It flushes after each write, because a program may flush in
/// the middle of a line. On a terminal, it leaves out what the code must not do there ([`TerminalFilter`]). Clones
/// share their state.
#[derive(Clone)]
pub(crate) struct Terminal {
    /// `None` if output is forwarded as it is.
    filter: Option<Arc<Mutex<TerminalFilter>>>,
    /// The first error by which output of the code was lost.
    lost: Arc<Mutex<Option<io::Error>>>,
}

impl Terminal {
    /// Creates the sink. If `raw` is set, it leaves nothing out.
    pub(crate) fn new(raw: bool) -> Self {
        let is_filtered = !raw && (io::stdout().is_terminal() || io::stderr().is_terminal());
        Self { filter: is_filtered.then(Arc::default), lost: Arc::default() }
    }

    /// Returns the part of untrusted output that the stream gets.
    fn filtered<'a>(&self, stream: Stream, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.filter {
            Some(filter) if is_terminal(stream) => filter.lock().filter(stream, bytes).into(),
            _ => bytes.into(),
        }
    }

    /// Ends the styles of the code's output, before something else is written.
    pub(crate) fn end(&self) {
        let Some(filter) = &self.filter else { return };
        let stream = if is_terminal(Stream::Stdout) { Stream::Stdout } else { Stream::Stderr };
        let reset = filter.lock().end();
        if !reset.is_empty() {
            // Output to a closed terminal is lost.
            let _ = write_to(stream, reset);
        }
    }

    /// Returns the first error by which output of the code to standard output was lost since the last call.
    pub(crate) fn take_lost(&self) -> Option<io::Error> {
        self.lost.lock().take()
    }

    /// Writes an error of the code, which may contain text of the code, to standard error.
    pub(crate) fn report(&self, text: &str) {
        self.end();
        let _ = write_to(Stream::Stderr, &self.filtered(Stream::Stderr, text.as_bytes()));
        self.end();
    }

    /// Writes a text of the code and a newline to standard output, like [`print_line`].
    pub(crate) fn print_line(&self, text: &str) {
        self.end();
        print(&self.filtered(Stream::Stdout, format!("{text}\n").as_bytes()));
        self.end();
    }

    /// Writes JSON with texts of the code to standard output, like [`print()`].
    pub(crate) fn print_json(&self, json: &str) {
        let is_escaped = self.filter.is_some() && is_terminal(Stream::Stdout);
        print(if is_escaped { escape_in_json(json) } else { json.into() }.as_bytes());
    }
}

impl OutputSink for Terminal {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        // Output to a full disk is lost; the code continues, and the command reports it in the end.
        let written = write_to(stream, &self.filtered(stream, bytes)).or_else(end_without_reader);
        if let (Err(error), Stream::Stdout) = (written, stream) {
            self.lost.lock().get_or_insert(error);
        }
    }
}

fn is_terminal(stream: Stream) -> bool {
    match stream {
        Stream::Stdout => io::stdout().is_terminal(),
        Stream::Stderr => io::stderr().is_terminal(),
    }
}

fn write_to(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stdout => write_to_stdout(bytes),
        Stream::Stderr => io::stderr().lock().write_all(bytes),
    }
}

/// Writes a result of Belljar's own to standard output. If that fails, ends the process: without a message if the
/// reader closed the pipe, otherwise with an error.
pub(crate) fn print(bytes: &[u8]) {
    if let Err(error) = write_to_stdout(bytes).or_else(end_without_reader) {
        fail(format!("failed to write to standard output: {error}"));
        exit(NOT_STARTED);
    }
}

/// Writes a result and a newline to standard output, like [`print`].
pub(crate) fn print_line(text: impl Display) {
    print(format!("{text}\n").as_bytes());
}

/// Writes a line about the run to standard error, dimmed on a terminal.
pub(crate) fn print_note(text: &str) {
    let line = if io::stderr().is_terminal() { format!("\x1b[2m{text}\x1b[0m\n") } else { format!("{text}\n") };
    // The run continues if standard error is closed.
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

fn write_to_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

/// Ends the process if the reader closed the pipe (`belljar run x.py | head`). Returns any other error.
fn end_without_reader(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::BrokenPipe {
        exit(BROKEN_PIPE);
    }
    Err(error)
}
