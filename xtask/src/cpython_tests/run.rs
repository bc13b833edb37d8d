//! One module of the suite in a sandbox of its own: `belljar run tests/cpython/run_module.py MODULE`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The mount point of the suite; `run_module.py` has the same path.
const MOUNT_POINT: &str = "/cpython-tests";
/// The most tests of one module that may end the process. Each costs a run of its own.
const RESTARTS: usize = 10;
/// The number of bytes that are shown from the end of standard error, where belljar reports why a process ended early.
const ERROR_SHOWN: usize = 1500;

/// The configuration of runs.
pub(super) struct Sandbox {
    pub(super) belljar: PathBuf,
    pub(super) program: PathBuf,
    pub(super) suite: PathBuf,
    /// The time limit in seconds.
    pub(super) timeout: u32,
    /// True if event loops are left whenever they wait.
    pub(super) stepped: bool,
}

/// The outcome of a test, from best to worst. A test that is reported more than once, such as one of two generated with
/// the same name, has its worst outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Skipped,
    Passed,
    Failed,
}

/// The results of one module's tests.
#[derive(Debug)]
pub(super) struct ModuleRun {
    pub(super) module: String,
    /// Outcome and traceback or reason of each test. A name is the test's id, behind `MODULE:` where the id does not
    /// begin with the module, because the module imports the test from another.
    pub(super) tests: BTreeMap<String, (Outcome, String)>,
    pub(super) time: Duration,
}

/// The report of one process.
#[derive(Debug, Default)]
struct Records {
    tests: BTreeMap<String, (Outcome, String)>,
    /// The test that was running, or would have been the next to start.
    unfinished: Option<String>,
    complete: bool,
}

impl Sandbox {
    /// Runs a module without the tests in `left_out` (IDs). A test that ends the process has failed, and the module is
    /// run again without it.
    ///
    /// # Errors
    /// Fails if belljar cannot be started.
    pub(super) fn run(&self, module: &str, left_out: Vec<String>) -> Result<ModuleRun, String> {
        let start = Instant::now();
        let mut left_out: BTreeSet<String> = left_out.into_iter().collect();
        let mut tests = BTreeMap::new();
        for _ in 0..RESTARTS {
            let output = self
                .command(module, &left_out)
                .output()
                .map_err(|error| format!("failed to start {}: {error}", self.belljar.display()))?;
            let records = Records::read(&output.stdout);
            for (id, (outcome, detail)) in records.tests {
                record(&mut tests, name(module, &id), outcome, detail);
            }
            if records.complete {
                break;
            }
            let error = String::from_utf8_lossy(&output.stderr[output.stderr.len().saturating_sub(ERROR_SHOWN)..]);
            let detail = format!("the process ended ({}):\n{error}", output.status);
            // No test caused this: the module itself cannot be run.
            let culprit = records.unfinished.unwrap_or_else(|| module.to_owned());
            record(&mut tests, name(module, &culprit), Outcome::Failed, detail);
            if culprit == module || !left_out.insert(culprit) {
                break;
            }
        }
        Ok(ModuleRun { module: module.to_owned(), tests, time: start.elapsed() })
    }

    fn command(&self, module: &str, left_out: &BTreeSet<String>) -> Command {
        let mut mount = self.suite.clone().into_os_string();
        mount.push(":");
        mount.push(MOUNT_POINT);
        let mut command = Command::new(&self.belljar);
        command.args([
            "--quiet",
            "run",
            "--no-install",
            "--memory",
            "2GB",
            "--timeout",
            &self.timeout.to_string(),
            "--mount",
        ]);
        command.arg(mount).arg(&self.program).args(self.stepped.then_some("--stepped")).arg(module).args(left_out);
        command.stdin(Stdio::null());
        command
    }
}

impl Records {
    /// Parses JSON text sequences (RFC 7464), with output of the tests before, between and after them.
    fn read(output: &[u8]) -> Self {
        let mut records = Self::default();
        for line in output.split(|&byte| byte == b'\n') {
            let Some(begin) = line.iter().position(|&byte| byte == 0x1e) else { continue };
            if let Ok(record) = serde_json::from_slice::<Value>(&line[begin + 1..]) {
                records.add(&record);
            }
        }
        records
    }

    fn add(&mut self, entry: &Value) {
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        if let Some(id) = text("start") {
            self.unfinished = Some(id.to_owned());
        } else if let Some(id) = text("end") {
            let outcome = match text("outcome") {
                Some("passed") => Outcome::Passed,
                Some("skipped") => Outcome::Skipped,
                _ => Outcome::Failed,
            };
            self.unfinished = None;
            record(&mut self.tests, id.to_owned(), outcome, text("detail").unwrap_or_default().to_owned());
        } else if entry.get("ran").is_some() {
            self.complete = true;
            if let Some(test) = self.unfinished.take() {
                record(&mut self.tests, test, Outcome::Failed, "the report lacks the end of this test".into());
            }
        }
    }
}

fn record(tests: &mut BTreeMap<String, (Outcome, String)>, name: String, outcome: Outcome, detail: String) {
    match tests.get(&name) {
        Some((known, _)) if *known >= outcome => {}
        _ => drop(tests.insert(name, (outcome, detail))),
    }
}

/// Returns the name of a test in lists and reports.
fn name(module: &str, id: &str) -> String {
    match id.strip_prefix(module) {
        Some(rest) if rest.is_empty() || rest.starts_with('.') => id.to_owned(),
        _ => format!("{module}:{id}"),
    }
}

impl ModuleRun {
    /// Returns the number of tests with this outcome.
    pub(super) fn count(&self, wanted: Outcome) -> usize {
        self.tests.values().filter(|(outcome, _)| *outcome == wanted).count()
    }
}

impl fmt::Display for ModuleRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<32} {:>5} passed {:>4} failed {:>4} skipped {:>6.1} s",
            self.module,
            self.count(Outcome::Passed),
            self.count(Outcome::Failed),
            self.count(Outcome::Skipped),
            self.time.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_among_what_tests_print() {
        let output = b"noise\n\x1e{\"start\": \"m.T.a\"}\nmore \x1e{\"end\": \"m.T.a\", \"outcome\": \"passed\", \
            \"detail\": \"\"}\n\xff\n\x1e{\"start\": \"m.T.b\"}\n\x1e{\"end\"";
        let records = Records::read(output);
        assert_eq!(records.tests.keys().collect::<Vec<_>>(), ["m.T.a"]);
        assert_eq!(records.unfinished.as_deref(), Some("m.T.b"));
        assert!(!records.complete);
    }

    #[test]
    fn a_test_whose_end_cannot_be_read_has_failed() {
        let output =
            b"\x1e{\"start\": \"m.T.a\"}\n\x1e{\"end\": \"m.T.a\", \"detail\": \"\\udce7\"}\n\x1e{\"ran\": 1}\n";
        let records = Records::read(output);
        assert_eq!(records.tests["m.T.a"].0, Outcome::Failed);
        assert!(records.complete);
    }

    #[test]
    fn the_worst_of_two_outcomes_counts() {
        for pair in [[Outcome::Failed, Outcome::Passed], [Outcome::Passed, Outcome::Failed]] {
            let mut tests = BTreeMap::new();
            for outcome in pair {
                record(&mut tests, "t".into(), outcome, String::new());
            }
            assert_eq!(tests["t"].0, Outcome::Failed);
        }
    }

    #[test]
    fn a_test_of_another_module_is_named_with_the_module_that_ran_it() {
        assert_eq!(name("test.a", "test.a.T.x"), "test.a.T.x");
        assert_eq!(name("test.a", "test.ab.T.x"), "test.a:test.ab.T.x");
    }
}
