//! Raw JSON-RPC over the pipes of a server process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::Belljar;

/// Longer than this nothing may take. Generous: the first of all compiles CPython.
const HUNG: Duration = Duration::from_secs(120);

/// A server process; killed when dropped.
pub(crate) struct Wire {
    pub(crate) child: Child,
    lines: Receiver<String>,
    next: u64,
    /// Messages that came and are no answer to what was asked.
    pub(crate) heard: Vec<Value>,
}

impl Wire {
    /// `belljar stdio` with these arguments, after the handshake of the legacy era.
    pub(crate) fn start<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        Self::start_with(arguments, json!({}))
    }

    /// The same for a client with these capabilities.
    pub(crate) fn start_with<'a>(arguments: impl IntoIterator<Item = &'a str>, capabilities: Value) -> Self {
        let mut wire = Self::silent(arguments);
        wire.greet_with(capabilities);
        wire
    }

    /// The handshake of the legacy era.
    pub(crate) fn greet(&mut self) {
        self.greet_with(json!({}));
    }

    fn greet_with(&mut self, capabilities: Value) {
        let client = json!({ "name": "tests", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": client });
        let answer = self.ask("initialize", hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "belljar", "{answer}");
        self.tell("notifications/initialized", json!({}));
    }

    /// `belljar stdio` without any handshake.
    pub(crate) fn silent<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut command = Belljar::new().arg("stdio").args(arguments).into_command();
        command.stderr(Stdio::inherit());
        Self::spawn(command)
    }

    /// What this command starts, without any handshake. Its standard error is as the command says.
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
        Self { child, lines, next: 0, heard: Vec::new() }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.flush().unwrap();
    }

    pub(crate) fn tell(&mut self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.write(format!("{message}\n").as_bytes());
    }

    /// Sends a request; its id.
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

    /// The next message, whatever it is; `None` at the end of the stream. Every line must be JSON.
    pub(crate) fn next(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(HUNG) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(message) => Some(message),
                Err(error) => panic!("{error} in what the server wrote: {line:?}"),
            },
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the server says nothing; heard so far: {:#?}", self.heard),
        }
    }

    /// The answer to a request.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        if let Some(at) = self.heard.iter().position(|message| is_answer(message, id)) {
            return self.heard.remove(at);
        }
        loop {
            let message = self.next().unwrap_or_else(|| panic!("the server has ended"));
            if is_answer(&message, id) {
                return message;
            }
            self.heard.push(message);
        }
    }

    /// Calls the tool; its result.
    pub(crate) fn call(&mut self, arguments: Value) -> Value {
        let id = self.send_call(arguments);
        self.answer(id)["result"].take()
    }

    pub(crate) fn send_call(&mut self, arguments: Value) -> u64 {
        self.send("tools/call", json!({ "name": "run_python_code", "arguments": arguments }))
    }

    /// Calls any tool; its result.
    pub(crate) fn tool(&mut self, name: &str, arguments: Value) -> Value {
        let id = self.send("tools/call", json!({ "name": name, "arguments": arguments }));
        self.answer(id)["result"].take()
    }

    /// The text that the tool answers to a piece of code.
    pub(crate) fn run(&mut self, code: &str) -> String {
        text(&self.call(json!({ "python_code": code })))
    }

    /// The notifications of a kind that came so far: their parameters.
    pub(crate) fn notifications(&self, method: &str) -> Vec<&Value> {
        self.heard.iter().filter(|message| message["method"] == method).map(|message| &message["params"]).collect()
    }

    /// Says that nothing more comes.
    pub(crate) fn end_input(&mut self) {
        self.child.stdin.take();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Fails where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_answer(message: &Value, id: u64) -> bool {
    message["id"] == id && message.get("method").is_none()
}

/// The text of a tool's result.
pub(crate) fn text(result: &Value) -> String {
    match result["content"][0]["text"].as_str() {
        Some(text) => text.to_owned(),
        None => panic!("no text: {result}"),
    }
}
