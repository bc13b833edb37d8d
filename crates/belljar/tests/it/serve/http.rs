//! The transports over HTTP: access, limits and shutdown.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Belljar, Run};

/// The time in which a part of an answer must arrive, on a busy machine too.
const READ_TIMEOUT: Duration = Duration::from_secs(180);
/// The time for which a test waits for a state of the server.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

/// A server process that listens. It is killed when dropped.
pub(crate) struct Listening {
    pub(crate) child: Child,
    /// `http://127.0.0.1:PORT/mcp`, or `/sse`.
    pub(crate) url: String,
    pub(crate) address: String,
}

impl Listening {
    pub(crate) fn start<'a>(command: &str, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        Self::spawn(Belljar::new().args([command, "--port", "0"]).args(arguments))
    }

    /// Starts a server by this command line.
    pub(crate) fn spawn(belljar: Belljar) -> Self {
        let mut command = belljar.into_command();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        // Reads on, or the server would fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        let address = url.split('/').nth(2).unwrap().to_owned();
        Self { child, url, address }
    }

    /// Sends one request with these additional headers and returns the status and the rest of the response.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        self.send_bytes(method, path, headers, body.as_bytes())
    }

    pub(super) fn send_bytes(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        let mut stream = self.open_for(method, path, headers, body, body.len());
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{text}")), text)
    }

    /// Sends a request and returns the stream of its response.
    pub(crate) fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        self.open_for(method, path, headers, body.as_bytes(), body.len())
    }

    /// Sends a request whose header announces a body of `length` bytes.
    pub(crate) fn open_for(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        length: usize,
    ) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        // A server that refuses a long body does not read all of it.
        let _ = stream.write_all(&[head.as_bytes(), b"\r\n", body].concat());
        stream
    }

    pub(crate) fn post(&self, headers: &[(&str, &str)], message: &Value) -> (u16, String) {
        let usual = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
        self.send("POST", "/mcp", &[&usual[..], headers].concat(), &message.to_string())
    }

    /// Sends a request to a stateless server and returns its result.
    pub(crate) fn ask(&self, method: &str, params: &Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.answer(&[], &message)["result"].take()
    }

    /// Sends a request and returns its response.
    pub(crate) fn answer(&self, headers: &[(&str, &str)], request: &Value) -> Value {
        let (status, text) = self.post(headers, request);
        assert_eq!(status, 200, "{text}");
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        // The answer is the body, or an event of a stream after notifications.
        let mut messages = body
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ").unwrap_or(line)).ok());
        messages.find(|message| message["id"] == request["id"]).unwrap_or_else(|| panic!("{text}"))
    }

    /// Calls a tool of a stateless server and returns its result.
    pub(crate) fn tool(&self, name: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({ "name": name, "arguments": arguments }))
    }

    /// Waits until this number of sessions is asleep.
    pub(crate) fn wait_for_sleep(&self, count: usize) {
        self.wait_for_metric(&format!("belljar_sessions{{state=\"asleep\"}} {count}"));
    }

    /// Waits until the metrics have this line.
    pub(crate) fn wait_for_metric(&self, line: &str) {
        let begin = Instant::now();
        loop {
            let (_, text) = self.send("GET", "/metrics", &[], "");
            if text.lines().any(|other| other == line) {
                break;
            }
            assert!(begin.elapsed() < WAIT_TIMEOUT, "no {line}: {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the server as a service manager does, and waits for its end.
    pub(crate) fn end(mut self) {
        self.terminate();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM, as a service manager does.
    pub(crate) fn terminate(&self) {
        let status = std::process::Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn hello() -> Value {
    let client = json!({ "name": "tests", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

pub(super) fn call(code: &str) -> Value {
    let params = json!({ "name": "run_python_code", "arguments": { "python_code": code } });
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params })
}

#[test]
fn web_pages_and_other_names_are_refused_on_every_transport() {
    for (command, path) in [("streamable-http", "/mcp"), ("streamable-http-stateless", "/mcp"), ("sse", "/sse")] {
        let server = Listening::start(command, ["--no-install", "--allow-origin", "http://localhost:*"]);
        for (header, remedy) in [
            (("Host", "evil.example"), "--allow-host"),
            (("Origin", "https://evil.example"), "--allow-origin"),
            (("Origin", "null"), "--allow-origin"),
        ] {
            let (status, text) = server.send("GET", path, &[header], "");
            assert_eq!(status, 403, "{command} {header:?}");
            assert!(text.contains(remedy), "{command} {header:?}: {text}");
        }
        let (status, text) = server.post(&[("Origin", "http://localhost:5173")], &hello());
        assert_eq!(status, if path == "/mcp" { 200 } else { 404 }, "{text}");
        assert_eq!(server.send("GET", "/healthz", &[], "").0, 200);
    }
}

#[test]
fn configured_token_is_required() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    let server = Listening::start("streamable-http", ["--no-install", "--auth-token-file", file.to_str().unwrap()]);
    assert_eq!(server.post(&[], &hello()).0, 401);
    assert_eq!(server.post(&[("Authorization", "Bearer three")], &hello()).0, 401);
    assert_eq!(server.post(&[("Authorization", "Bearer two")], &hello()).0, 200);
    assert_eq!(server.send("GET", "/metrics", &[], "").0, 401);
}

#[test]
fn non_loopback_address_requires_authentication() {
    let refused = |arguments: &[&str]| -> Run {
        Belljar::new().arg("sse").args(["--host", "0.0.0.0", "--port", "0"]).args(arguments).run()
    };
    let run = refused(&[]);
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains("--auth-token-file") && run.stderr.contains("--insecure-no-auth"), "{run:?}");
    let run = refused(&["--auth-token-file", "/nonexistent"]);
    assert!(run.stderr.contains("failed to read /nonexistent"), "{run:?}");
    let server = Listening::start("streamable-http", ["--host", "0.0.0.0", "--insecure-no-auth", "--no-install"]);
    assert!(server.address.starts_with("0.0.0.0:"), "{}", server.address);
}

#[test]
fn long_requests_are_refused() {
    for (command, path) in [("streamable-http", "/mcp"), ("sse", "/messages/?session_id=x")] {
        let server = Listening::start(command, ["--no-install", "--max-body", "10KB"]);
        let headers = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
        let (status, text) = server.send("POST", path, &headers, &call(&"#".repeat(20_000)).to_string());
        assert_eq!(status, 413, "{text}");
    }
}

#[test]
fn more_sessions_than_allowed_are_refused() {
    let server = Listening::start("streamable-http", ["--no-install", "--max-sessions", "2"]);
    let statuses: Vec<u16> = (0..3).map(|_| server.post(&[], &hello()).0).collect();
    assert_eq!(statuses, [200, 200, 503]);
    let server = Listening::start("sse", ["--no-install", "--max-sessions", "1"]);
    let mut first = server.open("GET", "/sse", &[], "");
    let mut start = [0; 16];
    first.read_exact(&mut start).unwrap();
    assert_eq!(server.send("GET", "/sse", &[], "").0, 503);
    drop(first);
    // The server notices the disconnection at its next keep-alive, at the latest, and then admits another session.
    let begin = Instant::now();
    while begin.elapsed() < WAIT_TIMEOUT {
        let mut next = server.open("GET", "/sse", &[], "");
        let mut start = [0; 12];
        next.read_exact(&mut start).unwrap();
        if start.ends_with(b"200") {
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("the session of a client that is gone stays open");
}

#[test]
fn termination_answers_running_requests_first() {
    let shared = tempfile::tempdir().unwrap();
    let mount = format!("{}:/shared:rw", shared.path().display());
    let mut server = Listening::start("streamable-http-stateless", ["--no-install", "--mount", &mount]);
    assert_eq!(server.post(&[], &call("1")).0, 200);
    // The code ends once the file exists, which is written when the server has noticed the signal.
    let code = "import os, time\nopen('/shared/started', 'w').close()\n\
                while not os.path.exists('/shared/end'): time.sleep(0.01)\n'done'";
    let (status, text) = std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.post(&[], &call(code)));
        let begin = Instant::now();
        while !shared.path().join("started").exists() {
            assert!(begin.elapsed() < WAIT_TIMEOUT, "the code does not run");
            std::thread::sleep(Duration::from_millis(10));
        }
        server.terminate();
        while TcpStream::connect(&server.address).is_ok() {
            assert!(begin.elapsed() < WAIT_TIMEOUT, "the server still listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::write(shared.path().join("end"), "").unwrap();
        asked.join().unwrap()
    });
    assert!(status == 200 && text.contains("done"), "{text}");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn http_server_stops_code_of_disconnected_clients() {
    let server = Listening::start("streamable-http", ["--no-install"]);
    assert_eq!(server.post(&[], &hello()).0, 200);
    let mut message = call("while True: pass");
    message["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": "t",
    });
    let headers = [
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "run_python_code"),
    ];
    let mut stream = server.open("POST", "/mcp", &headers, &message.to_string());
    let mut received = String::new();
    let mut piece = [0; 1024];
    while !received.contains("running") {
        let count = stream.read(&mut piece).unwrap();
        assert_ne!(count, 0, "{received}");
        received.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    server.wait_for_metric("belljar_live_interpreters 1");
    drop(stream);
    server.wait_for_metric("belljar_live_interpreters 0");
}

#[test]
fn abandoned_sessions_expire() {
    let server = Listening::start("streamable-http", ["--no-install", "--idle", "1", "--max-sessions", "1000"]);
    // The server admits a thousand at a time, so that the others are admitted only once earlier ones have expired. The
    // memory of a server under such load is measured by `cargo xtask soak`.
    let begin = Instant::now();
    let mut opened = 0;
    while opened < 3000 {
        match server.post(&[], &hello()).0 {
            200 => opened += 1,
            503 => std::thread::sleep(Duration::from_millis(100)),
            status => panic!("{status} after {opened} sessions"),
        }
        assert!(begin.elapsed() < Duration::from_secs(600), "{opened} sessions were opened");
    }
}

#[test]
fn request_with_two_hosts_is_refused() {
    let server = Listening::start("streamable-http", ["--no-install"]);
    let own = server.address.clone();
    for hosts in [[own.as_str(), "evil.example"], ["evil.example", own.as_str()], [own.as_str(), own.as_str()]] {
        let headers = [("Host", hosts[0]), ("Host", hosts[1])];
        assert_eq!(server.post(&headers, &hello()).0, 400, "{hosts:?}");
    }
    let mut stream = TcpStream::connect(&own).unwrap();
    let head = format!("GET http://evil.example/metrics HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    assert_eq!(server.post(&[("Host", own.as_str())], &hello()).0, 200);
}
