//! `cargo xtask test`: runs the tests of the workspace, and once more by themselves the few that fail.
//!
//! Fifteen hundred tests start servers, interpreters and browsers, and many wait for a lease or a limit to end. `cargo
//! test` runs one program after another, each with as many tests at once as there are processors, which are idle while
//! tests wait. Therefore several programs run at once here, and the one whose tests wait most runs more of them.
//!
//! On a machine with two cores, a test may exceed a limit that it keeps when it runs alone. A second run tells such a
//! test from a defect, and names it.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::workspace::{as_by_hand, workspace};

const USAGE: &str = "\
Usage: cargo xtask test

Runs the tests of `cargo test --workspace --locked --no-fail-fast`, three programs at once. If at most three tests fail,
each of them runs a second time, while no other test runs. Those that pass then are listed as unsteady, and the chore
succeeds. Tests of documentation, and programs that end without a result, do not get a second run.

The results of tests are printed when they are known, and the rest of a program's output when it ends.";

/// The maximum number of tests that run a second time.
const MAX_REPEATED: usize = 3;
/// The time within which the rest of the output of a command that has ended must be read.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of programs that run at once. One of the longest, that of the wheel, has a single test.
const PROGRAMS_AT_ONCE: usize = 3;
/// The program whose tests wait for most of their time. It runs two of them at once for each processor, the others one.
const WAITING: &str = "belljar/it";
/// The programs that take longest, which start first in this order.
const LONGEST: [&str; 5] =
    [WAITING, "xtask/wheel", "belljar/capabilities", "belljar-store/conformance", "belljar-client/it"];

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
    let Some(programs) = build()? else { return Ok(false) };
    let failed = run_all(programs)?;
    if failed.is_empty() {
        return Ok(true);
    }
    let names: Vec<&str> = failed.iter().map(|(program, _)| program.name.as_str()).collect();
    println!("\nprograms with failures: {}", names.join(", "));
    let Some(repeated) = repeatable(&failed) else { return Ok(false) };
    let names: Vec<&str> = repeated.iter().map(|(_, name)| *name).collect();
    println!("run a second time: {}", names.join(", "));
    let (mut unsteady, mut failed) = (Vec::new(), Vec::new());
    for (program, name) in repeated {
        // Programs without libtest's harness take one name.
        let second = program.run(&["--test-threads=1", "--exact", name])?;
        // A name that the program does not know would be a run of no tests.
        let has_passed = second.succeeded && second.report.passed > 0;
        if has_passed { unsteady.push(name) } else { failed.push(name) }
    }
    println!("\npassed in the second run only: {}", unsteady.join(", "));
    println!("failed in both runs: {}", failed.join(", "));
    Ok(failed.is_empty())
}

/// A test program that Cargo has built, or Cargo itself for the tests of documentation.
#[derive(Debug, PartialEq)]
struct Program {
    /// The names of the package's folder and of the target.
    name: String,
    executable: PathBuf,
    arguments: &'static [&'static str],
    /// The folder of the package, in which Cargo runs the program.
    folder: PathBuf,
    is_documentation: bool,
}

fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

/// Builds the test programs, and returns them and the tests of documentation in the order in which they start.
fn build() -> Result<Option<Vec<Program>>, String> {
    let mut command = Command::new(cargo());
    as_by_hand(&mut command);
    command.args(["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"]);
    command.current_dir(workspace()?).stderr(Stdio::inherit());
    let begin = Instant::now();
    let built = command.output().map_err(|error| format!("failed to run cargo: {error}"))?;
    if !built.status.success() {
        return Ok(None);
    }
    println!("built in {:.0} s", begin.elapsed().as_secs_f64());
    let mut programs = programs(&String::from_utf8_lossy(&built.stdout));
    if programs.is_empty() {
        return Err("cargo does not list the programs that it has built".into());
    }
    programs.push(Program {
        name: "documentation".into(),
        executable: cargo(),
        arguments: &["test", "--workspace", "--locked", "--no-fail-fast", "--doc"],
        folder: workspace()?,
        is_documentation: true,
    });
    programs.sort_by_key(|program| LONGEST.iter().position(|name| program.name == *name).unwrap_or(LONGEST.len()));
    Ok(Some(programs))
}

/// Returns the test programs in the messages of Cargo.
fn programs(messages: &str) -> Vec<Program> {
    let program = |message: Value| {
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        Some(Program {
            name: format!("{}/{}", folder.file_name()?.to_string_lossy(), message["target"]["name"].as_str()?),
            executable: message["executable"].as_str()?.into(),
            arguments: &[],
            folder: folder.to_owned(),
            is_documentation: false,
        })
    };
    messages.lines().filter_map(|line| program(serde_json::from_str(line).ok()?)).collect()
}

/// Runs the programs, and returns those that have failed.
fn run_all(programs: Vec<Program>) -> Result<Vec<(Program, Report)>, String> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = format!("--test-threads={}", processors * 2);
    let waiting = Mutex::new(programs.into_iter());
    let failed = Mutex::new(Vec::new());
    let work = || -> Result<(), String> {
        loop {
            let next = lock(&waiting).next();
            let Some(program) = next else { return Ok(()) };
            let arguments = if program.name == WAITING { vec![threads.as_str()] } else { Vec::new() };
            let run = program.run(&arguments)?;
            if !run.succeeded {
                lock(&failed).push((program, run.report));
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..PROGRAMS_AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread has panicked".to_owned())?)
    })?;
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Program {
    /// Runs the program with these further arguments, as Cargo does, and prints its output.
    fn run(&self, arguments: &[&str]) -> Result<Run, String> {
        let mut command = Command::new(&self.executable);
        as_by_hand(&mut command);
        command.args(self.arguments).args(arguments).current_dir(&self.folder);
        if !self.is_documentation {
            command.env("CARGO", cargo()).env("CARGO_MANIFEST_DIR", &self.folder);
        }
        let begin = Instant::now();
        let run = watch(command).map_err(|error| format!("failed to run {}: {error}", self.name))?;
        let end = if run.succeeded { "passed" } else { "failed" };
        // In one piece: another program may print at the same time.
        print!("\n{}\n{}: {end} in {:.0} s\n", run.output.trim(), self.name, begin.elapsed().as_secs_f64());
        Ok(run)
    }
}

struct Run {
    succeeded: bool,
    report: Report,
    /// The output, without the results of single tests.
    output: String,
}

/// Runs a command, and prints the results of tests in its output. A process that it leaves may keep the output open:
/// its end is not awaited.
fn watch(mut command: Command) -> io::Result<Run> {
    let (output, input) = io::pipe()?;
    command.stdout(input.try_clone()?).stderr(input);
    let mut child = command.spawn()?;
    // It has the ends of the pipe that are written to, which would keep the pipe open.
    drop(command);
    let read = Arc::new(Mutex::new((Report::default(), String::new())));
    let (has_ended, ended) = std::sync::mpsc::channel();
    let reading = read.clone();
    std::thread::spawn(move || {
        let _ = has_ended.send(read_lines(output, &reading));
    });
    let status = child.wait()?;
    // What was written before the end is in the pipe.
    if let Ok(result) = ended.recv_timeout(OUTPUT_TIMEOUT) {
        result?;
    }
    let (report, output) = std::mem::take(&mut *lock(&read));
    Ok(Run { succeeded: status.success(), report, output })
}

/// Notes the results in what is read. Prints those of single tests, and keeps the other lines.
fn read_lines(output: impl Read, read: &Mutex<(Report, String)>) -> io::Result<()> {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        let mut read = lock(read);
        read.0.read(text.trim_end());
        if text.starts_with("test ") && !text.starts_with(SUMMARY) {
            print!("{text}");
        } else {
            read.1.push_str(&text);
        }
        drop(read);
        line.clear();
    }
    Ok(())
}

/// The beginning of the last line of a program's results.
const SUMMARY: &str = "test result: ";

/// The results that a program has printed.
#[derive(Debug, Default)]
struct Report {
    /// The names of the tests that have failed.
    names: BTreeSet<String>,
    /// The number of tests that have failed, by the summary. It is 0 without a summary.
    failed: usize,
    /// The number of tests that have passed.
    passed: usize,
}

impl Report {
    fn read(&mut self, line: &str) {
        let count = |after: &str| -> usize {
            let text = line.split_once(after).map_or("", |(text, _)| text);
            text.rsplit_once(' ').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
        };
        if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            // Programs without libtest's harness align the results.
            self.names.insert(name.trim_end().to_owned());
        } else if line.starts_with(SUMMARY) {
            self.passed += count(" passed;");
            self.failed += count(" failed;");
        }
    }
}

/// Returns the tests that failed, if a second run of them would tell whether the workspace is sound.
fn repeatable(failed: &[(Program, Report)]) -> Option<Vec<(&Program, &str)>> {
    // A program that was killed has no summary, and not all of its tests were run.
    let is_whole = |(program, report): &(Program, Report)| {
        !program.is_documentation && report.failed > 0 && report.failed == report.names.len()
    };
    let tests: Vec<(&Program, &str)> = failed
        .iter()
        .flat_map(|(program, report)| report.names.iter().map(move |name| (program, name.as_str())))
        .collect();
    (failed.iter().all(is_whole) && (1..=MAX_REPEATED).contains(&tests.len())).then_some(tests)
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

    #[test]
    fn output_is_read_until_the_command_ends() {
        let mut command = Command::new("sh");
        // The process in the background keeps the output open. The names of tests are not printed: they would be read
        // as results of this run.
        let results = "echo 'running 3 tests'; echo 'test result: FAILED. 2 passed; 1 failed;'";
        command.args(["-c", &format!("sleep 60 & {results}; exit 1")]);
        let begin = Instant::now();
        let run = watch(command).unwrap();
        assert!(!run.succeeded && begin.elapsed() < Duration::from_secs(50));
        assert_eq!((run.report.passed, run.report.failed), (2, 1));
        assert!(run.output.starts_with("running 3 tests\ntest result"), "{}", run.output);
    }

    fn program(name: &str) -> Program {
        let is_documentation = name == "documentation";
        Program { name: name.into(), executable: "/t".into(), arguments: &[], folder: "/".into(), is_documentation }
    }

    fn failure(name: &str, lines: &str) -> (Program, Report) {
        let mut report = Report::default();
        lines.lines().for_each(|line| report.read(line));
        (program(name), report)
    }

    #[test]
    fn programs_are_read_from_messages() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{"name":"it"},"profile":{"test":true},"executable":"/t/it-1"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{"name":"a"},"profile":{"test":false},"executable":"/t/a"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{"name":"a"},"profile":{"test":false},"executable":null}
{"reason":"build-finished","success":true}"#;
        let it = Program { executable: "/t/it-1".into(), folder: "/w/crates/a".into(), ..program("a/it") };
        assert_eq!(programs(messages), [it]);
    }

    #[test]
    fn failed_tests_are_repeated() {
        let found = failure("belljar/it", FAILURE);
        assert_eq!((found.1.passed, found.1.failed), (1, 1));
        assert_eq!(repeatable(&[found]), Some(vec![(&program("belljar/it"), "cluster::tasks::second")]));
        let two = [failure("a/it", FAILURE), failure("b/it", FAILURE)];
        assert_eq!(repeatable(&two).map(|tests| tests.len()), Some(2));
    }

    #[test]
    fn what_a_second_run_does_not_settle_is_not_repeated() {
        let hidden = FAILURE.replace("1 failed;", "2 failed;");
        let many: String = (0..4).map(|number| format!("test t{number} ... FAILED\n")).collect();
        let many = format!("{many}test result: FAILED. 0 passed; 4 failed; 0 ignored");
        for lines in [&hidden, &many, "running 2 tests\ntest a ... FAILED", "running 2 tests\ntest a ... ok"] {
            assert!(repeatable(&[failure("a/it", lines)]).is_none(), "{lines}");
        }
        let documentation = failure(
            "documentation",
            "test src/lib.rs - Client (line 12) ... FAILED\n\
            test result: FAILED. 0 passed; 1 failed;",
        );
        assert!(repeatable(&[documentation]).is_none());
        let killed = [failure("a/it", FAILURE), failure("b/it", "running 2 tests")];
        assert!(repeatable(&killed).is_none());
    }
}
