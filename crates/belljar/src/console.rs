//! The standard streams of this process: the output of the code, forwarded as it is written, and Belljar's own results.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

use belljar_emscripten::console::{OutputSink, Stream};

use crate::exit_code::{BROKEN_PIPE, NOT_STARTED, exit};
use crate::outcome::fail;

/// The sink that forwards output to the standard streams. It flushes after each write, because a program may flush in
/// the middle of a line.
pub(crate) struct Terminal;

impl OutputSink for Terminal {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let result = match stream {
            Stream::Stdout => write_to_stdout(bytes),
            Stream::Stderr => io::stderr().lock().write_all(bytes),
        };
        // Output to a full disk is lost; the code continues.
        let _ = result.or_else(end_without_reader);
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
