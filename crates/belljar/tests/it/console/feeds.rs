//! Feeds of Monty's protocol: shown live, and interrupted.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::monty_worker::script;
use crate::operator::{Operator, handle, written};

/// Waits until the only session of feeds is in a state, and returns its handle.
fn wait_for_feeds(operator: &Operator, state: &str) -> String {
    loop {
        let listed = operator.get(&format!("/sessions?state={state}"));
        match listed["sessions"].as_array().unwrap().iter().find(|session| session["is_feeds"] == true) {
            Some(session) => return handle(session),
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    }
}

#[test]
fn feeds_are_shown_and_interrupted() {
    let operator = Operator::start(&["--monty", "--timeout", "600"]);
    let mut command = script("shown_feeds.py");
    command.arg(format!("ws://{}/monty", operator.backend.address));
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let session = wait_for_feeds(&operator, "waiting");
    let cell = |number: u64, is_wanted: &dyn Fn(&Value) -> bool| operator.wait_for_cell(&session, number, is_wanted);
    let has_ended = |cell: &Value| !cell["ended"].is_null();
    let asks = cell(1, &|cell| cell["state"] == "waiting");
    assert_eq!(
        (written(&asks, "stdout").as_str(), &asks["code"]),
        ("before\n", &json!("print('before')\nawait approve()"))
    );
    let interrupt = || operator.send("POST", &format!("/sessions/{session}/interrupt"), None).with_status(200);
    assert_eq!(interrupt(), json!({ "done": false }), "the feed waits for its client");
    for (method, path) in [("POST", "restart"), ("POST", "fork"), ("POST", "sleep"), ("GET", "variables")] {
        let refused = operator.send(method, &format!("/sessions/{session}/{path}"), None).refusal(409);
        assert!(refused.contains("interrupted only"), "{path}: {refused}");
    }
    client.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(cell(1, &has_ended)["state"], "ok");
    let failed = cell(2, &has_ended);
    assert_eq!((&failed["state"], &failed["error"]["name"]), (&json!("error"), &json!("ZeroDivisionError")));
    cell(3, &|cell| cell["state"] == "running");
    while interrupt() == json!({ "done": false }) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let interrupted = cell(3, &has_ended);
    assert_eq!(interrupted["error"]["name"], "KeyboardInterrupt", "{interrupted:#}");
    let last = cell(4, &has_ended);
    assert!(last["state"] == "ok" && last["cpu_ms"].as_f64().unwrap() > 0.0, "{last:#}");
    let mut output = String::new();
    client.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(output.ends_with("done\n"), "{output}");
    client.wait().unwrap();
    // The session ends with the connection.
    let ended = operator.wait_for_state(&session, "ended");
    assert!(ended["cells"] == 4 && ended["is_feeds"] == true, "{ended:#}");
}
