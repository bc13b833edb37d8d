//! A client of the code-execution protocol, and the 13 points that conformance to it takes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::Belljar;

/// The line between the parts of a form.
const BOUNDARY: &str = "----form-7f3a1c";

/// A server of the protocol. It is killed when dropped.
pub(crate) struct Backend {
    pub(crate) child: Child,
    pub(crate) address: String,
    /// The token that requests have.
    pub(crate) token: Option<String>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The status line and the headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    fn parse(answer: &[u8]) -> Self {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer[end + 4..].to_vec();
        let body = if head.contains("transfer-encoding: chunked") { joined(&body) } else { body };
        Self { status, head, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Returns the JSON body of an answer with this status.
    pub(crate) fn with_status(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// Returns the reason of a refusal with this status.
    pub(crate) fn refusal(&self, status: u16) -> String {
        let body = self.with_status(status);
        body["detail"].as_str().filter(|detail| !detail.is_empty()).unwrap_or_else(|| panic!("{body}")).to_owned()
    }
}

/// Returns the content of a chunked body, which must be complete.
fn joined(mut chunked: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let end = chunked.windows(2).position(|two| two == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&chunked[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return content;
        }
        content.extend_from_slice(&chunked[end + 2..end + 2 + length]);
        chunked = &chunked[end + 4 + length..];
    }
}

impl Backend {
    /// Starts a server with sessions, and with these tools alone unless the options name others.
    pub(crate) fn start<'a>(options: impl IntoIterator<Item = &'a str>) -> Self {
        Self::start_transport("streamable-http", options)
    }

    pub(crate) fn start_transport<'a>(transport: &str, options: impl IntoIterator<Item = &'a str>) -> Self {
        let options: Vec<&str> = options.into_iter().collect();
        let tools: &[&str] = if options.contains(&"--toolset") { &[] } else { &["--toolset", "interpreter"] };
        let usual = Belljar::new().args([transport, "--port", "0", "--code-execution"]);
        let mut command = usual.args(tools.iter().copied()).args(options).into_command();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        // Reads on, or the server would fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let address = line.split('/').nth(2).unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, address, token: None }
    }

    /// Ends the server as a service manager does, and waits for its end.
    pub(crate) fn terminate(mut self) {
        let status = std::process::Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(status.success());
        self.child.wait().unwrap();
    }

    /// Sends a request, and returns the stream of its answer.
    pub(crate) fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(240))).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        // A server that refuses a long body does not read all of it.
        let _ = stream.write_all(&[head.as_bytes(), b"\r\n", body].concat());
        stream
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut answer = Vec::new();
        self.open(method, path, headers, body).read_to_end(&mut answer).unwrap();
        Reply::parse(&answer)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn delete(&self, session: &str) -> Reply {
        self.send("DELETE", &format!("/sessions/{session}"), &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[("Content-Type", "application/json")], body.to_string().as_bytes())
    }

    /// Creates a session and returns its ID.
    pub(crate) fn create(&self) -> String {
        let handle = self.post("/sessions", &json!({})).with_status(201);
        handle["session_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn exec(&self, session: &str, tool: &str, input: &Value) -> Reply {
        self.post(&format!("/sessions/{session}/exec"), &json!({ "tool": tool, "input": input }))
    }

    /// Runs code and returns the content of its result block.
    pub(crate) fn run(&self, session: &str, code: &str) -> Value {
        let mut answer = self.exec(session, "code_execution", &json!({ "code": code })).with_status(200);
        answer["result_block"]["content"].take()
    }

    /// Runs a command in a shell and returns the content of its result block.
    pub(crate) fn shell(&self, session: &str, command: &str) -> Value {
        let input = json!({ "command": command });
        let mut answer = self.exec(session, "bash_code_execution", &input).with_status(200);
        answer["result_block"]["content"].take()
    }

    /// Runs a command of the text editor and returns the content of its result block.
    pub(crate) fn edit(&self, session: &str, input: &Value) -> Value {
        let mut answer = self.exec(session, "text_editor_code_execution", input).with_status(200);
        answer["result_block"]["content"].take()
    }

    /// Sends a form with a file of this name, and with this path if one is given.
    pub(crate) fn put(&self, session: &str, name: &str, path: Option<&str>, bytes: &[u8]) -> Reply {
        let path =
            path.map(|path| format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n{path}\r\n"));
        let file = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: text/plain\r\n\r\n"
        );
        let end = format!("\r\n--{BOUNDARY}--\r\n");
        let body = [path.unwrap_or_default().as_bytes(), file.as_bytes(), bytes, end.as_bytes()].concat();
        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        self.send("POST", &format!("/sessions/{session}/files"), &[("Content-Type", &kind)], &body)
    }

    /// Returns the paths of a session's files.
    pub(crate) fn files(&self, session: &str) -> Vec<String> {
        let listed = self.get(&format!("/sessions/{session}/files/list")).with_status(200);
        listed["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks an answer of `exec` to a call with an ID of its own, and returns the content of its result block.
fn checked_call(backend: &Backend, session: &str, tool: &str, input: &Value) -> Value {
    let call = json!({ "tool": tool, "input": input, "timeout_seconds": 240, "tool_use_id": "srvtoolu_checked" });
    let answer = backend.post(&format!("/sessions/{session}/exec"), &call).with_status(200);
    assert_eq!(answer["tool_use_id"], "srvtoolu_checked", "{answer}");
    assert!(answer["execution_time_ms"].is_u64(), "{answer}");
    let block = &answer["result_block"];
    assert_eq!(block["type"], format!("{tool}_tool_result"), "{answer}");
    assert_eq!(block["tool_use_id"], "srvtoolu_checked", "{answer}");
    let content = &block["content"];
    assert_eq!(content["type"], "code_execution_result", "{answer}");
    assert!(content["stdout"].is_string() && content["stderr"].is_string(), "{answer}");
    assert!(content["return_code"].is_i64() && content["content"].is_array(), "{answer}");
    content.clone()
}

/// Checks the 13 points of a backend that conforms to contract version 1.
pub(crate) fn check_conformance(backend: &Backend) {
    // 1: a session is created, and its handle has the contract's form.
    let handle = backend.post("/sessions", &json!({ "idle_timeout_seconds": 300 })).with_status(201);
    let session = handle["session_id"].as_str().filter(|id| !id.is_empty()).unwrap();
    assert!(handle["created_at"].is_f64() && handle["last_activity_at"].is_f64(), "{handle}");
    // 2: the session does not live longer than the client has asked for.
    assert!(handle["idle_timeout_seconds"].as_u64().unwrap() <= 300, "{handle}");
    // 3: code runs.
    let content = checked_call(backend, session, "code_execution", &json!({ "code": "print('marker', 6 * 7)" }));
    assert_eq!((&content["stdout"], &content["return_code"]), (&json!("marker 42\n"), &json!(0)));
    // 4: a command runs.
    let content = checked_call(backend, session, "bash_code_execution", &json!({ "command": "echo marker" }));
    assert_eq!((&content["stdout"], &content["return_code"]), (&json!("marker\n"), &json!(0)), "{content}");
    // 5 and 6: the text editor creates a file, and shows it.
    let created = json!({ "command": "create", "path": "edited.txt", "file_text": "marker\n" });
    assert_eq!(checked_call(backend, session, "text_editor_code_execution", &created)["return_code"], 0);
    let viewed = json!({ "command": "view", "path": "edited.txt" });
    let content = checked_call(backend, session, "text_editor_code_execution", &viewed);
    assert_eq!((&content["stdout"], &content["return_code"]), (&json!("marker\n"), &json!(0)));
    // 7: an unknown tool is refused.
    let unknown = json!({ "tool": "no_such_tool", "input": {}, "timeout_seconds": 30 });
    let refusal = backend.post(&format!("/sessions/{session}/exec"), &unknown).refusal(400);
    assert!(refusal.contains("no_such_tool"), "{refusal}");
    // 8: a file is written.
    let written = backend.put(session, "input.txt", Some("input.txt"), b"marker\n").with_status(201);
    assert_eq!((&written["path"], &written["size_bytes"]), (&json!("input.txt"), &json!(7)), "{written}");
    // 9: it is listed.
    let listed = backend.get(&format!("/sessions/{session}/files/list?path=.")).with_status(200);
    let files = listed["files"].as_array().unwrap();
    let file = files.iter().find(|file| file["path"] == "input.txt").unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(file["size_bytes"], 7, "{listed}");
    // 10: it is read.
    let read = backend.get(&format!("/sessions/{session}/files?path=input.txt"));
    assert_eq!((read.status, &*read.body), (200, &b"marker\n"[..]));
    // 11: no path leads out of the session.
    let outside = backend.get(&format!("/sessions/{session}/files?path=../../etc/passwd"));
    assert!(outside.refusal(403).contains("outside"));
    // 12 and 13: the session ends, and to end it again is not an error.
    assert_eq!(backend.delete(session).status, 204);
    assert_eq!(backend.delete(session).status, 204);
    assert_eq!(backend.get(&format!("/sessions/{session}/files/list")).status, 404);
}
