//! Paragraphs: the text that patterns are matched against.
//!
//! Lines of one paragraph are joined, so that a pattern is found across a line break. Fenced code is left out. Code
//! spans and link targets keep their words for the count, with every character replaced by `x`, so that no pattern
//! matches them.

use super::source::Block;

/// A paragraph, list item, heading or table row.
#[derive(Debug)]
pub(super) struct Paragraph {
    /// The text, with code replaced.
    pub(super) text: String,
    /// The offset in `text` at which each line begins, with the line's number.
    starts: Vec<(usize, usize)>,
}

impl Paragraph {
    /// Returns the number of the line that holds the byte at `offset`.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        self.starts.iter().take_while(|(start, _)| *start <= offset).last().map_or(0, |(_, line)| *line)
    }

    pub(super) fn words(&self) -> usize {
        self.text.split_whitespace().count()
    }
}

/// Splits a block into paragraphs.
pub(super) fn paragraphs(block: &Block) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let mut lines: Vec<(usize, &str)> = Vec::new();
    let mut fence: Option<&str> = None;
    for (number, line) in &block.lines {
        let text = line.trim();
        if let Some(close) = fence {
            if text.starts_with(close) {
                fence = None;
            }
            continue;
        }
        fence = ["```", "~~~"].into_iter().find(|mark| text.starts_with(mark));
        if fence.is_some() || text.is_empty() || begins_paragraph(text) {
            paragraphs.extend(join(&std::mem::take(&mut lines)));
        }
        if fence.is_none() && !text.is_empty() {
            lines.push((*number, text));
        }
    }
    paragraphs.extend(join(&lines));
    paragraphs
}

/// Returns whether a line opens a list item, a heading or a table row, which ends the paragraph before it.
fn begins_paragraph(text: &str) -> bool {
    let after_number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = after_number.len() < text.len() && after_number.starts_with(". ");
    is_numbered || ["- ", "* ", "+ ", "#", "|", "> "].iter().any(|mark| text.starts_with(mark))
}

fn join(lines: &[(usize, &str)]) -> Option<Paragraph> {
    if lines.is_empty() {
        return None;
    }
    let mut text = String::new();
    let mut starts = Vec::new();
    for (number, line) in lines {
        if !text.is_empty() {
            text.push(' ');
        }
        starts.push((text.len(), *number));
        text.push_str(line);
    }
    Some(Paragraph { text: without_link_targets(&without_code_spans(&text)), starts })
}

/// Replaces the characters of code spans, of whatever number of backticks, by as many bytes of `x`.
fn without_code_spans(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('`') {
        let ticks = rest.len() - start - rest[start..].trim_start_matches('`').len();
        let inner = start + ticks;
        let Some(length) = closing(&rest[inner..], ticks) else {
            // Backticks without a partner are text.
            result.push_str(&rest[..inner]);
            rest = &rest[inner..];
            continue;
        };
        result.push_str(&rest[..inner]);
        result.push_str(&masked(&rest[inner..inner + length]));
        result.push_str(&rest[inner + length..inner + length + ticks]);
        rest = &rest[inner + length + ticks..];
    }
    result.push_str(rest);
    result
}

/// Returns the offset of the next run of exactly `ticks` backticks.
fn closing(text: &str, ticks: usize) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].find('`') {
        let start = from + at;
        let run = text.len() - start - text[start..].trim_start_matches('`').len();
        if run == ticks {
            return Some(start);
        }
        from = start + run;
    }
    None
}

/// Replaces the targets of `[text](target)`.
fn without_link_targets(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("](") {
        let inner = start + 2;
        let Some(length) = rest[inner..].find(')') else { break };
        result.push_str(&rest[..inner]);
        result.push_str(&masked(&rest[inner..inner + length]));
        rest = &rest[inner + length..];
    }
    result.push_str(rest);
    result
}

fn masked(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() { c.to_string() } else { "x".repeat(c.len_utf8()) }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::Block;
    use super::*;

    fn split(text: &str) -> Vec<String> {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned())).collect();
        paragraphs(&Block { is_doc: false, lines }).into_iter().map(|paragraph| paragraph.text).collect()
    }

    #[test]
    fn lists_headings_and_tables_are_paragraphs_of_their_own() {
        let text = "# Title\nOne\ntwo.\n- item\n  goes on\n- next\n\n1. first\n| a | b |\n| c | d |";
        let expected = ["# Title One two.", "- item goes on", "- next", "1. first", "| a | b |", "| c | d |"];
        assert_eq!(split(text), expected);
    }

    #[test]
    fn fenced_code_is_left_out() {
        assert_eq!(split("Before.\n```sh\nnobody\n```\nAfter."), ["Before.", "After."]);
    }

    #[test]
    fn code_spans_and_link_targets_are_masked() {
        assert_eq!(split("A `nobody here` [b](nobody.md)."), ["A `xxxxxx xxxx` [b](xxxxxxxxx)."]);
        assert_eq!(split("``a ` b`` c"), ["``x x x`` c"]);
        assert_eq!(split("a ` nobody"), ["a ` nobody"]);
    }

    #[test]
    fn offsets_give_lines_after_masking() {
        let lines = vec![(7, "Ein `größer` Wort".to_owned()), (8, "und noch eins".to_owned())];
        let paragraph = paragraphs(&Block { is_doc: false, lines }).remove(0);
        assert_eq!(paragraph.line_at(paragraph.text.find("Wort").unwrap()), 7);
        assert_eq!(paragraph.line_at(paragraph.text.find("noch").unwrap()), 8);
        assert_eq!(paragraph.words(), 6);
    }
}
