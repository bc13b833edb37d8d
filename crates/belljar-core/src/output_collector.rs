//! The output of a cell, buffered in order while it runs, within bounds.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kernel::CellObserver;
use crate::mime::{DisplayData, DisplayEvent};
use crate::output::{Output, Stream};

/// The most objects that one cell may display.
const MAX_DISPLAYS: usize = 100;
/// The most updates that one cell may make of its displays: a progress bar makes several each second.
const MAX_UPDATES: usize = 100_000;
/// The most bytes of all that one cell displays, in all representations.
const MAX_DISPLAY_BYTES: usize = 24 << 20;

/// The reason why a cell may not display more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMuchOutput {
    /// The cell has displayed too many objects.
    #[error("a cell displays at most {MAX_DISPLAYS} objects")]
    Displays,
    /// The cell has updated its displays too often.
    #[error("a cell makes at most {MAX_UPDATES} updates of its displays")]
    Updates,
    /// The displays are too large.
    #[error("a cell displays at most {} MB", MAX_DISPLAY_BYTES >> 20)]
    Bytes,
}

/// A collector of one cell's output. Clones share it.
#[derive(Clone)]
pub struct OutputCollector {
    shared: Arc<Mutex<OutputBuffer>>,
    observer: Arc<dyn CellObserver>,
}

/// The output of a cell that waits, for another process.
#[derive(Clone, Serialize, Deserialize)]
pub struct SavedOutput(OutputBuffer);

#[derive(Clone, Default, Serialize, Deserialize)]
struct OutputBuffer {
    pieces: Vec<Piece>,
    displays: usize,
    updates: usize,
    bytes: usize,
}

impl OutputBuffer {
    /// Returns the position of the last display with this `display_id`.
    fn position(&self, wanted: Option<&str>) -> Option<usize> {
        let wanted = wanted?;
        self.pieces.iter().rposition(|piece| matches!(piece, Piece::Other { id: Some(id), .. } if id == wanted))
    }
}

#[derive(Clone, Serialize, Deserialize)]
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

impl OutputCollector {
    /// Creates a collector that passes everything on to `observer` at once.
    pub fn new(observer: Arc<dyn CellObserver>) -> Self {
        Self { shared: Arc::default(), observer }
    }

    /// Records bytes that the cell wrote. They may end inside of a line or a UTF-8 sequence.
    pub fn write(&self, stream: Stream, bytes: &[u8]) {
        self.observer.on_stream(stream, bytes);
        let mut buffer = self.shared.lock();
        match buffer.pieces.last_mut() {
            Some(Piece::Text(last, held)) if *last == stream => held.extend_from_slice(bytes),
            _ => buffer.pieces.push(Piece::Text(stream, bytes.to_vec())),
        }
    }

    /// Records a display event and passes it on to the observer.
    ///
    /// Cleared output stays in [`OutputCollector::take`], unless the backend [clears](Self::clear) it.
    ///
    /// # Errors
    /// Fails if the cell displays too much.
    pub fn publish(&self, event: DisplayEvent) -> Result<(), TooMuchOutput> {
        let (DisplayEvent::Display(display) | DisplayEvent::ExecuteResult(display) | DisplayEvent::Update(display)) =
            &event
        else {
            self.observer.on_display(&event);
            return Ok(());
        };
        let is_update = matches!(event, DisplayEvent::Update(_));
        let size = display.data.values().map(size_of).sum::<usize>() + metadata_size(display);
        let mut buffer = self.shared.lock();
        // An update replaces what is kept, but is passed on like the rest.
        if is_update && buffer.updates >= MAX_UPDATES {
            return Err(TooMuchOutput::Updates);
        }
        if !is_update && buffer.displays >= MAX_DISPLAYS {
            return Err(TooMuchOutput::Displays);
        }
        let position = if is_update { buffer.position(display.display_id.as_deref()) } else { None };
        let replaced = position.map_or(0, |position| buffer.pieces[position].size());
        if buffer.bytes - replaced + size > MAX_DISPLAY_BYTES {
            return Err(TooMuchOutput::Bytes);
        }
        buffer.bytes = buffer.bytes - replaced + size;
        let output = match &event {
            DisplayEvent::ExecuteResult(display) => Output::ExecuteResult(display.data.clone()),
            _ => Output::Display(display.data.clone()),
        };
        let piece = Piece::Other { output, size, id: display.display_id.clone() };
        match position {
            Some(position) => buffer.pieces[position] = piece,
            None => buffer.pieces.push(piece),
        }
        if is_update {
            buffer.updates += 1;
        } else {
            buffer.displays += 1;
        }
        drop(buffer);
        self.observer.on_display(&event);
        Ok(())
    }

    /// Returns a copy of everything so far, from which [`OutputCollector::restored`] goes on.
    pub fn save(&self) -> SavedOutput {
        SavedOutput(self.shared.lock().clone())
    }

    /// Creates a collector that goes on from saved output.
    pub fn restored(observer: Arc<dyn CellObserver>, SavedOutput(buffer): SavedOutput) -> Self {
        Self { shared: Arc::new(Mutex::new(buffer)), observer }
    }

    /// Discards everything so far, as `clear_output` asks.
    pub fn clear(&self) {
        *self.shared.lock() = OutputBuffer::default();
    }

    /// Adds a message of Belljar's own, which the observer has received already.
    pub fn push_notice(&self, text: &str) {
        self.shared.lock().pieces.push(Piece::Text(Stream::Stderr, text.as_bytes().to_vec()));
    }

    /// Removes and returns everything so far, in order; adjacent text of one stream is joined.
    pub fn take(&self) -> Vec<Output> {
        let pieces = std::mem::take(&mut *self.shared.lock()).pieces;
        let output = |piece| match piece {
            Piece::Text(stream, bytes) => Output::Text { stream, text: String::from_utf8_lossy(&bytes).into_owned() },
            Piece::Other { output, .. } => output,
        };
        pieces.into_iter().map(output).collect()
    }
}

/// Returns the size of the metadata, whose length the guest chooses.
fn metadata_size(display: &DisplayData) -> usize {
    let metadata: usize = display.metadata.iter().map(|(name, value)| name.len() + size_of(value)).sum();
    metadata + display.display_id.as_ref().map_or(0, String::len)
}

fn size_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        // JSON is sent as text in the end.
        other => other.to_string().len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::NullObserver;
    use crate::mime::MimeBundle;

    #[test]
    fn adjacent_text_of_one_stream_is_joined_in_order() {
        let collector = OutputCollector::new(Arc::new(NullObserver));
        collector.write(Stream::Stdout, b"a");
        collector.write(Stream::Stdout, b"b");
        collector.write(Stream::Stderr, b"c");
        let bundle = MimeBundle::from([("text/plain".into(), Value::from("x"))]);
        collector
            .publish(DisplayEvent::Display(DisplayData { data: bundle.clone(), ..DisplayData::default() }))
            .unwrap();
        collector.write(Stream::Stdout, b"d");
        let text = |stream, text: &str| Output::Text { stream, text: text.into() };
        let wanted =
            [text(Stream::Stdout, "ab"), text(Stream::Stderr, "c"), Output::Display(bundle), text(Stream::Stdout, "d")];
        assert_eq!(collector.take(), wanted);
    }

    #[test]
    fn an_update_replaces_the_display_of_its_id() {
        let collector = OutputCollector::new(Arc::new(NullObserver));
        let display = |text: &str, id: &str| DisplayData {
            data: MimeBundle::from([("text/plain".into(), Value::from(text))]),
            display_id: Some(id.into()),
            ..DisplayData::default()
        };
        collector.publish(DisplayEvent::Display(display("0 %", "a"))).unwrap();
        collector.publish(DisplayEvent::Display(display("other", "b"))).unwrap();
        for step in 1..1000 {
            collector.publish(DisplayEvent::Update(display(&format!("{step} ‰"), "a"))).unwrap();
        }
        // Another cell displayed it: in this one it is new.
        collector.publish(DisplayEvent::Update(display("late", "c"))).unwrap();
        let shown = |text| Output::Display(display(text, "").data);
        assert_eq!(collector.take(), [shown("999 ‰"), shown("other"), shown("late")]);
    }

    #[test]
    fn updates_cannot_grow_without_bound() {
        let collector = OutputCollector::new(Arc::new(NullObserver));
        let update = |id: usize| {
            DisplayEvent::Update(DisplayData {
                data: MimeBundle::from([("text/plain".into(), Value::from("x".repeat(1 << 20)))]),
                display_id: Some(id.to_string()),
                ..DisplayData::default()
            })
        };
        assert!((0..100).any(|id| collector.publish(update(id)).is_err()));
    }

    #[test]
    fn displays_are_bounded_in_number_and_size() {
        let collector = OutputCollector::new(Arc::new(NullObserver));
        let display = |bytes| {
            let data = MimeBundle::from([("text/plain".into(), Value::from("x".repeat(bytes)))]);
            DisplayEvent::Display(DisplayData { data, ..DisplayData::default() })
        };
        assert_eq!(collector.publish(display(MAX_DISPLAY_BYTES + 1)), Err(TooMuchOutput::Bytes));
        let accepted = (0..1000).filter(|_| collector.publish(display(1)).is_ok()).count();
        assert_eq!(accepted, MAX_DISPLAYS);
    }
}
