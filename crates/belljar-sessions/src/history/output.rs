//! The output of a recorded cell, within bounds.

use std::borrow::Cow;

use belljar_core::mime::{DisplayData, MimeBundle, text_plain};
use belljar_core::{Output, Stream};
use serde_json::Value;

/// The maximum number of bytes of the text that a cell has written. Of longer text, the end is kept.
const MAX_TEXT: usize = 256 << 10;
/// The maximum number of pieces of output. A piece of text ends where the code writes to the other stream.
const MAX_PIECES: usize = 20_000;
/// The number of bytes that a piece takes in addition to its text.
const PIECE_BYTES: usize = 64;
/// The maximum number of displays of a cell.
const MAX_DISPLAYS: usize = 100;
/// The maximum number of bytes of the displays of a cell.
const MAX_DISPLAY_BYTES: usize = 8 << 20;
/// The maximum size of one representation of a display, in bytes: of images, of HTML, and of others.
const MAX_IMAGE: usize = 4 << 20;
const MAX_HTML: usize = 1 << 20;
const MAX_OTHER: usize = 64 << 10;
/// The type of plain text.
const TEXT_PLAIN: &str = "text/plain";

/// Output within bounds.
#[derive(Default)]
pub(super) struct BoundedOutput {
    outputs: Vec<Output>,
    text_bytes: usize,
    displays: usize,
    display_bytes: usize,
    /// The displays that can be updated, in the order of `outputs`.
    named: Vec<NamedDisplay>,
    /// The number of bytes, displays and updates of displays that were left out.
    pub(super) omitted: u64,
    /// The number of bytes of text that was written in all.
    pub(super) written: u64,
    /// Bytes of an incomplete character, of standard output and standard error.
    incomplete: [Vec<u8>; 2],
}

/// A display that later events update by its ID.
struct NamedDisplay {
    id: Box<str>,
    /// The position in the outputs.
    at: usize,
    /// The bytes of its representations and its ID.
    size: usize,
}

impl BoundedOutput {
    /// Creates the output of a cell that has ended.
    pub(super) fn from_outputs(outputs: &[Output]) -> Self {
        let mut bounded = Self::default();
        for output in outputs {
            match output {
                Output::Text { stream, text } => bounded.push_text(*stream, text),
                Output::Display(bundle) => bounded.push_bundle(bundle, Output::Display),
                Output::ExecuteResult(bundle) => bounded.push_bundle(bundle, Output::ExecuteResult),
            }
        }
        bounded
    }

    pub(super) fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> usize {
        self.text_bytes + self.display_bytes + PIECE_BYTES * self.outputs.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Self { written: self.written, ..Self::default() };
    }

    /// Leaves out all output so far.
    pub(super) fn omit(&mut self) {
        let displays = self.outputs.iter().filter(|output| !matches!(output, Output::Text { .. })).count();
        self.omitted += (self.text_bytes + displays) as u64;
        (self.outputs, self.named) = (Vec::new(), Vec::new());
        (self.text_bytes, self.display_bytes) = (0, 0);
    }

    /// Adds bytes that the code has written. Returns the text in them that is complete.
    pub(super) fn push_bytes<'a>(&mut self, stream: Stream, bytes: &'a [u8]) -> Cow<'a, str> {
        let pending = match (&mut self.incomplete, stream) {
            ([pending, _], Stream::Stdout) | ([_, pending], Stream::Stderr) => pending,
        };
        if pending.is_empty()
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            self.push_text(stream, text);
            return Cow::Borrowed(text);
        }
        pending.extend_from_slice(bytes);
        let incomplete = incomplete_length(pending);
        let rest = pending.split_off(pending.len() - incomplete);
        let text = String::from_utf8_lossy(&std::mem::replace(pending, rest)).into_owned();
        self.push_text(stream, &text);
        Cow::Owned(text)
    }

    fn push_text(&mut self, stream: Stream, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.outputs.last_mut() {
            Some(Output::Text { stream: last, text: all }) if *last == stream => all.push_str(text),
            _ => self.outputs.push(Output::Text { stream, text: text.to_owned() }),
        }
        self.text_bytes += text.len();
        self.written += text.len() as u64;
        // Twice the maximum is allowed in between, so that text is moved rarely.
        if self.text_bytes > 2 * MAX_TEXT || self.outputs.len() > MAX_PIECES {
            self.drop_oldest_text();
        }
    }

    fn drop_oldest_text(&mut self) {
        let mut surplus = self.text_bytes.saturating_sub(MAX_TEXT);
        let is_in_pieces = self.outputs.len() > MAX_PIECES;
        let mut pieces = if is_in_pieces { self.outputs.len() - MAX_PIECES / 2 } else { 0 };
        for output in &mut self.outputs {
            let Output::Text { text, .. } = output else { continue };
            if surplus == 0 && pieces == 0 {
                break;
            }
            let least = if pieces > 0 { text.len() } else { surplus.min(text.len()) };
            let cut = (least..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
            text.drain(..cut);
            self.text_bytes -= cut;
            self.omitted += cut as u64;
            surplus = surplus.saturating_sub(cut);
            pieces = pieces.saturating_sub(1);
        }
        let is_empty = |output: &Output| matches!(output, Output::Text { text, .. } if text.is_empty());
        for display in &mut self.named {
            let before = self.outputs.get(..display.at).unwrap_or_default();
            display.at -= before.iter().filter(|output| is_empty(output)).count();
        }
        self.outputs.retain(|output| !is_empty(output));
    }

    pub(super) fn push_bundle(&mut self, bundle: &MimeBundle, form: fn(MimeBundle) -> Output) {
        self.push_bounded(bounded_bundle(bundle), None, form);
    }

    /// Adds a display of code that runs, which later events may update.
    pub(super) fn push_display(&mut self, display: &DisplayData, form: fn(MimeBundle) -> Output) {
        self.push_bounded(bounded_bundle(&display.data), display.display_id.as_deref(), form);
    }

    /// Replaces the last display that has the ID of an update. Without one, the update is a display, as at the cell's
    /// end: another cell has displayed what it replaces. An update that is too long leaves the display as it is.
    pub(super) fn update_display(&mut self, update: &DisplayData) {
        let bundle = bounded_bundle(&update.data);
        let id = update.display_id.as_deref();
        let Some(known) = self.named.iter_mut().rfind(|display| Some(&*display.id) == id) else {
            return self.push_bounded(bundle, id, Output::Display);
        };
        let size = size_of_display(&bundle, id);
        let bytes = self.display_bytes - known.size + size;
        if bytes > MAX_DISPLAY_BYTES {
            self.omitted += 1;
            return;
        }
        (self.display_bytes, known.size) = (bytes, size);
        if let Some(output) = self.outputs.get_mut(known.at) {
            *output = Output::Display(bundle);
        }
    }

    /// Adds the plain text of the value of the last line.
    pub(super) fn push_value(&mut self, text: &str) {
        let bundle: MimeBundle = [(TEXT_PLAIN.to_owned(), bounded_text(text).into())].into();
        self.push_bounded(bundle, None, Output::ExecuteResult);
    }

    fn push_bounded(&mut self, bundle: MimeBundle, id: Option<&str>, form: fn(MimeBundle) -> Output) {
        let size = size_of_display(&bundle, id);
        if self.displays >= MAX_DISPLAYS || self.display_bytes + size > MAX_DISPLAY_BYTES {
            self.omitted += 1;
            return;
        }
        self.displays += 1;
        self.display_bytes += size;
        // Most code has one value and no other output.
        if self.outputs.is_empty() {
            self.outputs.reserve_exact(1);
        }
        if let Some(id) = id {
            self.named.push(NamedDisplay { id: id.into(), at: self.outputs.len(), size });
        }
        self.outputs.push(form(bundle));
    }
}

/// Returns the number of bytes at the end that may be the beginning of a character.
fn incomplete_length(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => 0,
        Err(_) => {
            let tail = bytes.len().saturating_sub(3);
            (tail..bytes.len())
                .find(|at| {
                    let rest = bytes.get(*at..).unwrap_or_default();
                    matches!(std::str::from_utf8(rest), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none())
                })
                .map_or(0, |at| bytes.len() - at)
        }
    }
}

fn size_of(value: &Value) -> usize {
    value.as_str().map_or_else(|| value.to_string().len(), str::len)
}

fn size_of_display(bundle: &MimeBundle, id: Option<&str>) -> usize {
    bundle.values().map(size_of).sum::<usize>() + id.map_or(0, str::len)
}

/// Returns the representations that are not too long. Text is cut instead.
fn bounded_bundle(bundle: &MimeBundle) -> MimeBundle {
    let bounded = |(mime, value): (&String, &Value)| {
        let max = match mime.as_str() {
            "image/png" | "image/jpeg" | "image/svg+xml" => MAX_IMAGE,
            "text/html" => MAX_HTML,
            _ => MAX_OTHER,
        };
        if mime.len() > 100 || (size_of(value) > max && mime != TEXT_PLAIN) {
            return None;
        }
        Some((mime.clone(), value.clone()))
    };
    let mut bundle: MimeBundle = bundle.iter().filter_map(bounded).take(16).collect();
    if let Some(text) = text_plain(&bundle).filter(|text| text.len() > MAX_OTHER) {
        let cut = bounded_text(text);
        bundle.insert(TEXT_PLAIN.into(), cut.into());
    }
    bundle
}

/// Returns the beginning of a plain text that is too long.
fn bounded_text(text: &str) -> String {
    if text.len() <= MAX_OTHER {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_OTHER);
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn characters_may_arrive_in_parts() {
        let text = "aé😀z";
        for chunk in 1..text.len() {
            let mut output = BoundedOutput::default();
            let parts: String = text
                .as_bytes()
                .chunks(chunk)
                .map(|part| output.push_bytes(Stream::Stdout, part).into_owned())
                .collect();
            assert_eq!(parts, text, "{chunk}");
            assert_eq!(output.outputs(), [Output::Text { stream: Stream::Stdout, text: text.into() }]);
        }
        let mut output = BoundedOutput::default();
        assert_eq!(output.push_bytes(Stream::Stderr, b"\xff\xfea"), "\u{fffd}\u{fffd}a");
    }

    #[test]
    fn end_of_long_text_is_kept() {
        let mut output = BoundedOutput::default();
        for number in 0..200_000 {
            output.push_bytes(if number % 7 == 0 { Stream::Stderr } else { Stream::Stdout }, b"0123456789");
        }
        output.push_bytes(Stream::Stdout, b"end");
        assert!(output.text_bytes <= 2 * MAX_TEXT, "{}", output.text_bytes);
        assert_eq!(output.omitted + output.text_bytes as u64, 2_000_003);
        assert!(matches!(output.outputs().last(), Some(Output::Text { text, .. }) if text.ends_with("end")));
    }

    #[test]
    fn number_of_pieces_is_bounded() {
        let mut output = BoundedOutput::default();
        for number in 0..3 * MAX_PIECES {
            output.push_bytes(if number % 2 == 0 { Stream::Stderr } else { Stream::Stdout }, b"x");
            assert!(output.outputs().len() <= MAX_PIECES);
        }
        assert_eq!(output.omitted + output.text_bytes as u64, 3 * MAX_PIECES as u64);
        assert!(output.size() <= (PIECE_BYTES + 1) * MAX_PIECES, "{}", output.size());
    }

    #[test]
    fn output_that_is_left_out_is_counted() {
        let mut output = BoundedOutput::default();
        output.push_bytes(Stream::Stdout, b"1234");
        let bundle: MimeBundle = [("text/plain".to_owned(), json!("x"))].into();
        output.push_bundle(&bundle, Output::Display);
        output.omit();
        assert_eq!((output.outputs().len(), output.size(), output.omitted), (0, 0, 5));
        output.push_bytes(Stream::Stdout, b"56");
        assert_eq!((output.written, output.omitted), (6, 5));
    }

    /// Returns a display of a text with this ID.
    fn display(id: &str, text: &str) -> DisplayData {
        DisplayData { display_id: Some(id.into()), ..shown(text) }
    }

    /// Returns a display of a text.
    fn shown(text: &str) -> DisplayData {
        DisplayData { data: [(TEXT_PLAIN.to_owned(), json!(text))].into(), ..DisplayData::default() }
    }

    #[test]
    fn an_update_replaces_the_display_of_its_id() {
        let mut output = BoundedOutput::default();
        output.push_bytes(Stream::Stdout, b"before");
        output.push_display(&shown("no ID"), Output::Display);
        output.push_display(&display("a", "0 %"), Output::ExecuteResult);
        output.push_display(&display("b", "other"), Output::Display);
        // Text that becomes too old makes room in front of the displays.
        output.push_bytes(Stream::Stdout, "x".repeat(2 * MAX_TEXT).as_bytes());
        assert_eq!(output.outputs().len(), 4);
        for step in 1..=1000 {
            output.update_display(&display("a", &format!("{step} ‰")));
        }
        output.update_display(&display("c", "of another cell"));
        output.update_display(&display("c", "again"));
        let texts: Vec<&str> = output
            .outputs()
            .iter()
            .filter_map(|output| match output {
                Output::Display(bundle) | Output::ExecuteResult(bundle) => text_plain(bundle),
                Output::Text { .. } => None,
            })
            .collect();
        assert_eq!(texts, ["no ID", "1000 ‰", "other", "again"]);
        assert_eq!(output.omitted, "before".len() as u64 + MAX_TEXT as u64);
        let bytes: usize = ["no ID", "a1000 ‰", "bother", "cagain"].map(str::len).iter().sum();
        assert_eq!(output.display_bytes, bytes);
        // Nothing of what was left out can be updated.
        output.omit();
        output.update_display(&display("a", "late"));
        output.clear();
        output.update_display(&display("a", "later"));
        assert_eq!(output.outputs(), [Output::Display(display("a", "later").data)]);
    }

    #[test]
    fn updates_are_bounded_in_number_and_size() {
        let mut output = BoundedOutput::default();
        let html = |id: usize, bytes: usize| DisplayData {
            data: [("text/html".to_owned(), json!("x".repeat(bytes)))].into(),
            ..display(&id.to_string(), "")
        };
        for round in 0..3 {
            (0..100).for_each(|id| output.update_display(&html(id, MAX_HTML)));
            assert!(output.display_bytes <= MAX_DISPLAY_BYTES, "{round}: {}", output.display_bytes);
        }
        assert!((1..=8).contains(&output.outputs().len()) && output.omitted > 0, "{}", output.outputs().len());
        (0..1000).for_each(|id| output.update_display(&html(id, 1)));
        assert_eq!(output.outputs().len(), MAX_DISPLAYS);
        // Space that an update frees is used again.
        let freed = output.display_bytes;
        assert!(freed < MAX_HTML, "{freed}");
        output.update_display(&html(0, MAX_HTML));
        assert!(output.display_bytes > MAX_HTML);
        // The code chooses the ID, too.
        let mut output = BoundedOutput::default();
        output.update_display(&display(&"i".repeat(MAX_DISPLAY_BYTES + 1), ""));
        assert_eq!((output.outputs().len(), output.omitted), (0, 1));
    }

    #[test]
    fn long_representations_are_left_out() {
        let bundle: MimeBundle = [
            ("text/plain".to_owned(), json!("é".repeat(MAX_OTHER))),
            ("text/html".to_owned(), json!("<b>".repeat(MAX_HTML))),
            ("image/png".to_owned(), json!("abc")),
            ("application/vnd.x+json".to_owned(), json!({ "a": "b".repeat(MAX_OTHER) })),
        ]
        .into();
        let mut output = BoundedOutput::default();
        (0..300).for_each(|_| output.push_bundle(&bundle, Output::Display));
        assert_eq!(output.outputs().len(), MAX_DISPLAYS);
        assert_eq!(output.omitted, 200);
        let Some(Output::Display(first)) = output.outputs().first() else { panic!("no display") };
        assert_eq!(first.keys().collect::<Vec<_>>(), ["image/png", "text/plain"]);
    }
}
