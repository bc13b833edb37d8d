//! Sessions: listed, filtered and paged, and operations on them.

use serde_json::json;

use crate::operator::{Operator, handle, written};

#[test]
fn sessions_are_filtered_and_paged() {
    let operator = Operator::start(&["--max-sessions", "100"]);
    let sessions: Vec<String> = (0..12).map(|_| operator.create()).collect();
    for (at, session) in sessions.iter().enumerate().take(3) {
        operator.run(session, &format!("marker_{at} = {at}\nprint('{}')", "x".repeat(at)));
    }
    operator.run(&sessions[0], "unique_word = 1");
    for session in &sessions {
        operator.wait_for_state(session, "idle");
    }
    let all = operator.get("/sessions");
    assert_eq!((&all["total"], &all["matching"], &all["states"]["idle"]), (&json!(12), &json!(12), &json!(12)));
    let handles = |query: &str| -> Vec<String> {
        let listed = operator.get(&format!("/sessions?{query}"));
        listed["sessions"].as_array().unwrap().iter().map(handle).collect()
    };
    assert_eq!(handles("q=unique_word"), [sessions[0].clone()]);
    assert_eq!(handles("q=UNIQUE_word%201"), [sessions[0].clone()]);
    assert_eq!(handles(&format!("q={}", &sessions[5][..10])), [sessions[5].clone()]);
    assert_eq!(handles("q=nothing_has_this"), [""; 0]);
    operator.run(&sessions[7], &format!("# {}\nlate_word = 1", "x".repeat(500)));
    assert_eq!(handles("q=late_word"), [sessions[7].clone()]);
    assert_eq!(operator.get("/sessions?q=late_word")["sessions"][0]["code"].as_str().unwrap().len(), 120);
    assert_eq!(handles("sort=cells&limit=1"), [sessions[0].clone()]);
    assert_eq!(handles("state=running,ended"), [""; 0]);
    let (first, rest) = (handles("sort=created&limit=5"), handles("sort=created&offset=5&limit=100"));
    let mut both = [first, rest].concat();
    both.sort();
    let mut expected = sessions.clone();
    expected.sort();
    assert_eq!(both, expected);
    operator.send("GET", "/sessions?state=other", None).refusal(422);
    assert_eq!(operator.send("GET", "/sessions?limit=x", None).status, 400);
    for unknown in ["0123456789abcdef", "x", "..", "%2e%2e", "0123456789ABCDEF"] {
        operator.send("GET", &format!("/sessions/{unknown}"), None).refusal(404);
    }
}

#[test]
fn sessions_of_clients_are_shown_without_their_ids() {
    let operator = Operator::start(&[]);
    let id = operator.backend.create();
    operator.backend.run(&id, "secret = 41\nopen('table.csv', 'w').write('a,b')");
    let listed = operator.get("/sessions");
    let session = handle(&listed["sessions"][0]);
    assert_eq!(listed["sessions"][0]["code"], "secret = 41\nopen('table.csv', 'w').write('a,b')");
    // An operator acts in place of the client.
    let cell = operator.run(&session, "print(secret + 1)");
    assert_eq!(written(&cell, "stdout"), "42\n");
    assert!(cell["by_operator"] == true && cell["number"] == 2, "{cell}");
    let answers = [
        listed,
        cell,
        operator.get(&format!("/sessions/{session}")),
        operator.get(&format!("/sessions/{session}/cells")),
        operator.get(&format!("/sessions/{session}/files")),
        operator.get(&format!("/sessions/{session}/variables")),
        operator.get("/questions"),
    ];
    for answer in answers {
        assert!(!answer.to_string().contains(&id), "{answer}");
    }
    // An ID is not a handle.
    operator.send("GET", &format!("/sessions/{id}"), None).refusal(404);
}

#[test]
fn sessions_are_interrupted_restarted_forked_and_ended() {
    let operator = Operator::start(&["--timeout", "600"]);
    let session = operator.create();
    let act = |operation: &str| operator.send("POST", &format!("/sessions/{session}/{operation}"), None);
    operator.run(&session, "x = 1\nopen('a.txt', 'w').write('a')");
    operator.wait_for_state(&session, "idle");
    assert_eq!(act("interrupt").with_status(200), json!({ "done": false }));
    let number = operator.submit(&session, "print('begun')\nwhile True: pass");
    operator.wait_for_cell(&session, number, |cell| written(cell, "stdout") == "begun\n");
    assert_eq!(operator.get(&format!("/sessions/{session}"))["state"], "running");
    let variables = || operator.send("GET", &format!("/sessions/{session}/variables"), None).refusal(409);
    assert!(variables().contains("runs a cell: wait for its end"), "{}", variables());
    assert_eq!(act("interrupt").with_status(200), json!({ "done": true }));
    let cell = operator.wait_for_cell(&session, number, |cell| !cell["ended"].is_null());
    assert_eq!((&cell["state"], &cell["error"]["name"]), (&json!("error"), &json!("KeyboardInterrupt")));
    let fork = handle(&act("fork").with_status(201));
    assert_eq!(act("restart").status, 204);
    assert_eq!(operator.run(&session, "x")["error"]["name"], "NameError");
    assert_eq!(written(&operator.run(&fork, "print(x, open('a.txt').read())"), "stdout"), "1 a\n");
    assert_eq!(act("sleep").with_status(200), json!({ "done": true }));
    operator.wait_for_state(&session, "asleep");
    assert!(variables().contains("sleeps"), "{}", variables());
    assert_eq!(written(&operator.run(&session, "print(open('a.txt').read())"), "stdout"), "a\n");
    assert_eq!(operator.send("DELETE", &format!("/sessions/{session}"), None).status, 204);
    // Its cells stay visible.
    assert_eq!(operator.wait_for_state(&session, "ended")["cells"], 4);
    assert_eq!(operator.get(&format!("/sessions/{session}/cells"))["cells"].as_array().unwrap().len(), 4);
    act("restart").refusal(409);
    operator.send("POST", &format!("/sessions/{session}/cells"), Some(&json!({ "code": "1" }))).refusal(409);
}

#[test]
fn cells_of_earlier_servers_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--data-dir", directory.path().to_str().unwrap()];
    let operator = Operator::start(&options);
    let session = operator.create();
    operator.run(&session, "print('before')\n1 / 0");
    let Operator { backend, .. } = operator;
    backend.terminate();
    let operator = Operator::start(&options);
    let shown = operator.get(&format!("/sessions/{session}"));
    assert_eq!(shown["state"], "asleep", "{shown}");
    let cells = operator.get(&format!("/sessions/{session}/cells"));
    let cell = &cells["cells"][0];
    assert!(cell["is_stored"] == true && cell["state"] == "error", "{cells}");
    assert_eq!((written(cell, "stdout").as_str(), &cell["error"]["name"]), ("before\n", &json!("ZeroDivisionError")));
}
