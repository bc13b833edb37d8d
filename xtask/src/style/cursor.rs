//! A position in the text of a source file, for the readers of its languages.

/// The unread rest of a text.
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a str,
    /// The number of the line at which `rest` begins, counted from 1.
    pub(super) line: usize,
    /// `true` if the line has only space before `rest`.
    pub(super) fresh: bool,
}

impl<'a> Cursor<'a> {
    /// Returns the beginning of `text`.
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, line: 1, fresh: true }
    }

    /// Moves past `length` bytes and returns them.
    pub(super) fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        self.line += taken.matches('\n').count();
        match taken.rsplit_once('\n') {
            Some((_, tail)) => self.fresh = tail.trim().is_empty(),
            None => self.fresh &= taken.trim().is_empty(),
        }
        taken
    }

    /// Moves to the end of the line and returns the text before it.
    pub(super) fn take_line(&mut self) -> &'a str {
        self.take(self.rest.find('\n').unwrap_or(self.rest.len()))
    }

    /// Moves past letters, digits and underscores and returns them.
    pub(super) fn take_word(&mut self) -> &'a str {
        self.take(self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len()))
    }
}
