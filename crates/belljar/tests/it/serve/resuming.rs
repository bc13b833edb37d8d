//! Resumption of streams after a broken connection (`Last-Event-ID`).

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{Listening, call, hello};

/// A client's session and the headers of its requests.
struct Session {
    server: Listening,
    id: String,
}

impl Session {
    fn open(arguments: &[&str]) -> Self {
        let arguments = [&["--no-install"], arguments].concat();
        Self::on(Listening::start("streamable-http", arguments))
    }

    fn on(server: Listening) -> Self {
        let (_, text) = server.post(&[], &hello());
        let id = text.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
        let session = Self { server, id };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(session.server.post(&[("Mcp-Session-Id", &session.id)], &ready).0, 202);
        session
    }

    /// Sends a request and returns its open stream.
    fn begin(&self, message: &Value) -> Events {
        let headers = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("Mcp-Session-Id", &self.id),
        ];
        Events::new(self.server.open("POST", "/mcp", &headers, &message.to_string()))
    }

    /// Requests the events after the event `last`.
    fn resume(&self, last: &str) -> Events {
        let headers = [("Accept", "text/event-stream"), ("Mcp-Session-Id", &self.id), ("Last-Event-ID", last)];
        Events::new(self.server.open("GET", "/mcp", &headers, ""))
    }
}

/// The events of one stream, as they arrive.
struct Events {
    stream: TcpStream,
    text: String,
}

impl Events {
    fn new(stream: TcpStream) -> Self {
        let mut events = Self { stream, text: String::new() };
        while !events.text.contains("\r\n\r\n") {
            assert!(events.read(), "{}", events.text);
        }
        assert!(events.text.starts_with("HTTP/1.1 200"), "{}", events.text);
        events
    }

    fn read(&mut self) -> bool {
        let mut piece = vec![0; 1 << 18];
        let count = self.stream.read(&mut piece).unwrap();
        self.text.push_str(&String::from_utf8_lossy(&piece[..count]));
        count > 0
    }

    /// Waits until the stream contains this text.
    fn wait_for(&mut self, text: &str) {
        let mut looked_at = 0;
        while !self.text[looked_at..].contains(text) {
            // Does not search a long stream from its beginning each time.
            looked_at = self.text.floor_char_boundary(self.text.len().saturating_sub(text.len()));
            assert!(self.read(), "the stream ended without {text:?}: {}", self.text);
        }
    }

    fn rest(mut self) -> String {
        while self.read() {}
        self.text
    }

    /// Returns the ID of the last event so far.
    fn last_id(&mut self) -> String {
        let ids = |text: &str| {
            text.lines().filter_map(|line| line.strip_prefix("id:")).next_back().map(|id| id.trim().to_owned())
        };
        loop {
            if let Some(id) = ids(&self.text) {
                return id;
            }
            assert!(self.read(), "no event has an id: {}", self.text);
        }
    }
}

fn slow_call() -> Value {
    let mut message = call("import time\nprint('begun', flush=True)\ntime.sleep(1.5)\n'the answer'");
    message["params"]["_meta"] = json!({ "progressToken": "t" });
    message
}

#[test]
fn reconnecting_client_gets_the_answer() {
    let session = Session::open(&[]);
    let mut stream = session.begin(&slow_call());
    let first = stream.last_id();
    stream.wait_for("running");
    drop(stream);
    // Resumes while the code still runs.
    let text = session.resume(&first).rest();
    assert!(text.contains("running") && text.contains("the answer"), "{text}");
    // Resumes after the answer was sent, since it may not have arrived.
    let text = session.resume(&first).rest();
    assert!(text.contains("running") && text.contains("the answer"), "{text}");
    // Events before the given one are not repeated.
    let mut again = session.resume(&first);
    again.wait_for("the answer");
    let last = again.last_id();
    let text = session.resume(&last).rest();
    assert!(!text.contains("the answer") && !text.contains("running"), "{text}");
}

#[test]
fn session_stream_can_be_resumed() {
    let session = Session::open(&[]);
    let level = json!({ "jsonrpc": "2.0", "id": 7, "method": "logging/setLevel", "params": { "level": "info" } });
    session.begin(&level).wait_for("\"id\":7");
    session.begin(&call("print('no stream is open')")).wait_for("\"id\":2");
    // "0" is the beginning of the stream.
    let mut stream = session.resume("0");
    stream.wait_for("no stream is open");
    let last = stream.last_id();
    session.begin(&call("print('while it is open')")).wait_for("\"id\":2");
    stream.wait_for("while it is open");
    drop(stream);
    session.begin(&call("print('gone again')")).wait_for("\"id\":2");
    let mut stream = session.resume(&last);
    stream.wait_for("gone again");
    assert!(!stream.text.contains("no stream is open") && stream.text.contains("while it is open"), "{}", stream.text);
}

#[test]
fn foreign_or_unknown_event_resumes_an_empty_stream() {
    let session = Session::open(&[]);
    let mut stream = session.begin(&call("'mine'"));
    stream.wait_for("mine");
    let id = stream.last_id();
    for last in ["999", "nonsense", "a/1", &id.replace(|c: char| c.is_ascii_hexdigit(), "0")] {
        let text = session.resume(last).rest();
        assert!(!text.contains("data: {"), "{last}: {text}");
    }
}

#[test]
fn stored_events_of_absent_clients_are_bounded() {
    let session = Session::open(&["--max-output", "8MB", "--max-answer", "8MB"]);
    let resident = || {
        let (_, text) = session.server.send("GET", "/metrics", &[], "");
        let line = text.lines().find_map(|line| line.strip_prefix("belljar_resident_memory_bytes ")).unwrap();
        line.parse::<u64>().unwrap() >> 20
    };
    let mut first = session.begin(&call("print('x' * 7_000_000)"));
    let id = first.last_id();
    first.wait_for("\"id\":2");
    let before = resident();
    for _ in 0..40 {
        session.begin(&call("print('x' * 7_000_000)")).wait_for("\"id\":2");
    }
    // The server releases the last answer after the client has received it.
    let begin = Instant::now();
    while resident() >= before + 250 {
        let after = resident();
        assert!(begin.elapsed() < Duration::from_secs(30), "{before} MB before, {after} MB after 280 MB of answers");
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = session.resume(&id).rest();
    assert!(!text.contains("xxx"), "the oldest goes first");
}

#[test]
fn a_session_does_not_end_while_a_call_runs_in_it() {
    let session = Session::open(&["--idle", "1"]);
    // The first call waits for Python. Each call is silent for longer than a session may be idle.
    let (_, text) =
        session.server.post(&[("Mcp-Session-Id", &session.id)], &call("import time\ntime.sleep(3)\n'the answer'"));
    assert!(text.contains("the answer"), "{text}");
    std::thread::sleep(Duration::from_secs(3));
    let (status, text) = session.server.post(&[("Mcp-Session-Id", &session.id)], &call("1"));
    assert_eq!(status, 404, "{text}");
}
