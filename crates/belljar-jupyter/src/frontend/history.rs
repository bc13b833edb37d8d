//! What was run in a kernel, for frontends that offer it again. It is as long as the kernel's life.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, json};

/// Cells that are remembered, and bytes of them.
const MOST_CELLS: usize = 10_000;
const MOST_BYTES: usize = 16 << 20;
/// The number of this kernel's life: there is no other in its history.
const SESSION: i64 = 1;

/// A `history_request`. Everything but the kind may be missing: frontends send what they need.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HistoryRequest {
    /// "range", "tail" or "search".
    hist_access_type: String,
    output: bool,
    /// 0 is the current one, as is 1; others are not there.
    session: i64,
    start: i64,
    stop: Option<i64>,
    n: Option<i64>,
    pattern: String,
    unique: bool,
}

struct Entry {
    line: i64,
    code: String,
    output: Option<String>,
}

impl Entry {
    fn size(&self) -> usize {
        self.code.len() + self.output.as_ref().map_or(0, String::len)
    }
}

/// The history of one kernel.
#[derive(Default)]
pub(crate) struct History {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl History {
    /// Adds a cell, and the text of its value.
    pub(crate) fn add(&mut self, line: u64, code: &str, output: Option<String>) {
        let entry = Entry { line: i64::try_from(line).unwrap_or(i64::MAX), code: code.into(), output };
        self.bytes += entry.size();
        self.entries.push_back(entry);
        while self.entries.len() > MOST_CELLS || self.bytes > MOST_BYTES {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.size();
        }
    }

    /// The content of `history_reply`.
    pub(crate) fn reply(&self, asked: &HistoryRequest) -> Value {
        let mut found: Vec<&Entry> = match asked.hist_access_type.as_str() {
            "range" if matches!(asked.session, 0 | SESSION) => {
                let stop = asked.stop.unwrap_or(i64::MAX);
                self.entries.iter().filter(|entry| (asked.start..stop).contains(&entry.line)).collect()
            }
            "tail" => self.entries.iter().collect(),
            "search" => {
                let pattern = if asked.pattern.is_empty() { "*" } else { &asked.pattern };
                self.entries.iter().filter(|entry| matches(pattern, &entry.code)).collect()
            }
            _ => Vec::new(),
        };
        if asked.unique {
            let mut seen = std::collections::HashSet::new();
            found = found.into_iter().rev().filter(|entry| seen.insert(&entry.code)).collect();
            found.reverse();
        }
        if asked.hist_access_type != "range"
            && let Some(most) = asked.n.and_then(|most| usize::try_from(most).ok())
        {
            found.drain(..found.len().saturating_sub(most));
        }
        let entry = |entry: &&Entry| {
            if asked.output {
                json!([SESSION, entry.line, [entry.code, entry.output]])
            } else {
                json!([SESSION, entry.line, entry.code])
            }
        };
        json!({ "status": "ok", "history": found.iter().map(entry).collect::<Vec<_>>() })
    }
}

/// Whether a text is as the pattern says, in which `*` is any text and `?` any character. Takes time in proportion to both.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut place) = (0, 0);
    // Where the last `*` was, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while place < text.len() {
        match (pattern.get(at), star) {
            (Some('*'), _) => {
                star = Some((at, place));
                at += 1;
            }
            (Some(wanted), _) if *wanted == '?' || *wanted == text[place] => {
                at += 1;
                place += 1;
            }
            (_, Some((before, taken))) => {
                star = Some((before, taken + 1));
                at = before + 1;
                place = taken + 1;
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(history: &History, request: Value) -> Vec<i64> {
        let reply = history.reply(&serde_json::from_value(request).unwrap());
        reply["history"].as_array().unwrap().iter().map(|entry| entry[1].as_i64().unwrap()).collect()
    }

    #[test]
    fn each_way_of_asking_finds_its_cells() {
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
    fn patterns_are_those_of_shells() {
        for (pattern, text, wanted) in [
            ("", "", true),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b", "a-b-c", false),
            ("?", "é", true),
            ("?", "", false),
            ("*a?", "aab", true),
        ] {
            assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn it_is_bounded() {
        let mut history = History::default();
        for line in 0..100 {
            history.add(line, &"x".repeat(1 << 20), None);
        }
        assert!(history.bytes <= MOST_BYTES && history.entries.len() <= 16);
        (0..20_000).for_each(|line| history.add(line, "", None));
        assert_eq!(history.entries.len(), MOST_CELLS);
    }
}
