//! A server with a data directory whose cells wait, and the requests of its client.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Belljar, Run};
use crate::tool_client::tool_server;
use crate::wire::Wire;

pub(crate) const MODERN: &str = "2026-07-28";

/// A data directory, and a server of tools that records its calls in a file.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    options: Vec<String>,
}

impl Fixture {
    pub(crate) fn new(options: &[&str]) -> Self {
        Self::with_toolset("interpreter", options)
    }

    pub(crate) fn with_toolset(toolset: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let calls = folder.path().join("calls.txt");
        let server = format!("{} '{}'", tool_server("t", "recording"), calls.display());
        let data = folder.path().join("data").display().to_string();
        let own = ["--toolset", toolset, "--data-dir", &data, &server];
        let options = own.iter().chain(options).map(|&option| option.to_owned()).collect();
        Self { folder, options }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn options(&self) -> impl Iterator<Item = &str> {
        self.options.iter().map(String::as_str)
    }

    /// Starts a server for a client that can be asked.
    pub(crate) fn serve(&self) -> Wire {
        Wire::start_with(self.options(), json!({ "elicitation": {} }))
    }

    /// Returns the calls that the server of tools has received.
    pub(crate) fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("calls.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn belljar(&self, arguments: &[&str]) -> Run {
        Belljar::new().arg("runs").args(arguments).args(["--data-dir", self.data().to_str().unwrap()]).run()
    }

    /// Waits until a cell of the session is saved.
    pub(super) fn wait_until_saved(&self, session: &str) {
        wait_for(|| self.data().join(session).join("waiting").exists());
    }

    /// Waits until one run waits, and returns it from the command line.
    pub(crate) fn waiting_run(&self) -> Value {
        let mut listed = String::new();
        // On a busy machine, a question may be put before its run is saved.
        wait_for(|| {
            listed = self.belljar(&["list", "--json"]).stdout;
            listed.lines().count() == 1
        });
        serde_json::from_str(&listed).unwrap()
    }

    /// Sends a cell that sleeps, and waits until it is saved. On a busy machine, a short sleep may end before that, so
    /// that a longer one follows.
    pub(super) fn send_sleeping_cell(&self, wire: &mut Wire, session: &str, code: impl Fn(u64) -> String) {
        let is_saved = |seconds: &u64| {
            let cell = send_cell(wire, session, &code(*seconds));
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(*seconds) {
                if self.data().join(session).join("waiting").exists() {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            wire.answer(cell);
            false
        };
        assert!([2, 10, 60].iter().any(is_saved), "no cell is saved while it sleeps");
    }
}

/// Returns the structured content of a tool's result.
pub(crate) fn fields(result: &Value) -> Value {
    let content = result["structuredContent"].clone();
    assert!(content.is_object(), "{result:#}");
    content
}

/// Opens a session and returns its ID.
pub(crate) fn open(wire: &mut Wire) -> String {
    let answer = fields(&wire.tool("execute_code", json!({ "code": "pass" })));
    answer["session_info"]["session_id"].as_str().unwrap_or_else(|| panic!("no session: {answer:#}")).to_owned()
}

pub(crate) fn run(wire: &mut Wire, id: &str, code: &str) -> Value {
    fields(&wire.tool("execute_code", json!({ "code": code, "session_id": id })))
}

pub(crate) fn wait_for(mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(180), "it does not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn kill(mut wire: Wire) {
    wire.child.kill().unwrap();
    wire.child.wait().unwrap();
}

pub(crate) fn send_cell(wire: &mut Wire, session: &str, code: &str) -> u64 {
    let arguments = json!({ "code": code, "session_id": session });
    wire.send("tools/call", json!({ "name": "execute_code", "arguments": arguments }))
}

/// Waits for the server's question, and returns its request.
pub(crate) fn question(wire: &mut Wire) -> Value {
    loop {
        let message = wire.next().unwrap();
        if message["method"] == "elicitation/create" {
            return message;
        }
        wire.received.push(message);
    }
}

pub(crate) fn reply(wire: &mut Wire, question: &Value, line: &str) {
    let result = json!({ "action": "accept", "content": { "value": line } });
    let message = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
    wire.write(format!("{message}\n").as_bytes());
}

pub(crate) fn runs(wire: &mut Wire) -> Vec<Value> {
    fields(&wire.tool("list_runs", json!({})))["runs"].as_array().unwrap().clone()
}

/// Waits until no code runs: on a busy machine, a question may be put before its code waits.
pub(crate) fn wait_until_waiting(wire: &mut Wire) {
    wait_for(|| runs(wire).iter().all(|run| run["status"] != "running"));
}

/// Waits until the only run has ended, and returns its result.
pub(crate) fn result_of_only_run(wire: &mut Wire) -> Value {
    let [run] = &runs(wire)[..] else { panic!("not one run") };
    fields(&wire.tool("resume_run", json!({ "run_id": run["run_id"] })))
}
