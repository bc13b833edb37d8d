//! Programs as language models write them, with their output. Each file of `tests/snippets` contains several: a line
//! `# %% Title` begins a program. Lines `#> …` are its output; lines `#! …` are parts of its standard error, in order.
//! Without the latter, nothing may be written there.
//!
//! Each program runs in an interpreter of its own, to its end. CPython itself has the same output, except in
//! `waits.py`.

use std::fmt::Write;
use std::path::Path;

use belljar_core::{Limits, Outcome, RunRequest};
use belljar_emscripten::console::{Capture, Stream};
use belljar_python::{Streams, on_guest_thread};

use crate::harness::names_in;
use crate::library::python;

struct Snippet {
    title: String,
    code: String,
    stdout: String,
    /// Parts of standard error.
    stderr: Vec<String>,
}

/// Returns the programs of a file.
fn snippets(file: &str) -> Vec<Snippet> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snippets").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let mut snippets: Vec<Snippet> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("# %% ") {
            snippets.push(Snippet {
                title: title.into(),
                code: String::new(),
                stdout: String::new(),
                stderr: Vec::new(),
            });
        }
        let Some(snippet) = snippets.last_mut() else { continue };
        if let Some(shown) = line.strip_prefix("#>") {
            writeln!(snippet.stdout, "{}", shown.strip_prefix(' ').unwrap_or(shown)).unwrap();
        } else if let Some(part) = line.strip_prefix("#! ") {
            snippet.stderr.push(part.into());
        } else {
            writeln!(snippet.code, "{line}").unwrap();
        }
    }
    snippets
}

/// Runs a program to its end, and returns what differs from its expected output.
fn difference(snippet: &Snippet) -> Option<String> {
    let output = Capture::default();
    let streams = Streams { output: Box::new(output.clone()), input: Box::new(std::io::empty()) };
    let mut interpreter = python().interpreter(Limits::default(), streams).unwrap();
    let outcomes = [interpreter.run(&RunRequest::for_cell(snippet.code.clone())).outcome, interpreter.finish().outcome];
    let pieces = output.take();
    let written = |wanted: Stream| -> String {
        let pieces = pieces.iter().filter(|(stream, _)| *stream == wanted);
        pieces.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
    };
    let (stdout, stderr) = (written(Stream::Stdout), written(Stream::Stderr));
    let mut rest = stderr.as_str();
    let has_parts = snippet.stderr.iter().all(|part| match rest.split_once(part.as_str()) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    });
    let succeeded = outcomes.iter().all(|outcome| matches!(outcome, Outcome::Success(_)));
    let matches = succeeded && stdout == snippet.stdout && has_parts && snippet.stderr.is_empty() == stderr.is_empty();
    (!matches).then(|| {
        format!("## {}\n{outcomes:?}\n{stdout}--- instead of\n{}--- and\n{stderr}", snippet.title, snippet.stdout)
    })
}

fn check(file: &str, count: usize) {
    python();
    let snippets = snippets(file);
    assert_eq!(snippets.len(), count, "{file} has another number of programs");
    let differences: Vec<String> = on_guest_thread(|| snippets.iter().filter_map(difference).collect()).unwrap();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn threads_do_their_work() {
    check("threads.py", 36);
}

#[test]
fn waits_that_never_end_are_errors() {
    check("waits.py", 12);
}

#[test]
fn pools_and_processes_do_their_work() {
    check("pools.py", 28);
}

#[test]
fn programs_that_need_no_process_run() {
    check("subprocesses.py", 21);
}

#[test]
fn every_file_of_snippets_is_checked() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let source = std::fs::read_to_string(tests.join("it/snippets.rs")).unwrap();
    for name in names_in(&tests.join("snippets")).iter().filter(|name| name.ends_with(".py")) {
        assert!(source.contains(&format!("check(\"{name}\", ")), "{name} is not checked");
    }
}
