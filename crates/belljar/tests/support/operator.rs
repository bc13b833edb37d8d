//! An operator of a server with `--console`: the admin API over HTTP.

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::code_execution::{Backend, Reply};

/// The token of the operator in tests.
pub(crate) const TOKEN: &str = "operator-token-of-tests";

/// A server with the console, and its operator.
pub(crate) struct Operator {
    pub(crate) backend: Backend,
    /// The file of the token.
    pub(crate) token_file: NamedTempFile,
}

impl Operator {
    /// Starts a server with these options.
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_transport("streamable-http", options)
    }

    pub(crate) fn start_transport(transport: &str, options: &[&str]) -> Self {
        let mut token_file = NamedTempFile::new().unwrap();
        writeln!(token_file, "# operators\n{TOKEN}").unwrap();
        let path = token_file.path().to_str().unwrap().to_owned();
        let usual = ["--console", "--admin-token-file", &path];
        let backend = Backend::start_transport(transport, usual.iter().chain(options).copied());
        Self { backend, token_file }
    }

    /// Sends a request with the operator's token.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let authorization = format!("Bearer {TOKEN}");
        let headers = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
        let body = body.map(Value::to_string).unwrap_or_default();
        self.backend.send(method, &format!("/admin/api/v1{path}"), &headers, body.as_bytes())
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.send("GET", path, None).with_status(200)
    }

    /// Creates a session, and returns its handle.
    pub(crate) fn create(&self) -> String {
        handle(&self.send("POST", "/sessions", None).with_status(201))
    }

    /// Submits a cell, and returns its number.
    pub(crate) fn submit(&self, session: &str, code: &str) -> u64 {
        let path = format!("/sessions/{session}/cells");
        let submitted = self.send("POST", &path, Some(&json!({ "code": code }))).with_status(202);
        submitted["cell"].as_u64().unwrap()
    }

    /// Runs a cell to its end, and returns it.
    pub(crate) fn run(&self, session: &str, code: &str) -> Value {
        let number = self.submit(session, code);
        self.wait_for_cell(session, number, |cell| !cell["ended"].is_null())
    }

    /// Calls `run_python_code` of a server whose connections have no sessions, and returns the result.
    pub(crate) fn call_once(&self, code: &str) -> Value {
        let params = json!({ "name": "run_python_code", "arguments": { "python_code": code } });
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let headers = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
        let reply = self.backend.send("POST", "/mcp", &headers, request.to_string().as_bytes());
        reply.with_status(200)["result"].take()
    }

    /// Waits until a cell is as wanted, and returns it.
    pub(crate) fn wait_for_cell(&self, session: &str, number: u64, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let reply = self.send("GET", &format!("/sessions/{session}/cells/{number}"), None);
            // A cell that has not begun has no record.
            if reply.status != 404 && is_wanted(&reply.with_status(200)) {
                return reply.json();
            }
            assert!(begin.elapsed() < Duration::from_secs(300), "{reply:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a session is in a state, and returns it.
    pub(crate) fn wait_for_state(&self, session: &str, state: &str) -> Value {
        let begin = Instant::now();
        loop {
            let shown = self.get(&format!("/sessions/{session}"));
            if shown["state"] == state {
                return shown;
            }
            assert!(begin.elapsed() < Duration::from_secs(300), "not {state}: {shown:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the handle in an answer.
pub(crate) fn handle(answer: &Value) -> String {
    answer["handle"].as_str().unwrap().to_owned()
}

/// Returns what a cell has written to a stream.
pub(crate) fn written(cell: &Value, stream: &str) -> String {
    let outputs = cell["outputs"].as_array().unwrap().iter();
    outputs.filter(|output| output["name"] == stream).map(|output| output["text"].as_str().unwrap()).collect()
}
