//! The report on the runs: differences from the list of expected failures, and the summary.

use std::collections::BTreeMap;
use std::fmt;

use super::expected::Expected;
use super::run::{ModuleRun, Outcome};

/// The comparison of the runs with the list.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The names and tracebacks of failures that the list does not name.
    unexpected_failures: Vec<(String, String)>,
    /// Tests that the list names, and that pass.
    unexpected_passes: Vec<String>,
    /// Lines of the list that match no failure.
    unused: Vec<String>,
    expected_failures: BTreeMap<String, usize>,
    modules: usize,
    passed: usize,
    skipped: usize,
}

impl Report {
    pub(super) fn new(runs: &BTreeMap<String, ModuleRun>, expected: &Expected) -> Self {
        let mut report = Self { modules: runs.len(), ..Self::default() };
        for (module, run) in runs {
            report.passed += run.count(Outcome::Passed);
            report.skipped += run.count(Outcome::Skipped);
            for (test, (outcome, detail)) in &run.tests {
                match (outcome, expected.find(test)) {
                    (Outcome::Failed, Some(entry)) => {
                        *report.expected_failures.entry(entry.reason.clone()).or_default() += 1;
                    }
                    (Outcome::Failed, None) => report.unexpected_failures.push((test.clone(), detail.clone())),
                    (Outcome::Passed, Some(_)) => report.unexpected_passes.push(test.clone()),
                    (Outcome::Passed, None) | (Outcome::Skipped, _) => {}
                }
            }
            let failed = |entry: &&super::expected::Entry| {
                run.tests.iter().any(|(test, (outcome, _))| *outcome == Outcome::Failed && entry.matches(test))
            };
            let unused = expected.of_module(module).filter(|entry| !failed(entry));
            report.unused.extend(unused.map(|entry| entry.pattern.clone()));
        }
        report
    }

    /// Returns whether the results equal the list.
    pub(super) fn is_as_expected(&self) -> bool {
        self.unexpected_failures.is_empty() && self.unexpected_passes.is_empty() && self.unused.is_empty()
    }

    /// Returns the unexpected failures with their tracebacks.
    pub(super) fn details(&self) -> String {
        self.unexpected_failures.iter().map(|(test, detail)| format!("==== {test}\n{detail}\n")).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed: usize = self.expected_failures.values().sum();
        let run = self.passed + failed + self.unexpected_failures.len();
        writeln!(f, "\n| modules | tests run | passed | expected failures | unexpected failures | skipped |")?;
        writeln!(f, "| ---: | ---: | ---: | ---: | ---: | ---: |")?;
        let unexpected = self.unexpected_failures.len();
        writeln!(f, "| {} | {run} | {} | {failed} | {unexpected} | {} |\n", self.modules, self.passed, self.skipped)?;
        writeln!(f, "| expected failures | reason |\n| ---: | --- |")?;
        for (reason, count) in &self.expected_failures {
            writeln!(f, "| {count} | {reason} |")?;
        }
        if !self.unexpected_failures.is_empty() {
            writeln!(f, "\nThese failed, and expected.txt does not name them:")?;
            for (test, detail) in &self.unexpected_failures {
                writeln!(f, "  {test}\n      {}", detail.trim_end().lines().last().unwrap_or_default())?;
            }
        }
        if !self.unexpected_passes.is_empty() {
            writeln!(f, "\nThese passed, though expected.txt names them:")?;
            self.unexpected_passes.iter().try_for_each(|test| writeln!(f, "  {test}"))?;
        }
        if !self.unused.is_empty() {
            writeln!(f, "\nThese lines of expected.txt match no failure:")?;
            self.unused.iter().try_for_each(|pattern| writeln!(f, "  {pattern}"))?;
        }
        Ok(())
    }
}

/// Returns all failures, each with the last line of its traceback, as the source of a new list.
pub(super) fn failures(runs: &BTreeMap<String, ModuleRun>) -> String {
    let mut text = String::new();
    for run in runs.values() {
        for (test, (outcome, detail)) in &run.tests {
            if *outcome == Outcome::Failed {
                text += &format!("{test}\n      {}\n", detail.trim_end().lines().last().unwrap_or_default());
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn report(list: &str, tests: &[(&str, Outcome)]) -> Report {
        let expected = Expected::parse(list).unwrap();
        let tests = tests.iter().map(|(test, outcome)| ((*test).to_owned(), (*outcome, String::new()))).collect();
        let run = ModuleRun { module: "m".into(), tests, time: Duration::ZERO };
        Report::new(&BTreeMap::from([("m".to_owned(), run)]), &expected)
    }

    #[test]
    fn a_listed_failure_is_as_expected() {
        let report = report("[r]\nm.a\n", &[("m.a", Outcome::Failed), ("m.b", Outcome::Passed)]);
        assert!(report.is_as_expected());
        assert_eq!(report.expected_failures, BTreeMap::from([("r".to_owned(), 1)]));
    }

    #[test]
    fn an_unlisted_failure_a_listed_pass_and_a_line_without_failure_are_not() {
        assert_eq!(report("", &[("m.a", Outcome::Failed)]).unexpected_failures.len(), 1);
        assert_eq!(report("[r]\nm.*\n", &[("m.a", Outcome::Passed)]).unexpected_passes, ["m.a"]);
        assert_eq!(report("[re]\nm.c\n", &[("m.a", Outcome::Skipped)]).unused, ["m.c"]);
    }
}
