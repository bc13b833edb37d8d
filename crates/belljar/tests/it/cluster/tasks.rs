//! Tasks that a client polls at any replica, also when the one that ran the code has ended.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Shared;
use crate::harness::Belljar;
use crate::serve::http::Listening;
use crate::sessions::durable::{MODERN, fields, runs, wait_for};
use crate::wire::Wire;

const LEGACY: &str = "2025-11-25";
const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Sends a request of a client of the modern era that supports tasks and can be asked. Returns the result.
fn ask(replica: &Listening, method: &str, name: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {}, "extensions": { EXTENSION: {} } },
    });
    let headers = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", method), ("Mcp-Name", name)];
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    replica.answer(&headers, &message)["result"].take()
}

/// Runs a cell in a new session, and returns the ID of the task that its call becomes.
fn begin(replica: &Listening, code: &str) -> String {
    begin_call(replica, "execute_code", json!({ "code": code }))
}

/// Calls a tool, and returns the ID of the task that the call becomes.
fn begin_call(replica: &Listening, tool: &str, arguments: Value) -> String {
    let result = ask(replica, "tools/call", tool, json!({ "name": tool, "arguments": arguments }));
    assert_eq!(result["resultType"], "task", "{result:#}");
    result["taskId"].as_str().unwrap().to_owned()
}

fn get(replica: &Listening, task: &str) -> Value {
    ask(replica, "tasks/get", task, json!({ "taskId": task }))
}

/// Polls a task at one replica after the other until it has ended.
fn poll(replicas: &[&Listening], task: &str) -> Value {
    let begin = Instant::now();
    for replica in replicas.iter().cycle() {
        let found = get(replica, task);
        if found["status"] == "completed" {
            return found["result"].clone();
        }
        assert!(begin.elapsed() < Duration::from_secs(180), "it does not end: {found:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Value::Null
}

fn kill(mut replica: Listening) {
    replica.child.kill().unwrap();
    replica.child.wait().unwrap();
}

/// A folder that replicas mount, in which code waits for a file.
struct Gate(TempDir);

impl Gate {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn replica(&self, shared: &Shared, toolset: &str) -> Listening {
        let mount = format!("{}:/gate", self.0.path().display());
        shared.replica_with("streamable-http-stateless", &["--toolset", toolset, "--mount", &mount])
    }

    /// Returns code that waits until the gate is opened under this name, and has the value of `last`. It waits for
    /// longer than a call may before it becomes a task.
    fn code(name: &str, last: &str) -> String {
        format!("import asyncio, os\nwhile not os.path.exists('/gate/{name}'): await asyncio.sleep(4)\n{last}")
    }

    fn open(&self, name: &str) {
        std::fs::write(self.0.path().join(name), "").unwrap();
    }
}

#[test]
fn result_of_a_task_outlives_its_replica() {
    let (shared, gate) = (Shared::new(), Gate::new());
    let [one, two, three] = [(); 3].map(|()| gate.replica(&shared, "interpreter"));
    // A result that the record of the run has, and one that is too large for that.
    for (number, length) in [3, 40_000].into_iter().enumerate() {
        let name = number.to_string();
        let task = begin(&one, &Gate::code(&name, &format!("print('x' * {length})\n{length}")));
        for replica in [&one, &two, &three] {
            let found = get(replica, &task);
            assert_eq!(found["status"], "working", "{found:#}");
        }
        gate.open(&name);
        let result = poll(&[&two, &three], &task);
        assert_eq!(result["structuredContent"]["result"], length.to_string(), "{result:#}");
        assert_eq!(shared.server.names("/contents/runs/").len(), number);
        for replica in [&one, &two, &three] {
            assert_eq!(get(replica, &task)["result"], result);
        }
    }
    gate.open("last");
    let task = begin(&one, &Gate::code("last", "await asyncio.sleep(3)\n'last'"));
    let result = poll(&[&one], &task);
    kill(one);
    // No client has polled it there before.
    for replica in [&two, &three] {
        assert_eq!(get(replica, &task)["result"], result);
    }
    assert_eq!(result["structuredContent"]["result"], "'last'", "{result:#}");
}

#[test]
fn result_of_code_without_a_session_outlives_its_replica() {
    let (shared, gate) = (Shared::new(), Gate::new());
    let [one, two] = [(); 2].map(|()| gate.replica(&shared, "all"));
    let code = Gate::code("opened", "'slept'");
    let task = begin_call(&one, "run_python_code", json!({ "python_code": code }));
    let found = get(&two, &task);
    assert_eq!(found["status"], "working", "{found:#}");
    gate.open("opened");
    let result = poll(&[&one], &task);
    kill(one);
    assert_eq!(get(&two, &task)["result"], result);
    assert_eq!(result["structuredContent"]["return_value"], "slept", "{result:#}");
}

#[test]
fn run_that_has_ended_is_listed_until_its_client_has_the_result() {
    let (shared, gate) = (Shared::new(), Gate::new());
    let [one, two] = [(); 2].map(|()| gate.replica(&shared, "interpreter"));
    // Its client may list the runs of all.
    let mut wire = shared.wire(Belljar::new(), &[]);
    let task = begin(&one, &Gate::code("opened", "'slept'"));
    let states = |wire: &mut Wire| -> Vec<[Value; 2]> {
        runs(wire).iter().map(|run| [run["status"].clone(), run["outcome"].clone()]).collect()
    };
    wait_for(|| states(&mut wire) == [[json!("waiting"), json!("paused")]]);
    gate.open("opened");
    wait_for(|| states(&mut wire) == [[json!("completed"), json!("completed")]]);
    kill(one);
    poll(&[&two], &task);
    // That replica notes it for the others.
    wait_for(|| states(&mut wire).is_empty());
    let resumed = fields(&wire.tool("resume_run", json!({ "run_id": task })));
    assert_eq!(resumed["result"], "'slept'", "{resumed:#}");
}

#[test]
fn question_of_a_task_is_answered_at_another_replica() {
    let shared = Shared::new();
    let [one, two] = [shared.replica(), shared.replica()];
    let task = begin(&one, "input('Go on? ')");
    // On a busy machine, the call becomes a task before its code asks.
    wait_for(|| get(&two, &task)["status"] == "input_required");
    let asked = get(&two, &task);
    let answer = json!({ "action": "accept", "content": { "value": "yes" } });
    let keys = asked["inputRequests"].as_object().unwrap().keys();
    let responses: serde_json::Map<String, Value> = keys.map(|key| (key.clone(), answer.clone())).collect();
    ask(&two, "tasks/update", &task, json!({ "taskId": task, "inputResponses": responses }));
    assert_eq!(poll(&[&two, &one], &task)["structuredContent"]["result"], "'yes'");
}

/// Opens an MCP session of the legacy era with tasks, and returns its ID.
fn legacy(replica: &Listening) -> String {
    let client = json!({ "name": "tests", "version": "1" });
    let params = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let (status, head) = replica.post(&[], &hello);
    assert_eq!(status, 200, "{head}");
    let id = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().trim().to_owned();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(replica.post(&[("Mcp-Session-Id", id.as_str())], &ready).0, 202);
    id
}

/// Calls a tool as a task of the legacy era, and returns the ID of the task.
fn begin_legacy(replica: &Listening, tool: &str, arguments: Value) -> String {
    let session = legacy(replica);
    let params = json!({ "name": tool, "arguments": arguments, "task": {} });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    let begun = replica.answer(&[("Mcp-Session-Id", session.as_str())], &call);
    begun["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun:#}")).to_owned()
}

#[test]
fn task_that_ends_while_another_replica_looks_for_it_is_found() {
    let shared = Shared::new();
    let [one, two] = [(); 2].map(|()| shared.replica_with("streamable-http", &["--toolset", "all"]));
    let session = legacy(&two);
    // Its session is in no store, and cannot come to the other replica.
    let code = json!({ "python_code": "import time\ntime.sleep(3)\n'slept'" });
    let task = begin_legacy(&one, "run_python_code", code);
    let request = json!({ "jsonrpc": "2.0", "id": 2, "method": "tasks/get", "params": { "taskId": task } });
    let found = two.answer(&[("Mcp-Session-Id", session.as_str())], &request);
    assert_eq!(found["result"]["status"], "completed", "{found:#}");
}

#[test]
fn task_that_is_lost_with_its_replica_ends_with_that_error() {
    let shared = Shared::new();
    let [one, two] = [(); 2].map(|()| shared.replica_with("streamable-http", &["--toolset", "all"]));
    // The code is never saved, and its session is not in the store.
    let code = "while True: pass";
    let tasks = [
        begin_legacy(&one, "execute_code", json!({ "code": code })),
        begin_legacy(&one, "run_python_code", json!({ "python_code": code })),
    ];
    kill(one);
    let session = legacy(&two);
    for task in tasks {
        let request = json!({ "jsonrpc": "2.0", "id": 2, "method": "tasks/get", "params": { "taskId": task } });
        let begin = Instant::now();
        loop {
            let (_, text) = two.post(&[("Mcp-Session-Id", session.as_str())], &request);
            if text.contains("\"failed\"") || text.contains("\"completed\"") {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(120), "{text}");
            std::thread::sleep(Duration::from_millis(500));
        }
        let request = json!({ "jsonrpc": "2.0", "id": 3, "method": "tasks/result", "params": { "taskId": task } });
        let result = two.answer(&[("Mcp-Session-Id", session.as_str())], &request);
        assert!(result.to_string().contains("the server ended while the code ran"), "{result:#}");
    }
}
