//! The output of code while it runs: stored, and sent to the client.

use std::sync::Arc;

use belljar_core::Stream;
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::LoggingLevel;

use crate::lines::LineBuffer;
use crate::notifier::ClientNotifier;

/// The output of code: stored, and sent to the client line by line. Clones share it.
#[derive(Clone)]
pub(crate) struct CodeOutput(Arc<Mutex<OutputBuffer>>);

struct OutputBuffer {
    /// The stored output; `None` if it is stored elsewhere.
    all: Option<Vec<u8>>,
    notifier: Option<ClientNotifier>,
    stdout: LineBuffer,
    stderr: LineBuffer,
}

impl OutputBuffer {
    /// Sends incomplete last lines.
    fn finish_lines(&mut self) {
        let Self { notifier, stdout, stderr, .. } = self;
        if let Some(notifier) = notifier {
            stdout.finish(|line| notifier.log(LoggingLevel::Info, "python", line));
            stderr.finish(|line| notifier.log(LoggingLevel::Warning, "python", line));
        }
    }
}

impl CodeOutput {
    pub(crate) fn new(notifier: &ClientNotifier) -> Self {
        Self::with(notifier, Some(Vec::new()))
    }

    /// Creates an output that is sent to the client and not stored.
    pub(crate) fn notify_only(notifier: &ClientNotifier) -> Self {
        Self::with(notifier, None)
    }

    fn with(notifier: &ClientNotifier, all: Option<Vec<u8>>) -> Self {
        let notifier = notifier.wants_output().then(|| notifier.clone());
        let buffer = OutputBuffer { all, notifier, stdout: LineBuffer::default(), stderr: LineBuffer::default() };
        Self(Arc::new(Mutex::new(buffer)))
    }

    /// Sends incomplete last lines and returns the stored output, in order. Must be called when the code has ended.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut buffer = self.buffer();
        buffer.finish_lines();
        buffer.all.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Makes another call the receiver of the output.
    pub(crate) fn attach(&self, notifier: &ClientNotifier) {
        self.buffer().notifier = notifier.wants_output().then(|| notifier.clone());
    }

    /// Sends incomplete last lines, and sends nothing further until [`CodeOutput::attach`] is called.
    pub(crate) fn detach(&self) {
        let mut buffer = self.buffer();
        buffer.finish_lines();
        buffer.notifier = None;
    }

    /// Handles output that code has written.
    pub(crate) fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        let mut buffer = self.buffer();
        let OutputBuffer { all, notifier, stdout, stderr } = &mut *buffer;
        if let Some(all) = all {
            all.extend_from_slice(bytes);
        }
        let Some(notifier) = notifier else { return };
        let (lines, level) = match stream {
            Stream::Stdout => (stdout, LoggingLevel::Info),
            Stream::Stderr => (stderr, LoggingLevel::Warning),
        };
        lines.push(bytes, |line| notifier.log(level, "python", line));
        if let Some(bar) = lines.progress_bar() {
            notifier.part(bar.done, bar.total, || bar.title.clone());
        }
    }

    fn buffer(&self) -> MutexGuard<'_, OutputBuffer> {
        self.0.lock()
    }
}
