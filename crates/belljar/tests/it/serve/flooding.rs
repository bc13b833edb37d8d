//! Clients that send without end, or do not read: the memory of a server stays bounded, and other clients are served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{Listening, call, hello};

/// The memory that bodies in arrival may take together, in megabytes.
const MAX_BODIES: u64 = 256;
/// The bytes that an interrupted upload sends, of those that it announces.
const SENT: usize = 15 << 20;
const ANNOUNCED: usize = 16 << 20;
/// The time in which a body must arrive, and the time for which the test waits at most.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_WAIT: Duration = Duration::from_secs(240);

/// Returns the memory of a server, in megabytes.
fn resident(server: &Listening) -> u64 {
    let (_, text) = server.send("GET", "/metrics", &[], "");
    let line = text.lines().find_map(|line| line.strip_prefix("belljar_resident_memory_bytes ")).unwrap();
    line.parse::<u64>().unwrap() >> 20
}

/// Begins a request whose body does not end. Returns `None` if the server refused it meanwhile.
fn begin_upload(server: &Listening, piece: &[u8]) -> TcpStream {
    let headers = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    server.open_for("POST", "/mcp", &headers, piece, ANNOUNCED)
}

/// Returns the status of a response, once it arrives.
fn status(stream: &mut TcpStream, timeout: Duration) -> Option<u16> {
    stream.set_read_timeout(Some(timeout)).unwrap();
    let mut text = String::new();
    let mut piece = [0; 4096];
    // A server that refuses a request may reset the connection after its response.
    while !text.contains("\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(length) => text.push_str(&String::from_utf8_lossy(&piece[..length])),
        }
    }
    text.split(' ').nth(1)?.parse().ok()
}

#[test]
fn uploads_that_do_not_end_are_bounded_in_sum_and_in_time() {
    let server = Listening::start("streamable-http", ["--no-install"]);
    let before = resident(&server);
    let begin = Instant::now();
    let piece = vec![b' '; SENT];
    // 600 MB altogether.
    let mut uploads: Vec<TcpStream> = (0..40).map(|_| begin_upload(&server, &piece)).collect();
    // On a busy machine, the answers may be late. The other uploads are given up after a minute.
    let mut refused = Vec::new();
    while refused.len() < 20 && begin.elapsed() < BODY_TIMEOUT - Duration::from_secs(15) {
        refused.extend(uploads.iter_mut().filter_map(|upload| status(upload, Duration::from_millis(200))));
    }
    assert!(refused.len() >= 20 && refused.iter().all(|status| *status == 503), "{refused:?}");
    let during = resident(&server);
    assert!(during < before + MAX_BODIES + 150, "{before} MB before, {during} MB during 600 MB of uploads");
    // Clients with usual requests are served meanwhile.
    assert_eq!(server.post(&[], &hello()).0, 200);
    // An upload that goes on, but does not end, is given up as well.
    let mut slow = begin_upload(&server, b" ");
    let slow_begin = Instant::now();
    let mut answered = None;
    while slow_begin.elapsed() < MAX_WAIT && answered.is_none() {
        if slow.write_all(b" ").is_err() {
            break;
        }
        answered = status(&mut slow, Duration::from_secs(3));
    }
    assert_eq!(answered, Some(408), "after {:?}", slow_begin.elapsed());
    assert!(slow_begin.elapsed() >= BODY_TIMEOUT - Duration::from_secs(1), "{:?}", slow_begin.elapsed());
    // By now, so are those that stalled, and their memory is free for others.
    let stalled: Vec<u16> = uploads.iter_mut().filter_map(|upload| status(upload, MAX_WAIT)).collect();
    assert!(stalled.len() >= 10 && stalled.iter().all(|status| *status == 408), "{stalled:?}, {:?}", begin.elapsed());
    let params = json!({ "name": "no_such_tool", "arguments": { "text": "x".repeat(8 << 20) } });
    let long = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    let (status, text) = server.post(&[], &long);
    assert!(![408, 413, 503].contains(&status), "{text}");
}

/// A client of server-sent events that has read the address for its messages, and reads nothing else.
struct Unreading {
    _stream: TcpStream,
    path: String,
}

impl Unreading {
    fn open(server: &Listening) -> Self {
        let mut stream = server.open("GET", "/sse", &[("Accept", "text/event-stream")], "");
        let mut text = String::new();
        let mut byte = [0; 1];
        while !text.ends_with("\n\n") || !text.contains("session_id=") {
            stream.read_exact(&mut byte).unwrap();
            text.push(char::from(byte[0]));
        }
        let (_, rest) = text.split_once("data: ").unwrap();
        let client = Self { path: rest.lines().next().unwrap().to_owned(), _stream: stream };
        assert_eq!(client.post(server, &hello()), 202);
        assert_eq!(client.post(server, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })), 202);
        client
    }

    fn post(&self, server: &Listening, message: &Value) -> u16 {
        server.send("POST", &self.path, &[("Content-Type", "application/json")], &message.to_string()).0
    }

    /// Waits until the session has ended.
    fn wait_for_end(&self, server: &Listening) {
        let begin = Instant::now();
        let ping = json!({ "jsonrpc": "2.0", "id": 9, "method": "ping" });
        while self.post(server, &ping) != 404 {
            assert!(begin.elapsed() < MAX_WAIT, "the session does not end");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

#[test]
fn client_of_server_sent_events_that_does_not_read_is_disconnected() {
    let server = Listening::start("sse", ["--no-install", "--max-output", "8MB", "--max-answer", "8MB"]);
    let flooded = Unreading::open(&server);
    let before = resident(&server);
    for _ in 0..600 {
        // 4.2 GB altogether. A call after the end of the session is refused.
        if flooded.post(&server, &call("print('x' * 7_000_000)")) != 202 {
            break;
        }
    }
    flooded.wait_for_end(&server);
    let after = resident(&server);
    // Calls that run at the same time have several copies of their output; on a busy machine these are sixteen.
    assert!(after < before + 1500, "{before} MB before, {after} MB after");
    // Others are not affected.
    let other = Unreading::open(&server);
    assert_eq!(other.post(&server, &call("1")), 202);
}
