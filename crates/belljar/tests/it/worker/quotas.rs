//! Quotas of memory and processor time for code in worker processes.

use serde_json::{Value, json};

use super::{wait_for, workers};
use crate::sessions::durable::{fields, open, run};
use crate::wire::Wire;

/// Code that takes a large part of the quota of memory in these tests.
const LARGE: &str = "x = bytearray(150 << 20)\nlen(x)";

/// Starts a server with all tools and these quotas.
fn start(quotas: &[&str], options: &[&str]) -> Wire {
    let own = ["--no-install", "--toolset", "all", "--isolation", "process"];
    let quotas = quotas.iter().flat_map(|quota| ["--quota", quota]);
    Wire::start(own.into_iter().chain(quotas).chain(options.iter().copied()))
}

/// Runs code once, and returns the structured content of its result.
fn run_once(wire: &mut Wire, arguments: Value) -> Value {
    fields(&wire.call(arguments))
}

fn run_code(wire: &mut Wire, code: &str) -> Value {
    run_once(wire, json!({ "python_code": code }))
}

#[track_caller]
fn assert_memory_error(answer: &Value) {
    assert!(answer["error"].as_str().is_some_and(|error| error.contains("MemoryError")), "{answer:#}");
}

#[track_caller]
fn assert_refused(answer: &Value, quota: &str) {
    let details = &answer["refusal"];
    assert_eq!((&details["status"], &details["quota"]), (&json!("quota-exceeded"), &json!(quota)), "{answer:#}");
}

#[test]
fn memory_of_code_in_workers_is_limited_and_freed() {
    let mut wire = start(&["memory=340MB"], &[]);
    wire.follow_output();
    // Twice: workers are used again.
    for _ in 0..2 {
        assert_memory_error(&run_code(&mut wire, "x = bytearray(400 << 20)"));
        assert_eq!(run_code(&mut wire, LARGE)["status"], "success");
    }
    let code = "x = bytearray(200 << 20)\nprint('has it')\nimport time\ntime.sleep(4)\nlen(x)";
    let first = wire.send_call(json!({ "python_code": code }));
    wire.wait_for_output("has it");
    // The sum counts.
    assert_memory_error(&run_code(&mut wire, LARGE));
    let first = fields(&wire.answer(first)["result"]);
    assert_eq!(first["status"], "success", "{first:#}");
    assert_eq!(run_code(&mut wire, LARGE)["status"], "success");
}

#[test]
fn memory_beyond_that_of_the_interpreter_counts_as_the_kernel_measures_it() {
    let mut wire = start(&["memory=200MB"], &[]);
    // Files are memory of the worker, which it does not ask for.
    let write = |megabytes: u32| {
        format!(
            "import time\nwith open('/tmp/f', 'wb') as file:\n    for _ in range({megabytes}):\n        \
             file.write(bytes(1 << 20))\ntime.sleep(3)\n'written'"
        )
    };
    let answer = run_code(&mut wire, &write(400));
    assert!(answer["error"].as_str().is_some_and(|error| error.contains("Limit reached: memory")), "{answer:#}");
    // It is free again, and code that stays below the quota is not ended.
    assert_eq!(run_code(&mut wire, &write(30))["status"], "success");
}

#[test]
fn memory_of_sessions_in_workers_is_limited() {
    let mut wire = start(&["memory=340MB"], &[]);
    let id = open(&mut wire);
    run(&mut wire, &id, "kept = bytearray(b'k') * (120 << 20)");
    assert_memory_error(&run(&mut wire, &id, "more = bytearray(250 << 20)"));
    assert_eq!(run(&mut wire, &id, "len(kept)")["result"], (120 << 20).to_string());
    // Saving it takes memory that does not count.
    let fork = fields(&wire.tool("fork_session", json!({ "session_id": id })))["session_id"].clone();
    assert_eq!(run(&mut wire, fork.as_str().unwrap(), "len(kept)")["result"], (120 << 20).to_string());
    // Both sessions together have no room for more.
    assert_memory_error(&run(&mut wire, &id, "more = bytearray(100 << 20)"));
    wire.tool("clear_session", json!({ "session_id": fork }));
    let grown = "more = bytearray(100 << 20)\nlen(more)";
    wait_for("there is room", || (run(&mut wire, &id, grown)["result"] == "104857600").then_some(()));
}

#[test]
fn interpreters_beyond_the_quota_of_memory_are_not_started_in_workers() {
    let mut wire = start(&["memory=1MB"], &[]);
    // The memory of an interpreter is known once there was one.
    wait_for("it is refused", || (run_code(&mut wire, "1")["refusal"]["quota"] == "memory").then_some(()));
    assert_refused(&fields(&wire.tool("execute_code", json!({ "code": "1" }))), "memory");
}

/// Uses up a quota of processor time, with `code` that runs for a while. Returns the refusal.
fn use_up(wire: &mut Wire, mut code: impl FnMut(&mut Wire) -> Value) -> Value {
    let refused = wait_for("the quota is used up", || Some(code(wire)).filter(|answer| answer["refusal"].is_object()));
    assert_refused(&refused, "processor");
    assert!(refused["refusal"]["used"].as_f64().unwrap() > 1.0, "{refused:#}");
    refused
}

#[test]
fn processor_time_of_workers_is_limited_per_minute() {
    let burn = "import time\nwhile time.process_time() < 2: pass";
    let mut wire = start(&["processor=1"], &[]);
    assert_eq!(run_code(&mut wire, burn)["status"], "success");
    use_up(&mut wire, |wire| run_code(wire, burn));
    assert_refused(&fields(&wire.tool("execute_code", json!({ "code": "1" }))), "processor");
    // In a session.
    let mut wire = start(&["processor=1"], &[]);
    let id = open(&mut wire);
    use_up(&mut wire, |wire| run(wire, &id, burn));
    // Files and ends of sessions are not refused.
    let cleared = fields(&wire.tool("clear_session", json!({ "session_id": id })));
    assert!(cleared["refusal"].is_null(), "{cleared:#}");
}

#[test]
fn processor_time_of_killed_workers_counts() {
    let mut wire = start(&["processor=1"], &[]);
    let server = wire.child.id();
    let id = wire.send_call(json!({ "python_code": "while True: pass" }));
    let worker = wait_for("it has used the processor", || {
        workers(server).into_iter().find(|worker| worker.processor_time() > 250)
    });
    worker.signal("-KILL");
    let killed = fields(&wire.answer(id)["result"]);
    assert!(killed["error"].as_str().is_some_and(|error| error.contains("its worker failed")), "{killed:#}");
    let refused = run_code(&mut wire, "1");
    assert_refused(&refused, "processor");
    assert!(refused["refusal"]["used"].as_f64().unwrap() > 1.5, "{refused:#}");
}
