//! Replicas that are killed or stopped, and what is refused.

use std::io::{ErrorKind, Read as _};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Client, Shared, open, value};
use crate::serve::http::Listening;

/// Sends a signal to a replica.
fn signal(replica: &Listening, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &replica.child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn session_of_a_killed_replica_continues_in_another() {
    let shared = Shared::new();
    let [mut one, two] = [shared.replica(), shared.replica()];
    let session = open(&one, "x = [1]");
    assert_eq!(value(&two, &session, "x.append(2)\nx"), "[1, 2]");
    one.child.kill().unwrap();
    one.child.wait().unwrap();
    // The call waits until the lease has run out. Nothing that was answered is lost, and nothing is done twice.
    assert_eq!(value(&two, &session, "x.append(3)\nx"), "[1, 2, 3]");
}

#[test]
fn stopped_replica_ends_when_it_goes_on() {
    let shared = Shared::new();
    let [mut one, two] = [shared.replica(), shared.replica()];
    let session = open(&one, "x = 1");
    signal(&one, "STOP");
    let begin = Instant::now();
    // The first answer may be that the replica did not answer.
    loop {
        let (status, _) = two.post(&[], &call(&session, "x"));
        if status == 200 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(180), "{status}");
    }
    assert_eq!(value(&two, &session, "x += 1\nx"), "2");
    // The system accepts these connections, and the replica reads them once its lease has run out, if it does.
    let asked: Vec<_> = (0..4).map(|_| one.open("GET", "/readyz", &[], "")).collect();
    signal(&one, "CONT");
    for mut answer in asked {
        let mut bytes = Vec::new();
        // It may end before.
        let _ = answer.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 503"), "{text}");
    }
    let status = one.child.wait().unwrap();
    assert_eq!(status.code(), Some(2));
    assert_eq!(value(&two, &session, "x += 1\nx"), "3");
}

#[test]
fn mcp_session_of_a_killed_replica_is_not_found() {
    let shared = Shared::new();
    let start = || shared.replica_with("streamable-http", &["--toolset", "interpreter"]);
    let [mut one, two] = [start(), start()];
    let client = Client::new(&one);
    // The second replica knows the address of the first from here on.
    assert_eq!(client.cell(&two, None, "1 + 1")["result"], "2");
    one.child.kill().unwrap();
    one.child.wait().unwrap();
    let begin = Instant::now();
    loop {
        match two.post(&client.headers(), &call("", "1")) {
            // Clients open another session then.
            (404, _) => break,
            (status, text) => assert!(begin.elapsed() < Duration::from_secs(180), "{status}: {text}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn answer_of_a_stopped_replica_ends() {
    let shared = Shared::new();
    let start = || shared.replica_with("streamable-http", &["--toolset", "interpreter"]);
    let [mut one, two] = [start(), start()];
    let client = Client::new(&one);
    client.cell(&two, None, "1 + 1");
    let endless = call("", "print('begun', flush=True)\nimport asyncio\nawait asyncio.sleep(1000)").to_string();
    let headers = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    let mut answer = two.open("POST", "/mcp", &[&headers[..], &client.headers()].concat(), &endless);
    let mut head = [0; 12];
    answer.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    signal(&one, "STOP");
    // The stream has a read timeout.
    let mut rest = Vec::new();
    let ended = answer.read_to_end(&mut rest);
    signal(&one, "CONT");
    one.child.kill().unwrap();
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
}

fn call(session: &str, code: &str) -> serde_json::Value {
    let arguments = json!({ "code": code, "session_id": session });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "execute_code", "arguments": arguments } })
}

#[test]
fn cell_is_answered_once_it_is_stored() {
    let shared = Shared::new();
    let [mut one, two] = [shared.replica(), shared.replica()];
    let session = open(&one, "x = 1");
    let unavailable = |thousandths| shared.server.faults.unavailable.store(thousandths, Ordering::Relaxed);
    unavailable(1000);
    let refused = shared.server.faults.requests.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The commit is tried again while the lease runs.
            while shared.server.faults.requests.load(Ordering::Relaxed) < refused + 3 {
                std::thread::sleep(Duration::from_millis(10));
            }
            unavailable(0);
        });
        assert_eq!(value(&one, &session, "x = 2\nx"), "2");
    });
    one.child.kill().unwrap();
    one.child.wait().unwrap();
    assert_eq!(value(&two, &session, "x"), "2");
}

#[test]
fn replica_without_its_store_ends_and_loses_nothing() {
    let shared = Shared::new();
    let mut one = shared.replica();
    let session = open(&one, "x = 1");
    shared.server.faults.unavailable.store(1000, Ordering::Relaxed);
    let (status, text) = one.post(&[], &call(&session, "x = 2\nx"));
    assert!(status != 200 || text.contains("was not stored"), "{text}");
    assert_eq!(one.child.wait().unwrap().code(), Some(2));
    shared.server.faults.unavailable.store(0, Ordering::Relaxed);
    let two = shared.replica();
    assert_eq!(value(&two, &session, "x"), "1");
}

#[test]
fn forged_requests_of_replicas_are_refused() {
    let shared = Shared::new();
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "secret\n").unwrap();
    let arguments = ["--toolset", "interpreter", "--auth-token-file", tokens.to_str().unwrap()];
    let one = shared.replica_with("streamable-http-stateless", &arguments);
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis().to_string();
    for signature in ["", "1", "1 2", &format!("{time} AAAA"), &format!("{time} {}", "A".repeat(43))] {
        let headers = [("Belljar-Signature", signature), ("Belljar-Principal", "c29tZW9uZQ")];
        assert_eq!(one.post(&headers, &call("", "1")).0, 403, "{signature}");
        let (status, _) = one.send("POST", "/cluster/hand-over/AAAAAAAAAAAAAAAA", &headers, "");
        assert_eq!(status, 403, "{signature}");
    }
    let authorized = [("Authorization", "Bearer secret"), ("Belljar-Principal", "c29tZW9uZQ")];
    assert_eq!(one.send("POST", "/cluster/hand-over/AAAAAAAAAAAAAAAA", &authorized, "").0, 404);
    // Load balancers have no token.
    assert_eq!(one.send("GET", "/readyz", &[], "").0, 200);
    // The principal is that of the token, whatever a client claims.
    let (status, text) = one.post(&authorized, &call("", "1"));
    assert_eq!(status, 200, "{text}");
}

#[test]
fn address_that_other_replicas_cannot_reach_is_refused() {
    let shared = Shared::new();
    let arguments = ["--toolset", "interpreter", "--host", "0.0.0.0", "--insecure-no-auth"];
    let run = shared.belljar("streamable-http-stateless", &arguments).run();
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains("--advertise is missing") && run.stderr.contains("hint: add --advertise"), "{run:?}");
    let advertised = [&arguments[..], &["--advertise", "http://127.0.0.1:1"]].concat();
    let replica = shared.replica_with("streamable-http-stateless", &advertised);
    assert!(replica.address.starts_with("0.0.0.0:"), "{}", replica.address);
}

#[test]
fn store_that_cannot_be_reached_is_named_at_the_start() {
    let shared = Shared::new();
    shared.server.faults.unavailable.store(1000, Ordering::Relaxed);
    let run = shared.belljar("streamable-http-stateless", &["--toolset", "interpreter"]).run();
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains("--store") && run.stderr.contains("reachable"), "{run:?}");
    let run = shared.belljar("streamable-http-stateless", &[]).run();
    assert!(run.stderr.contains("--toolset interpreter"), "{run:?}");
}
