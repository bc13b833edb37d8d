//! `cargo xtask test`: runs the tests of the workspace, and once more by themselves the few that fail.
//!
//! Fifteen hundred tests start servers, interpreters and browsers. On a machine with two cores, one of them may exceed
//! a limit that it keeps when it runs alone. A second run tells such a test from a defect, and names it.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::workspace::{as_by_hand, workspace};

const USAGE: &str = "\
Usage: cargo xtask test

Runs `cargo test --workspace --locked --no-fail-fast`. If at most three tests fail, each of them runs a second time,
while no other test runs. Those that pass then are listed as unsteady, and the chore succeeds. Tests of documentation,
and programs that end without a result, do not get a second run.";

/// The maximum number of tests that run a second time.
const MAX_REPEATED: usize = 3;
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
    let Some(names) = first.report.repeatable() else { return Ok(false) };
    println!("\nrun a second time: {}", names.join(", "));
    let (mut unsteady, mut failed) = (Vec::new(), Vec::new());
    for name in names {
        // Programs without libtest's harness take one name.
        let second = run(&["--tests", "--", "--test-threads=1", "--exact", name])?;
        // A name that no program knows would be a run of no tests.
        let has_passed = second.succeeded && second.report.passed > 0;
        if has_passed { unsteady.push(name) } else { failed.push(name) }
    }
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
    /// The number of tests that have failed, by the summaries of the programs.
    failed: usize,
    /// The number of tests that have passed.
    passed: usize,
    /// The number of programs with a summary of failures.
    failed_programs: usize,
    /// The number of programs that have failed, by Cargo's summary.
    failed_targets: usize,
}

impl Report {
    fn read(&mut self, line: &str) {
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
    fn what_a_second_run_does_not_settle_is_not_repeated() {
        let killed = FAILURE.replace("1 target failed", "2 targets failed");
        let hidden = FAILURE.replace("1 failed;", "2 failed;");
        let documentation = FAILURE.replace("cluster::tasks::second", "src/lib.rs - Client (line 12)");
        let many: String = (0..4).map(|number| format!("test t{number} ... FAILED\n")).collect();
        let many = format!("{many}test result: FAILED. 0 passed; 4 failed; 0 ignored\nerror: 1 target failed:");
        let broken = "error: could not compile `belljar` (lib) due to 1 previous error";
        for lines in [&killed, &hidden, &documentation, &many, broken] {
            assert_eq!(report(lines).repeatable(), None, "{lines}");
        }
    }
}
