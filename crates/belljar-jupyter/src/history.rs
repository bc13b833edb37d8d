//! The history of the cells that a kernel ran, for frontends. It is kept in memory, and ends with the kernel.

use std::collections::VecDeque;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

/// The largest number of cells in the history.
const MAX_CELLS: usize = 10_000;
/// The largest size of the history, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// The session number of the history: it contains only the current session.
const SESSION: i64 = 1;

/// The content of a `history_request`. Only the access type is required; frontends omit the fields that they do not
/// need.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HistoryRequest {
    /// The access type: "range", "tail" or "search".
    hist_access_type: String,
    output: bool,
    /// The session number: 0 and 1 are the current session; others have no cells.
    session: i64,
    start: i64,
    stop: Option<i64>,
    n: Option<i64>,
    pattern: String,
    unique: bool,
}

struct HistoryEntry {
    line: i64,
    code: String,
    output: Option<String>,
}

impl HistoryEntry {
    fn size(&self) -> usize {
        self.code.len() + self.output.as_ref().map_or(0, String::len)
    }
}

/// The history of one kernel.
#[derive(Default)]
pub(crate) struct History {
    entries: VecDeque<HistoryEntry>,
    bytes: usize,
}

impl History {
    /// Adds a cell and the text of its value.
    pub(crate) fn add(&mut self, line: u64, code: &str, output: Option<String>) {
        let entry = HistoryEntry { line: i64::try_from(line).unwrap_or(i64::MAX), code: code.into(), output };
        self.bytes += entry.size();
        self.entries.push_back(entry);
        while self.entries.len() > MAX_CELLS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.size();
        }
    }

    /// Returns the content of the `history_reply`.
    pub(crate) fn reply(&self, request: &HistoryRequest) -> Value {
        let mut found: Vec<&HistoryEntry> = match request.hist_access_type.as_str() {
            "range" if matches!(request.session, 0 | SESSION) => {
                let stop = request.stop.unwrap_or(i64::MAX);
                self.entries.iter().filter(|entry| (request.start..stop).contains(&entry.line)).collect()
            }
            "tail" => self.entries.iter().collect(),
            "search" => {
                let pattern = if request.pattern.is_empty() { "*" } else { &request.pattern };
                match compile_pattern(pattern) {
                    Some(pattern) => self.entries.iter().filter(|entry| pattern.is_match(&entry.code)).collect(),
                    None => Vec::new(),
                }
            }
            _ => Vec::new(),
        };
        if request.unique {
            let mut seen = std::collections::HashSet::new();
            found = found.into_iter().rev().filter(|entry| seen.insert(&entry.code)).collect();
            found.reverse();
        }
        if request.hist_access_type != "range"
            && let Some(count) = request.n.and_then(|count| usize::try_from(count).ok())
        {
            found.drain(..found.len().saturating_sub(count));
        }
        let entry = |entry: &&HistoryEntry| {
            if request.output {
                json!([SESSION, entry.line, [entry.code, entry.output]])
            } else {
                json!([SESSION, entry.line, entry.code])
            }
        };
        json!({ "status": "ok", "history": found.iter().map(entry).collect::<Vec<_>>() })
    }
}

/// Converts a pattern, in which `*` is any text and `?` any character, to a regular expression; `None` if it is too
/// long.
fn compile_pattern(pattern: &str) -> Option<Regex> {
    // `globset` is not used: its `?` is a byte, and it treats braces and brackets, which are frequent in code, as
    // syntax.
    let mut expression = String::from(r"(?s)\A");
    for character in pattern.chars() {
        match character {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            literal => expression.push_str(&regex::escape(literal.encode_utf8(&mut [0; 4]))),
        }
    }
    expression.push_str(r"\z");
    Regex::new(&expression).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(history: &History, request: Value) -> Vec<i64> {
        let reply = history.reply(&serde_json::from_value(request).unwrap());
        reply["history"].as_array().unwrap().iter().map(|entry| entry[1].as_i64().unwrap()).collect()
    }

    #[test]
    fn each_access_type_finds_its_cells() {
        let mut history = History::default();
        for (line, code) in (1..).zip(["1+2", "x = 'a'", "1+2", "1 + 2"]) {
            history.add(line, code, (code == "1+2").then(|| "3".into()));
        }
        assert_eq!(lines(&history, json!({ "hist_access_type": "tail", "n": 2 })), [3, 4]);
        assert_eq!(
            lines(&history, json!({ "hist_access_type": "range", "session": 0, "start": 2, "stop": 4 })),
            [2, 3]
        );
        assert_eq!(lines(&history, json!({ "hist_access_type": "range", "session": -1, "start": 0 })), [0; 0]);
        assert_eq!(lines(&history, json!({ "hist_access_type": "search", "pattern": "1?2" })), [1, 3]);
        let unique = json!({ "hist_access_type": "search", "pattern": "1*2", "unique": true, "n": 9 });
        assert_eq!(lines(&history, unique), [3, 4]);
        assert_eq!(lines(&history, json!({ "hist_access_type": "other" })), [0; 0]);
        let reply = history
            .reply(&serde_json::from_value(json!({ "hist_access_type": "tail", "n": 2, "output": true })).unwrap());
        assert_eq!(reply["history"], json!([[1, 3, ["1+2", "3"]], [1, 4, ["1 + 2", null]]]));
    }

    #[test]
    fn patterns_match_as_in_shells() {
        for (pattern, text, wanted) in [
            ("", "", true),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b", "a-b-c", false),
            ("?", "é", true),
            ("?", "", false),
            ("*a?", "aab", true),
            ("a*", "a\nb", true),
            ("{[(*", "{[(x", true),
            ("a.", "ab", false),
        ] {
            assert_eq!(compile_pattern(pattern).unwrap().is_match(text), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn history_is_bounded() {
        let mut history = History::default();
        for line in 0..100 {
            history.add(line, &"x".repeat(1 << 20), None);
        }
        assert!(history.bytes <= MAX_BYTES && history.entries.len() <= 16);
        (0..20_000).for_each(|line| history.add(line, "", None));
        assert_eq!(history.entries.len(), MAX_CELLS);
    }
}
