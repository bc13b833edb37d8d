//! Sessions that are used through any replica, and that move between them.

use std::time::Duration;

use serde_json::json;

use super::{Client, Shared, awake, cell, open, value};
use crate::sessions::durable::wait_for;

#[test]
fn session_is_used_through_any_replica() {
    let shared = Shared::new();
    let [one, two, three] = [shared.replica(), shared.replica(), shared.replica()];
    let session = open(&one, "x = 1\nopen('notes.txt', 'w').write('first')");
    assert_eq!(value(&two, &session, "x += 1\nx"), "2");
    assert_eq!(value(&three, &session, "x += 1\nx"), "3");
    // The requests were passed on: there is one interpreter.
    assert_eq!((awake(&one), awake(&two), awake(&three)), (1, 0, 0));
    let files = two.tool("list_session_files", &json!({ "session_id": session }));
    assert!(files.to_string().contains("notes.txt"), "{files:#}");
    let read = three.ask("resources/read", &json!({ "uri": format!("kernel://{session}/notes.txt") }));
    assert_eq!(read["contents"][0]["text"], "first", "{read:#}");
    three.tool("clear_session", &json!({ "session_id": session }));
    for replica in [&one, &two, &three] {
        let result = cell(replica, Some(&session), "x");
        assert!(result.to_string().contains("SessionExpiredError"), "{result:#}");
    }
}

#[test]
fn session_that_sleeps_wakes_in_any_replica() {
    let shared = Shared::new();
    let [one, two] = [(); 2].map(|()| {
        shared.replica_with("streamable-http-stateless", &["--toolset", "interpreter", "--sleep-after", "1"])
    });
    let session = open(&one, "import random\nrandom.seed(1)\nx = [random.random()]");
    for number in 0..4 {
        let replica = if number % 2 == 0 { &two } else { &one };
        wait_for(|| awake(&one) + awake(&two) == 0);
        value(replica, &session, "x.append(random.random())\nlen(x)");
        // On a busy machine, the session may sleep again before it is seen.
        wait_for(|| {
            value(replica, &session, "len(x)");
            awake(replica) == 1
        });
    }
    let native = "import random; random.seed(1); print([random.random() for _ in range(5)])";
    let native = std::process::Command::new("python3").args(["-c", native]).output().unwrap();
    assert_eq!(
        value(&one, &session, "print(x)\nstr(x)").trim_matches('\''),
        String::from_utf8(native.stdout).unwrap().trim()
    );
}

#[test]
fn ended_replica_gives_its_sessions_up() {
    let shared = Shared::new();
    let [mut one, two] = [shared.replica(), shared.replica()];
    let sessions: Vec<String> = (0..5).map(|number| open(&one, &format!("x = {number}"))).collect();
    one.terminate();
    assert!(one.child.wait().unwrap().success());
    for (number, session) in sessions.iter().enumerate() {
        assert_eq!(value(&two, session, "x"), number.to_string());
    }
}

#[test]
fn mcp_sessions_are_found_by_their_ids() {
    let shared = Shared::new();
    let [one, two] = [(); 2].map(|()| shared.replica_with("streamable-http", &["--toolset", "interpreter"]));
    let client = Client::new(&one);
    let opened = client.cell(&two, None, "x = 20");
    let session = opened["session_info"]["session_id"].as_str();
    let session = session.unwrap_or_else(|| panic!("{opened:#}")).to_owned();
    assert_eq!((awake(&one), awake(&two)), (1, 0), "the MCP session is in the first replica");
    // Another MCP session, which the second replica has, uses the same kernel session: it moves there.
    let moved = Client::new(&two).cell(&one, Some(&session), "x + 1");
    assert_eq!(moved["result"], "21", "{moved:#}");
    wait_for(|| (awake(&one), awake(&two)) == (0, 1));
    let unknown = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" });
    assert_eq!(two.post(&[("Mcp-Session-Id", "unknown")], &unknown).0, 404);
}

#[test]
fn clients_reach_nothing_of_replicas_or_operators_through_another_replica() {
    let shared = Shared::new();
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("operators");
    std::fs::write(&tokens, "operator\n").unwrap();
    let one = shared.replica_with("streamable-http", &["--toolset", "interpreter"]);
    let operators = ["--toolset", "interpreter", "--console", "--admin-token-file", tokens.to_str().unwrap()];
    let two = shared.replica_with("streamable-http", &operators);
    let client = Client::new(&two);
    let opened = client.cell(&two, None, "x = 1");
    let session = opened["session_info"]["session_id"].as_str().unwrap_or_else(|| panic!("{opened:#}"));
    let hand_over = format!("/cluster/hand-over/{session}");
    // The ID of the MCP session names the second replica, and so does the kernel session in the body.
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "execute_code", "arguments": { "code": "1", "session_id": session } } });
    let content_type = ("Content-Type", "application/json");
    assert_eq!(one.send("POST", &hand_over, &client.headers(), "").0, 404);
    assert_eq!(one.send("POST", &hand_over, &[content_type], &call.to_string()).0, 404);
    assert_eq!(awake(&two), 1, "the session was handed over");
    // The first replica has no operators, and passes nothing of them on.
    let (status, text) = one.send("GET", "/admin/api/v1/sessions", &client.headers(), "");
    assert_eq!(status, 404, "{text}");
    let authorized = [("Authorization", "Bearer operator")];
    assert_eq!(two.send("GET", "/admin/api/v1/sessions", &authorized, "").0, 200);
}

#[test]
fn calls_arrive_while_sessions_fall_asleep() {
    let shared = Shared::new();
    let options = ["--toolset", "interpreter", "--sleep-after", "0.1"];
    let [one, two] = [(); 2].map(|()| shared.replica_with("streamable-http-stateless", &options));
    std::thread::scope(|scope| {
        for client in 0..12 {
            let (one, two) = (&one, &two);
            scope.spawn(move || {
                let session = open(one, "x = 0");
                for count in 1..=30 {
                    // Around the time at which the session is put to sleep.
                    std::thread::sleep(Duration::from_millis(85 + (count * 7 + client * 3) % 60));
                    // Now and then, another replica takes the session.
                    let replica = if count % 10 < 8 { one } else { two };
                    assert_eq!(value(replica, &session, "x += 1\nx"), count.to_string());
                }
            });
        }
    });
}
