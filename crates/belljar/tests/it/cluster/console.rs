//! The console of a replica, and the sessions that the replica has given up.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Shared, open, value};
use crate::serve::http::Listening;

/// Sends a request of an operator. Returns the status and the body.
fn send(replica: &Listening, method: &str, path: &str, body: &str) -> (u16, Value) {
    let headers = [("Authorization", "Bearer operator"), ("Content-Type", "application/json")];
    let (status, text) = replica.send(method, &format!("/admin/api/v1{path}"), &headers, body);
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    (status, serde_json::from_str(body).unwrap_or_default())
}

/// Waits until what an address shows is as wanted, and returns it.
fn wait_for(replica: &Listening, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let (_, shown) = send(replica, "GET", path, "");
        if is_wanted(&shown) {
            return shown;
        }
        assert!(begin.elapsed() < Duration::from_secs(180), "{path}: {shown:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn session_that_a_replica_has_given_up_is_away_until_it_is_used_there_again() {
    let shared = Shared::new();
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("operators");
    std::fs::write(&tokens, "operator\n").unwrap();
    let options = ["--toolset", "interpreter", "--console", "--admin-token-file", tokens.to_str().unwrap()];
    let [one, two] = [(); 2].map(|()| shared.replica_with("streamable-http-stateless", &options));
    let session = open(&one, "x = 1");
    let (_, listed) = send(&one, "GET", "/sessions", "");
    let path = format!("/sessions/{}", listed["sessions"][0]["handle"].as_str().unwrap());
    let in_state = |replica: &Listening, state: &str| wait_for(replica, &path, |shown| shown["state"] == state);
    let run = || send(&one, "POST", &format!("{path}/cells"), &json!({ "code": "x += 1\nprint(x)" }).to_string());

    in_state(&one, "idle");
    assert_eq!(send(&one, "POST", &format!("{path}/sleep"), ""), (200, json!({ "done": true })));
    in_state(&one, "away");
    let (_, listed) = send(&one, "GET", "/sessions?state=away", "");
    assert_eq!((&listed["matching"], &listed["states"]["ended"]), (&json!(1), &json!(0)), "{listed:#}");
    assert_eq!(send(&one, "POST", &format!("{path}/sleep"), ""), (200, json!({ "done": false })));
    assert_eq!(send(&one, "GET", &format!("{path}/variables"), "").0, 409);

    // A cell brings it back, and its history goes on.
    let (status, submitted) = run();
    assert_eq!((status, &submitted["cell"]), (202, &json!(2)), "{submitted:#}");
    let cell = wait_for(&one, &format!("{path}/cells/2"), |cell| cell["state"] == "ok");
    assert_eq!(cell["outputs"][0]["text"], "2\n", "{cell:#}");
    assert_eq!(in_state(&one, "idle")["cells"], 2);

    // Another replica has it.
    assert_eq!(send(&one, "POST", &format!("{path}/sleep"), ""), (200, json!({ "done": true })));
    assert_eq!(value(&two, &session, "x += 1\nx"), "3");
    in_state(&two, "idle");
    in_state(&one, "away");
    let (status, refused) = run();
    assert!(status == 409 && refused.to_string().contains("another replica"), "{refused:#}");

    // It has ended there.
    assert_eq!(send(&two, "DELETE", &path, "").0, 204);
    let (status, refused) = run();
    assert!(status == 409 && refused.to_string().contains("has ended"), "{refused:#}");
    in_state(&one, "ended");
    in_state(&two, "ended");
}
