//! This process's standard streams: the program's output, passed on as it is written, and Belljar's own answers.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use belljar_emscripten::console::{OutputSink, Stream};

use crate::outcome::{FAILED, fail};

/// Exit status of a program whose reader went away, as shells show SIGPIPE.
const BROKEN_PIPE: i32 = 141;

/// Writes each piece at once: a program may flush after half a line, and only it knows when it did.
pub(crate) struct Terminal;

impl OutputSink for Terminal {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let result = match stream {
            Stream::Stdout => write_to_stdout(bytes),
            Stream::Stderr => io::stderr().lock().write_all(bytes),
        };
        // What the code writes to a full disk is lost; that is no reason to end it.
        let _ = result.or_else(end_without_reader);
    }
}

/// Writes an answer of Belljar's own to standard output. Where that cannot be, the process ends: quietly when nobody reads
/// any more, else with words.
pub(crate) fn print(answer: &[u8]) {
    if let Err(error) = write_to_stdout(answer).or_else(end_without_reader) {
        fail(&format!("cannot write to standard output: {error}"));
        std::process::exit(FAILED.into());
    }
}

/// The same with the end of a line.
pub(crate) fn print_line(answer: impl Display) {
    print(format!("{answer}\n").as_bytes());
}

fn write_to_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

/// Nobody reads any more (`belljar run x.py | head`): there is nothing left to run for. Any other error is handed back.
fn end_without_reader(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(BROKEN_PIPE);
    }
    Err(error)
}
