//! What a cell wrote and showed, cut to what a model reads.

use belljar_core::kernel::{Bundle, Output};
use serde_json::Value;

/// Bytes of text that are passed on whole.
pub(crate) const WHOLE: usize = 100_000;
/// Bytes kept at the beginning and at the end of longer text.
const HEAD: usize = 60_000;
const TAIL: usize = 30_000;

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
    use belljar_core::kernel::Stream;

    use super::*;

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
