//! What a cell has shown so far, made of what its kernel says.

use std::sync::Arc;

use belljar_core::Collector;
use belljar_core::kernel::{Audience, Output, Showing, Stream};
use serde_json::Value;

use crate::native::content::Said;

/// The outputs of a cell.
pub(crate) struct Shown {
    outputs: Collector,
    /// Bytes of text that may be written.
    most: u64,
    /// Bytes of text that were.
    written: u64,
    /// Whether the next output is to replace all before it.
    clears: bool,
    /// Whether it was said that something is not shown.
    noted: bool,
}

impl Shown {
    /// Nothing yet. At most so many bytes of text are kept.
    pub(crate) fn new(audience: Arc<dyn Audience>, most: u64) -> Self {
        Self { outputs: Collector::new(audience), most, written: 0, clears: false, noted: false }
    }

    /// Adds what the kernel said. What is no output leaves no trace.
    pub(crate) fn add(&mut self, said: Said) {
        if let Said::Cleared { wait } = said {
            // Nothing is refused of that.
            let _ = self.outputs.showing(Showing::Clear { wait });
            self.clears = wait;
            if !wait {
                self.outputs.clear();
            }
            return;
        }
        if std::mem::take(&mut self.clears) {
            self.outputs.clear();
        }
        let added = match said {
            Said::Wrote(stream, text) => {
                self.write(stream, &text);
                Ok(())
            }
            Said::Shown(display) => self.outputs.showing(Showing::Display(display)),
            // Where a cell before has displayed it, that one's answer was given: here it is new.
            Said::Updated(display) => self.outputs.showing(Showing::Update(display)),
            Said::Value(display) => self.outputs.showing(Showing::Value(display)),
            Said::Raised(_) | Said::Cleared { .. } | Said::Busy | Said::Idle => Ok(()),
        };
        if let Err(reason) = added {
            // Once: of such things there may be millions.
            if !std::mem::replace(&mut self.noted, true) {
                self.outputs.write(Stream::Stderr, format!("[not shown: {reason}]\n").as_bytes());
            }
        }
    }

    /// Writes what is meant for a pager: help, source code.
    pub(crate) fn add_pages(&mut self, payloads: &[Value]) {
        let pages = payloads.iter().filter(|payload| payload["source"] == "page");
        for text in pages.filter_map(|page| page["data"]["text/plain"].as_str()) {
            self.write(Stream::Stdout, &format!("{}\n", text.trim_end_matches('\n')));
        }
    }

    fn write(&mut self, stream: Stream, text: &str) {
        self.written += text.len() as u64;
        if !self.is_too_much() {
            self.outputs.write(stream, text.as_bytes());
        }
    }

    /// Whether more was written than may be.
    pub(crate) fn is_too_much(&self) -> bool {
        self.written > self.most
    }

    /// All outputs, in order.
    pub(crate) fn take(&self) -> Vec<Output> {
        self.outputs.take()
    }
}
