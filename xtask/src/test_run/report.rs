//! The results in the output of test programs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The maximum number of tests that run a second time. A machine that is busy for a minute, or has no network for a few
/// seconds, makes several tests fail at once.
const MAX_REPEATED: usize = 8;
/// The number of lines of a failed test's output that are printed again at the end.
const MAX_LINES: usize = 12;

/// The results that test programs have printed.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The names of the tests that have failed.
    pub(super) names: BTreeSet<String>,
    /// The last lines of the output of each test that has failed.
    outputs: BTreeMap<String, VecDeque<String>>,
    /// The section that the lines that follow belong to.
    section: Section,
    /// The number of tests that have failed, by the summaries of the programs.
    pub(super) failed: usize,
    /// The number of tests that have passed.
    pub(super) passed: usize,
    /// The number of programs with a summary of failures.
    pub(super) failed_programs: usize,
    /// The number of programs that have failed, by the way they ended.
    pub(super) failed_endings: usize,
}

/// A section of the end of a test program's output.
#[derive(Debug, Default, PartialEq)]
enum Section {
    /// None: the results of tests, and what they print past the harness.
    #[default]
    Results,
    /// The output of the test of this name.
    Output(String),
    /// The stack at a panic, which says less than the lines before it.
    Backtrace,
    /// The names of the tests that have failed.
    Names,
}

impl Report {
    /// Notes what a line says.
    pub(super) fn read(&mut self, line: &str) {
        let output_of = |line: &str| {
            let name = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
            // Programs without libtest's harness leave the second word out.
            Some(name.strip_suffix(" stdout").unwrap_or(name).to_owned())
        };
        if let Some(name) = output_of(line) {
            self.section = Section::Output(name);
        } else if line == "failures:" {
            self.section = Section::Names;
        } else if line.starts_with("test result: ") {
            self.section = Section::Results;
        } else if line == "stack backtrace:" && matches!(self.section, Section::Output(_)) {
            self.section = Section::Backtrace;
        }
        match &self.section {
            Section::Output(name) => {
                let lines = self.outputs.entry(name.clone()).or_default();
                lines.push_back(line.to_owned());
                if lines.len() > MAX_LINES {
                    lines.pop_front();
                }
            }
            // The name is missing above if a process has written to the same line.
            Section::Names => self.names.extend(line.strip_prefix("    ").map(str::to_owned)),
            Section::Results | Section::Backtrace => {}
        }
        let count = |before: &str, after: &str| -> usize {
            let text = line.split_once(after).map_or("", |(text, _)| text);
            text.rsplit_once(before).and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
        };
        if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            // Programs without libtest's harness align the results.
            self.names.insert(name.trim_end().to_owned());
        } else if line.starts_with("test result: ") {
            self.passed += count(" ", " passed;");
            self.failed += count(" ", " failed;");
            self.failed_programs += usize::from(line.starts_with("test result: FAILED"));
        }
    }

    /// Returns whether the last line belongs to the section of failures at the end of a program's output.
    pub(super) fn is_in_failures(&self) -> bool {
        self.section != Section::Results
    }

    /// Adds the results of another program.
    pub(super) fn add(&mut self, other: Self) {
        self.names.extend(other.names);
        self.outputs.extend(other.outputs);
        self.failed += other.failed;
        self.passed += other.passed;
        self.failed_programs += other.failed_programs;
        self.failed_endings += other.failed_endings;
    }

    /// Returns the name of a test that has failed, and the end of its output.
    pub(super) fn failure(&self, name: &str) -> String {
        let mut text = format!("\nfailed: {name}\n");
        for line in self.outputs.get(name).into_iter().flatten() {
            text += &format!("    {line}\n");
        }
        text
    }

    /// Returns the names of the tests that failed, if a second run of them would tell whether the workspace is sound.
    pub(super) fn repeatable(&self) -> Option<Vec<&str>> {
        // A program that was killed has no summary, and not all of its tests were run.
        let is_whole = self.failed == self.names.len() && self.failed_programs == self.failed_endings;
        let is_documentation = |name: &String| name.contains(" - ") || name.contains("(line ");
        let is_repeatable =
            is_whole && (1..=MAX_REPEATED).contains(&self.names.len()) && !self.names.iter().any(is_documentation);
        is_repeatable.then(|| self.names.iter().map(String::as_str).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURE: &str = "\
running 3 tests
test sessions::order::first ... ok
test cluster::tasks::second     ... FAILED
test cluster::tasks::third ... ignored
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 2.00s";

    fn report(lines: &str) -> Report {
        let mut report = Report { failed_endings: 1, ..Report::default() };
        lines.lines().for_each(|line| report.read(line));
        report
    }

    #[test]
    fn failed_tests_are_repeated() {
        let found = report(FAILURE);
        assert_eq!((found.passed, found.failed, found.failed_programs, found.failed_endings), (1, 1, 1, 1));
        assert_eq!(found.repeatable(), Some(vec!["cluster::tasks::second"]));
    }

    #[test]
    fn failures_are_named_with_the_end_of_their_output() {
        let lines: String = (0..20).map(|number| format!("line {number}\n")).collect();
        let found = report(&format!(
            "running 2 tests\nprogress: 10 %test a::b ... FAILED\ntest c ... ok\n\nfailures:\n\n---- a::b stdout \
             ----\n{lines}\n\nfailures:\n    a::b\n\ntest result: FAILED. 1 passed; 1 failed;\n    no name"
        ));
        assert_eq!(found.repeatable(), Some(vec!["a::b"]));
        let failure = found.failure("a::b");
        assert!(failure.starts_with("\nfailed: a::b\n    line 10\n"), "{failure}");
        assert!(failure.trim_end().ends_with("line 19"), "{failure}");
    }

    #[test]
    fn stack_at_a_panic_is_left_out() {
        let found = report(
            "test a ... FAILED\ntest b ... FAILED\nfailures:\n---- a stdout ----\nleft: 1\nstack backtrace:\n   0: \
             begin\n---- b stdout ----\nright: 2\nfailures:\n    a\n    b\ntest result: FAILED. 0 passed; 2 failed;",
        );
        assert_eq!(found.failure("a"), "\nfailed: a\n    ---- a stdout ----\n    left: 1\n");
        assert_eq!(found.failure("b"), "\nfailed: b\n    ---- b stdout ----\n    right: 2\n");
    }

    #[test]
    fn what_a_second_run_does_not_settle_is_not_repeated() {
        let hidden = FAILURE.replace("1 failed;", "2 failed;");
        let documentation = FAILURE.replace("cluster::tasks::second", "src/lib.rs - Client (line 12)");
        let many: String = (0..9).map(|number| format!("test t{number} ... FAILED\n")).collect();
        let many = format!("{many}test result: FAILED. 0 passed; 9 failed; 0 ignored");
        for lines in [&hidden, &documentation, &many] {
            assert_eq!(report(lines).repeatable(), None, "{lines}");
        }
        let mut with_killed = report(FAILURE);
        with_killed.add(report("test cut::off ... ok"));
        assert_eq!(with_killed.repeatable(), None);
    }
}
