//! The comments, docstrings and identifiers of Python source.

use super::cursor::Cursor;
use super::source::Source;

/// Splits `text` into comments, docstrings and identifiers. A docstring is a string that begins a statement.
pub(super) fn read(text: &str) -> Source {
    let mut reader = Reader { at: Cursor::new(text), depth: 0, statement: true, source: Source::default() };
    while reader.step() {}
    reader.source
}

struct Reader<'a> {
    at: Cursor<'a>,
    /// Open brackets: a line break within them ends no statement.
    depth: usize,
    /// `true` at the beginning of a statement.
    statement: bool,
    source: Source,
}

impl Reader<'_> {
    fn step(&mut self) -> bool {
        let Some(first) = self.at.rest.chars().next() else { return false };
        match first {
            '#' => self.comment(),
            '"' | '\'' => self.string(false),
            '\n' => {
                self.at.take(1);
                self.statement = self.depth == 0;
            }
            '\\' => {
                // A backslash continues the statement on the next line.
                let length = self.at.rest.chars().take(2).map(char::len_utf8).sum();
                self.at.take(length);
            }
            _ if first.is_whitespace() => {
                self.at.take(first.len_utf8());
            }
            _ if first == '_' || first.is_alphanumeric() => self.word(),
            _ => {
                match first {
                    '(' | '[' | '{' => self.depth += 1,
                    ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
                    _ => {}
                }
                self.at.take(first.len_utf8());
                self.statement = false;
            }
        }
        true
    }

    fn comment(&mut self) {
        let (line, fresh) = (self.at.line, self.at.fresh);
        let comment = self.at.take_line();
        let text = comment.trim_start_matches('#');
        if fresh {
            self.source.push_line(false, line, text);
        } else {
            self.source.push_block(false, line, text);
        }
    }

    fn string(&mut self, raw: bool) {
        let line = self.at.line;
        let quote = &self.at.rest[..1];
        let triple = quote.repeat(3);
        let close = if self.at.rest.starts_with(&triple) { triple.as_str() } else { quote };
        let start = close.len();
        let mut escaped = false;
        let end = self.at.rest[start..].char_indices().find_map(|(at, c)| {
            let ends = !escaped && (self.at.rest[start + at..].starts_with(close) || (c == '\n' && start == 1));
            escaped = c == '\\' && !escaped;
            ends.then_some(start + at)
        });
        let end = end.unwrap_or(self.at.rest.len());
        let literal = self.at.take(end + close.len());
        if self.statement && !raw {
            let text = literal.get(start..end).unwrap_or_default();
            self.source.push_block(true, line, text);
        }
        self.statement = false;
    }

    fn word(&mut self) {
        let line = self.at.line;
        let word = self.at.take_word();
        let is_prefix = word.len() <= 2 && word.chars().all(|c| "rRbBuUfFtT".contains(c));
        if is_prefix && self.at.rest.starts_with(['"', '\'']) {
            let is_text = word.eq_ignore_ascii_case("r") || word.eq_ignore_ascii_case("u");
            self.string(!is_text);
        } else {
            if !word.starts_with(|c: char| c.is_ascii_digit()) {
                self.source.push_token(line, word);
            }
            self.statement = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    fn blocks(text: &str) -> Vec<(bool, usize, String)> {
        read(text).trimmed_blocks()
    }

    #[test]
    fn docstrings_and_comments_are_prose() {
        let text = "\"\"\"One.\n\nTwo.\"\"\"\n\ndef f():\n    r'''Three.'''\n    # Four.\n    # Five.\n    return '# no'  # Six.\n";
        let expected = [(true, 1, "One.||Two."), (true, 6, "Three."), (false, 7, "Four.|Five."), (false, 9, "Six.")];
        assert_eq!(blocks(text), expected.map(|(doc, line, text)| (doc, line, text.to_owned())));
    }

    #[test]
    fn other_strings_are_not_prose() {
        assert_eq!(blocks("x = '''a # b'''\nf(\n    '''c''',\n)\ny = \\\n    'd'\nz = f'# {x}'\n"), []);
    }

    #[test]
    fn escaped_quotes_do_not_close() {
        assert_eq!(blocks("x = 'it\\'s # no' # Yes.\n"), [(false, 1, "Yes.".to_owned())]);
    }

    #[test]
    fn identifiers_are_those_of_code() {
        let source = read("def f(a): # b\n    return 'c', d1\n");
        let names: Vec<&str> = source.identifiers().map(|(_, name)| name).collect();
        assert_eq!(names, ["def", "f", "a", "return", "d1"]);
    }
}
