//! The transport over standard streams, message by message.

use std::ffi::OsStr;

use serde_json::json;

use crate::harness::Belljar;
use crate::wire::{Wire, text};

/// Returns the `_meta` of a request of the modern era.
fn modern(extra: serde_json::Value) -> serde_json::Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    meta.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    meta
}

#[test]
fn the_end_of_input_ends_the_server_after_the_answers() {
    let mut wire = Wire::start(["--no-install"]);
    let id = wire.send_call(json!({ "python_code": "import time; time.sleep(0.5); 'done'" }));
    wire.end_input();
    assert!(text(&wire.answer(id)["result"]).contains("done"));
    assert_eq!(wire.next(), None);
    assert!(wire.child.wait().unwrap().success());
}

#[test]
fn end_of_input_waits_a_limited_time() {
    // The code runs for longer than the wire waits.
    let mut wire = Wire::start(["--no-install", "--timeout", "600"]);
    wire.follow_output();
    wire.send_call(json!({ "python_code": "print('begun')\nwhile True: pass" }));
    wire.wait_for_output("begun");
    wire.end_input();
    while wire.next().is_some() {}
    wire.wait_for_exit();
}

#[test]
fn code_output_stays_off_the_stdio_transport() {
    let mut wire = Wire::start(["--no-install"]);
    let forged = r#"{"jsonrpc":"2.0","id":99,"result":{"forged":true}}"#;
    let code = format!(
        "import os, sys\nprint({forged:?})\nos.write(1, b{forged:?})\nopen('/dev/stdout', 'w').write({forged:?})\n\
         print({forged:?}, file=sys.stderr)\nopen('/dev/fd/1', 'wb').write(b'x')"
    );
    let id = wire.send_call(json!({ "python_code": code }));
    let message = wire.next().unwrap();
    assert_eq!(message["id"], id, "{message}");
    assert!(wire.received.is_empty());
}

#[test]
fn modern_era_works_without_a_handshake() {
    let mut wire = Wire::silent(["--no-install"]);
    let discovered = wire.ask("server/discover", json!({ "_meta": modern(json!({})) }));
    assert!(discovered["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{discovered}");
    let call = json!({
        "name": "run_python_code", "arguments": { "python_code": "print('hi')" }, "_meta": modern(json!({})),
    });
    let answer = wire.ask("tools/call", call.clone());
    assert_eq!(text(&answer["result"]), "<status>success</status>\n<output>\nhi\n</output>");
    assert!(wire.notifications("notifications/message").is_empty(), "no level was asked for");
    let mut call = call;
    call["_meta"] = modern(json!({ "io.modelcontextprotocol/logLevel": "info" }));
    wire.ask("tools/call", call);
    let mut sent = wire.notifications("notifications/message");
    // A slow machine also reports the progress of long steps.
    sent.retain(|sent| sent["logger"] == "python");
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!((sent[0]["level"].as_str(), sent[0]["data"].as_str()), (Some("info"), Some("hi")));
}

#[test]
fn line_that_is_not_json_gets_a_parse_error() {
    let mut wire = Wire::start(["--no-install"]);
    let nested = "[".repeat(100_000);
    for (line, code) in [
        ("{bad", -32700),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/read\",\"params\":{\"uri\":\"\\ud800\"}}", -32700),
        (nested.as_str(), -32700),
        ("[]", -32600),
    ] {
        wire.write(format!("{line}\n").as_bytes());
        let answer = wire.next().unwrap();
        let start = &line[..line.len().min(40)];
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&serde_json::Value::Null, &json!(code)), "{start}");
    }
    wire.write(b"{\"jsonrpc\":\"2.0\",\"id\":77}\n");
    let answer = wire.next().unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(77), &json!(-32600)), "{answer}");
    assert!(wire.run("6 * 7").contains("42"));
}

#[test]
fn options_that_only_sessions_use_cause_a_warning_without_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let (data, files) = (directory.path().join("data"), directory.path().join("files"));
    std::fs::create_dir_all(&data).unwrap();
    std::fs::create_dir_all(&files).unwrap();
    let options: [&OsStr; 5] =
        ["--no-install".as_ref(), "--data-dir".as_ref(), data.as_ref(), "--files".as_ref(), files.as_ref()];
    let run = Belljar::new().arg("stdio").args(options).run();
    for option in ["--data-dir", "--files"] {
        let warning = format!("warning: {option} has no effect without sessions: --toolset interpreter, or all");
        assert!(run.stderr.contains(&warning), "{}", run.stderr);
    }
    let run = Belljar::new().args(["stdio", "--toolset", "all"]).args(options).run();
    assert!(!run.stderr.contains("has no effect"), "{}", run.stderr);
}
