//! What a cell writes and shows: collected in its order while it runs, and cut to what a model reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_emscripten::console::{OutputSink, Stream};
use serde_json::Value;

use crate::kernel::{Audience, Bundle, Output};

/// Things that one cell may show.
const MOST_SHOWN: usize = 100;
/// Bytes of all that one cell shows, in all forms.
const MOST_BYTES: usize = 24 << 20;
/// Bytes of text that are passed on whole.
pub(crate) const WHOLE: usize = 100_000;
/// Bytes kept at the beginning and at the end of longer text.
const HEAD: usize = 60_000;
const TAIL: usize = 30_000;

/// Takes what one cell gives. Clones share it.
#[derive(Clone)]
pub(crate) struct Collector {
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
    pub(crate) fn new(audience: Arc<dyn Audience>) -> Self {
        Self { shared: Arc::default(), audience }
    }

    /// Takes something shown, or refuses it.
    pub(crate) fn show(&self, output: Output) -> Result<(), String> {
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
    pub(crate) fn note(&self, text: &str) {
        self.lock().pieces.push(Piece::Text(Stream::Stderr, text.as_bytes().to_vec()));
    }

    /// Everything so far, in order; adjacent text of one stream is joined.
    pub(crate) fn take(&self) -> Vec<Output> {
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

impl OutputSink for Collector {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        self.audience.wrote(stream, bytes);
        let mut collected = self.lock();
        match collected.pieces.last_mut() {
            Some(Piece::Text(last, held)) if *last == stream => held.extend_from_slice(bytes),
            _ => collected.pieces.push(Piece::Text(stream, bytes.to_vec())),
        }
    }
}

fn size_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        // JSON is passed on as text, sooner or later.
        other => other.to_string().len(),
    }
}

/// All text that was written, when that is more than is passed on.
pub(crate) fn overlong(outputs: &[Output]) -> Option<String> {
    let texts = || {
        outputs
            .iter()
            .filter_map(|output| if let Output::Text { text, .. } = output { Some(text.as_str()) } else { None })
    };
    (texts().map(str::len).sum::<usize>() > WHOLE).then(|| texts().collect())
}

/// Leaves the beginning and the end of the text that was written, and `note` between them.
pub(crate) fn cut(outputs: &mut Vec<Output>, note: &str) {
    let total: usize =
        outputs.iter().map(|output| if let Output::Text { text, .. } = output { text.len() } else { 0 }).sum();
    let (mut at, mut noted) = (0, false);
    for output in outputs.iter_mut() {
        let Output::Text { text, .. } = output else { continue };
        let (begin, end) = (at, at + text.len());
        at = end;
        let head = floor(text, HEAD.saturating_sub(begin).min(text.len()));
        let tail = ceil(text, (total - TAIL).saturating_sub(begin).min(text.len()));
        if head >= tail {
            continue;
        }
        let middle = if noted { "" } else { note };
        noted = true;
        *text = format!("{}{middle}{}", &text[..head], &text[tail..]);
    }
    outputs.retain(|output| !matches!(output, Output::Text { text, .. } if text.is_empty()));
}

/// A text of at most [`WHOLE`] bytes, with `note` in place of its middle where it is longer.
pub(crate) fn cut_text(text: &str, note: &str) -> String {
    let (head, tail) = (floor(text, HEAD), ceil(text, text.len() - TAIL));
    format!("{}{note}{}", &text[..head], &text[tail..])
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// The text that people read of something shown.
pub(crate) fn plain(bundle: &Bundle) -> Option<&str> {
    bundle.get("text/plain").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Silent;

    #[test]
    fn adjacent_text_of_one_stream_is_joined_and_the_order_kept() {
        let mut collector = Collector::new(Arc::new(Silent));
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

    #[test]
    fn long_text_keeps_its_beginning_and_its_end_across_pieces() {
        let text = |text: String| Output::Text { stream: Stream::Stdout, text };
        let mut outputs: Vec<Output> = (0..30).map(|n| text(format!("<{n}>{}", "é".repeat(5000)))).collect();
        let whole = overlong(&outputs).unwrap();
        assert_eq!(whole.matches('<').count(), 30);
        cut(&mut outputs, "[cut]");
        let joined: String = outputs
            .iter()
            .filter_map(|output| if let Output::Text { text, .. } = output { Some(text.as_str()) } else { None })
            .collect();
        assert!(joined.len() <= WHOLE && joined.starts_with("<0>") && joined.contains("<29>"), "{}", joined.len());
        assert_eq!(joined.matches("[cut]").count(), 1);
        assert_eq!(overlong(&outputs), None);
    }
}
