//! Requests of the code-execution protocol that are refused: malformed ones, those of other clients, and too many.

use serde_json::{Value, json};

use super::start;
use crate::code_execution::Backend;

#[test]
fn malformed_calls_are_refused() {
    let backend = start();
    let session = backend.create();
    let path = format!("/sessions/{session}/exec");
    let code = json!({ "code": "1" });
    let editor = |input: Value| json!({ "tool": "text_editor_code_execution", "input": input });
    for (body, status, reason) in [
        (json!({ "tool": "no_such_tool", "input": {} }), 400, "unknown tool"),
        (json!({ "tool": "Code_Execution", "input": code }), 400, "unknown tool"),
        (json!({ "tool": 1, "input": code }), 422, "string"),
        (json!({ "input": code }), 422, "tool"),
        (json!({ "tool": "code_execution" }), 422, "input"),
        (json!({ "tool": "code_execution", "input": {} }), 422, "code"),
        (json!({ "tool": "code_execution", "input": { "code": "" } }), 422, "empty"),
        (json!({ "tool": "code_execution", "input": { "code": ["1"] } }), 422, "string"),
        (json!({ "tool": "code_execution", "input": { "code": "#".repeat(5 << 20) } }), 422, "maximum"),
        (json!({ "tool": "bash_code_execution", "input": code }), 422, "command"),
        (json!({ "tool": "bash_code_execution", "input": { "command": "" } }), 422, "empty"),
        (json!({ "tool": "code_execution", "input": code, "timeout_seconds": 0 }), 422, "nonzero"),
        (json!({ "tool": "code_execution", "input": code, "timeout_seconds": -1 }), 422, "nonzero"),
        (json!({ "tool": "code_execution", "input": code, "timeout_seconds": 1.5 }), 422, "nonzero"),
        (json!({ "tool": "code_execution", "input": code, "tool_use_id": 1 }), 422, "string"),
        (json!({ "tool": "code_execution", "input": code, "tool_use_id": "x".repeat(300) }), 422, "tool_use_id"),
        (editor(json!({ "command": "delete", "path": "a" })), 422, "undo_edit"),
        (editor(json!({ "command": "view" })), 422, "path"),
        (editor(json!({ "command": "view", "path": "" })), 422, "path"),
        (editor(json!({ "command": "view", "path": "a", "view_range": [1] })), 422, "length"),
        (editor(json!({ "command": "create", "path": "a" })), 422, "file_text"),
        (editor(json!({ "command": "str_replace", "path": "a", "old_str": "a" })), 422, "new_str"),
        (editor(json!({ "command": "str_replace", "path": "a", "old_str": "", "new_str": "" })), 422, "old_str"),
        (editor(json!({ "command": "insert", "path": "a", "new_str": "a" })), 422, "insert_line"),
        (editor(json!({ "command": "insert", "path": "a", "new_str": "a", "insert_line": -1 })), 422, "negative"),
        (json!([]), 422, "expected"),
    ] {
        let refusal = backend.post(&path, &body).refusal(status);
        assert!(refusal.contains(reason), "{:.200}: {refusal}", body.to_string());
    }
    for body in ["", "{", "\u{0}", "nonsense", &"[".repeat(100_000)] {
        backend.send("POST", &path, &[], body.as_bytes()).refusal(422);
    }
    backend.send("POST", "/sessions", &[], b"{").refusal(422);
    backend.post("/sessions", &json!({ "idle_timeout_seconds": 0 })).refusal(422);
    // Fields of later versions are ignored.
    let call = json!({ "tool": "code_execution", "input": { "code": "1", "x": 1 }, "tool_use_id": null, "y": [] });
    backend.post(&path, &call).with_status(200);
}

#[test]
fn malformed_forms_are_refused() {
    let backend = start();
    let session = backend.create();
    let path = format!("/sessions/{session}/files");
    let form = [("Content-Type", "multipart/form-data; boundary=b")];
    let long = format!("--b\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\nx\r\n--b--\r\n", "n".repeat(100_000));
    let many = "--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n".repeat(1000) + "--b--\r\n";
    for (headers, body) in [
        (&form[..], ""),
        (&form, "--b--\r\n"),
        (&form, "--b\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\na\r\n--b--\r\n"),
        (&form, "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\na\r\n--b--\r\n"),
        (&form, "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\ncut"),
        (&form, "--b\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n\u{fffd}\u{0}\r\n--b--\r\n"),
        (&form, &long),
        (&form, &many),
        (&[("Content-Type", "multipart/form-data")], "--b--\r\n"),
        (&[("Content-Type", "application/json")], "{}"),
        (&[], "{}"),
    ] {
        let reply = backend.send("POST", &path, headers, body.as_bytes());
        assert!([400, 422].contains(&reply.status), "{body:.200}: {reply:?}");
        reply.refusal(reply.status);
    }
    assert_eq!(backend.files(&session), [""; 0]);
}

#[test]
fn unknown_sessions_and_paths_are_refused() {
    let backend = start();
    let session = backend.create();
    for id in ["aaaaaaaaaaaaaaaa", "0", "short", "..", "%2e%2e", "%ff", &"x".repeat(5000)] {
        let reply = backend.exec(id, "code_execution", &json!({ "code": "1" }));
        assert!([400, 404].contains(&reply.status), "{id}: {reply:?}");
        reply.refusal(reply.status);
    }
    let reason = backend.get("/sessions/aaaaaaaaaaaaaaaa/files/list").refusal(404);
    assert_eq!(reason, "the session does not exist, or has expired");
    assert_eq!(backend.delete("aaaaaaaaaaaaaaaa").status, 204);
    for (method, path, status) in [
        ("GET", "/sessions".to_owned(), 405),
        ("PUT", format!("/sessions/{session}"), 405),
        ("GET", format!("/sessions/{session}/exec"), 405),
        ("GET", format!("/sessions/{session}/other"), 404),
        ("GET", format!("/sessions/{session}/files"), 422),
        ("GET", format!("/sessions/{session}/files?path=a&path=b"), 400),
    ] {
        backend.send(method, &path, &[], b"").refusal(status);
    }
}

#[test]
fn sessions_of_other_clients_do_not_exist() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    let mut backend = Backend::start(["--auth-token-file", file.to_str().unwrap()]);
    backend.token = Some("one".into());
    let session = backend.create();
    backend.run(&session, "x = 1\nopen('a.txt', 'w').write('a')");
    for (token, status) in [(Some("two"), 404), (Some("three"), 401), (None, 401)] {
        backend.token = token.map(str::to_owned);
        let files = format!("/sessions/{session}/files");
        for reply in [
            backend.exec(&session, "code_execution", &json!({ "code": "x" })),
            backend.exec(&session, "text_editor_code_execution", &json!({ "command": "view", "path": "a.txt" })),
            backend.get(&format!("{files}/list")),
            backend.get(&format!("{files}?path=a.txt")),
            backend.put(&session, "a.txt", None, b"b"),
        ] {
            reply.refusal(status);
        }
        assert_eq!(backend.delete(&session).status, if status == 404 { 204 } else { status });
    }
    backend.post("/sessions", &json!({})).refusal(401);
    backend.token = Some("one".into());
    assert_eq!(backend.run(&session, "print(x, open('a.txt').read())")["stdout"], "1 a\n");
    assert_eq!(backend.delete(&session).status, 204);
}

#[test]
fn web_pages_and_other_names_are_refused() {
    let backend = start();
    for header in [("Origin", "https://evil.example"), ("Host", "evil.example")] {
        let reply = backend.send("POST", "/sessions", &[header], b"{}");
        reply.refusal(403);
    }
}

#[test]
fn server_at_capacity_creates_no_sessions() {
    let backend = Backend::start(["--max-sessions", "2"]);
    let sessions = [backend.create(), backend.create()];
    let reply = backend.post("/sessions", &json!({}));
    assert!(reply.refusal(503).contains("2 sessions"), "{reply:?}");
    assert!(reply.head.contains("retry-after: "), "{}", reply.head);
    assert_eq!(backend.delete(&sessions[0]).status, 204);
    let next = backend.create();
    assert_eq!(backend.run(&next, "print(1)")["stdout"], "1\n");
}
