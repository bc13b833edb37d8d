//! What a cell writes and shows, collected in its order while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::kernel::{Audience, Display, Output, Showing, Stream};

/// Things that one cell may show.
const MOST_SHOWN: usize = 100;
/// Updates that one cell may make of what it has shown: a progress bar makes some each second.
const MOST_UPDATES: usize = 100_000;
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
    updates: usize,
    bytes: usize,
}

impl Collected {
    /// Where the last thing of this name is.
    fn named(&self, wanted: Option<&str>) -> Option<usize> {
        let wanted = wanted?;
        self.pieces.iter().rposition(|piece| matches!(piece, Piece::Other { id: Some(id), .. } if id == wanted))
    }
}

enum Piece {
    Text(Stream, Vec<u8>),
    Other { output: Output, size: usize, id: Option<String> },
}

impl Piece {
    fn size(&self) -> usize {
        match self {
            Self::Text(_, bytes) => bytes.len(),
            Self::Other { size, .. } => *size,
        }
    }
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
        let display = |data| Display { data, ..Display::default() };
        match output {
            Output::Shown(data) => self.showing(Showing::Display(display(data))),
            Output::Value(data) => self.showing(Showing::Value(display(data))),
            Output::Text { .. } => Ok(()),
        }
    }

    /// Takes something shown that may have a name, update what has one, or clear; the audience sees it at once.
    ///
    /// What is cleared stays in [`Collector::take`], unless the backend [clears](Self::clear) it.
    ///
    /// # Errors
    /// When that is too much, in words.
    pub fn showing(&self, showing: Showing) -> Result<(), String> {
        let (Showing::Display(display) | Showing::Value(display) | Showing::Update(display)) = &showing else {
            self.audience.showed(&showing);
            return Ok(());
        };
        let updates = matches!(showing, Showing::Update(_));
        let size = display.data.values().map(size_of).sum::<usize>() + metadata_size(display);
        let mut collected = self.lock();
        // An update takes nothing more of what is kept, but is passed on like the rest.
        let most = if updates { MOST_UPDATES } else { MOST_SHOWN };
        let count = if updates { collected.updates } else { collected.shown };
        if count >= most {
            let what = if updates { "updates" } else { "shows" };
            return Err(format!("a cell {what} at most {most} things"));
        }
        let place = if updates { collected.named(display.id.as_deref()) } else { None };
        let replaced = place.map_or(0, |place| collected.pieces[place].size());
        if collected.bytes - replaced + size > MOST_BYTES {
            return Err(format!("a cell shows at most {MOST_SHOWN} things, of {} MB together", MOST_BYTES >> 20));
        }
        collected.bytes = collected.bytes - replaced + size;
        let output = match &showing {
            Showing::Value(display) => Output::Value(display.data.clone()),
            _ => Output::Shown(display.data.clone()),
        };
        let piece = Piece::Other { output, size, id: display.id.clone() };
        match place {
            Some(place) => collected.pieces[place] = piece,
            None => collected.pieces.push(piece),
        }
        if updates {
            collected.updates += 1;
        } else {
            collected.shown += 1;
        }
        drop(collected);
        self.audience.showed(&showing);
        Ok(())
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
            Piece::Other { output, .. } => output,
        };
        pieces.into_iter().map(output).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is said about the forms counts too: it is as long as the guest likes.
fn metadata_size(display: &Display) -> usize {
    let metadata: usize = display.metadata.iter().map(|(name, value)| name.len() + size_of(value)).sum();
    metadata + display.id.as_ref().map_or(0, String::len)
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
    fn an_update_takes_the_place_of_what_has_its_name() {
        let collector = Collector::new(Arc::new(Silent));
        let display = |text: &str, id: &str| Display {
            data: Bundle::from([("text/plain".into(), Value::from(text))]),
            id: Some(id.into()),
            ..Display::default()
        };
        collector.showing(Showing::Display(display("0 %", "a"))).unwrap();
        collector.showing(Showing::Display(display("other", "b"))).unwrap();
        for step in 1..1000 {
            collector.showing(Showing::Update(display(&format!("{step} ‰"), "a"))).unwrap();
        }
        // It was displayed by another cell: here it is new.
        collector.showing(Showing::Update(display("late", "c"))).unwrap();
        let shown = |text| Output::Shown(display(text, "").data);
        assert_eq!(collector.take(), [shown("999 ‰"), shown("other"), shown("late")]);
    }

    #[test]
    fn updates_cannot_grow_without_bound() {
        let collector = Collector::new(Arc::new(Silent));
        let update = |id: usize| {
            Showing::Update(Display {
                data: Bundle::from([("text/plain".into(), Value::from("x".repeat(1 << 20)))]),
                id: Some(id.to_string()),
                ..Display::default()
            })
        };
        assert!((0..100).any(|id| collector.showing(update(id)).is_err()));
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
