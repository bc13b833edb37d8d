//! Hostile code: each case ends in an expected outcome, and the next case is unaffected.
//!
//! The cases are in `cases/*.py`, separated by lines with their names and outcomes:
//!
//! ```text
//! # limits: time=5 memory=256MB             of all cases of the file
//! # %% name of the case => error RecursionError
//! # %% name of the case => limit time, time=0.5, spoiled
//! ```
//!
//! An outcome is `none`, `value TEXT`, `error TYPE`, `exit STATUS`, `limit NAME` or `crash MESSAGE`, or its first word
//! alone; ` | ` separates alternatives. Each case runs in a new interpreter. That interpreter, if it still runs, and
//! then another one must compute something; `spoiled` exempts the case's own interpreter from this.

mod isolation;

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use belljar_core::{Execution, ExitReason, Limits, Outcome, RunRequest, parse_size};
use belljar_emscripten::console::Capture;
use belljar_python::{Interpreter, Streams, on_guest_thread};

use crate::library::python;

/// The time after which a case counts as hung, on a busy machine too.
const HUNG: Duration = Duration::from_secs(240);

/// A case: code and its expected outcomes.
#[derive(Debug, Clone)]
struct Case {
    name: String,
    code: String,
    outcomes: Vec<String>,
    limits: Limits,
    spoiled: bool,
}

/// Returns the cases of a file.
fn cases(file: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut limits = Limits { output: 1 << 20, memory: 512 << 20, disk: 16 << 20, files: 1000, ..Limits::default() };
    let mut cases: Vec<Case> = Vec::new();
    for line in text.split_inclusive('\n') {
        if let Some(settings) = line.strip_prefix("# limits: ") {
            settings.split_whitespace().for_each(|setting| set(&mut limits, setting));
        } else if let Some(heading) = line.strip_prefix("# %% ") {
            let (name, rest) = heading.trim().split_once(" => ").unwrap_or_else(|| panic!("no outcome: {heading}"));
            let mut parts = rest.split(", ");
            let outcomes = parts.next().unwrap_or_default().split(" | ").map(str::to_owned).collect();
            let mut case = Case { name: name.into(), code: String::new(), outcomes, limits, spoiled: false };
            for part in parts {
                if part == "spoiled" { case.spoiled = true } else { set(&mut case.limits, part) }
            }
            cases.push(case);
        } else if let Some(case) = cases.last_mut() {
            case.code += line;
        }
    }
    assert!(!cases.is_empty(), "{} holds no cases", file.display());
    cases
}

fn set(limits: &mut Limits, setting: &str) {
    let (name, value) = setting.split_once('=').unwrap_or_else(|| panic!("no setting: {setting}"));
    match name {
        "time" => limits.wall_time = Some(Duration::from_secs_f64(value.parse().unwrap())),
        "cpu" => limits.cpu_time = Some(Duration::from_secs_f64(value.parse().unwrap())),
        "grace" => limits.grace = Duration::from_secs_f64(value.parse().unwrap()),
        "memory" => limits.memory = parse_size(value).unwrap(),
        "output" => limits.output = parse_size(value).unwrap(),
        "disk" => limits.disk = parse_size(value).unwrap(),
        "files" => limits.files = value.parse().unwrap(),
        _ => panic!("no such limit: {name}"),
    }
}

/// Creates an interpreter whose output is dropped.
fn interpreter(limits: Limits) -> Interpreter {
    let streams = Streams { output: Box::new(Capture::default()), input: Box::new(std::io::empty()) };
    python().interpreter(limits, streams).unwrap()
}

/// Returns an outcome in the notation of the case files.
fn describe(execution: &Execution) -> String {
    match &execution.outcome {
        Outcome::Success(None) => "none".into(),
        Outcome::Success(Some(value)) => format!("value {}", value.text),
        Outcome::Error(error) => format!("error {}", error.kind),
        Outcome::Exited(ExitReason::Exit(status)) => format!("exit {status}"),
        Outcome::Exited(ExitReason::Limit(limit)) => format!("limit {}", limit.name()),
        Outcome::Exited(ExitReason::Signal(signal)) => format!("signal {signal}"),
        Outcome::Exited(ExitReason::Cancelled) => "cancelled".into(),
        Outcome::InstallError(reason) => format!("install-error {reason}"),
        Outcome::Exited(ExitReason::Crash(reason)) => format!("crash {reason}"),
    }
}

/// Runs a case and returns a description of the failure, if it fails.
fn complaint(case: &Case) -> Option<String> {
    let mut own = interpreter(case.limits);
    let execution = own.run(&RunRequest::for_cell(&case.code));
    let came = describe(&execution);
    let expected = |outcome: &String| {
        // A kind alone matches all outcomes of the kind; a crash's message is matched by its beginning.
        let open = !outcome.contains(' ') || outcome.starts_with("crash");
        if open { came.starts_with(outcome.as_str()) } else { came == *outcome }
    };
    if !case.outcomes.iter().any(expected) {
        let traceback = match &execution.outcome {
            Outcome::Error(error) => error.traceback.as_str(),
            _ => "",
        };
        return Some(format!("ended in `{came}` after {:?}\n{traceback}", execution.statistics.run));
    }
    if own.is_dead() {
        let again = own.run(&RunRequest::for_cell("6 * 7"));
        if !matches!(again.outcome, Outcome::Exited(ExitReason::Crash(_))) {
            return Some(format!("a dead interpreter answered {}", describe(&again)));
        }
    } else if !case.spoiled {
        let again = describe(&own.run(&RunRequest::for_cell("6 * 7")));
        if again != "value 42" {
            return Some(format!("its interpreter then answered {again}"));
        }
        let ending = own.finish();
        if matches!(ending.outcome, Outcome::Exited(ExitReason::Crash(_))) {
            return Some(format!("its ending was {}", describe(&ending)));
        }
    }
    drop(own);
    let next =
        describe(&interpreter(Limits::default()).run(&RunRequest::for_cell("import json; json.loads('[6]')[0] * 7")));
    (next != "value 42").then(|| format!("the next interpreter answered {next}"))
}

/// Runs all cases of a file one after the other and reports all failures.
fn check(name: &str) {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/hostile/cases").join(name);
    let cases = cases(&file);
    python();
    let (sender, receiver) = mpsc::channel();
    let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    // Not a scoped thread, since the test must not wait for one that hangs.
    std::thread::spawn(move || {
        on_guest_thread(|| {
            for case in &cases {
                let begin = Instant::now();
                if sender.send((complaint(case), begin.elapsed())).is_err() {
                    break;
                }
            }
        })
    });
    let mut complaints = String::new();
    for name in names {
        match receiver.recv_timeout(HUNG) {
            Ok((complaint, took)) => {
                eprintln!("{took:>8.0?} {name}");
                if let Some(complaint) = complaint {
                    complaints += &format!("{name}: {complaint}\n");
                }
            }
            Err(error) => panic!("{complaints}{name}: no answer: {error}"),
        }
    }
    assert!(complaints.is_empty(), "{complaints}");
}

#[test]
fn recursion_ends_in_an_error() {
    check("stack.py");
}

#[test]
fn too_much_memory_is_an_error() {
    check("memory.py");
}

#[test]
fn endless_code_is_stopped() {
    check("endless.py");
}

#[test]
fn floods_of_output_and_files_are_limited() {
    check("floods.py");
}

#[test]
fn wild_pointers_end_one_interpreter() {
    check("pointers.py");
}

#[test]
fn escapes_fail() {
    check("escapes.py");
}

#[test]
fn every_kind_of_exit_is_reported() {
    check("endings.py");
}

#[test]
fn guest_runtime_survives_sabotage() {
    check("confusion.py");
}

#[test]
fn every_file_of_cases_is_checked() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/hostile");
    let tests = std::fs::read_to_string(directory.join("mod.rs")).unwrap();
    for entry in std::fs::read_dir(directory.join("cases")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(tests.contains(&format!("check(\"{name}\")")), "{name} is not checked");
    }
}
