//! `cargo xtask test`: runs the tests of the workspace, and once more by themselves the few that fail.
//!
//! Fifteen hundred tests start servers, interpreters and browsers. On a machine with two cores, one of them may exceed
//! a limit that it keeps when it runs alone. A second run tells such a test from a defect, and names it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::workspace::{as_by_hand, workspace};

const USAGE: &str = "\
Usage: cargo xtask test

Runs `cargo test --workspace --locked --no-fail-fast`. If at most eight tests fail, each of them runs a second time,
while no other test runs. Those that pass then are listed as unsteady, and the chore succeeds. Tests of documentation,
and programs that end without a result, do not get a second run. The last lines name each test that failed, with the
end of its output.";

/// The maximum number of tests that run a second time. A machine that is busy for a minute, or has no network for a few
/// seconds, makes several tests fail at once.
const MAX_REPEATED: usize = 8;
/// The number of lines of a failed test's output that are printed again at the end.
const MAX_LINES: usize = 12;
/// The time within which the rest of the output of a command that has ended must be read.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the chore. Returns whether all tests have passed, at the latest in their second run.
pub(crate) fn main(mut arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    match arguments.next().as_deref() {
        None => {}
        Some("--help" | "-h") => {
            println!("{USAGE}");
            return Ok(true);
        }
        Some(other) => return Err(format!("unknown argument {other}\n\n{USAGE}")),
    }
    let first = run(&["--no-fail-fast"])?;
    if first.succeeded {
        return Ok(true);
    }
    let mut failed = Vec::new();
    let repeatable = first.report.repeatable();
    if let Some(names) = &repeatable {
        println!("\nrun a second time: {}", names.join(", "));
        for name in names {
            // Programs without libtest's harness take one name.
            let second = run(&["--tests", "--", "--test-threads=1", "--exact", name])?;
            // A name that no program knows would be a run of no tests.
            if !second.succeeded || second.report.passed == 0 {
                failed.push(*name);
            }
        }
    }
    first.report.names.iter().for_each(|name| print!("{}", first.report.failure(name)));
    let Some(names) = repeatable else {
        let Report { names, failed, failed_programs, failed_targets, .. } = &first.report;
        println!("\nno second run: {failed} failed tests, of which {} have a name that was read", names.len());
        println!("{failed_targets} programs failed, of which {failed_programs} have printed a result");
        return Ok(false);
    };
    let unsteady: Vec<&str> = names.into_iter().filter(|name| !failed.contains(name)).collect();
    println!("\npassed in the second run only: {}", unsteady.join(", "));
    println!("failed in both runs: {}", failed.join(", "));
    Ok(failed.is_empty())
}

struct Run {
    succeeded: bool,
    report: Report,
}

/// Runs `cargo test` with these arguments, and passes its output on.
fn run(arguments: &[&str]) -> Result<Run, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    as_by_hand(&mut command);
    command.args(["test", "--workspace", "--locked"]).args(arguments).current_dir(workspace()?);
    watch(command, io::stdout())
}

/// Runs a command, and passes its output on to `printed`. A process that it leaves may keep the output open: its end is
/// not awaited.
fn watch(mut command: Command, printed: impl Write + Send + 'static) -> Result<Run, String> {
    let failed = |error| format!("failed to run cargo: {error}");
    let (output, input) = io::pipe().map_err(failed)?;
    command.stdout(input.try_clone().map_err(failed)?).stderr(input);
    let mut child = command.spawn().map_err(failed)?;
    // It has the ends of the pipe that are written to, which would keep the pipe open.
    drop(command);
    let report = Arc::new(Mutex::new(Report::default()));
    let (has_ended, ended) = std::sync::mpsc::channel();
    let reading = report.clone();
    std::thread::spawn(move || {
        let _ = has_ended.send(pass_on(output, printed, &reading));
    });
    let status = child.wait().map_err(failed)?;
    // What was written before the end is in the pipe.
    if let Ok(passed_on) = ended.recv_timeout(OUTPUT_TIMEOUT) {
        passed_on.map_err(failed)?;
    }
    let report = std::mem::take(&mut *report.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Run { succeeded: status.success(), report })
}

/// Writes what is read, and notes the results in it.
fn pass_on(output: impl Read, mut printed: impl Write, report: &Mutex<Report>) -> io::Result<()> {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        printed.write_all(&line)?;
        report.lock().unwrap_or_else(PoisonError::into_inner).read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(())
}

/// The results that `cargo test` has printed.
#[derive(Debug, Default)]
struct Report {
    /// The names of the tests that have failed.
    names: BTreeSet<String>,
    /// The last lines of the output of each test that has failed.
    outputs: BTreeMap<String, VecDeque<String>>,
    /// The section that the lines that follow belong to.
    section: Section,
    /// The number of tests that have failed, by the summaries of the programs.
    failed: usize,
    /// The number of tests that have passed.
    passed: usize,
    /// The number of programs with a summary of failures.
    failed_programs: usize,
    /// The number of programs that have failed, by Cargo's summary.
    failed_targets: usize,
}

/// A section of the end of a test program's output.
#[derive(Debug, Default, PartialEq)]
enum Section {
    /// None: the results of tests, and what they print past the harness.
    #[default]
    Results,
    /// The output of the test of this name.
    Output(String),
    /// The names of the tests that have failed.
    Names,
}

impl Report {
    fn read(&mut self, line: &str) {
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
            Section::Results => {}
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
        } else if line.starts_with("error: ") && line.contains(" failed:") {
            self.failed_targets += count(" ", " target");
        }
    }

    /// Returns the name of a test that has failed, and the end of its output.
    fn failure(&self, name: &str) -> String {
        let mut text = format!("\nfailed: {name}\n");
        for line in self.outputs.get(name).into_iter().flatten() {
            text += &format!("    {line}\n");
        }
        text
    }

    /// Returns the names of the tests that failed, if a second run of them would tell whether the workspace is sound.
    fn repeatable(&self) -> Option<Vec<&str>> {
        // A program that was killed has no summary, and not all of its tests were run.
        let is_whole = self.failed == self.names.len() && self.failed_programs == self.failed_targets;
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
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 2.00s
error: 1 target failed:
    `-p belljar --test it`";

    #[test]
    fn output_is_read_until_the_command_ends() {
        let mut command = Command::new("sh");
        // The process in the background keeps the output open.
        command.args([
            "-c",
            "sleep 60 & echo 'test a ... FAILED'; echo 'test result: FAILED. 2 passed; 1 failed;'; exit 1",
        ]);
        let begin = std::time::Instant::now();
        // Not printed: it would be read as results of this run.
        let run = watch(command, io::sink()).unwrap();
        assert!(!run.succeeded && begin.elapsed() < Duration::from_secs(50));
        assert_eq!((run.report.passed, run.report.failed, run.report.names.len()), (2, 1, 1));
    }

    fn report(lines: &str) -> Report {
        let mut report = Report::default();
        lines.lines().for_each(|line| report.read(line));
        report
    }

    #[test]
    fn failed_tests_are_repeated() {
        let found = report(FAILURE);
        assert_eq!((found.passed, found.failed, found.failed_programs, found.failed_targets), (1, 1, 1, 1));
        assert_eq!(found.repeatable(), Some(vec!["cluster::tasks::second"]));
    }

    #[test]
    fn failures_are_named_with_the_end_of_their_output() {
        let lines: String = (0..20).map(|number| format!("line {number}\n")).collect();
        let found = report(&format!(
            "running 2 tests\nprogress: 10 %test a::b ... FAILED\ntest c ... ok\n\nfailures:\n\n---- a::b stdout \
             ----\n{lines}\n\nfailures:\n    a::b\n\ntest result: FAILED. 1 passed; 1 failed;\n    no name\nerror: 1 \
             target failed:"
        ));
        assert_eq!(found.repeatable(), Some(vec!["a::b"]));
        let failure = found.failure("a::b");
        assert!(failure.starts_with("\nfailed: a::b\n    line 10\n"), "{failure}");
        assert!(failure.trim_end().ends_with("line 19"), "{failure}");
    }

    #[test]
    fn what_a_second_run_does_not_settle_is_not_repeated() {
        let killed = FAILURE.replace("1 target failed", "2 targets failed");
        let hidden = FAILURE.replace("1 failed;", "2 failed;");
        let documentation = FAILURE.replace("cluster::tasks::second", "src/lib.rs - Client (line 12)");
        let many: String = (0..9).map(|number| format!("test t{number} ... FAILED\n")).collect();
        let many = format!("{many}test result: FAILED. 0 passed; 9 failed; 0 ignored\nerror: 1 target failed:");
        let broken = "error: could not compile `belljar` (lib) due to 1 previous error";
        for lines in [&killed, &hidden, &documentation, &many, broken] {
            assert_eq!(report(lines).repeatable(), None, "{lines}");
        }
    }
}
