//! Clients that count in a session each, and check every answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The time within which every request must have an answer, which may be an error. Long, since machines that test are
/// busy; requests that wait for a replica that is gone would wait for minutes.
const MAX_ANSWER: Duration = Duration::from_secs(90);
/// The time between two requests of a client.
const PAUSE: Duration = Duration::from_millis(500);

/// Counts of all clients.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) answers: AtomicU64,
    pub(super) errors: AtomicU64,
    /// The longest time until an answer, in milliseconds.
    pub(super) longest: AtomicU64,
}

/// A client with a session that counts.
pub(super) struct Counter<'a> {
    address: String,
    session: String,
    /// The last number that was answered.
    last: u64,
    /// The number of calls since then whose answers were errors: each has counted or not.
    uncertain: u64,
    /// The last of these answers.
    error: String,
    tally: &'a Tally,
}

impl<'a> Counter<'a> {
    /// Opens a session.
    pub(super) fn open(address: &str, tally: &'a Tally) -> Self {
        let begin = Instant::now();
        loop {
            let answer = cell(address, "", "x = 0", tally);
            // The cell of a new session can fail, like any other.
            let opened = answer.as_ref().ok().filter(|answer| answer["success"] == true);
            let session = opened.and_then(|answer| answer["session_info"]["session_id"].as_str());
            if let Some(session) = session {
                let session = session.to_owned();
                return Self {
                    address: address.to_owned(),
                    session,
                    last: 0,
                    uncertain: 0,
                    error: String::new(),
                    tally,
                };
            }
            assert!(begin.elapsed() < 2 * MAX_ANSWER, "no session: {answer:?}");
            std::thread::sleep(PAUSE);
        }
    }

    /// Counts until it is time to end.
    pub(super) fn count_until(&mut self, ended: &AtomicBool) {
        while !ended.load(Ordering::Relaxed) {
            self.count();
            std::thread::sleep(PAUSE);
        }
    }

    /// Checks that the session answers, once all replicas are well.
    pub(super) fn finish(mut self) {
        let begin = Instant::now();
        while !self.count() {
            assert!(begin.elapsed() < MAX_ANSWER, "session {} has no answer", self.session);
            std::thread::sleep(PAUSE);
        }
    }

    /// Adds one. Returns false if the answer is an error.
    fn count(&mut self) -> bool {
        let answer = cell(&self.address, &self.session, "x += 1\nx", self.tally);
        let found = answer.as_ref().ok().and_then(|answer| answer["result"].as_str()?.parse::<u64>().ok());
        let Some(found) = found else {
            let text = format!("{answer:?}");
            // Nothing that was answered may be lost, and neither may the session.
            let is_lost = text.contains("SessionExpired") || text.contains("NameError");
            let Self { session, last, uncertain, error, .. } = &self;
            assert!(!is_lost, "session {session} after {last} + {uncertain}: {text}\nbefore: {error}");
            self.tally.errors.fetch_add(1, Ordering::Relaxed);
            self.uncertain += 1;
            self.error = text;
            return false;
        };
        let allowed = self.last + 1..=self.last + 1 + self.uncertain;
        assert!(allowed.contains(&found), "session {}: {found} is not in {allowed:?}", self.session);
        (self.last, self.uncertain) = (found, 0);
        self.tally.answers.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// Runs a cell, and returns the structured result, or the reason why it is missing.
fn cell(address: &str, session: &str, code: &str, tally: &Tally) -> Result<Value, String> {
    let arguments = json!({ "code": code, "session_id": session });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "execute_code", "arguments": arguments } });
    let begin = Instant::now();
    let answer = post(address, &call.to_string());
    let elapsed = begin.elapsed();
    assert!(elapsed < MAX_ANSWER, "an answer took {elapsed:?}: {answer:?}");
    tally.longest.fetch_max(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    let answer = answer.map_err(|error| error.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if !head.starts_with("HTTP/1.1 200") {
        return Err(head.lines().next().unwrap_or_default().to_owned() + body);
    }
    let mut messages =
        body.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ").unwrap_or(line)).ok());
    let mut message: Value = messages.find(|message: &Value| message["id"] == 1).ok_or("no answer")?;
    match message["result"]["structuredContent"].take() {
        Value::Null => Err(message.to_string()),
        content => Ok(content),
    }
}

fn post(address: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(MAX_ANSWER + PAUSE))?;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
