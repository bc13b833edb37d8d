//! The audit log of servers, by all protocols, and what OpenTelemetry receives.

mod approvals;
mod documentation;
mod failures;
mod installations;
mod json_log;
mod operators;
mod protocols;
mod telemetry;
mod traces_of_waits;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Belljar, Run};
use crate::network_servers::{TOKEN, site};
use crate::tool_client::tool_server;
use crate::wire::Wire;

/// A log in a directory of its own.
struct Log {
    directory: TempDir,
}

impl Log {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("audit.log")
    }

    /// Returns the options of a server.
    fn options(&self) -> [String; 2] {
        ["--audit".into(), self.path().display().to_string()]
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    fn records(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the records of an event.
    fn of(&self, event: &str) -> Vec<Value> {
        self.records().into_iter().filter(|record| record["event"] == event).collect()
    }

    /// Returns the records of an event in the complete lines of a log that is being written.
    fn of_complete(&self, event: &str) -> Vec<Value> {
        let text = self.text();
        let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.filter(|record| record["event"] == event).collect()
    }

    /// Returns the only record of an event.
    fn one(&self, event: &str) -> Value {
        let found = self.of(event);
        assert_eq!(found.len(), 1, "{event}: {}", self.text());
        found[0].clone()
    }

    /// Shows the log with the command.
    fn show(&self, options: &[&str]) -> String {
        let run = Belljar::without_cache().args(["audit", "show"]).arg(self.path()).args(options).run();
        assert_eq!(run.status, Some(0), "{run:?}");
        run.stdout
    }

    /// Verifies the log with the command.
    fn verify(&self, options: &[&str]) -> Run {
        verify(&[self.path()], options)
    }

    fn assert_intact(&self) {
        let run = self.verify(&[]);
        assert_eq!(run.status, Some(0), "{run:?}");
        assert!(run.stdout.contains("the chain holds") && !run.stdout.contains("note:"), "{run:?}");
    }
}

fn verify(files: &[PathBuf], options: &[&str]) -> Run {
    Belljar::without_cache().args(["audit", "verify"]).args(files).args(options).run()
}

/// Starts `belljar stdio` with a log and these options.
fn serve(log: &Log, options: &[&str]) -> Wire {
    let audit = log.options();
    Wire::start(audit.iter().map(String::as_str).chain(options.iter().copied()))
}

/// Ends a server, so that its log is complete.
fn end(mut wire: Wire) {
    wire.end_input();
    assert!(wire.wait_for_exit().success());
}

fn sha256(text: &str) -> String {
    belljar_audit::sha256(text)
}

#[test]
fn runs_and_cells_are_recorded_with_their_outcome_and_without_code() {
    let log = Log::new();
    let mut wire = serve(&log, &["--toolset", "all"]);
    wire.run("marker_one = 6 * 7\nprint('x' * 100)");
    wire.run("1 / 0");
    let created = wire.tool("execute_code", json!({ "code": "marker_two = 1" }));
    let session = created["structuredContent"]["session_info"]["session_id"].as_str().unwrap().to_owned();
    wire.tool("execute_code", json!({ "session_id": session, "code": "import sys; sys.exit(3)" }));
    end(wire);
    log.assert_intact();
    let text = log.text();
    assert!(!text.contains(&session) && !text.contains("marker"), "{text}");
    let runs = log.of("run.end");
    assert_eq!((&runs[0]["outcome"], &runs[1]["outcome"]), (&json!("success"), &json!("error")), "{text}");
    assert_eq!(runs[1]["error"], "ZeroDivisionError");
    assert_eq!(runs[0]["code_sha256"], sha256("marker_one = 6 * 7\nprint('x' * 100)"));
    assert_eq!(runs[0]["bytes"], 101);
    for record in [&runs[0], &log.of("cell.end")[0]] {
        assert!(record["cpu_ms"].as_f64().unwrap() > 0.0 && record["duration_ms"].as_f64().unwrap() > 0.0, "{record}");
        assert_eq!(record["protocol"], "mcp");
    }
    let starts = log.of("run.start");
    assert_eq!(starts[0]["run"], runs[0]["run"]);
    assert_ne!(starts[0]["run"], starts[1]["run"]);
    let cells = log.of("cell.start");
    assert_eq!(cells.len(), 2, "{text}");
    assert_eq!(cells[0]["session"], belljar_audit::digest(&session));
    assert_eq!(log.one("session.create")["session"], cells[0]["session"]);

    // The command finds the session by its ID.
    let shown = log.show(&["--session", &session, "--event", "cell", "--json"]);
    assert_eq!(shown.lines().count(), 4, "{shown}");
    assert!(text.contains(shown.lines().next().unwrap()), "the lines are those of the file");
    // And by its handle in the console.
    let handle = &belljar_audit::digest(&session)[..16];
    assert_eq!(log.show(&["--session", handle, "--event", "cell", "--json"]), shown);
    let shown = log.show(&["--event", "run.end", "--since", "1h"]);
    assert!(shown.contains("run.end → success") && shown.contains("(ZeroDivisionError)"), "{shown}");
    assert!(shown.lines().all(|line| line.contains(" ms cpu ")), "{shown}");
}

#[test]
fn code_is_recorded_on_request_without_its_secrets() {
    let log = Log::new();
    let mut wire = serve(&log, &["--audit-code"]);
    let code = "password = 'hunter2'\nprint(len(password))";
    wire.run(code);
    end(wire);
    log.assert_intact();
    let start = log.one("run.start");
    assert_eq!(start["code"], "password = [redacted]\nprint(len(password))");
    assert_eq!(start["code_sha256"], sha256(code));
}

#[test]
fn secret_of_the_server_that_begins_like_a_key_is_removed_as_a_whole() {
    let log = Log::new();
    let options = ["--audit-code", "--allow-net", "api.example.com", "--secret", "KEY@api.example.com=env:TEST_KEY"];
    let belljar = Belljar::new().arg("stdio").args(log.options()).args(options).env("TEST_KEY", "sk-abcdefgh1234.tail");
    let mut command = belljar.into_command();
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire.run("key = 'sk-abcdefgh1234.tail'\nprint(len(key))");
    end(wire);
    log.assert_intact();
    assert_eq!(log.one("run.start")["code"], format!("key = '{}'\nprint(len(key))", "*".repeat(20)));
}

#[test]
fn arguments_of_tools_are_bounded_after_secrets_are_removed() {
    let log = Log::new();
    let server = tool_server("t", "plain");
    let mut wire = serve(&log, &["--toolset", "all", &server]);
    // The bound is within the secret.
    let message = format!("{} Bearer hunter2hunter2 {}", "x".repeat(1976), "y".repeat(5000));
    wire.run(&format!(
        "from tools import t, ToolException\ntry:\n    await t.fail(message='{message}')\nexcept ToolException:\n    pass"
    ));
    end(wire);
    log.assert_intact();
    let text = log.text();
    assert!(!text.contains("hunt"), "{text}");
    let start = log.one("tool.start");
    let arguments = start["arguments"].as_str().unwrap();
    assert_eq!(arguments.chars().count(), 2001, "{arguments}");
    assert!(arguments.ends_with("x Bearer [red…"), "{arguments}");
    let end = log.one("tool.end");
    assert_eq!(end["outcome"], "error");
    assert!(end["error"].as_str().is_none_or(|error| error.chars().count() <= 401), "{end}");
}

#[test]
fn calls_of_tools_and_approvals_are_recorded() {
    let log = Log::new();
    let server = tool_server("t", "plain");
    let mut wire = serve(&log, &["--toolset", "all", &server]);
    let code = "from tools import t, ToolException\nprint(await t.add(a=1))\ntry:\n    \
                await t.fail(message='Bearer hunter2hunter2')\nexcept ToolException as error:\n    print(error)\ntry:\n    \
                await t.note(text='hello')\nexcept ToolException as error:\n    print(error)";
    wire.run(code);
    wire.tool("execute_code", json!({ "code": code }));
    end(wire);
    log.assert_intact();
    let text = log.text();
    assert!(!text.contains("hunter2"), "{text}");
    let ends = log.of("tool.end");
    let named: Vec<_> =
        ends.iter().map(|end| (end["name"].as_str().unwrap(), end["outcome"].as_str().unwrap())).collect();
    let expected = [("t.add", "ok"), ("t.fail", "error"), ("t.note", "denied")];
    assert_eq!(named, [expected, expected].concat(), "{text}");
    assert_eq!(log.of("tool.start")[0]["arguments"], "{\"a\":1}");
    // This client cannot be asked.
    let denied = log.of("approval.deny");
    assert_eq!((log.of("approval.ask").len(), denied.len()), (2, 2));
    assert_eq!((&denied[0]["name"], &denied[0]["by"]), (&json!("t.note"), &json!("policy")));
    // All are of the run or cell that made them.
    let (run, cell) = (log.one("run.start"), log.one("cell.start"));
    assert_eq!((&ends[0]["run"], &ends[3]["run"]), (&run["run"], &cell["run"]));
    assert_eq!(ends[3]["session"], cell["session"]);
}

#[test]
fn connections_are_recorded_without_secrets() {
    let log = Log::new();
    let audit = log.options();
    let mut wire = site().serve(&[&audit[0], &audit[1], "--audit-code"]);
    let code = "import os, urllib.request\nurl = 'https://api.example.com:PORT_https/return/plain?api_key=hunter2'\n\
                request = urllib.request.Request(url)\nrequest.add_header('Authorization', 'Bearer ' + os.environ['TOKEN'])\n\
                print(urllib.request.urlopen(request).status)\ntry:\n    urllib.request.urlopen('https://evil.example/')\n\
                except OSError as error:\n    print(error)";
    let answer = wire.run(&site().filled(code));
    assert!(answer.contains("200"), "{answer}");
    end(wire);
    log.assert_intact();
    let text = log.text();
    assert!(!text.contains(TOKEN) && !text.contains("s3cret") && !text.contains("hunter2"), "{text}");
    let connections = log.of("connection");
    let done = connections.iter().find(|record| record["outcome"] == "200").unwrap();
    assert!(done["name"].as_str().unwrap().starts_with("api.example.com:"), "{done}");
    assert!(done["arguments"].as_str().unwrap().starts_with("GET /return/plain"), "{done}");
    assert!(done["bytes_received"].as_u64().unwrap() > 0, "{done}");
    let refused = connections.iter().find(|record| record["outcome"] == "refused").unwrap();
    assert!(refused["name"].as_str().unwrap().starts_with("evil.example"), "{refused}");
    assert_eq!(refused["run"], log.one("run.end")["run"]);
}

#[test]
fn changes_of_a_servers_log_are_found() {
    let log = Log::new();
    let mut wire = serve(&log, &["--toolset", "all"]);
    for code in ["1", "2", "3"] {
        wire.run(code);
    }
    end(wire);
    let lines: Vec<String> = log.text().lines().map(str::to_owned).collect();
    let check = |changed: &[String]| {
        std::fs::write(log.path(), changed.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        log.verify(&[])
    };
    for at in 0..lines.len() {
        let mut changed = lines.clone();
        changed[at] = changed[at].replacen(":", ": ", 1);
        let run = check(&changed);
        assert_eq!(run.status, Some(1), "line {at}: {run:?}");
        assert!(run.stdout.contains("the chain is broken"), "{run:?}");
        if at + 1 < lines.len() {
            let mut removed = lines.clone();
            removed.remove(at);
            assert_eq!(check(&removed).status, Some(1), "line {at}");
            let mut swapped = lines.clone();
            swapped.swap(at, at + 1);
            assert_eq!(check(&swapped).status, Some(1), "line {at}");
        }
    }
    let whole = check(&lines);
    assert_eq!(whole.status, Some(0), "{whole:?}");
    let head = whole.stdout.lines().find_map(|line| line.strip_prefix("head ")).unwrap();
    // The end is missing: only the hash that was noted shows it.
    let cut = check(&lines[..lines.len() - 2]);
    assert_eq!(cut.status, Some(0), "{cut:?}");
    assert!(cut.stdout.contains("the last record is not server.stop"), "{cut:?}");
    assert_eq!(log.verify(&["--head", head]).status, Some(1));
    // A part of a line, as a crash leaves it.
    let text = std::fs::read(log.path()).unwrap();
    std::fs::write(log.path(), &text[..text.len() - 20]).unwrap();
    let run = log.verify(&[]);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.contains("the last line is incomplete"), "{run:?}");
}

#[test]
fn log_survives_the_kill_of_its_server_and_goes_on() {
    let log = Log::new();
    let mut wire = serve(&log, &[]);
    wire.run("1");
    wait_for_record(&log.path(), "run.end");
    drop(wire);
    let run = log.verify(&[]);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.contains("note: the last record is not server.stop"), "{run:?}");
    let mut wire = serve(&log, &[]);
    wire.run("2");
    end(wire);
    log.assert_intact();
    assert_eq!(log.of("server.start").len(), 2);
    // The runs of both servers have names of their own.
    let runs = log.of("run.start");
    assert_ne!(runs[0]["run"], runs[1]["run"], "{}", log.text());
    for run in &runs {
        let shown = log.show(&["--run", run["run"].as_str().unwrap(), "--json"]);
        let shown: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let events: Vec<_> = shown.iter().map(|record| record["event"].as_str().unwrap()).collect();
        assert_eq!((events, &shown[0]), (vec!["run.start", "run.end"], run));
    }
}

fn wait_for_record(path: &Path, event: &str) {
    let begin = std::time::Instant::now();
    while !std::fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("\"event\":\"{event}\""))) {
        assert!(begin.elapsed() < std::time::Duration::from_secs(180), "no {event}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
