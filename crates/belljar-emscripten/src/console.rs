//! Standard output, error and input of one instance.

use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::host::Termination;

/// Which standard stream a piece of output belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Descriptor 1, and whatever was opened as `/dev/stdout`.
    Stdout,
    /// Descriptor 2, and whatever was opened as `/dev/stderr`.
    Stderr,
}

/// Receives output in the order in which it is written, while the program runs.
///
/// Pieces are what the program passed to one `write`: they may end inside a line or a UTF-8 sequence.
pub trait OutputSink: Send {
    /// Takes one piece.
    fn write(&mut self, stream: Stream, bytes: &[u8]);
}

/// Drops all output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Discard;

impl OutputSink for Discard {
    fn write(&mut self, _: Stream, _: &[u8]) {}
}

/// Output of one stream, in one piece.
pub type Piece = (Stream, Vec<u8>);

/// Keeps all output in memory; clones share what was written.
#[derive(Debug, Clone, Default)]
pub struct Capture(Arc<Mutex<Vec<Piece>>>);

impl Capture {
    /// What was written so far, adjacent pieces of one stream joined.
    pub fn take(&self) -> Vec<Piece> {
        std::mem::take(&mut *lock(&self.0))
    }
}

impl OutputSink for Capture {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let mut pieces = lock(&self.0);
        match pieces.last_mut() {
            Some((last, held)) if *last == stream => held.extend_from_slice(bytes),
            _ => pieces.push((stream, bytes.to_vec())),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The three standard streams.
pub struct Console {
    sink: Box<dyn OutputSink>,
    input: Box<dyn Read + Send>,
    written: u64,
    limit: u64,
}

impl Console {
    /// Output to `sink`, at most `limit` bytes of it; input from `input`.
    pub fn new(sink: Box<dyn OutputSink>, input: Box<dyn Read + Send>, limit: u64) -> Self {
        Self { sink, input, written: 0, limit }
    }

    /// Output to nowhere, input at its end.
    pub fn closed() -> Self {
        Self::new(Box::new(Discard), Box::new(std::io::empty()), u64::MAX)
    }

    /// Passes on a write of the guest; what exceeds the limit is cut off and ends the program.
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

    /// Reads standard input; 0 at its end or when the host's read fails.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        loop {
            match self.input.read(buffer) {
                Ok(count) => return count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return 0,
            }
        }
    }
}
