//! Calls as tasks in the legacy era of the protocol.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{APPEND, Fixture, NOWHERE, RELATED, begin_call, fields, get_legacy, kill, until};
use crate::wire::{Wire, text};

/// Begins a task in the legacy era, and returns its ID.
fn begin(wire: &mut Wire, code: &str) -> String {
    begin_call(wire, "execute_code", json!({ "code": code }))
}

#[test]
fn legacy_call_as_a_task_is_answered_in_the_next_server() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve_legacy();
    let tools = wire.ask("tools/list", json!({}))["result"]["tools"].take();
    for tool in tools.as_array().unwrap() {
        let execution = (tool["name"] == "execute_code").then(|| json!({ "taskSupport": "optional" }));
        assert_eq!((tool.get("execution"), tool.get("_meta")), (execution.as_ref(), None), "{tool:#}");
    }
    let id = begin(&mut wire, APPEND);
    until("input_required", || get_legacy(&mut wire, &id));
    kill(wire);

    let mut wire = fixture.serve_legacy();
    assert_eq!(get_legacy(&mut wire, &id)["status"], "input_required");
    let listed = wire.ask("tasks/list", json!({}))["result"]["tasks"].take();
    assert_eq!(listed[0]["taskId"], id.as_str(), "{listed:#}");
    let awaited = wire.send("tasks/result", json!({ "taskId": id }));
    let question = loop {
        let message = wire.next().unwrap();
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    assert_eq!(question["params"]["_meta"][RELATED]["taskId"], id.as_str(), "{question:#}");
    let answer = json!({ "action": "accept", "content": { "value": "yes" } });
    wire.write(format!("{}\n", json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer })).as_bytes());
    let result = wire.answer(awaited)["result"].take();
    assert_eq!(fields(&result)["result"], "'call 1'", "{result:#}");
    assert_eq!((&result["_meta"][RELATED]["taskId"], result.get("resultType")), (&json!(id), None), "{result:#}");
    assert_eq!(get_legacy(&mut wire, &id)["status"], "completed");
    // The result can be fetched again, and the task cannot be cancelled.
    assert_eq!(wire.ask("tasks/result", json!({ "taskId": id }))["result"], result);
    assert_eq!(wire.ask("tasks/cancel", json!({ "taskId": id }))["error"]["code"], -32602);
    assert_eq!(fixture.calls(), ["append a"]);
}

#[test]
fn legacy_task_is_cancelled() {
    let fixture = Fixture::new(&["--approve", "none"]);
    let mut wire = fixture.serve_legacy();
    let id = begin(&mut wire, &format!("{APPEND}\nwhile True: pass"));
    let begin = Instant::now();
    while fixture.calls().is_empty() {
        assert_eq!(get_legacy(&mut wire, &id)["status"], "working");
        assert!(begin.elapsed() < Duration::from_secs(180), "the tool is not called");
    }
    let cancelled = wire.ask("tasks/cancel", json!({ "taskId": id }))["result"].take();
    assert_eq!(cancelled["status"], "cancelled", "{cancelled:#}");
    let result = wire.ask("tasks/result", json!({ "taskId": id }))["result"].take();
    assert!(fields(&result)["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{result:#}");
    assert_eq!(get_legacy(&mut wire, &id)["status"], "cancelled");
}

#[test]
fn calls_that_cannot_be_tasks_are_refused() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve_legacy();
    for (name, arguments, code) in [
        ("list_runs", json!({}), -32601),
        ("execute_code", json!({ "cod": "1" }), -32602),
        ("execute_code", json!({ "code": "1", "session_id": NOWHERE }), -32602),
    ] {
        let refused = wire.ask("tools/call", json!({ "name": name, "arguments": arguments, "task": {} }));
        assert_eq!(refused["error"]["code"], code, "{refused:#}");
    }
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let missing = wire.ask(method, json!({ "taskId": NOWHERE }));
        assert_eq!(missing["error"]["code"], -32602, "{missing:#}");
    }
    assert_eq!(wire.ask("tasks/get", json!({}))["error"]["code"], -32602);
    assert_eq!(wire.ask("tasks/update", json!({ "taskId": NOWHERE, "inputResponses": {} }))["error"]["code"], -32601);
    assert_eq!(wire.ask("tasks/list", json!({ "cursor": "x" }))["error"]["code"], -32602);
    // An ordinary call of the same tool is answered as before.
    let result = wire.tool("execute_code", json!({ "code": "6 * 7" }));
    assert!(text(&result).contains("42"), "{result:#}");
}
