//! Limits are reported by name, with the output written before.

use serde_json::json;

use crate::wire::{Wire, text};

#[test]
fn time_is_limited_by_the_call_and_by_the_server() {
    let mut wire = Wire::start(["--no-install", "--timeout", "5"]);
    for arguments in [
        json!({ "python_code": "print('begun')\nwhile True: pass", "timeout": 3 }),
        json!({ "python_code": "print('begun')\nwhile True: pass", "timeout": 100 }),
        json!({ "python_code": "print('begun')\nimport time\ntime.sleep(100)" }),
    ] {
        let text = text(&wire.call(arguments.clone()));
        assert!(text.starts_with("<status>run-error</status>\n<output>\nbegun\n</output>"), "{arguments}: {text}");
        assert!(text.contains("Limit reached: time"), "{arguments}: {text}");
    }
    assert!(wire.run("'alive'").contains("alive"));
}

#[test]
fn output_and_memory_are_limited() {
    let mut wire = Wire::start(["--no-install", "--max-output", "1000", "--memory", "128MB"]);
    let flood = wire.run("while True: print('x' * 99)");
    assert!(flood.contains("Limit reached: output") && flood.matches('x').count() > 900, "{flood}");
    let hoard = wire.run("print('begun')\nbytes(1 << 30)");
    assert!(hoard.contains("begun") && hoard.contains("MemoryError"), "{hoard}");
    assert!(wire.run("'alive'").contains("alive"));
}

#[test]
fn exit_of_code_leaves_the_server_running() {
    let mut wire = Wire::start(["--no-install"]);
    for (code, wanted) in [
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import os; os._exit(4)", "SystemExit: 4"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; os.abort()", "run-error"),
        ("import sys; sys.exit()", "<status>success</status>"),
        ("import sys; sys.setrecursionlimit(10**9)\ndef f(): f()\nf()", "run-error"),
        ("x = []\nfor _ in range(10**5): x = [x]\nx", "<status>"),
        ("float('nan')", "NaN"),
        ("2 ** 100", "1267650600228229401496703205376"),
        ("1.0", "1.0"),
        ("__name__", "__main__"),
    ] {
        let text = wire.run(code);
        assert!(text.contains(wanted), "{code}: {text}");
    }
    assert!(wire.run("'alive'").contains("alive"));
}

#[test]
fn call_beyond_the_limit_gets_a_busy_error() {
    let mut wire = Wire::start(["--no-install", "--max-concurrency", "1", "--max-queue", "1", "--timeout", "600"]);
    wire.follow_output();
    let running = wire.send_call(json!({ "python_code": "print('begun')\nwhile True: pass" }));
    wire.wait_for_output("begun");
    // One of these waits, and the others are refused while the first runs.
    let mut ids: Vec<_> = (0..3).map(|_| wire.send_call(json!({ "python_code": "'the answer'" }))).collect();
    for _ in 0..2 {
        let answer = wire.next().unwrap();
        assert!(answer["result"].to_string().contains("the server is busy"), "{answer}");
        ids.retain(|id| answer["id"] != *id);
    }
    assert_eq!(ids.len(), 1);
    wire.notify("notifications/cancelled", json!({ "requestId": running }));
    assert!(text(&wire.answer(ids[0])["result"]).contains("the answer"));
}
