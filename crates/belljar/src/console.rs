//! Passes the program's output on to this process's standard streams, as it is written.

use std::io::{ErrorKind, Write};

use belljar_emscripten::console::{OutputSink, Stream};

/// Exit status of a program whose reader went away, as shells show SIGPIPE.
const BROKEN_PIPE: i32 = 141;

/// Writes each piece at once: a program may flush after half a line, and only it knows when it did.
pub(crate) struct Terminal;

impl OutputSink for Terminal {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let result = match stream {
            Stream::Stdout => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            Stream::Stderr => std::io::stderr().lock().write_all(bytes),
        };
        // Nobody reads any more (`belljar run x.py | head`): there is nothing left to run for.
        if result.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            std::process::exit(BROKEN_PIPE);
        }
    }
}
