//! The test programs of the workspace: building, ordering and running them.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::report::Report;
use crate::workspace::{as_by_hand, cargo, workspace};

/// The number of programs that run at once. Each has a thread for each core; most of their time is waiting.
const PROGRAMS_AT_ONCE: usize = 2;
/// The programs that take minutes, in the order in which they begin, before all others.
const FIRST: [&str; 6] = [
    "belljar it",
    "belljar capabilities",
    "xtask wheel",
    "belljar-store conformance",
    "belljar-client it",
    "belljar-native it",
];
/// The time within which the rest of the output of a command that has ended must be read.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);

/// A test program.
pub(super) struct Program {
    /// The folder of the package, and the target.
    name: String,
    executable: PathBuf,
    /// The package's directory, in which Cargo runs its tests.
    directory: PathBuf,
}

/// Builds the test programs of the packages that these arguments of Cargo select. Returns them in the order in which
/// they begin.
pub(super) fn build(selected: &[&str]) -> Result<Vec<Program>, String> {
    let mut command = Command::new(cargo());
    as_by_hand(&mut command);
    command.args(["test", "--locked"]).args(selected).args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let output = command
        .current_dir(workspace()?)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("failed to start cargo: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build".into());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut programs: Vec<Program> = messages.lines().filter_map(program).collect();
    if programs.is_empty() {
        return Err("cargo names no test program".into());
    }
    programs.sort_by_key(|program| FIRST.iter().position(|name| *name == program.name).unwrap_or(FIRST.len()));
    Ok(programs)
}

/// Returns the test program that a message of Cargo describes, if it describes one.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = directory.file_name()?.to_string_lossy();
    let name = format!("{package} {}", message["target"]["name"].as_str()?);
    Some(Program { name, executable: executable.into(), directory: directory.to_owned() })
}

/// Runs programs, some at a time, and passes their output on.
pub(super) fn run_all(programs: Vec<Program>) -> Result<Report, String> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let total = Mutex::new(Report::default());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let run_some = || -> Result<(), String> {
        while let Some(program) = next() {
            let run = program.run()?;
            total.lock().unwrap_or_else(PoisonError::into_inner).add(run.report);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PROGRAMS_AT_ONCE).map(|_| scope.spawn(run_some)).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread failed".into())));
        ended.collect::<Result<Vec<()>, String>>()
    })?;
    Ok(total.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Program {
    fn run(&self) -> Result<Run, String> {
        let Self { name, executable, directory } = self;
        println!("\n{name}: begins");
        let begin = Instant::now();
        let mut command = Command::new(executable);
        as_by_hand(&mut command);
        command.current_dir(directory).env("CARGO_MANIFEST_DIR", directory).env("CARGO", cargo());
        let run = watch(command, io::stdout())?;
        let result = if run.succeeded { "passed" } else { "FAILED" };
        println!("\n{name}: {result} after {:.0} s", begin.elapsed().as_secs_f64());
        Ok(run)
    }
}

/// A command that has ended.
pub(super) struct Run {
    pub(super) succeeded: bool,
    pub(super) report: Report,
}

/// Runs a command, and passes its output on to `printed`. A process that it leaves may keep the output open: its end is
/// not awaited.
pub(super) fn watch(mut command: Command, printed: impl Write + Send + 'static) -> Result<Run, String> {
    let failed = |error| format!("failed to run {:?}: {error}", command.get_program());
    let (output, input) = io::pipe().map_err(failed)?;
    let errors = input.try_clone().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(input).stderr(errors);
    let failed = |error| format!("failed to run a test program: {error}");
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
    // All that was written before the end is in the pipe.
    if let Ok(passed_on) = ended.recv_timeout(OUTPUT_TIMEOUT) {
        passed_on.map_err(failed)?;
    }
    let mut report = std::mem::take(&mut *report.lock().unwrap_or_else(PoisonError::into_inner));
    report.failed_endings = usize::from(!status.success());
    Ok(Run { succeeded: status.success(), report })
}

/// Writes what is read, and notes the results in it. The failures at the end are written together, since another
/// program may write at the same time.
fn pass_on(output: impl Read, mut printed: impl Write, report: &Mutex<Report>) -> io::Result<()> {
    let mut output = BufReader::new(output);
    let mut lines = Vec::new();
    loop {
        let begin = lines.len();
        if output.read_until(b'\n', &mut lines)? == 0 {
            return printed.write_all(&lines);
        }
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        report.read(String::from_utf8_lossy(lines.get(begin..).unwrap_or_default()).trim_end());
        if !report.is_in_failures() {
            printed.write_all(&lines)?;
            lines.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_read_until_the_command_ends() {
        let mut command = Command::new("sh");
        // The process in the background keeps the output open.
        command.args([
            "-c",
            "sleep 60 & echo 'test a ... FAILED'; echo 'test result: FAILED. 2 passed; 1 failed;'; exit 1",
        ]);
        let begin = Instant::now();
        // Not printed: it would be read as results of this run.
        let run = watch(command, io::sink()).unwrap();
        assert!(!run.succeeded && begin.elapsed() < Duration::from_secs(50));
        assert_eq!((run.report.passed, run.report.failed, run.report.names.len()), (2, 1, 1));
        assert_eq!(run.report.failed_endings, 1);
    }

    #[test]
    fn failures_of_a_program_are_written_together() {
        /// Notes what each call has written.
        #[derive(Clone, Default)]
        struct Calls(Arc<Mutex<Vec<String>>>);

        impl Write for Calls {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().push(String::from_utf8(bytes.to_vec()).unwrap());
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let end =
            "failures:\n---- a stdout ----\nwrong\nfailures:\n    a\n\ntest result: FAILED. 1 passed; 1 failed;\n";
        let printed = Calls::default();
        let lines = format!("test b ... ok\ntest a ... FAILED\n{end}");
        pass_on(lines.as_bytes(), printed.clone(), &Mutex::default()).unwrap();
        assert_eq!(*printed.0.lock().unwrap(), ["test b ... ok\n", "test a ... FAILED\n", end]);
    }

    #[test]
    fn programs_are_named_by_package_and_target() {
        let message = |reason: &str, test: bool| {
            serde_json::json!({
                "reason": reason, "manifest_path": "/src/crates/belljar-core/Cargo.toml",
                "target": { "name": "it" }, "profile": { "test": test }, "executable": "/target/debug/deps/it-1",
            })
            .to_string()
        };
        let found = program(&message("compiler-artifact", true)).unwrap();
        assert_eq!(found.name, "belljar-core it");
        assert_eq!(found.directory, Path::new("/src/crates/belljar-core"));
        assert!(program(&message("compiler-artifact", false)).is_none());
        assert!(program(&message("build-finished", true)).is_none());
        assert!(program("not JSON").is_none());
    }
}
