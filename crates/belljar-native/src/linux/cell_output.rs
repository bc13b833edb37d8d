//! Collects a cell's output from its kernel's iopub messages, and removes secrets from its streams.

use std::sync::Arc;

use belljar_core::kernel::CellObserver;
use belljar_core::mime::DisplayEvent;
use belljar_core::{Output, OutputCollector, Stream};
use belljar_network::{Scrubber, StreamScrubber};
use serde_json::Value;

use crate::linux::content::IopubMessage;

/// The output of a cell so far.
pub(crate) struct CellOutput {
    outputs: OutputCollector,
    /// Remove secrets that arrive in several messages. Possible beginnings are held back until more is written.
    stdout: StreamScrubber,
    stderr: StreamScrubber,
    /// The limit of written text, in bytes.
    max_bytes: u64,
    /// The size of the text that was written, in bytes.
    written_bytes: u64,
    /// Set after `clear_output(wait=True)`: the next output replaces all before it.
    clears_on_next: bool,
    /// Set once the cell was notified of an output that is not shown.
    has_notice: bool,
}

impl CellOutput {
    /// Creates an empty output, which keeps at most `max_bytes` of text, without secrets.
    pub(crate) fn new(audience: Arc<dyn CellObserver>, max_bytes: u64, scrubber: &Scrubber) -> Self {
        Self {
            outputs: OutputCollector::new(audience),
            stdout: scrubber.stream(),
            stderr: scrubber.stream(),
            max_bytes,
            written_bytes: 0,
            clears_on_next: false,
            has_notice: false,
        }
    }

    /// Adds a message's output. Messages without output are ignored.
    pub(crate) fn add(&mut self, message: IopubMessage) {
        if let IopubMessage::ClearOutput { wait } = message {
            // Clearing is never refused.
            let _ = self.outputs.publish(DisplayEvent::Clear { wait });
            self.clears_on_next = wait;
            if !wait {
                self.outputs.clear();
            }
            return;
        }
        if std::mem::take(&mut self.clears_on_next) {
            self.outputs.clear();
        }
        let added = match message {
            IopubMessage::Stream(stream, text) => {
                self.write(stream, &text);
                Ok(())
            }
            IopubMessage::Display(display) => self.outputs.publish(DisplayEvent::Display(display)),
            // If an earlier cell displayed it, that cell's result was returned already: here it is a new output.
            IopubMessage::UpdateDisplay(display) => self.outputs.publish(DisplayEvent::Update(display)),
            IopubMessage::ExecuteResult(display) => self.outputs.publish(DisplayEvent::ExecuteResult(display)),
            IopubMessage::Error(_) | IopubMessage::ClearOutput { .. } | IopubMessage::Busy | IopubMessage::Idle => {
                Ok(())
            }
        };
        if let Err(reason) = added {
            // Only once: a cell may display millions of objects.
            if !std::mem::replace(&mut self.has_notice, true) {
                self.outputs.write(Stream::Stderr, format!("[not shown: {reason}]\n").as_bytes());
            }
        }
    }

    /// Writes the text of payloads that are meant for a pager: help, source code.
    pub(crate) fn add_pages(&mut self, payloads: &[Value]) {
        let pages = payloads.iter().filter(|payload| payload["source"] == "page");
        for text in pages.filter_map(|page| page["data"]["text/plain"].as_str()) {
            self.write(Stream::Stdout, &format!("{}\n", text.trim_end_matches('\n')));
        }
    }

    fn write(&mut self, stream: Stream, text: &str) {
        self.written_bytes += text.len() as u64;
        if !self.exceeds_limit() {
            let scrubber = match stream {
                Stream::Stdout => &mut self.stdout,
                Stream::Stderr => &mut self.stderr,
            };
            let scrubbed = scrubber.push(text.as_bytes());
            self.pass(stream, &scrubbed);
        }
    }

    fn pass(&self, stream: Stream, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.outputs.write(stream, bytes);
        }
    }

    /// Returns whether the cell wrote more than its limit.
    pub(crate) fn exceeds_limit(&self) -> bool {
        self.written_bytes > self.max_bytes
    }

    /// Returns all outputs, in order.
    pub(crate) fn take(&mut self) -> Vec<Output> {
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        self.pass(Stream::Stdout, &stdout);
        self.pass(Stream::Stderr, &stderr);
        self.outputs.take()
    }
}
