//! The comments and the code of Rust source.

use super::cursor::Cursor;
use super::source::Source;

/// Splits `text` into comments and tokens of code; literals are neither.
pub(super) fn read(text: &str) -> Source {
    let mut reader = Reader { at: Cursor::new(text), last_doc: None, source: Source::default() };
    while reader.step() {}
    reader.source
}

struct Reader<'a> {
    at: Cursor<'a>,
    /// The marker of the line comment before, so that `//!` and `///` do not run together.
    last_doc: Option<&'a str>,
    source: Source,
}

impl Reader<'_> {
    fn step(&mut self) -> bool {
        let Some(first) = self.at.rest.chars().next() else { return false };
        if self.at.rest.starts_with("//") {
            self.line_comment();
        } else if self.at.rest.starts_with("/*") {
            self.block_comment();
        } else if first == '"' {
            self.at.take(1);
            self.string();
        } else if first == '\'' {
            self.quote();
        } else if first == '_' || first.is_alphabetic() {
            self.word();
        } else if first.is_ascii_digit() {
            self.at.take_word();
        } else {
            let (line, text) = (self.at.line, self.at.take(first.len_utf8()));
            if !first.is_whitespace() {
                self.source.push_token(line, text);
            }
        }
        true
    }

    fn line_comment(&mut self) {
        let (line, fresh) = (self.at.line, self.at.fresh);
        let comment = self.at.take_line();
        let marker = match comment.get(2..3) {
            Some("!") => "!",
            Some("/") if !comment.starts_with("////") => "/",
            _ => "",
        };
        let text = &comment[2 + marker.len()..];
        if fresh && self.last_doc == Some(marker) {
            self.source.push_line(!marker.is_empty(), line, text);
        } else {
            self.source.push_block(!marker.is_empty(), line, text);
        }
        self.last_doc = fresh.then_some(marker);
    }

    fn block_comment(&mut self) {
        let line = self.at.line;
        let bytes = self.at.rest.as_bytes();
        let (mut depth, mut end) = (1, 2);
        while depth > 0 && end < bytes.len() {
            match &bytes[end..(end + 2).min(bytes.len())] {
                b"/*" => (depth, end) = (depth + 1, end + 2),
                b"*/" => (depth, end) = (depth - 1, end + 2),
                _ => end += 1,
            }
        }
        let comment = self.at.take(end);
        let inner = comment.trim_start_matches("/*").trim_end_matches("*/");
        let is_doc = inner.starts_with(['*', '!']);
        let text: Vec<&str> = inner.lines().map(|line| line.trim_start().trim_start_matches(['*', '!'])).collect();
        self.source.push_block(is_doc, line, &text.join("\n"));
        self.last_doc = None;
    }

    /// Moves past a string whose opening quote was read.
    fn string(&mut self) {
        let mut escaped = false;
        let end = self.at.rest.find(|c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        self.at.take(end.map_or(self.at.rest.len(), |end| end + 1));
    }

    /// Moves past a raw string, of which `r` was read.
    fn raw_string(&mut self) {
        let hashes = self.at.rest.len() - self.at.rest.trim_start_matches('#').len();
        let close = format!("\"{}", "#".repeat(hashes));
        let end =
            self.at.rest[hashes + 1..].find(&close).map_or(self.at.rest.len(), |at| hashes + 1 + at + close.len());
        self.at.take(end);
    }

    /// Moves past a character, or past the quote of a lifetime.
    fn quote(&mut self) {
        let mut chars = self.at.rest.char_indices().skip(1);
        let length = match (chars.next(), chars.next()) {
            // The escaped character may be a quote; the closing one comes after it.
            (Some((_, '\\')), Some((at, escaped))) => {
                let after = at + escaped.len_utf8();
                self.at.rest[after..].find('\'').map_or(1, |end| after + end + 1)
            }
            (Some(_), Some((at, '\''))) => at + 1,
            _ => 1,
        };
        self.at.take(length);
    }

    fn word(&mut self) {
        let line = self.at.line;
        let word = self.at.take_word();
        let is_raw_string = self.at.rest.trim_start_matches('#').starts_with('"');
        match word {
            "r" | "br" | "cr" if is_raw_string => self.raw_string(),
            "b" | "c" if self.at.rest.starts_with('"') => {
                self.at.take(1);
                self.string();
            }
            _ => self.source.push_token(line, word),
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
    fn adjacent_line_comments_are_one_block() {
        let text = "//! One.\n//! Two.\n\n/// Three.\n// Four.\n// Five.\nfn six() {} // Seven.\n// Eight.\n";
        let expected = [
            (true, 1, "One.|Two."),
            (true, 4, "Three."),
            (false, 5, "Four.|Five."),
            (false, 7, "Seven."),
            (false, 8, "Eight."),
        ];
        assert_eq!(blocks(text), expected.map(|(doc, line, text)| (doc, line, text.to_owned())));
    }

    #[test]
    fn inner_and_outer_docs_do_not_run_together() {
        assert_eq!(blocks("//! One.\n/// Two.\nfn f() {}").len(), 2);
    }

    #[test]
    fn comment_markers_in_literals_are_not_comments() {
        let text = r##"let a = "// no"; let b = r#"" // no"#; let c = '"'; let d = '\''; let e = b"//"; // Yes."##;
        assert_eq!(blocks(text), [(false, 1, "Yes.".to_owned())]);
    }

    #[test]
    fn lifetimes_do_not_open_characters() {
        assert_eq!(blocks("fn f<'a>(x: &'a str) {} // Yes, it's.\nfn g<'b>() {}").len(), 1);
    }

    #[test]
    fn block_comments_nest() {
        assert_eq!(
            blocks("/* One /* two */ three */ fn f() {} // Four."),
            [(false, 1, "One /* two */ three".to_owned()), (false, 1, "Four.".to_owned())]
        );
    }

    #[test]
    fn identifiers_and_other_tokens_are_those_of_code() {
        let source = read("// comment\nfn name() { \"literal\"; other }");
        assert_eq!(source.identifiers().collect::<Vec<_>>(), [(2, "fn"), (2, "name"), (2, "other")]);
        let tokens: Vec<&str> = source.tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(tokens, ["fn", "name", "(", ")", "{", ";", "other", "}"]);
    }
}
