//! What a cell writes and shows, collected in its order while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::kernel::{Audience, Bundle, Output, Stream};

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
    Other(Output, Option<String>),
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
        self.show_as(output, None)
    }

    /// The same, under a name by which it can be [replaced](Self::replace).
    ///
    /// # Errors
    /// When that is too much, in words.
    pub fn show_as(&self, output: Output, name: Option<String>) -> Result<(), String> {
        let (Output::Shown(bundle) | Output::Value(bundle)) = &output else { return Ok(()) };
        let size = size_of_all(bundle);
        let mut collected = self.lock();
        if collected.shown >= MOST_SHOWN || collected.bytes + size > MOST_BYTES {
            return Err(too_much());
        }
        collected.shown += 1;
        collected.bytes += size;
        collected.pieces.push(Piece::Other(output, name));
        Ok(())
    }

    /// Puts these forms in place of all that was shown under a name; answers whether there was any.
    ///
    /// # Errors
    /// When that is too much, in words. What was shown stays then.
    pub fn replace(&self, name: &str, forms: &Bundle) -> Result<bool, String> {
        let size = size_of_all(forms);
        let mut collected = self.lock();
        let Collected { pieces, bytes, .. } = &mut *collected;
        let mut found = false;
        for piece in pieces {
            if let Piece::Other(Output::Shown(shown) | Output::Value(shown), Some(own)) = piece
                && own == name
            {
                let without = *bytes - size_of_all(shown);
                if without + size > MOST_BYTES {
                    return Err(too_much());
                }
                *bytes = without + size;
                shown.clone_from(forms);
                found = true;
            }
        }
        Ok(found)
    }

    /// Forgets all that came so far, as `clear_output` asks.
    pub fn clear(&self) {
        *self.lock() = Collected::default();
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
            Piece::Other(output, _) => output,
        };
        pieces.into_iter().map(output).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_much() -> String {
    format!("a cell shows at most {MOST_SHOWN} things, of {} MB together", MOST_BYTES >> 20)
}

fn size_of_all(forms: &Bundle) -> usize {
    forms.values().map(size_of).sum()
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
    use crate::kernel::Silent;

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

    #[test]
    fn what_was_shown_under_a_name_is_replaced_where_it_stands() {
        let collector = Collector::new(Arc::new(Silent));
        let forms = |text: &str| Bundle::from([("text/plain".into(), Value::from(text))]);
        collector.show_as(Output::Shown(forms("old")), Some("a".into())).unwrap();
        collector.show(Output::Shown(forms("other"))).unwrap();
        assert_eq!(collector.replace("a", &forms("new")), Ok(true));
        assert_eq!(collector.replace("b", &forms("new")), Ok(false));
        assert!(collector.replace("a", &forms(&"x".repeat(MOST_BYTES))).is_err());
        assert_eq!(collector.take(), [Output::Shown(forms("new")), Output::Shown(forms("other"))]);
        collector.write(Stream::Stdout, b"x");
        collector.clear();
        assert_eq!(collector.take(), []);
    }
}
