//! Markdown files: one block of prose each. Fenced code is taken out where prose is split into paragraphs.

use super::source::Source;

pub(super) fn read(text: &str) -> Source {
    let mut source = Source::default();
    source.push_block(false, 1, text);
    source
}
