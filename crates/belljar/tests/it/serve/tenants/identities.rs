//! The owners that clients are: with tokens, without authentication, over standard streams, and of Monty's protocol.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use belljar_testing::install::run;
use serde_json::json;

use super::{Shared, assert_refused, assert_success, wait_for, wait_until};
use crate::harness::Belljar;
use crate::monty_worker::script;
use crate::serve::http::{Listening, hello};
use crate::wire::{Wire, text};

/// Returns the ID of a new MCP session.
fn mcp_session(server: &Listening) -> String {
    let (status, text) = server.post(&[], &hello());
    assert_eq!(status, 200, "{text}");
    let id = text.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
    });
    let id = id.unwrap_or_else(|| panic!("{text}"));
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(server.post(&[("Mcp-Session-Id", &id)], &initialized).0, 202);
    id
}

#[test]
fn without_authentication_each_connection_is_an_owner() {
    let options = ["--insecure-no-auth", "--quota", "runs=1", "--quota", "queue=0"];
    let shared = Shared::start_as("streamable-http", "", &options);
    // The calls of an MCP session count for the connection that began it, whichever connections they use.
    let (first, second) = (mcp_session(&shared.server), mcp_session(&shared.server));
    let ids = AtomicU64::new(10);
    let call = |session: &str, code: &str| {
        let mut message = crate::serve::http::call(code);
        // Requests of one session that are in progress have different IDs.
        message["id"] = ids.fetch_add(1, Ordering::Relaxed).into();
        let (status, text) = shared.server.post(&[("Mcp-Session-Id", session)], &message);
        assert_eq!(status, 200, "{text}");
        text
    };
    let blocked = format!("print('began')\n{}", wait_for("go"));
    thread::scope(|scope| {
        let running = scope.spawn(|| call(&first, &blocked));
        wait_until("it runs", || shared.metric("belljar_running") == 1.0);
        let refused = call(&first, "1");
        assert!(refused.contains("\"quota\":\"queue\""), "{refused}");
        assert!(call(&second, "41 + 1").contains("42"));
        shared.release("go");
        assert!(running.join().unwrap().contains("began"));
    });
    assert!(call(&first, "41 + 1").contains("42"));
}

#[test]
fn tokens_without_a_name_are_owners_of_their_own() {
    let shared = Shared::start("[default]\nsessions = 1\n[owner.alice]\nsessions = 2\n", &["--toolset", "interpreter"]);
    shared.open("plain");
    assert_refused(&shared.cell("plain", "", "1"), "sessions");
    // The name is not a part of the token.
    let authorization = [("Authorization", "Bearer token-a alice")];
    assert_eq!(shared.server.post(&authorization, &hello()).0, 401);
    // Two tokens of one name are one owner.
    shared.open("token-a");
    shared.open("token-c");
    assert_refused(&shared.cell("token-a", "", "1"), "sessions");
    assert_refused(&shared.cell("token-c", "", "1"), "sessions");
}

#[test]
fn client_over_standard_streams_is_one_owner() {
    let belljar = Belljar::new().args(["stdio", "--toolset", "interpreter", "--quota", "sessions=1"]);
    let mut wire = Wire::spawn(belljar.into_command());
    wire.initialize();
    let first = wire.tool("execute_code", json!({ "code": "1" }));
    assert_success(&first);
    let second = wire.tool("execute_code", json!({ "code": "1" }));
    assert_refused(&second, "sessions");
    assert!(text(&second).contains("RefusedError"), "{second}");
}

#[test]
fn sessions_of_montys_protocol_count() {
    let quotas = "[owner.alice]\nsessions = 1\n";
    let shared = Shared::start(quotas, &["--monty", "--toolset", "all"]);
    let open = |token: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [
            ("Authorization", authorization.as_str()),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        WebSocket::open(&shared.server, &headers)
    };
    let first = open("token-a");
    assert_eq!(first.status, 101);
    assert_eq!(open("token-a").status, 429);
    assert_refused(&shared.cell("token-a", "", "1"), "sessions");
    assert_eq!(open("token-b").status, 101);
    drop(first);
    wait_until("the session has ended", || shared.cell("token-a", "", "1")["structuredContent"]["success"] == true);
    assert_eq!(open("token-a").status, 429);
}

#[test]
fn feeds_of_montys_protocol_count() {
    let shared = Shared::start("[owner.alice]\nprocessor = 0.2\n", &["--monty"]);
    let url = shared.server.url.replacen("http", "ws", 1).replace("/mcp", "/monty");
    run(script("refused.py").arg(url).arg("token-a"));
    assert_eq!(shared.metric("belljar_refusals_total{reason=\"quota-processor\"}"), 1.0);
    // The quota is that of the owner, for all protocols.
    assert_refused(&shared.run("token-a", "1"), "processor");
    assert_success(&shared.run("token-b", "1"));
}

/// An upgraded connection. It is closed when dropped.
struct WebSocket {
    status: u16,
    _stream: std::net::TcpStream,
}

impl WebSocket {
    fn open(server: &Listening, headers: &[(&str, &str)]) -> Self {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
        let mut head = format!("GET /monty HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\n", server.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, _stream: stream }
    }
}
