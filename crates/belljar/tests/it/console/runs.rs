//! Calls of `run_python_code` that cannot wait on the disk: shown live, answered and stopped.

use serde_json::{Value, json};

use crate::operator::{Operator, handle, written};
use crate::tool_client::tool_server;

fn start(options: &[&str]) -> Operator {
    Operator::start_transport("streamable-http-stateless", &[&["--toolset", "all"], options].concat())
}

/// Calls `run_python_code`, and returns the text of its result.
fn call(operator: &Operator, code: &str) -> String {
    let result = operator.call_once(code);
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result:#}")).to_owned()
}

/// Waits until a run is as wanted, and returns its handle.
fn wait_for_run(operator: &Operator, query: &str) -> String {
    loop {
        let listed = operator.get(&format!("/sessions?{query}"));
        match listed["sessions"].as_array().unwrap().first() {
            Some(session) => return handle(session),
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    }
}

fn cell(operator: &Operator, run: &str) -> Value {
    operator.wait_for_cell(run, 1, |cell| !cell["ended"].is_null())
}

#[test]
fn code_that_runs_once_is_shown() {
    let operator = start(&[]);
    assert!(call(&operator, "print('out')\n6 * 7").contains("42"));
    wait_for_run(&operator, "state=ended");
    let listed = operator.get("/sessions");
    let shown = &listed["sessions"][0];
    assert_eq!((&shown["state"], &shown["is_program"], &shown["cells"]), (&json!("ended"), &json!(true), &json!(1)));
    assert_eq!(shown["is_run"], true, "{shown:#}");
    let run = handle(shown);
    let ended = cell(&operator, &run);
    assert_eq!((&ended["state"], written(&ended, "stdout").as_str()), (&json!("ok"), "out\n"), "{ended:#}");
    assert_eq!(ended["outputs"][1]["data"]["text/plain"], "42", "{ended:#}");
    assert!(ended["memory"].as_u64().unwrap() > 1 << 20, "{ended:#}");
    assert!(ended["cpu_ms"].as_f64().unwrap() > 0.0, "{ended:#}");
    operator.send("POST", &format!("/sessions/{run}/restart"), None).refusal(409);
    call(&operator, "1 / 0");
    let failed = cell(&operator, &wait_for_run(&operator, "q=/&state=ended"));
    assert_eq!((&failed["state"], &failed["error"]["name"]), (&json!("error"), &json!("ZeroDivisionError")));
}

#[test]
fn code_that_runs_once_is_interrupted() {
    let operator = start(&["--timeout", "600"]);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| call(&operator, "print('begun')\nwhile True: pass"));
        let run = wait_for_run(&operator, "state=running");
        operator.wait_for_cell(&run, 1, |cell| written(cell, "stdout") == "begun\n");
        for operation in ["restart", "fork", "sleep"] {
            let refused = operator.send("POST", &format!("/sessions/{run}/{operation}"), None).refusal(409);
            assert!(refused.contains("runs once"), "{operation}: {refused}");
        }
        let interrupt = || operator.send("POST", &format!("/sessions/{run}/interrupt"), None).with_status(200);
        assert_eq!(interrupt(), json!({ "done": true }));
        assert_eq!(cell(&operator, &run)["state"], "died");
        client.join().unwrap();
        operator.wait_for_state(&run, "ended");
        assert_eq!(interrupt(), json!({ "done": false }));
    });
}

#[test]
fn operators_approve_calls_of_code_that_runs_once() {
    let server = tool_server("t", "plain");
    let operator = start(&[&server]);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| call(&operator, "from tools import t\nprint(await t.note(text='hello'))"));
        let run = wait_for_run(&operator, "asking=true");
        assert_eq!(operator.get(&format!("/sessions/{run}"))["state"], "waiting");
        let open = operator.get("/questions");
        let asked = &open["questions"][0];
        assert_eq!((&asked["session"], &asked["kind"]), (&json!(run), &json!("approval")), "{open:#}");
        let path = format!("/sessions/{run}/cells/1/questions/{}", asked["number"]);
        assert_eq!(operator.send("POST", &path, Some(&json!({ "decision": "approve" }))).status, 204);
        assert!(client.join().unwrap().contains("hello"));
        let ended = cell(&operator, &run);
        assert_eq!((&ended["state"], &ended["calls"][0]["status"]), (&json!("ok"), &json!("ok")), "{ended:#}");
    });
}
