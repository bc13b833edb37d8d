//! What a cell writes and shows, collected in its order while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::kernel::{Audience, Output, Stream};

/// Things that one cell may show.
const MOST_SHOWN: usize = 100;
/// Bytes of all that one cell shows, in all forms.
const MOST_BYTES: usize = 24 << 20;

/// Takes what one cell gives. Clones share it.
#[derive(Clone)]
pub struct Collector {
    shared: Arc<Mutex<Collected>>,
    audience: Arc<dyn Audience>,
}

#[derive(Default)]
struct Collected {
    pieces: Vec<Piece>,
    shown: usize,
    bytes: usize,
}

enum Piece {
    Text(Stream, Vec<u8>),
    Other(Output),
}

impl Collector {
    /// Collects for this audience, which hears at once what is written.
    pub fn new(audience: Arc<dyn Audience>) -> Self {
        Self { shared: Arc::default(), audience }
    }

    /// Takes what was written. Pieces may end inside of a line or a UTF-8 sequence.
    pub fn write(&self, stream: Stream, bytes: &[u8]) {
        self.audience.wrote(stream, bytes);
        let mut collected = self.lock();
        match collected.pieces.last_mut() {
            Some(Piece::Text(last, held)) if *last == stream => held.extend_from_slice(bytes),
            _ => collected.pieces.push(Piece::Text(stream, bytes.to_vec())),
        }
    }

    /// Takes something shown, or refuses it.
    ///
    /// # Errors
    /// When that is too much, in words.
    pub fn show(&self, output: Output) -> Result<(), String> {
        let (Output::Shown(bundle) | Output::Value(bundle)) = &output else { return Ok(()) };
        let size: usize = bundle.values().map(size_of).sum();
        let mut collected = self.lock();
        if collected.shown >= MOST_SHOWN || collected.bytes + size > MOST_BYTES {
            return Err(format!("a cell shows at most {MOST_SHOWN} things, of {} MB together", MOST_BYTES >> 20));
        }
        collected.shown += 1;
        collected.bytes += size;
        collected.pieces.push(Piece::Other(output));
        Ok(())
    }

    /// Adds a line of our own, which the audience has heard.
    pub fn note(&self, text: &str) {
        self.lock().pieces.push(Piece::Text(Stream::Stderr, text.as_bytes().to_vec()));
    }

    /// Everything so far, in order; adjacent text of one stream is joined.
    pub fn take(&self) -> Vec<Output> {
        let pieces = std::mem::take(&mut *self.lock()).pieces;
        let output = |piece| match piece {
            Piece::Text(stream, bytes) => Output::Text { stream, text: String::from_utf8_lossy(&bytes).into_owned() },
            Piece::Other(output) => output,
        };
        pieces.into_iter().map(output).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        // JSON is passed on as text, sooner or later.
        other => other.to_string().len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Bundle, Silent};

    #[test]
    fn adjacent_text_of_one_stream_is_joined_and_the_order_kept() {
        let collector = Collector::new(Arc::new(Silent));
        collector.write(Stream::Stdout, b"a");
        collector.write(Stream::Stdout, b"b");
        collector.write(Stream::Stderr, b"c");
        let bundle = Bundle::from([("text/plain".into(), Value::from("x"))]);
        collector.show(Output::Shown(bundle.clone())).unwrap();
        collector.write(Stream::Stdout, b"d");
        let text = |stream, text: &str| Output::Text { stream, text: text.into() };
        let wanted =
            [text(Stream::Stdout, "ab"), text(Stream::Stderr, "c"), Output::Shown(bundle), text(Stream::Stdout, "d")];
        assert_eq!(collector.take(), wanted);
    }

    #[test]
    fn there_is_an_end_to_what_is_shown() {
        let collector = Collector::new(Arc::new(Silent));
        let bundle = |bytes| Bundle::from([("text/plain".into(), Value::from("x".repeat(bytes)))]);
        assert!(collector.show(Output::Shown(bundle(MOST_BYTES + 1))).is_err());
        let taken = (0..1000).filter(|_| collector.show(Output::Shown(bundle(1))).is_ok()).count();
        assert_eq!(taken, MOST_SHOWN);
    }
}
