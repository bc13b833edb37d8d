//! Code that does its worst: each piece ends in the outcome that it should, and the next runs as if nothing had been.
//!
//! The pieces are in `cases/*.py`, apart by lines that say what they do and how they end:
//!
//! ```text
//! # limits: time=5 memory=256MB             of all pieces of the file
//! # %% what it does => error RecursionError
//! # %% what it does => limit time, time=0.5, spoiled
//! ```
//!
//! An outcome is `none`, `value TEXT`, `error TYPE`, `exit STATUS`, `limit NAME` or `crash WORDS`, or one of the words
//! alone; several are apart by ` | `. Each piece gets an interpreter of its own. That interpreter, if it lives on, and then another are asked to
//! compute something; `spoiled` says that the piece's own interpreter cannot be expected to.

mod isolation;

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use belljar_core::{Execution, Limits, Outcome, Request, parse_size};
use belljar_emscripten::console::Capture;
use belljar_python::{Interpreter, Streams, on_guest_thread};

use crate::harness::python;

/// Longer than any piece may take, whatever else the machine does.
const HUNG: Duration = Duration::from_secs(240);

/// A piece of code and what is to come of it.
#[derive(Debug, Clone)]
struct Case {
    name: String,
    code: String,
    outcomes: Vec<String>,
    limits: Limits,
    spoiled: bool,
}

/// The pieces of a file.
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

/// A new interpreter whose output is dropped.
fn interpreter(limits: Limits) -> Interpreter {
    let streams = Streams { output: Box::new(Capture::default()), input: Box::new(std::io::empty()) };
    python().interpreter(limits, streams).unwrap()
}

/// An outcome in the words of the case files.
fn describe(execution: &Execution) -> String {
    match &execution.outcome {
        Outcome::Success(None) => "none".into(),
        Outcome::Success(Some(value)) => format!("value {}", value.text),
        Outcome::Error(error) => format!("error {}", error.kind),
        Outcome::Exit(status) => format!("exit {status}"),
        Outcome::Limit(limit) => format!("limit {}", limit.name()),
        Outcome::InstallError(reason) => format!("install-error {reason}"),
        Outcome::Crash(reason) => format!("crash {reason}"),
    }
}

/// Runs a case; says what is wrong with how it went.
fn complaint(case: &Case) -> Option<String> {
    let mut own = interpreter(case.limits);
    let execution = own.run(&Request::cell(&case.code));
    let came = describe(&execution);
    let expected = |outcome: &String| {
        // A kind alone stands for all of its kind; of a crash's words the first suffice.
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
        let again = own.run(&Request::cell("6 * 7"));
        if !matches!(again.outcome, Outcome::Crash(_)) {
            return Some(format!("a dead interpreter answered {}", describe(&again)));
        }
    } else if !case.spoiled {
        let again = describe(&own.run(&Request::cell("6 * 7")));
        if again != "value 42" {
            return Some(format!("its interpreter then answered {again}"));
        }
        let ending = own.finish();
        if matches!(ending.outcome, Outcome::Crash(_)) {
            return Some(format!("its ending was {}", describe(&ending)));
        }
    }
    drop(own);
    let next = describe(&interpreter(Limits::default()).run(&Request::cell("import json; json.loads('[6]')[0] * 7")));
    (next != "value 42").then(|| format!("the next interpreter answered {next}"))
}

/// Runs all cases of a file in this process, one after the other, and reports all that went wrong.
fn check(name: &str) {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/hostile/cases").join(name);
    let cases = cases(&file);
    python();
    let (sender, receiver) = mpsc::channel();
    let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    // Not scoped: a thread that hangs must not be waited for.
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
fn what_never_ends_is_stopped() {
    check("endless.py");
}

#[test]
fn floods_are_dammed() {
    check("floods.py");
}

#[test]
fn wild_pointers_end_one_interpreter() {
    check("pointers.py");
}

#[test]
fn there_is_no_way_out() {
    check("escapes.py");
}

#[test]
fn endings_of_all_kinds_are_told() {
    check("endings.py");
}

#[test]
fn our_own_part_is_not_confused() {
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
