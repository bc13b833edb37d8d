//! The list of expected failures, `tests/cpython/expected.txt`.
//!
//! ```text
//! # A comment.
//! [The reason why the tests under it fail]
//! test.test_io.CTextIOWrapperTest.test_threads
//! test.test_os.*.test_*fork*
//! ! test.test_csv.TestSniffer.test_that_never_ends
//! ```
//!
//! In a pattern `*` matches any characters. Every test that a pattern matches must fail or be skipped, and every
//! pattern must match a failure: the list is neither too short nor too long. `!` precedes a test that is not run,
//! because it would run for minutes, end the interpreter or damage its memory.

use std::path::Path;

/// The reviewed list.
#[derive(Debug)]
pub(super) struct Expected {
    entries: Vec<Entry>,
}

/// One line of the list.
#[derive(Debug)]
pub(super) struct Entry {
    /// The heading above the line.
    pub(super) reason: String,
    pub(super) pattern: String,
    left_out: bool,
}

impl Expected {
    /// Reads the list.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text =
            std::fs::read_to_string(path).map_err(|error| format!("failed to read {}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads the list's text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut reason = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(heading) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                reason = Some(heading.to_owned());
                continue;
            }
            let Some(reason) = reason.clone() else {
                return Err(format!("line {}: a [reason] must come before the first test", index + 1));
            };
            let (pattern, left_out) = line.strip_prefix("! ").map_or((line, false), |rest| (rest, true));
            if entries.iter().any(|entry| entry.pattern == pattern) {
                return Err(format!("line {}: {pattern} is in the list twice", index + 1));
            }
            entries.push(Entry { reason, pattern: pattern.to_owned(), left_out });
        }
        Ok(Self { entries })
    }

    /// Refuses a list with lines about modules that are not run.
    pub(super) fn check_modules(&self, modules: &[String]) -> Result<(), String> {
        match self.entries.iter().find(|entry| !modules.iter().any(|module| entry.is_about(module))) {
            Some(entry) => Err(format!("expected.txt has {}, but modules.txt does not have its module", entry.pattern)),
            None => Ok(()),
        }
    }

    /// Returns the IDs of a module's tests that are not run.
    pub(super) fn left_out(&self, module: &str) -> Vec<String> {
        let left_out = self.entries.iter().filter(|entry| entry.left_out && entry.is_about(module));
        left_out.map(|entry| entry.pattern.trim_start_matches(&format!("{module}:")).to_owned()).collect()
    }

    /// Returns the line that names a test.
    pub(super) fn find(&self, test: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.matches(test))
    }

    /// Returns the lines about one module's failures.
    pub(super) fn of_module(&self, module: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| !entry.left_out && entry.is_about(module))
    }
}

impl Entry {
    /// Returns whether this line names the test.
    pub(super) fn matches(&self, test: &str) -> bool {
        matches(&self.pattern, test)
    }

    fn is_about(&self, module: &str) -> bool {
        let rest = self.pattern.strip_prefix(module);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':']))
    }
}

/// Returns whether a text matches a pattern in which `*` matches any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((prefix, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(prefix) else { return false };
    text.char_indices().map(|(index, _)| index).chain([text.len()]).any(|index| matches(rest, &text[index..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, text) in [("a.b", "a.b"), ("a.*", "a."), ("a.*.c*", "a.b.b.cd"), ("*é*", "aéb")] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a.b", "a.bc"), ("a.*.c", "a.c"), ("*x", "xy")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_test_has_the_reason_it_stands_under() {
        let expected = Expected::parse("# c\n[one]\nm.A.x\n\n[two]\nm.B.*\n! m.C.y\n").unwrap();
        assert_eq!(expected.find("m.B.z").unwrap().reason, "two");
        assert!(expected.find("m.A.z").is_none());
        assert_eq!(expected.left_out("m"), ["m.C.y"]);
        assert_eq!(expected.of_module("m").count(), 2);
        assert_eq!(expected.of_module("mm").count(), 0);
    }

    #[test]
    fn a_test_without_a_reason_and_one_named_twice_are_refused() {
        assert!(Expected::parse("m.A.x\n").unwrap_err().contains("line 1"));
        assert!(Expected::parse("[r]\nm.A.x\nm.A.x\n").unwrap_err().contains("twice"));
    }

    #[test]
    fn a_line_about_a_module_that_is_not_run_is_refused() {
        let expected = Expected::parse("[r]\ntest.test_io.T.x\ntest.test_io:other.T.x\n").unwrap();
        assert!(expected.check_modules(&["test.test_io".into()]).is_ok());
        assert!(expected.check_modules(&["test.test_i".into()]).is_err());
    }
}
