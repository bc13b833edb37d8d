//! Truncation of a cell's output to the length that a model reads.

use belljar_core::Output;
use belljar_core::truncation::head_and_tail;

/// Returns the length of all text that was written.
pub(crate) fn text_length(outputs: &[Output]) -> usize {
    texts(outputs).map(str::len).sum()
}

/// Returns all text that was written.
pub(crate) fn full_text(outputs: &[Output]) -> String {
    texts(outputs).collect()
}

fn texts(outputs: &[Output]) -> impl Iterator<Item = &str> {
    outputs.iter().filter_map(|output| if let Output::Text { text, .. } = output { Some(text.as_str()) } else { None })
}

/// Cuts the text that was written to its head and tail, of `max` bytes together. `note` replaces the middle.
pub(crate) fn truncate_outputs(outputs: &mut Vec<Output>, max: usize, note: &str) {
    let (head_end, tail_begin) = head_and_tail(text_length(outputs), max);
    let (mut at, mut noted) = (0, false);
    for output in outputs.iter_mut() {
        let Output::Text { text, .. } = output else { continue };
        let (begin, end) = (at, at + text.len());
        at = end;
        let head = text.floor_char_boundary(head_end.saturating_sub(begin).min(text.len()));
        let tail = text.ceil_char_boundary(tail_begin.saturating_sub(begin).min(text.len()));
        if head >= tail {
            continue;
        }
        let middle = if noted { "" } else { note };
        noted = true;
        *text = format!("{}{middle}{}", &text[..head], &text[tail..]);
    }
    outputs.retain(|output| !matches!(output, Output::Text { text, .. } if text.is_empty()));
}

#[cfg(test)]
mod tests {
    use belljar_core::Stream;

    use super::*;

    #[test]
    fn truncation_keeps_head_and_tail_across_outputs() {
        let text = |text: String| Output::Text { stream: Stream::Stdout, text };
        let mut outputs: Vec<Output> = (0..30).map(|n| text(format!("<{n}>{}", "é".repeat(5000)))).collect();
        assert_eq!(full_text(&outputs).matches('<').count(), 30);
        truncate_outputs(&mut outputs, 50_000, "[cut]");
        let joined = full_text(&outputs);
        assert_eq!(joined.len(), text_length(&outputs));
        assert!(joined.len() <= 50_005 && joined.starts_with("<0>") && joined.contains("<29>"), "{}", joined.len());
        assert_eq!(joined.matches("[cut]").count(), 1);
    }
}
