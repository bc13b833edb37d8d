//! Operators: the records of their actions, and those of the sessions that they act on.

use serde_json::{Value, json};

use super::{Log, sha256};
use crate::operator::{Operator, TOKEN};

/// The token of the client.
const CLIENT: &str = "user-token";

/// Returns the name of a token's owner in records.
fn owner(token: &str) -> String {
    format!("token:{}", &sha256(token)[..16])
}

/// Starts a server with a log, whose clients need a token.
fn start(log: &Log, options: &[&str]) -> Operator {
    let tokens = log.directory.path().join("tokens");
    std::fs::write(&tokens, format!("{CLIENT}\n")).unwrap();
    let audit = log.options();
    let usual = ["--auth-token-file", tokens.to_str().unwrap(), &audit[0], &audit[1]];
    Operator::start(&[&usual[..], options].concat())
}

/// Creates a session of the client, runs code in it, and returns its digest and its handle.
fn session_of_client(operator: &mut Operator, code: &str) -> (String, String) {
    operator.backend.token = Some(CLIENT.into());
    let id = operator.backend.create();
    operator.backend.run(&id, code);
    operator.backend.token = None;
    let digest = belljar_audit::digest(&id);
    let handle = digest[..16].to_owned();
    operator.wait_for_state(&handle, "idle");
    (digest, handle)
}

fn end(operator: Operator) {
    let Operator { backend, .. } = operator;
    backend.terminate();
}

#[test]
fn operators_and_the_sessions_that_they_act_on_are_named() {
    let log = Log::new();
    let mut operator = start(&log, &[]);
    let (digest, handle) = session_of_client(&mut operator, "open('a.txt', 'w').write('hello')");
    let send = |method: &str, path: &str| operator.send(method, path, None).status;
    let of_session = |operation: &str| format!("/sessions/{handle}/{operation}");
    assert_eq!(send("GET", &of_session("files/content?path=a.txt")), 200);
    assert_eq!(send("POST", &of_session("interrupt")), 200);
    assert_eq!(send("POST", &of_session("restart")), 204);
    assert_eq!(send("POST", &of_session("fork")), 201);
    assert_eq!(send("DELETE", &format!("/sessions/{handle}")), 204);
    assert_eq!(send("POST", "/sessions"), 201);
    assert_eq!(send("POST", "/sessions/0123456789abcdef/restart"), 404);
    end(operator);
    log.assert_intact();
    let actions = log.of("operator.action");
    let named: Vec<_> = actions
        .iter()
        .map(|action| (action["name"].as_str().unwrap(), action["outcome"].as_str().unwrap(), &action["session"]))
        .collect();
    let (session, none) = (json!(digest), Value::Null);
    let expected = [
        ("readFile", "200", &session),
        ("interruptSession", "200", &session),
        ("restartSession", "204", &session),
        ("forkSession", "201", &session),
        ("endSession", "204", &session),
        ("createSession", "201", &none),
        ("restartSession", "404", &none),
    ];
    assert_eq!(named, expected, "{}", log.text());
    for action in &actions {
        let (name, by, protocol) = (&action["owner"], &action["by"], &action["protocol"]);
        assert_eq!((name, by, protocol), (&json!(owner(TOKEN)), &json!("operator"), &json!("admin")), "{action}");
    }
    // The sessions are the client's, and an operator has used them.
    for event in ["file.read", "session.interrupt", "session.restart", "session.fork", "session.end"] {
        let records = log.of(event);
        assert!(!records.is_empty(), "no {event}: {}", log.text());
        for record in records {
            let (name, by, of) = (&record["owner"], &record["by"], &record["session"]);
            assert_eq!((name, by, of), (&json!(owner(CLIENT)), &json!("operator"), &session), "{record}");
        }
    }
    let created = log.of("session.create");
    let by: Vec<_> = created.iter().map(|record| (&record["owner"], &record["by"])).collect();
    assert_eq!(by, [(&json!(owner(CLIENT)), &none), (&none, &json!("operator"))], "{}", log.text());
}

#[test]
fn lists_of_variables_are_recorded_since_the_session_runs_code_for_them() {
    let log = Log::new();
    let mut operator = start(&log, &[]);
    let (digest, handle) = session_of_client(&mut operator, "x = 1");
    for looked_at in ["cells", "variables"] {
        assert_eq!(operator.send("GET", &format!("/sessions/{handle}/{looked_at}"), None).status, 200);
    }
    end(operator);
    log.assert_intact();
    let action = log.one("operator.action");
    assert_eq!((&action["name"], &action["outcome"]), (&json!("listVariables"), &json!("200")), "{action}");
    assert_eq!((&action["session"], &action["owner"]), (&json!(digest), &json!(owner(TOKEN))), "{action}");
}

#[test]
fn download_in_parts_has_one_record() {
    const SIZE: usize = 9 << 20;
    let log = Log::new();
    let mut operator = start(&log, &[]);
    let code = format!("open('big.bin', 'wb').write(bytes({SIZE}))");
    let (digest, handle) = session_of_client(&mut operator, &code);
    let read = |path: &str| operator.send("GET", &format!("/sessions/{handle}/files/content?path={path}"), None);
    let answer = read("big.bin");
    assert_eq!((answer.status, answer.body.len()), (200, SIZE));
    end(operator);
    log.assert_intact();
    let record = log.one("file.read");
    assert_eq!((&record["name"], &record["bytes"]), (&json!("big.bin"), &json!(SIZE)));
    assert_eq!((&record["session"], &record["outcome"]), (&json!(digest), &json!("success")));
}
