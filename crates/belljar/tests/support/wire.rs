//! Raw JSON-RPC messages over the pipes of a server process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::Belljar;

/// The longest time between two messages. The first run compiles CPython. It is less than the time limit of code, so
/// that a test does not take code that ran to its limit for code that was cancelled.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(240);
/// The time within which a server must end once it has closed its standard output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(180);

/// A server process and its messages. It is killed when dropped.
pub(crate) struct Wire {
    pub(crate) child: Child,
    lines: Receiver<String>,
    next: u64,
    /// Messages that are not responses to awaited requests.
    pub(crate) received: Vec<Value>,
}

impl Wire {
    /// Starts `belljar stdio` with these arguments and performs the handshake of the legacy era.
    pub(crate) fn start<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        Self::start_with(arguments, json!({}))
    }

    /// Starts a server like [`start`](Self::start), for a client with these capabilities.
    pub(crate) fn start_with<'a>(arguments: impl IntoIterator<Item = &'a str>, capabilities: Value) -> Self {
        let mut wire = Self::silent(arguments);
        wire.initialize_with(capabilities);
        wire
    }

    /// Performs the handshake of the legacy era.
    pub(crate) fn initialize(&mut self) {
        self.initialize_with(json!({}));
    }

    /// Performs the handshake for a client with these capabilities.
    pub(crate) fn initialize_with(&mut self, capabilities: Value) {
        let client = json!({ "name": "tests", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": client });
        let answer = self.ask("initialize", params);
        assert_eq!(answer["result"]["serverInfo"]["name"], "belljar", "{answer}");
        self.notify("notifications/initialized", json!({}));
    }

    /// Starts `belljar stdio` without any handshake.
    pub(crate) fn silent<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut command = Belljar::new().arg("stdio").args(arguments).into_command();
        command.stderr(Stdio::inherit());
        Self::spawn(command)
    }

    /// Starts a server by this command, without any handshake. The command sets its standard error.
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                if send.send(line.unwrap()).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, next: 0, received: Vec::new() }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.flush().unwrap();
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.write(format!("{message}\n").as_bytes());
    }

    /// Sends a request and returns its ID.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.write(format!("{message}\n").as_bytes());
        self.next
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Returns the next message, or `None` at the end of the stream. Every line must be JSON.
    pub(crate) fn next(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(MESSAGE_TIMEOUT) {
            Ok(line) => Some(parse(&line)),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("the server sends nothing; messages so far: {:#?}", self.received)
            }
        }
    }

    /// Returns the next message if it arrives within this time.
    pub(crate) fn next_within(&mut self, time: Duration) -> Option<Value> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Some(parse(&line)),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the server has ended"),
        }
    }

    /// Returns the response to a request.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        if let Some(at) = self.received.iter().position(|message| is_answer(message, id)) {
            return self.received.remove(at);
        }
        loop {
            let message = self.next().unwrap_or_else(|| panic!("the server has ended"));
            if is_answer(&message, id) {
                return message;
            }
            self.received.push(message);
        }
    }

    /// Has the output of running code sent as log messages, for [`wait_for_output`](Self::wait_for_output).
    pub(crate) fn follow_output(&mut self) {
        self.ask("logging/setLevel", json!({ "level": "info" }));
    }

    /// Waits until running code has written this line.
    pub(crate) fn wait_for_output(&mut self, line: &str) {
        loop {
            let message = self.next().unwrap_or_else(|| panic!("the server has ended before {line:?}"));
            let is_line = message["method"] == "notifications/message" && message["params"]["data"] == line;
            self.received.push(message);
            if is_line {
                break;
            }
        }
    }

    /// Calls `run_python_code` and returns its result.
    pub(crate) fn call(&mut self, arguments: Value) -> Value {
        let id = self.send_call(arguments);
        self.answer(id)["result"].take()
    }

    pub(crate) fn send_call(&mut self, arguments: Value) -> u64 {
        self.send("tools/call", json!({ "name": "run_python_code", "arguments": arguments }))
    }

    /// Calls a tool and returns its result.
    pub(crate) fn tool(&mut self, name: &str, arguments: Value) -> Value {
        let id = self.send("tools/call", json!({ "name": name, "arguments": arguments }));
        self.answer(id)["result"].take()
    }

    /// Runs code and returns the text of the result.
    pub(crate) fn run(&mut self, code: &str) -> String {
        text(&self.call(json!({ "python_code": code })))
    }

    /// Returns the parameters of all notifications of a method so far.
    pub(crate) fn notifications(&self, method: &str) -> Vec<&Value> {
        self.received.iter().filter(|message| message["method"] == method).map(|message| &message["params"]).collect()
    }

    /// Waits until the process has ended.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < EXIT_TIMEOUT, "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Closes the server's standard input.
    pub(crate) fn end_input(&mut self) {
        self.child.stdin.take();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses a line that the server wrote, which must be JSON.
fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in what the server wrote: {line:?}"))
}

fn is_answer(message: &Value, id: u64) -> bool {
    message["id"] == id && message.get("method").is_none()
}

/// Returns the text of a tool's result.
pub(crate) fn text(result: &Value) -> String {
    match result["content"][0]["text"].as_str() {
        Some(text) => text.to_owned(),
        None => panic!("no text: {result}"),
    }
}
