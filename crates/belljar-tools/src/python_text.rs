//! Untrusted text in Python source: string literals, docstrings and comments that contain it and cannot end early.

use std::fmt::Write as _;

use unicode_general_category::{GeneralCategory, get_general_category};

/// Returns whether a character can be part of source text as it is. Control characters and those that change the
/// direction or the look of their neighbours cannot.
fn is_plain(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    !matches!(
        get_general_category(c),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::SpaceSeparator
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned
    )
}

/// Appends a character as an escape sequence of Python.
fn push_escape(text: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a String does not fail.
    let _ = match code {
        0..=0xff => write!(text, "\\x{code:02x}"),
        0x100..=0xffff => write!(text, "\\u{code:04x}"),
        _ => write!(text, "\\U{code:08x}"),
    };
}

/// Returns `text` with visible escape sequences in place of characters that have no look of their own. Line feeds and
/// tabs stay; other line ends become line feeds.
pub(crate) fn visible(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.replace("\r\n", "\n").chars() {
        match c {
            '\n' | '\r' => clean.push('\n'),
            '\t' => clean.push('\t'),
            c if is_plain(c) => clean.push(c),
            c => push_escape(&mut clean, c),
        }
    }
    clean
}

/// Returns a string literal in double quotes.
pub(crate) fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if is_plain(c) => quoted.push(c),
            c => push_escape(&mut quoted, c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a docstring in triple quotes, whose later lines are indented by `indent`.
pub(crate) fn docstring(text: &str, indent: &str) -> String {
    let mut quoted = String::from("\"\"\"");
    let text = text.replace("\r\n", "\n");
    let mut chars = text.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // Neither three in a row, nor one in front of the closing ones.
            '"' if chars.peek().is_none_or(|next| *next == '"') => quoted.push_str("\\\""),
            '"' => quoted.push('"'),
            '\\' => quoted.push_str("\\\\"),
            '\n' | '\r' => {
                quoted.truncate(quoted.trim_end_matches(' ').len());
                quoted.push('\n');
                quoted.push_str(indent);
            }
            '\t' => quoted.push_str("    "),
            c if is_plain(c) => quoted.push(c),
            c => push_escape(&mut quoted, c),
        }
    }
    quoted.push_str("\"\"\"");
    quoted
}

/// Returns the first `limit` characters, with a note about the rest.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} … [{} more characters]", &text[..end], text[end..].chars().count()),
    }
}

/// Returns the first line of a text, visible, of at most `limit` characters.
pub(crate) fn first_line(text: &str, limit: usize) -> String {
    let clean = visible(text.trim());
    let line = clean.lines().next().unwrap_or_default().trim_end();
    match line.char_indices().nth(limit) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docstring_cannot_be_left() {
        assert_eq!(docstring("Plain \"text\" here.", ""), "\"\"\"Plain \"text\" here.\"\"\"");
        assert_eq!(docstring("a\"\"\"b", ""), "\"\"\"a\\\"\\\"\"b\"\"\"");
        assert_eq!(docstring("a\"", ""), "\"\"\"a\\\"\"\"\"");
        assert_eq!(docstring("a\\", ""), "\"\"\"a\\\\\"\"\"");
        assert_eq!(docstring("\"\"\"", ""), "\"\"\"\\\"\\\"\\\"\"\"\"");
        assert_eq!(docstring("a\nb", "    "), "\"\"\"a\n    b\"\"\"");
        assert_eq!(docstring("\u{202e}\0", ""), "\"\"\"\\u202e\\x00\"\"\"");
    }

    #[test]
    fn literal_escapes_what_is_not_visible() {
        assert_eq!(literal("a\"\\\n\u{200b}é"), "\"a\\\"\\\\\\n\\u200bé\"");
    }

    /// Returns texts of pieces that matter to Python's tokenizer, to terminals and to editors.
    fn hostile_texts() -> Vec<String> {
        const PIECES: [&str; 24] = [
            "\"",
            "\"\"\"",
            "'",
            "'''",
            "\\",
            "\\\\",
            "\n",
            "\r",
            "\r\n",
            "\t",
            "\0",
            "\u{1b}[31m",
            "\u{202e}",
            "\u{2028}",
            "\u{85}",
            "\u{feff}",
            "\u{e000}",
            "x",
            " ",
            "{}",
            "\\N{BEL}",
            "\\u12",
            "# x",
            "\nimport os\n",
        ];
        let mut state = 1_u64;
        let mut next = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % limit
        };
        (0..3_000).map(|_| (0..next(12)).map(|_| PIECES[next(PIECES.len())]).collect()).collect()
    }

    #[test]
    fn python_reads_literals_as_they_were_and_docstrings_as_one_constant() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};

        const CHECK: &str = "
import ast, json, sys
for text, literal, doc in json.load(sys.stdin):
    assert ast.literal_eval(literal) == text, literal
    module = ast.parse('def f():\\n    ' + doc)
    function, = module.body
    statement, = function.body
    assert isinstance(statement.value.value, str), doc
    shown = literal + doc
    assert not any(c < ' ' and c != '\\n' or c in '\\x7f\\x85\\u2028\\u202e\\ufeff' for c in shown), shown
";
        let cases: Vec<[String; 3]> = hostile_texts()
            .into_iter()
            .map(|text| {
                let (literal, doc) = (literal(&text), docstring(&text, "    "));
                [text, literal, doc]
            })
            .collect();
        let mut child = Command::new("python3").args(["-c", CHECK]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(serde_json::to_string(&cases).unwrap().as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn first_line_is_short() {
        assert_eq!(first_line("  one\u{1b}[31m\r\ntwo", 100), "one\\x1b[31m");
        assert_eq!(first_line("abcdef", 3), "abc…");
    }
}
