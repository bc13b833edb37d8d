//! Standard output, error and input of one instance.

use std::io::Read;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::termination::Termination;

/// The standard stream that a chunk of output belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Descriptor 1, and descriptors opened on `/dev/stdout`.
    Stdout,
    /// Descriptor 2, and descriptors opened on `/dev/stderr`.
    Stderr,
}

/// A receiver of output, in the order in which the program writes it, while the program runs.
///
/// A chunk is the data that the program passed to one `write`: it may end inside a line or a UTF-8 sequence.
pub trait OutputSink: Send {
    /// Receives one chunk.
    fn write(&mut self, stream: Stream, bytes: &[u8]);

    /// Passes on what a sink has held back, since the program writes nothing more for now.
    fn flush(&mut self) {}
}

/// A sink that discards all output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Discard;

impl OutputSink for Discard {
    fn write(&mut self, _: Stream, _: &[u8]) {}
}

/// A chunk of output of one stream.
pub type OutputChunk = (Stream, Vec<u8>);

/// A sink that stores all output in memory; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Capture(Arc<Mutex<Vec<OutputChunk>>>);

impl Capture {
    /// Takes the output so far. Adjacent chunks of one stream are joined.
    pub fn take(&self) -> Vec<OutputChunk> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl OutputSink for Capture {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let mut chunks = self.0.lock();
        match chunks.last_mut() {
            Some((last, chunk)) if *last == stream => chunk.extend_from_slice(bytes),
            _ => chunks.push((stream, bytes.to_vec())),
        }
    }
}

/// The three standard streams.
pub struct Console {
    sink: Box<dyn OutputSink>,
    input: Box<dyn Read + Send>,
    written: u64,
    limit: u64,
    was_read: bool,
}

impl Console {
    /// Creates a console that writes at most `limit` bytes to `sink` and reads from `input`.
    pub fn new(sink: Box<dyn OutputSink>, input: Box<dyn Read + Send>, limit: u64) -> Self {
        Self { sink, input, written: 0, limit, was_read: false }
    }

    /// Returns whether the guest has written output or read input.
    pub fn was_used(&self) -> bool {
        self.written > 0 || self.was_read
    }

    /// Creates a console that discards output and whose input is at its end.
    pub fn closed() -> Self {
        Self::new(Box::new(Discard), Box::new(std::io::empty()), u64::MAX)
    }

    /// Replaces the sink by one that passes output on to it.
    pub fn wrap_sink(&mut self, wrap: impl FnOnce(Box<dyn OutputSink>) -> Box<dyn OutputSink>) {
        let sink = std::mem::replace(&mut self.sink, Box::new(Discard));
        self.sink = wrap(sink);
    }

    /// Passes on what the sink has held back.
    pub fn flush(&mut self) {
        self.sink.flush();
    }

    /// Writes output of the guest. Data beyond the limit is cut off and ends the program.
    pub fn write(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), Termination> {
        let left = usize::try_from(self.limit - self.written).unwrap_or(usize::MAX);
        let passed = &bytes[..bytes.len().min(left)];
        self.written += passed.len() as u64;
        self.sink.write(stream, passed);
        if passed.len() < bytes.len() {
            return Err(Termination::OutputLimit { limit: self.limit });
        }
        Ok(())
    }

    /// Reads standard input. Returns 0 at its end, or if the host fails to read.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        self.was_read = true;
        loop {
            match self.input.read(buffer) {
                Ok(count) => return count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return 0,
            }
        }
    }
}
