//! Code of `run_python_code` as tasks of the protocol, in both eras.

use serde_json::{Value, json};

use super::tasks::{APPEND, Fixture, RELATED, ask, begin_call, created, fields, get, get_legacy, kill, until, update};
use crate::wire::{Wire, text};

const TOOL: &str = "run_python_code";

fn fixture() -> Fixture {
    Fixture::with_toolset("all", &[])
}

/// Calls the tool as a client of the modern era that supports tasks and can be asked.
fn run(wire: &mut Wire, code: &str) -> Value {
    ask(wire, "tools/call", json!({ "name": TOOL, "arguments": { "python_code": code } }))["result"].take()
}

/// Begins a task of the legacy era.
fn begin(wire: &mut Wire, code: &str) -> String {
    begin_call(wire, TOOL, json!({ "python_code": code }))
}

#[test]
fn code_that_asks_is_a_task_that_survives_the_server() {
    let fixture = fixture();
    let mut wire = fixture.serve();
    // Code that does not wait has an ordinary result.
    let result = run(&mut wire, "import asyncio\nawait asyncio.sleep(0.01)\n6 * 7");
    assert_eq!(fields(&result)["return_value"], 42, "{result:#}");
    let result = run(&mut wire, APPEND);
    let id = created(&result);
    assert_eq!(result["status"], "input_required", "{result:#}");
    kill(wire);

    let mut wire = fixture.serve();
    let task = get(&mut wire, &id);
    assert!(task["inputRequests"].to_string().contains("append"), "{task:#}");
    assert_eq!(fixture.calls(), [""; 0]);
    update(&mut wire, &task, "yes");
    let done = until("completed", || get(&mut wire, &id));
    let content = fields(&done["result"]);
    assert_eq!((&content["status"], &content["return_value"]), (&json!("success"), &json!("call 1")), "{done:#}");
    assert_eq!(content["calls"][0]["status"], "ok", "{done:#}");
    kill(wire);

    // The result stays.
    let mut wire = fixture.serve();
    assert_eq!(get(&mut wire, &id)["result"], done["result"]);
    assert_eq!(fixture.calls(), ["append a"]);
}

#[test]
fn code_that_waits_becomes_a_task() {
    let fixture = fixture();
    let mut wire = fixture.serve();
    let result = run(&mut wire, "import asyncio\nawait asyncio.sleep(15)\n'slept'");
    let id = created(&result);
    assert_eq!(result["status"], "working", "{result:#}");
    kill(wire);
    let mut wire = fixture.serve();
    let done = until("completed", || get(&mut wire, &id));
    assert_eq!(fields(&done["result"])["return_value"], "slept", "{done:#}");
    // A task that is cancelled is interrupted.
    let id = created(&run(&mut wire, APPEND));
    let cancelled = ask(&mut wire, "tasks/cancel", json!({ "taskId": id }));
    assert_eq!(cancelled["result"], json!({ "resultType": "complete" }), "{cancelled:#}");
    assert_eq!(get(&mut wire, &id)["status"], "cancelled");
    assert_eq!(fixture.calls(), [""; 0]);
}

#[test]
fn legacy_call_as_a_task_is_answered_in_the_next_server() {
    let fixture = fixture();
    let mut wire = fixture.serve_legacy();
    let tools = wire.ask("tools/list", json!({}))["result"]["tools"].take();
    for tool in tools.as_array().unwrap() {
        let runs_code = tool["name"] == TOOL || tool["name"] == "execute_code";
        let execution = runs_code.then(|| json!({ "taskSupport": "optional" }));
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
    let answer = json!({ "action": "accept", "content": { "value": "yes" } });
    wire.write(format!("{}\n", json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer })).as_bytes());
    let result = wire.answer(awaited)["result"].take();
    assert_eq!(fields(&result)["return_value"], "call 1", "{result:#}");
    assert_eq!(result["_meta"][RELATED]["taskId"], id.as_str(), "{result:#}");
    assert_eq!(get_legacy(&mut wire, &id)["status"], "completed");
    assert_eq!(fixture.calls(), ["append a"]);
}

#[test]
fn legacy_task_can_have_any_code() {
    let fixture = fixture();
    let mut wire = fixture.serve_legacy();
    // Code without `await` is a task, too, if the call asks for one.
    let id = begin(&mut wire, "print('out')\n6 * 7");
    let done = until("completed", || get_legacy(&mut wire, &id));
    let result = wire.ask("tasks/result", json!({ "taskId": id }))["result"].take();
    assert_eq!(
        (&fields(&result)["return_value"], &fields(&result)["output"]),
        (&json!(42), &json!(["out"])),
        "{done:#}"
    );
    // An ordinary call has no task.
    let plain = wire.call(json!({ "python_code": "print('out')\n6 * 7" }));
    assert_eq!(text(&plain), text(&result));

    let id = begin(&mut wire, "while True: pass");
    let cancelled = wire.ask("tasks/cancel", json!({ "taskId": id }))["result"].take();
    assert_eq!(cancelled["status"], "cancelled", "{cancelled:#}");
    let result = wire.ask("tasks/result", json!({ "taskId": id }))["result"].take();
    assert!(!text(&result).contains("<status>success"), "{result:#}");
    assert_eq!(get_legacy(&mut wire, &id)["status"], "cancelled");

    let refused = wire.ask("tools/call", json!({ "name": TOOL, "arguments": { "code": "1" }, "task": {} }));
    assert_eq!(refused["error"]["code"], -32602, "{refused:#}");
}
