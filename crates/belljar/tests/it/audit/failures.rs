//! Logs that cannot be written, rotation, and options that do not fit.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::json;

use super::{Log, end, serve, verify};
use crate::harness::Belljar;
use crate::wire::{Wire, text};

/// Starts a server that can write files of 12 KiB at most, as on a disk that is full then.
fn serve_on_small_disk(log: &Log, options: &[&str]) -> Wire {
    let server = Belljar::new().arg("stdio").args(log.options()).args(options).into_command();
    let mut command = std::process::Command::new("sh");
    // The signal would end the process; without it, writing fails.
    command
        .args(["-c", "trap '' XFSZ; ulimit -f 24; exec \"$0\" \"$@\""])
        .arg(server.get_program())
        .args(server.get_args());
    for (name, value) in server.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire
}

#[test]
fn full_disk_refuses_calls() {
    let log = Log::new();
    let mut wire = serve_on_small_disk(&log, &["--toolset", "all"]);
    let refusal = (0..200).find_map(|_| {
        let answer = wire.call(json!({ "python_code": "1" }));
        answer["isError"].as_bool().unwrap_or_default().then(|| text(&answer))
    });
    let refusal = refusal.unwrap();
    assert!(refusal.contains("the audit log of the server cannot be written"), "{refusal}");
    let cell = wire.tool("execute_code", json!({ "code": "1" }));
    assert!(text(&cell).contains("the audit log of the server cannot be written"), "{cell}");
    drop(wire);
    // The log is a chain, which may end in the middle of a line.
    let run = log.verify(&[]);
    assert_eq!(run.status, Some(0), "{run:?}");
}

#[test]
fn full_disk_warns_if_calls_are_more_important() {
    let log = Log::new();
    let mut wire = serve_on_small_disk(&log, &["--audit-failure", "warn"]);
    for _ in 0..100 {
        assert!(wire.run("6 * 7").contains("42"));
    }
    end(wire);
    assert!(log.text().len() <= 12 << 10);
}

#[test]
fn log_that_cannot_be_written_prevents_the_start() {
    let run = Belljar::without_cache().args(["stdio", "--audit", "/dev/full"]).run();
    assert_ne!(run.status, Some(0));
    assert!(run.stderr.contains("--audit: failed to write /dev/full: ") && run.stderr.contains("hint: "), "{run:?}");
    let run = Belljar::without_cache().args(["stdio", "--audit", "/nonexistent/audit.log"]).run();
    assert!(run.stderr.contains("--audit: failed to open /nonexistent/audit.log: "), "{run:?}");
    let run = Belljar::without_cache().args(["stdio", "--audit", "-"]).run();
    assert!(run.stderr.contains("standard output is the connection to the client"), "{run:?}");
    let run = Belljar::without_cache().args(["stdio", "--audit", "otlp"]).run();
    assert!(run.stderr.contains("hint: set OTEL_EXPORTER_OTLP_ENDPOINT"), "{run:?}");
    let run = Belljar::without_cache().args(["stdio", "--audit-code"]).run();
    assert!(run.stderr.contains("--audit"), "{run:?}");
}

#[test]
fn file_without_records_is_not_shown_as_a_log() {
    let log = Log::new();
    for text in ["# Notes\nnothing\n", "{\"level\": \"info\"}\n", "\u{0}\u{1}"] {
        std::fs::write(log.path(), text).unwrap();
        let run = Belljar::without_cache().args(["audit", "show"]).arg(log.path()).run();
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.stderr.contains("is not an audit log"), "{run:?}");
    }
}

#[test]
fn second_server_needs_a_file_of_its_own() {
    let log = Log::new();
    let wire = serve(&log, &[]);
    let run = Belljar::new().arg("stdio").args(log.options()).run();
    assert_ne!(run.status, Some(0));
    assert!(run.stderr.contains("is the audit log of another process"), "{run:?}");
    end(wire);
}

#[test]
fn rotated_files_are_one_chain() {
    let log = Log::new();
    let mut wire = serve(&log, &["--audit-rotate", "2KB"]);
    let files = || {
        let entries = std::fs::read_dir(log.path().parent().unwrap()).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    };
    // Records are written together if they come together, and a file ends after such a write.
    for _ in 0..1000 {
        wire.run("1");
        if files().len() > 3 {
            break;
        }
    }
    end(wire);
    let mut files = files();
    assert!(files.len() > 3, "{files:?}");
    let run = verify(&files, &[]);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.contains("the chain holds") && !run.stdout.contains("note:"), "{run:?}");
    files.remove(2);
    assert_eq!(verify(&files, &[]).status, Some(1));
}
