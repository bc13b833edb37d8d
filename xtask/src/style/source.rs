//! The parts of a source file that the style check reads: blocks of prose and the tokens of code.

/// The comments and the code of one file.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) blocks: Vec<Block>,
    /// The tokens of code, in the order of the file. Those of Python are its identifiers alone.
    pub(super) tokens: Vec<Token>,
}

/// An identifier, or a character of another token. Literals and comments are neither.
#[derive(Debug, PartialEq)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Adjacent lines of one comment, one docstring or one Markdown file.
#[derive(Debug, PartialEq)]
pub(super) struct Block {
    /// `true` for a doc comment or a docstring.
    pub(super) is_doc: bool,
    /// Line numbers, counted from 1, and the text without comment markers.
    pub(super) lines: Vec<(usize, String)>,
}

impl Source {
    /// Returns the identifiers, with their lines.
    pub(super) fn identifiers(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_identifier = |token: &&Token| token.text.starts_with(|c: char| c == '_' || c.is_alphabetic());
        self.tokens.iter().filter(is_identifier).map(|token| (token.line, token.text.as_str()))
    }

    /// Adds an identifier, or a character of another token.
    pub(super) fn push_token(&mut self, line: usize, text: &str) {
        self.tokens.push(Token { line, text: text.to_owned() });
    }

    /// Adds a comment without code on its line: to the previous block if that is of the same kind and ends on the line
    /// before, otherwise as a new block.
    pub(super) fn push_line(&mut self, is_doc: bool, line: usize, text: &str) {
        match self.blocks.last_mut() {
            Some(block) if block.is_doc == is_doc && block.lines.last().is_some_and(|(last, _)| last + 1 == line) => {
                block.lines.push((line, text.to_owned()));
            }
            _ => self.blocks.push(Block { is_doc, lines: vec![(line, text.to_owned())] }),
        }
    }

    /// Adds a text of one or more lines that begins on `line` as a block of its own.
    pub(super) fn push_block(&mut self, is_doc: bool, line: usize, text: &str) {
        let lines = text.lines().enumerate().map(|(index, text)| (line + index, text.to_owned())).collect();
        self.blocks.push(Block { is_doc, lines });
    }
}

#[cfg(test)]
impl Source {
    /// Returns the kind, the first line and the text of each block, with `|` between its lines.
    pub(super) fn trimmed_blocks(&self) -> Vec<(bool, usize, String)> {
        let trimmed = |block: &Block| {
            let text: Vec<_> = block.lines.iter().map(|(_, text)| text.trim()).collect();
            (block.is_doc, block.lines[0].0, text.join("|"))
        };
        self.blocks.iter().map(trimmed).collect()
    }
}
