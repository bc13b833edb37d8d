//! Faulty clients, and servers that are killed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use super::http::{Listening, call, hello};
use crate::harness::{Belljar, cache};
use crate::wire::Wire;

#[test]
fn invalid_message_gets_an_error_and_the_next_is_handled() {
    let mut wire = Wire::start(["--no-install"]);
    for line in [&b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"meth\n"[..], b"\xff\xfe not UTF-8\n", b"[]\n", b"\n", b"42\n"] {
        wire.write(line);
    }
    assert!(wire.run("'alive'").contains("alive"));
}

#[test]
fn a_message_of_a_hundred_megabytes_is_refused_and_forgotten() {
    let mut wire = Wire::start(["--no-install"]);
    let before = resident_kilobytes(wire.child.id());
    let piece = vec![b'x'; 1 << 20];
    wire.write(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"");
    for _ in 0..100 {
        wire.write(&piece);
    }
    wire.write(b"\"}}\n");
    assert!(wire.run("'alive'").contains("alive"));
    let after = resident_kilobytes(wire.child.id());
    assert!(after < before + 60_000, "{before} kB before, {after} kB after");
}

#[test]
fn a_killed_server_leaves_the_cache_whole() {
    let mut wire = Wire::start(["--no-install"]);
    wire.send_call(json!({ "python_code": "while True: pass" }));
    wire.child.kill().unwrap();
    wire.child.wait().unwrap();
    assert!(Wire::start(["--no-install"]).run("6 * 7").contains("42"));
}

#[test]
fn server_killed_during_installation_recovers() {
    let own = tempfile::tempdir().unwrap();
    // A copy of the warm cache, so that CPython is not compiled again.
    crate::packages::copy_warm_cache(cache(), own.path());
    let start = || Wire::spawn(Belljar::with_cache(own.path()).arg("stdio").into_command());
    let code = "import six\nsix.PY3";
    for milliseconds in [0, 150, 400] {
        let mut wire = start();
        wire.initialize();
        wire.send_call(json!({ "python_code": code }));
        std::thread::sleep(Duration::from_millis(milliseconds));
        wire.child.kill().unwrap();
        wire.child.wait().unwrap();
    }
    let mut wire = start();
    wire.initialize();
    assert!(wire.run(code).contains("<return_value>\ntrue"));
}

#[test]
fn incomplete_message_at_end_of_input_ends_the_server() {
    let mut wire = Wire::start(["--no-install"]);
    wire.write(b"{\"jsonrpc\": \"2.0\", \"id\": 5, \"method\": \"tools/ca");
    wire.end_input();
    assert_eq!(wire.next(), None);
    assert!(wire.child.wait().unwrap().success());
}

#[test]
fn broken_http_requests_leave_the_server_running() {
    for (command, path) in [("streamable-http", "/mcp"), ("streamable-http-stateless", "/mcp"), ("sse", "/messages/")] {
        let server = Listening::start(command, ["--no-install"]);
        let headers = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
        for body in ["", "[]", "{\"jsonrpc\":\"2.0\"", "42", "{\"jsonrpc\":\"1.0\",\"id\":{}}"] {
            let (status, text) = server.send("POST", path, &headers, body);
            assert!((400..500).contains(&status), "{command}: {body}: {text}");
        }
        let (status, text) = server.send_bytes("POST", path, &headers, b"{\"\xff\xfe\": 1}");
        assert!((400..500).contains(&status), "{command}: {text}");
        drop(server.open_for("POST", path, &headers, b"{\"jsonrpc\":", 5000));
        let (status, _) = server.send("GET", "/healthz", &[], "");
        assert_eq!(status, 200);
    }
}

#[test]
fn code_stops_when_the_client_disconnects() {
    let server = Listening::start("sse", ["--no-install"]);
    let mut stream = server.open("GET", "/sse", &[], "");
    let mut received = String::new();
    let mut wait_for = |text: &str| {
        let mut piece = [0; 1024];
        while !received.contains(text) {
            let count = stream.read(&mut piece).unwrap();
            assert_ne!(count, 0, "{received}");
            received.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        received.clone()
    };
    let text = wait_for("\n\n");
    let endpoint = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap().to_owned();
    let post = |message: &serde_json::Value| {
        let (status, text) =
            server.send("POST", &endpoint, &[("Content-Type", "application/json")], &message.to_string());
        assert_eq!(status, 202, "{text}");
    };
    post(&hello());
    wait_for("serverInfo");
    post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let mut message = call("while True: pass");
    message["params"]["_meta"] = json!({ "progressToken": "t" });
    post(&message);
    wait_for("running");
    server.wait_for_metric("belljar_live_interpreters 1");
    drop(stream);
    // The server notices at the next keep-alive, at the latest.
    server.wait_for_metric("belljar_live_interpreters 0");
}

fn resident_kilobytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn idle_connections_are_closed() {
    const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let server = Listening::start("streamable-http", []);
    let connect = |said: &[u8]| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(said).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
        stream
    };
    let mut ask_again = connect(REQUEST);
    let (mut silent, mut half) = (connect(b""), connect(&REQUEST[..30]));
    for quiet in [&mut silent, &mut half] {
        assert_eq!(quiet.read(&mut [0; 100]).unwrap(), 0, "it was answered");
    }
    let mut answers = [0; 1000];
    let read = ask_again.read(&mut answers).unwrap();
    assert!(answers[..read].starts_with(b"HTTP/1.1 200"));
    // A connection with requests stays open, and the server accepts others.
    ask_again.write_all(REQUEST).unwrap();
    let read = ask_again.read(&mut answers).unwrap();
    assert!(answers[..read].starts_with(b"HTTP/1.1 200"));
    assert_eq!(server.send("GET", "/healthz", &[], "").0, 200);
}
