//! Truncation of a cell's output, values and error to the length that a model reads.

use belljar_core::kernel::{CellError, Kernel};
use belljar_core::mime::text_plain;
use belljar_core::truncation::{allot, cut_middle, head_and_tail, json_length};
use belljar_core::{CellStatus, Output};

use crate::id::SessionId;
use crate::report::spill_to_file;

/// Cuts the output, values and error of the cell `count` to `max_bytes` of JSON together. Files have the rest.
pub(crate) fn truncate(
    kernel: &mut dyn Kernel,
    id: &SessionId,
    count: u64,
    max_bytes: usize,
    outputs: &mut Vec<Output>,
    status: &mut CellStatus,
) {
    let mut lengths = vec![text_length(outputs)];
    lengths.extend(outputs.iter().filter_map(displayed_text).map(json_length));
    if let CellStatus::Error(CellError { message, traceback, .. }) = &*status {
        lengths.extend([json_length(message), traceback_length(traceback)]);
    }
    if lengths.iter().sum::<usize>() <= max_bytes {
        return;
    }
    let mut shares = allot(&lengths, max_bytes).into_iter();
    let mut next_share = || shares.next().unwrap_or(0);
    let share = next_share();
    if text_length(outputs) > share {
        let note = spill_to_file(kernel, id, &format!("output_{count}.txt"), &full_text(outputs), share);
        truncate_outputs(outputs, share, &note);
    }
    let mut number = 0;
    for output in outputs.iter_mut() {
        let Some(text) = displayed_text(output).map(str::to_owned) else { continue };
        let share = next_share();
        if let Output::Display(bundle) | Output::ExecuteResult(bundle) = output
            && json_length(&text) > share
        {
            number += 1;
            let name = if number == 1 { format!("result_{count}.txt") } else { format!("result_{count}_{number}.txt") };
            let note = spill_to_file(kernel, id, &name, &text, share);
            bundle.insert("text/plain".into(), cut_middle(&text, share, |_| note).into());
        }
    }
    if let CellStatus::Error(CellError { message, traceback, .. }) = status {
        let (message_share, traceback_share) = (next_share(), next_share());
        let full_text = traceback.join("\n");
        let traceback_length = traceback_length(traceback);
        if json_length(message) > message_share || traceback_length > traceback_share {
            let note = spill_to_file(kernel, id, &format!("error_{count}.txt"), &full_text, traceback_share);
            *message = cut_middle(message, message_share, |_| note.clone());
            if traceback_length > traceback_share {
                *traceback = vec![cut_middle(&full_text, traceback_share, |_| note)];
            }
        }
    }
}

fn traceback_length(traceback: &[String]) -> usize {
    traceback.iter().map(|line| json_length(line)).sum()
}

/// Returns the plain text of a display or value.
fn displayed_text(output: &Output) -> Option<&str> {
    match output {
        Output::Display(bundle) | Output::ExecuteResult(bundle) => text_plain(bundle),
        Output::Text { .. } => None,
    }
}

/// Returns the length of all text that was written, in bytes of JSON.
fn text_length(outputs: &[Output]) -> usize {
    texts(outputs).map(json_length).sum()
}

/// Returns all text that was written.
fn full_text(outputs: &[Output]) -> String {
    texts(outputs).collect()
}

fn texts(outputs: &[Output]) -> impl DoubleEndedIterator<Item = &str> + Clone {
    outputs.iter().filter_map(|output| if let Output::Text { text, .. } = output { Some(text.as_str()) } else { None })
}

/// Cuts the text that was written to its head and tail, of `max` bytes of JSON together. `note` replaces the middle.
fn truncate_outputs(outputs: &mut Vec<Output>, max: usize, note: &str) {
    let (head_end, tail_begin) = head_and_tail(texts(outputs), max);
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
        assert_eq!(joined.len(), text_length(&outputs), "none of it is escaped");
        assert!(joined.len() <= 50_005 && joined.starts_with("<0>") && joined.contains("<29>"), "{}", joined.len());
        assert_eq!(joined.matches("[cut]").count(), 1);
    }
}
