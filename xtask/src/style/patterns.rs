//! The patterns of speech that are counted, and how often well-kept projects use them.

use std::sync::LazyLock;

use regex::Regex;

/// A pattern and the highest of the numbers per 10,000 words that jj, uv, wasmtime and firecracker reach.
pub(super) struct Pattern {
    pub(super) name: &'static str,
    /// The regular expression, matched against paragraphs with joined lines.
    expression: &'static str,
    pub(super) anchor: f64,
}

/// A capital `What` opens a sentence, a list item or a heading: English has it nowhere else.
/// The number for `is no` includes "is no longer", as it does for the anchors.
pub(super) const PATTERNS: [Pattern; 12] = [
    Pattern { name: "\"What\" opening a sentence", expression: r"\bWhat\b", anchor: 0.5 },
    Pattern { name: "say, says, said", expression: r"(?i)\b(say|says|said)\b", anchor: 1.6 },
    Pattern { name: "tell, tells, told", expression: r"(?i)\b(tell|tells|told)\b", anchor: 0.8 },
    Pattern { name: "stand, stands, stood", expression: r"(?i)\b(stand|stands|stood)\b", anchor: 0.2 },
    Pattern { name: "nobody", expression: r"(?i)\bnobody\b", anchor: 0.0 },
    Pattern { name: "is no, are no", expression: r"(?i)\b(is|are)\s+no\s+[a-z]", anchor: 3.1 },
    Pattern {
        name: "is none, if there is one",
        expression: r"(?i)\b(is|are)\s+none\b|\bif there is one\b",
        anchor: 0.2,
    },
    Pattern { name: "beside", expression: r"(?i)\bbesides?\b", anchor: 0.3 },
    Pattern { name: "whoever", expression: r"(?i)\bwhoever\b", anchor: 0.0 },
    Pattern { name: "cannot be had", expression: r"(?i)\bbe\s+had\b", anchor: 0.0 },
    Pattern { name: "of ours, of our own", expression: r"(?i)\bof\s+ours\b|\bof\s+our\s+own\b", anchor: 0.1 },
    Pattern { name: "anew", expression: r"(?i)\banew\b", anchor: 0.1 },
];

/// The highest share of doc comments that open with a question word, in per cent (uv's).
pub(super) const QUESTION_ANCHOR: f64 = 1.4;

/// Limits are this many times the highest anchor.
pub(super) const TOLERANCE: f64 = 2.0;

/// Compiled [`PATTERNS`], in their order.
static EXPRESSIONS: LazyLock<Vec<Option<Regex>>> =
    LazyLock::new(|| PATTERNS.iter().map(|pattern| Regex::new(pattern.expression).ok()).collect());

/// Returns the offsets in `text` at which the pattern with this index matches.
pub(super) fn matches(pattern: usize, text: &str) -> Vec<usize> {
    let expression = EXPRESSIONS.get(pattern).and_then(Option::as_ref);
    expression.map(|expression| expression.find_iter(text).map(|found| found.start()).collect()).unwrap_or_default()
}

/// How a doc comment opens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Opening {
    /// `What`, `Why`, `Who`, `Where` or `When`.
    Question,
    Whether,
    Other,
}

/// Returns how the doc comment whose first paragraph is `text` opens.
pub(super) fn opening(text: &str) -> Opening {
    match text.split(|c: char| !c.is_alphabetic()).find(|word| !word.is_empty()) {
        Some("What" | "Why" | "Who" | "Where" | "When") => Opening::Question,
        Some("Whether") => Opening::Whether,
        _ => Opening::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(name: &str, text: &str) -> usize {
        matches(PATTERNS.iter().position(|pattern| pattern.name.contains(name)).unwrap(), text).len()
    }

    #[test]
    fn every_expression_compiles() {
        assert!(EXPRESSIONS.iter().all(Option::is_some));
    }

    #[test]
    fn patterns_match_words_and_not_parts_of_them() {
        assert_eq!(hits("What", "What a cell gives. What it needs, and what not. Whatever."), 2);
        assert_eq!(hits("say", "It says so; said and done. Essay, sayings."), 2);
        assert_eq!(hits("stand", "It stands, stood, and a standard understands standing."), 2);
        assert_eq!(hits("is no,", "This is no file, there are no\nfiles. It is not; is `no`."), 2);
        assert_eq!(hits("is none", "There is none. Reads the file, if there is one. If there is only one."), 2);
        assert_eq!(hits("beside", "Beside it; besides. Seaside."), 2);
        assert_eq!(hits("whoever", "Whoever, whoever."), 2);
        assert_eq!(hits("be had", "It cannot be had. It had been."), 1);
        assert_eq!(hits("of ours", "A fault of ours, of our own; of our user."), 2);
    }

    #[test]
    fn limits_are_those_of_the_anchors() {
        let limits: Vec<f64> = PATTERNS.iter().map(|pattern| pattern.anchor * TOLERANCE).collect();
        assert_eq!(limits, [1.0, 3.2, 1.6, 0.4, 0.0, 6.2, 0.4, 0.6, 0.0, 0.0, 0.2, 0.2]);
    }

    #[test]
    fn doc_openings() {
        assert_eq!(opening("What a cell gives."), Opening::Question);
        assert_eq!(opening("*Where* it is."), Opening::Question);
        assert_eq!(opening("Whether it is."), Opening::Whether);
        assert_eq!(opening("Returns what it is."), Opening::Other);
        assert_eq!(opening("Whatever."), Opening::Other);
    }
}
