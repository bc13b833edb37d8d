//! Removal of secrets from what code writes. Code does not have them, unless it has got them in a way that the network
//! does not cover: see docs/network.md.

use belljar_emscripten::console::{OutputSink, Stream};
use belljar_network::{Scrubber, StreamScrubber};

/// Removes secrets from output. Possible beginnings are held back until more is written.
pub(crate) struct ScrubbingSink {
    inner: Box<dyn OutputSink>,
    stdout: StreamScrubber,
    stderr: StreamScrubber,
}

impl ScrubbingSink {
    pub(crate) fn new(scrubber: &Scrubber, inner: Box<dyn OutputSink>) -> Self {
        Self { inner, stdout: scrubber.stream(), stderr: scrubber.stream() }
    }

    fn pass(&mut self, stream: Stream, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.inner.write(stream, bytes);
        }
    }
}

impl OutputSink for ScrubbingSink {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let scrubbed = match stream {
            Stream::Stdout => self.stdout.push(bytes),
            Stream::Stderr => self.stderr.push(bytes),
        };
        self.pass(stream, &scrubbed);
    }

    fn flush(&mut self) {
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        self.pass(Stream::Stdout, &stdout);
        self.pass(Stream::Stderr, &stderr);
        self.inner.flush();
    }
}
