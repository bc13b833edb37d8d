//! Truncation of a cell's output to the length that a model reads.

use belljar_core::Output;

/// The maximum number of bytes of text that a result contains.
pub(crate) const MAX_INLINE_BYTES: usize = 100_000;
/// The number of bytes kept from the beginning of longer text.
const HEAD: usize = 60_000;
/// The number of bytes kept from the end of longer text.
const TAIL: usize = 30_000;

/// Returns all text that was written if it exceeds [`MAX_INLINE_BYTES`].
pub(crate) fn full_text_if_too_long(outputs: &[Output]) -> Option<String> {
    let texts = || {
        outputs
            .iter()
            .filter_map(|output| if let Output::Text { text, .. } = output { Some(text.as_str()) } else { None })
    };
    (texts().map(str::len).sum::<usize>() > MAX_INLINE_BYTES).then(|| texts().collect())
}

/// Replaces the middle of the text that was written by `note`.
pub(crate) fn truncate_outputs(outputs: &mut Vec<Output>, note: &str) {
    let total: usize =
        outputs.iter().map(|output| if let Output::Text { text, .. } = output { text.len() } else { 0 }).sum();
    let (mut at, mut noted) = (0, false);
    for output in outputs.iter_mut() {
        let Output::Text { text, .. } = output else { continue };
        let (begin, end) = (at, at + text.len());
        at = end;
        let head = text.floor_char_boundary(HEAD.saturating_sub(begin).min(text.len()));
        let tail = text.ceil_char_boundary((total - TAIL).saturating_sub(begin).min(text.len()));
        if head >= tail {
            continue;
        }
        let middle = if noted { "" } else { note };
        noted = true;
        *text = format!("{}{middle}{}", &text[..head], &text[tail..]);
    }
    outputs.retain(|output| !matches!(output, Output::Text { text, .. } if text.is_empty()));
}

/// Returns `text`, which is longer than [`MAX_INLINE_BYTES`], with `note` in place of its middle.
pub(crate) fn truncate_text(text: &str, note: &str) -> String {
    let (head, tail) = (text.floor_char_boundary(HEAD), text.ceil_char_boundary(text.len() - TAIL));
    format!("{}{note}{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use belljar_core::Stream;

    use super::*;

    #[test]
    fn truncation_keeps_head_and_tail_across_outputs() {
        let text = |text: String| Output::Text { stream: Stream::Stdout, text };
        let mut outputs: Vec<Output> = (0..30).map(|n| text(format!("<{n}>{}", "é".repeat(5000)))).collect();
        let whole = full_text_if_too_long(&outputs).unwrap();
        assert_eq!(whole.matches('<').count(), 30);
        truncate_outputs(&mut outputs, "[cut]");
        let joined: String = outputs
            .iter()
            .filter_map(|output| if let Output::Text { text, .. } = output { Some(text.as_str()) } else { None })
            .collect();
        assert!(
            joined.len() <= MAX_INLINE_BYTES && joined.starts_with("<0>") && joined.contains("<29>"),
            "{}",
            joined.len()
        );
        assert_eq!(joined.matches("[cut]").count(), 1);
        assert_eq!(full_text_if_too_long(&outputs), None);
    }
}
