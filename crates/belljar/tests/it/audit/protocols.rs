//! The same records by HTTP, by the code-execution protocol and by Monty's: owners, sessions, files and refusals.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Log, end, serve, wait_for_record};
use crate::code_execution::Backend;
use crate::harness::Belljar;
use crate::serve::http::Listening;

#[test]
fn life_of_a_session_and_its_files_are_recorded() {
    let log = Log::new();
    let mut wire = serve(&log, &["--toolset", "interpreter", "--max-sessions", "2"]);
    let code = "open('a.txt', 'w').write('hello')";
    let created = wire.tool("execute_code", json!({ "code": code }));
    let session = created["structuredContent"]["session_info"]["session_id"].as_str().unwrap().to_owned();
    let only = json!({ "session_id": session });
    wire.tool("upload_file", json!({ "session_id": session, "name": "b.txt", "content": "abc" }));
    wire.ask("resources/read", json!({ "uri": format!("kernel://{session}/a.txt") }));
    wire.ask("resources/read", json!({ "uri": format!("kernel://{session}/none.txt") }));
    let forked = wire.tool("fork_session", only.clone());
    let forked = forked["structuredContent"]["session_id"].as_str().unwrap().to_owned();
    wire.tool("execute_code", json!({ "code": "1" }));
    wire.tool("interrupt_session", only.clone());
    wire.tool("restart_session", only.clone());
    wire.tool("clear_session", only);
    end(wire);
    log.assert_intact();
    let digest = belljar_audit::digest(&session);
    for event in ["session.create", "session.fork", "session.interrupt", "session.restart", "session.end"] {
        assert_eq!(log.one(event)["session"], digest, "{event}");
    }
    assert_eq!(log.one("session.fork")["target"], belljar_audit::digest(&forked));
    let shown = log.show(&["--event", "session.fork"]);
    assert!(shown.contains(&format!(" target={} ", &belljar_audit::digest(&forked)[..12])), "{shown}");
    assert_eq!(log.one("session.end")["outcome"], "cleared");
    let written = log.one("file.write");
    assert_eq!((&written["name"], &written["bytes"]), (&json!("b.txt"), &json!(3)));
    let read = log.of("file.read");
    assert_eq!(
        (&read[0]["name"], &read[0]["bytes"], &read[0]["outcome"]),
        (&json!("a.txt"), &json!(5), &json!("success"))
    );
    assert_eq!(read[1]["outcome"], "failed");
    let refusal = log.one("refusal");
    assert_eq!((&refusal["name"], &refusal["target"]), (&json!("sessions-full"), &json!("execute_code")));
    assert!(!log.text().contains(&session) && !log.text().contains(&forked), "{}", log.text());
}

#[test]
fn sleep_and_wake_of_a_session_are_recorded() {
    let log = Log::new();
    let data = tempfile::tempdir().unwrap();
    let options = ["--toolset", "interpreter", "--data-dir", data.path().to_str().unwrap()];
    let mut wire = serve(&log, &options);
    let created = wire.tool("execute_code", json!({ "code": "x = 5" }));
    let session = created["structuredContent"]["session_info"]["session_id"].as_str().unwrap().to_owned();
    end(wire);
    let mut wire = serve(&log, &options);
    let answer = wire.tool("execute_code", json!({ "session_id": session, "code": "x" }));
    assert_eq!(answer["structuredContent"]["result"], "5", "{answer}");
    end(wire);
    log.assert_intact();
    let digest = belljar_audit::digest(&session);
    assert_eq!(log.of("session.sleep")[0]["session"], digest);
    let wake = log.one("session.wake");
    assert_eq!((&wake["session"], &wake["outcome"]), (&json!(digest), &json!("success")));
    assert!(wake["duration_ms"].as_f64().unwrap() > 0.0, "{wake}");
}

#[test]
fn wake_that_fails_is_recorded_with_the_reason() {
    let log = Log::new();
    let data = tempfile::tempdir().unwrap();
    let options = ["--toolset", "interpreter", "--data-dir", data.path().to_str().unwrap()];
    let mut wire = serve(&log, &options);
    let created = wire.tool("execute_code", json!({ "code": "x = 5" }));
    let session = created["structuredContent"]["session_info"]["session_id"].as_str().unwrap().to_owned();
    end(wire);
    let path = data.path().join(&session).join("state");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut wire = serve(&log, &options);
    let answer = wire.tool("execute_code", json!({ "session_id": session, "code": "x" }));
    assert!(answer.to_string().contains("does not match its checksum"), "{answer}");
    end(wire);
    log.assert_intact();
    let wakes = log.of("session.wake");
    assert!(!wakes.is_empty() && !log.text().contains(&session), "{}", log.text());
    for wake in wakes {
        assert_eq!((&wake["session"], &wake["outcome"]), (&json!(belljar_audit::digest(&session)), &json!("failed")));
        assert!(wake["error"].as_str().unwrap().contains("does not match its checksum"), "{wake}");
    }
}

#[test]
fn owners_and_refused_requests_are_recorded_over_http() {
    let log = Log::new();
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "one-token\nanother-token\n").unwrap();
    let audit = log.options();
    let options = [&audit[0], &audit[1], "--toolset", "all", "--auth-token-file", tokens.to_str().unwrap()];
    let server = Listening::start("streamable-http-stateless", options);
    let run = |token: &str| {
        let params = json!({ "name": "run_python_code", "arguments": { "python_code": "1" } });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        server.post(&[("Authorization", &format!("Bearer {token}"))], &message).0
    };
    assert_eq!((run("one-token"), run("another-token"), run("guessed")), (200, 200, 401));
    assert_eq!(server.send("GET", "/mcp", &[("Host", "evil.example")], "").0, 403);
    wait_for_record(&log.path(), "auth.refusal");
    server.end();
    log.assert_intact();
    let text = log.text();
    assert!(!text.contains("one-token") && !text.contains("another-token") && !text.contains("guessed"), "{text}");
    let owners: Vec<Value> = log.of("run.end").iter().map(|end| end["owner"].clone()).collect();
    assert_eq!(owners[0], format!("token:{}", &belljar_audit::sha256("one-token")[..16]));
    assert_ne!(owners[0], owners[1]);
    let refusals: Vec<Value> = log.of("auth.refusal").iter().map(|refusal| refusal["name"].clone()).collect();
    assert_eq!(refusals, ["token", "host"]);
}

#[test]
fn clients_without_a_token_cannot_fill_the_log() {
    let log = Log::new();
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "one-token\n").unwrap();
    let audit = log.options();
    let options = [&audit[0], &audit[1], "--auth-token-file", tokens.to_str().unwrap()];
    let server = Listening::start("streamable-http-stateless", options);
    let refused = || assert_eq!(server.send("GET", "/metrics", &[], "").0, 401);
    (0..200).for_each(|_| refused());
    // Those without a record are counted by the next.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    refused();
    server.end();
    log.assert_intact();
    let records = log.of("auth.refusal");
    let counted: u64 = records.iter().filter_map(|record| record["count"].as_u64()).sum();
    assert_eq!(records.len() as u64 + counted, 201);
    let shown = log.show(&["--event", "auth.refusal"]);
    assert_eq!(shown.matches(" count=").count(), records.iter().filter(|record| record["count"].is_u64()).count());
}

#[test]
fn refusals_by_quotas_name_their_owner_and_are_not_hidden_by_others() {
    let log = Log::new();
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "one-token\nanother-token\n").unwrap();
    let audit = log.options();
    let options = [&audit[0], &audit[1], "--toolset", "all", "--quota", "sessions=1", "--auth-token-file"];
    let server = Listening::start("streamable-http-stateless", options.into_iter().chain(tokens.to_str()));
    let call = |token: &str, name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        server.answer(&[("Authorization", &format!("Bearer {token}"))], &message)["result"].take()
    };
    let open = |token: &str| call(token, "execute_code", json!({ "code": "1" }))["structuredContent"].take();
    let is_refused = |fields: &Value| fields["refusal"]["quota"] == "sessions";
    let [first, another] = ["one-token", "another-token"].map(open);
    assert!(!is_refused(&first) && !is_refused(&another), "{first} {another}");
    let session = first["session_info"]["session_id"].as_str().unwrap().to_owned();
    // Senders that are not known, and many refusals of one owner, hide no others.
    (0..30).for_each(|_| assert_eq!(server.send("GET", "/metrics", &[], "").0, 401));
    let forked = call("one-token", "fork_session", json!({ "session_id": session }));
    assert!(is_refused(&forked["structuredContent"]), "{forked}");
    (0..25).for_each(|_| assert!(is_refused(&open("one-token"))));
    assert!(is_refused(&open("another-token")));
    server.end();
    log.assert_intact();
    let refusals = log.of("refusal");
    assert!(refusals.iter().all(|refusal| refusal["name"] == "quota-sessions"), "{refusals:?}");
    let [one, another] =
        ["one-token", "another-token"].map(|token| format!("token:{}", &belljar_audit::sha256(token)[..16]));
    let of = |owner: &str| refusals.iter().filter(|refusal| refusal["owner"] == owner).collect::<Vec<_>>();
    assert!(of(&one).len() >= 20, "{refusals:?}");
    assert_eq!((&of(&one)[0]["target"], &of(&one)[0]["protocol"]), (&json!("fork_session"), &json!("mcp")));
    assert_eq!(of(&one)[0]["session"], belljar_audit::digest(&session));
    assert_eq!((of(&another).len(), &of(&another)[0]["target"]), (1, &json!("execute_code")));
}

#[test]
fn code_execution_protocol_is_recorded() {
    let log = Log::new();
    let audit = log.options();
    let backend = Backend::start([audit[0].as_str(), audit[1].as_str()]);
    let session = backend.post("/sessions", &json!({})).with_status(201)["session_id"].as_str().unwrap().to_owned();
    let call = json!({ "tool": "code_execution", "input": { "code": "print(6 * 7)" } });
    backend.post(&format!("/sessions/{session}/exec"), &call).with_status(200);
    backend.terminate();
    log.assert_intact();
    let cell = log.one("cell.end");
    assert_eq!((&cell["protocol"], &cell["outcome"]), (&json!("code-execution"), &json!("success")));
    assert_eq!(cell["session"], belljar_audit::digest(&session));
}

#[test]
fn log_on_standard_output_is_a_chain() {
    let options = ["streamable-http-stateless", "--port", "0", "--audit", "-"];
    let mut command = Belljar::new().args(options).into_command();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(errors.next().unwrap().unwrap().starts_with("listening on "));
    std::thread::spawn(move || errors.for_each(drop));
    let output = child.stdout.take().unwrap();
    let status = std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
    let log = Log::new();
    std::fs::write(log.path(), std::io::read_to_string(output).unwrap()).unwrap();
    child.wait().unwrap();
    log.assert_intact();
}
