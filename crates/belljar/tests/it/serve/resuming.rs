//! Resumption of streams after a broken connection (`Last-Event-ID`).

use std::io::Read;
use std::net::TcpStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{Listening, call, hello};

/// A client's session and the headers of its requests.
struct Session {
    server: Rc<Listening>,
    id: String,
    /// The value of the header `Authorization`.
    authorization: String,
}

impl Session {
    fn open(arguments: &[&str]) -> Self {
        let arguments = [&["--no-install"], arguments].concat();
        Self::on(&Rc::new(Listening::start("streamable-http", arguments)), "none")
    }

    /// Opens a session of the client with this token.
    fn on(server: &Rc<Listening>, token: &str) -> Self {
        let server = server.clone();
        let authorization = format!("Bearer {token}");
        let (_, text) = server.post(&[("Authorization", &authorization)], &hello());
        let id = text.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
        let session = Self { server, id, authorization };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let headers = [("Mcp-Session-Id", session.id.as_str()), ("Authorization", &session.authorization)];
        assert_eq!(session.server.post(&headers, &ready).0, 202);
        session
    }

    /// Sends a request and returns its open stream.
    fn begin(&self, message: &Value) -> Events {
        let headers = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("Mcp-Session-Id", &self.id),
            ("Authorization", &self.authorization),
        ];
        Events::new(self.server.open("POST", "/mcp", &headers, &message.to_string()))
    }

    /// Requests the events after the event `last`.
    fn resume(&self, last: &str) -> Events {
        Events::new(self.server.open("GET", "/mcp", &self.resume_headers(last), ""))
    }

    fn resume_headers<'a>(&'a self, last: &'a str) -> [(&'a str, &'a str); 4] {
        [
            ("Accept", "text/event-stream"),
            ("Mcp-Session-Id", &self.id),
            ("Last-Event-ID", last),
            ("Authorization", &self.authorization),
        ]
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

    /// Returns the ID of the first event.
    fn first_id(&mut self) -> String {
        self.ids().remove(0)
    }

    /// Returns the ID of the last event so far.
    fn last_id(&mut self) -> String {
        self.ids().pop().unwrap()
    }

    /// Returns the IDs of the events so far, of which there is at least one.
    fn ids(&mut self) -> Vec<String> {
        loop {
            // The last line may be incomplete.
            let (lines, _) = self.text.rsplit_once('\n').unwrap_or_default();
            let ids = lines.lines().filter_map(|line| line.strip_prefix("id:"));
            let ids: Vec<String> = ids.map(|id| id.trim().to_owned()).collect();
            if !ids.is_empty() {
                return ids;
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
    let first = stream.first_id();
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
fn events_of_another_token_cannot_be_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "alice\nbob\n").unwrap();
    let arguments = ["--no-install", "--auth-token-file", tokens.to_str().unwrap()];
    let server = Rc::new(Listening::start("streamable-http", arguments));
    let [alice, bob] = ["alice", "bob"].map(|token| Session::on(&server, token));
    let level = json!({ "jsonrpc": "2.0", "id": 7, "method": "logging/setLevel", "params": { "level": "info" } });
    alice.begin(&level).wait_for("\"id\":7");
    let mut stream = alice.begin(&call("print('output of alice')\n'the secret of alice'"));
    let first = stream.first_id();
    stream.wait_for("the secret of alice");
    // In the session of the other client, the answer is that of an unknown session.
    let intruder = Session { server: server.clone(), id: alice.id.clone(), authorization: bob.authorization.clone() };
    for last in [first.as_str(), "0"] {
        let (status, text) = server.send("GET", "/mcp", &intruder.resume_headers(last), "");
        assert_eq!(status, 404, "{text}");
    }
    // In a session of the intruder's own, the event is unknown.
    let standalone = format!("{}:common/1", alice.id);
    for last in [first.as_str(), &standalone] {
        let text = bob.resume(last).rest();
        assert!(!text.contains("data: {") && !text.contains("alice"), "{text}");
    }
    assert!(alice.resume(&first).rest().contains("the secret of alice"));
}

#[test]
fn stored_events_of_absent_clients_are_bounded() {
    let session = Session::open(&["--max-output", "8MB", "--max-answer", "8MB"]);
    // 210 MB altogether.
    let first_ids: Vec<String> = (0..30)
        .map(|_| {
            let mut stream = session.begin(&call("print('x' * 7_000_000)"));
            let id = stream.first_id();
            stream.wait_for("\"id\":2");
            id
        })
        .collect();
    // The newest come first, since an answer is kept for a minute.
    let kept: Vec<bool> = first_ids.iter().rev().map(|id| session.resume(id).rest().contains("xxx")).collect();
    let count = kept.iter().filter(|kept| **kept).count();
    // The server keeps 64 MiB of events: nine of these answers.
    assert!((1..=9).contains(&count) && kept[..count].iter().all(|kept| *kept), "the oldest goes first: {kept:?}");
}

#[test]
fn a_session_does_not_end_while_a_call_runs_in_it() {
    let session = Session::open(&["--idle", "5", "--max-sessions", "1"]);
    // The first call waits for Python. Each call is silent for longer than a session may be idle.
    let (_, text) =
        session.server.post(&[("Mcp-Session-Id", &session.id)], &call("import time\ntime.sleep(12)\n'the answer'"));
    assert!(text.contains("the answer"), "{text}");
    // A request to the session would keep it open, but the one session that is allowed is free again once it ended.
    let begin = Instant::now();
    while session.server.post(&[], &hello()).0 != 200 {
        assert!(begin.elapsed() < Duration::from_secs(180), "the session does not end");
        std::thread::sleep(Duration::from_millis(100));
    }
    let (status, text) = session.server.post(&[("Mcp-Session-Id", &session.id)], &call("1"));
    assert_eq!(status, 404, "{text}");
}
