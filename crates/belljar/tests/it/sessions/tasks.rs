//! Cells as tasks of the protocol. In most tests, the client is one of the modern era.

mod availability;
mod legacy;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use belljar_mcp_client::ProtocolEra;
use serde_json::{Value, json};

use crate::harness::server_options;
use crate::serve::clients::legacy_client;
use crate::serve::http::Listening;
use crate::tool_client::{Client, call, tool_server};
use crate::wire::Wire;

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
pub(super) const APPEND: &str = "from tools import t\nawait t.append(text='a')";
pub(super) const RELATED: &str = "io.modelcontextprotocol/related-task";
const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// An ID that no task has.
const NOWHERE: &str = "AAAAAAAAAAAAAAAA";

/// A data directory, and a server of tools that records its calls in a file.
pub(super) struct Fixture {
    folder: tempfile::TempDir,
    options: Vec<String>,
}

impl Fixture {
    fn new(options: &[&str]) -> Self {
        Self::with_toolset("interpreter", options)
    }

    pub(super) fn with_toolset(toolset: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let calls = folder.path().join("calls.txt");
        let server = format!("{} '{}'", tool_server("t", "recording"), calls.display());
        let data = folder.path().join("data").display().to_string();
        let own = ["--toolset", toolset, "--data-dir", &data, &server];
        let options = own.iter().chain(options).map(|&option| option.to_owned()).collect();
        Self { folder, options }
    }

    fn options(&self) -> impl Iterator<Item = &str> {
        self.options.iter().map(String::as_str)
    }

    /// Starts a server without a handshake.
    pub(super) fn serve(&self) -> Wire {
        Wire::silent(self.options())
    }

    /// Starts a server for a client of 2025-11-25 that can be asked.
    pub(super) fn serve_legacy(&self) -> Wire {
        let mut wire = self.serve();
        let hello = initialize(&mut wire, LEGACY);
        let capabilities = &hello["capabilities"];
        let tasks = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        assert_eq!((&capabilities["tasks"], capabilities.get("extensions")), (&tasks, None), "{hello:#}");
        wire
    }

    /// Returns the calls that the server of tools has received.
    pub(super) fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("calls.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn result_file(&self, task: &str) -> PathBuf {
        self.folder.path().join("data/runs").join(task).join("result")
    }

    /// Returns the arguments of `belljar` for a client that starts it with few environment variables.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = server_options();
        arguments.extend(self.options.iter().cloned());
        arguments
    }
}

fn initialize(wire: &mut Wire, version: &str) -> Value {
    let client = json!({ "name": "tests", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": { "elicitation": {} }, "clientInfo": client });
    let result = wire.ask("initialize", params)["result"].take();
    wire.notify("notifications/initialized", json!({}));
    result
}

/// Returns parameters with those of every request of the modern era, from a client with these capabilities.
fn modern(mut params: Value, capabilities: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    params
}

/// Sends a request of a client of the modern era that supports tasks and can be asked.
pub(super) fn ask(wire: &mut Wire, method: &str, params: Value) -> Value {
    wire.ask(method, modern(params, json!({ "elicitation": {}, "extensions": { EXTENSION: {} } })))
}

fn execute(wire: &mut Wire, arguments: Value) -> Value {
    ask(wire, "tools/call", json!({ "name": "execute_code", "arguments": arguments }))["result"].take()
}

pub(super) fn get(wire: &mut Wire, task: &str) -> Value {
    let task = ask(wire, "tasks/get", json!({ "taskId": task }))["result"].take();
    assert_eq!(task["resultType"], "complete", "{task:#}");
    task
}

/// Returns the ID of a task that a call has created.
pub(super) fn created(result: &Value) -> String {
    assert_eq!(result["resultType"], "task", "{result:#}");
    result["taskId"].as_str().unwrap().to_owned()
}

/// Answers all questions of a task with a line.
pub(super) fn update(wire: &mut Wire, task: &Value, line: &str) {
    let answer = json!({ "action": "accept", "content": { "value": line } });
    let keys = task["inputRequests"].as_object().unwrap_or_else(|| panic!("{task:#}")).keys();
    let responses: serde_json::Map<String, Value> = keys.map(|key| (key.clone(), answer.clone())).collect();
    let params = json!({ "taskId": task["taskId"], "inputResponses": responses });
    assert_eq!(ask(wire, "tasks/update", params)["result"], json!({ "resultType": "complete" }));
}

/// Asks for a task until it has a status, and returns it.
pub(super) fn until(status: &str, mut get: impl FnMut() -> Value) -> Value {
    let begin = Instant::now();
    loop {
        let task = get();
        if task["status"] == status {
            return task;
        }
        assert!(begin.elapsed() < Duration::from_secs(180), "it is not {status}: {task:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the structured content of a tool's result.
pub(super) fn fields(result: &Value) -> &Value {
    let content = &result["structuredContent"];
    assert!(content.is_object(), "{result:#}");
    content
}

fn open(wire: &mut Wire) -> String {
    let result = execute(wire, json!({ "code": "x = 1" }));
    fields(&result)["session_info"]["session_id"].as_str().unwrap().to_owned()
}

pub(super) fn kill(mut wire: Wire) {
    wire.child.kill().unwrap();
    wire.child.wait().unwrap();
}

/// Begins the call of a tool as a task in the legacy era, and returns its ID.
pub(super) fn begin_call(wire: &mut Wire, tool: &str, arguments: Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments, "task": { "ttl": 600_000 } });
    let answer = wire.ask("tools/call", params);
    let task = &answer["result"]["task"];
    assert_eq!((&task["status"], answer["result"].as_object().unwrap().len()), (&json!("working"), 1), "{answer:#}");
    task["taskId"].as_str().unwrap().to_owned()
}

pub(super) fn get_legacy(wire: &mut Wire, task: &str) -> Value {
    let task = wire.ask("tasks/get", json!({ "taskId": task }))["result"].take();
    assert!(task.get("resultType").is_none() && task["ttl"].is_u64(), "{task:#}");
    task
}

#[test]
fn cell_that_ends_at_once_has_an_ordinary_result() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let found = ask(&mut wire, "server/discover", json!({}))["result"].take();
    assert_eq!(found["capabilities"]["extensions"][EXTENSION], json!({}), "{found:#}");
    let result = execute(&mut wire, json!({ "code": "6 * 7" }));
    assert_eq!(fields(&result)["result"], "42");
    let errors = execute(&mut wire, json!({ "code": "1 / 0" }));
    assert!(fields(&errors)["error"].as_str().unwrap().starts_with("ZeroDivisionError"), "{errors:#}");
}

#[test]
fn approval_of_a_task_is_an_update() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let result = execute(&mut wire, json!({ "code": APPEND }));
    let id = created(&result);
    assert!(result["ttlMs"].as_u64().unwrap() >= 86_400_000 && result["pollIntervalMs"].is_u64(), "{result:#}");
    // On a busy machine, the call becomes a task before its code asks.
    let task = until("input_required", || get(&mut wire, &id));
    let requests = task["inputRequests"].as_object().unwrap();
    let [request] = requests.values().collect::<Vec<_>>()[..] else { panic!("{task:#}") };
    assert_eq!(request["method"], "elicitation/create");
    assert!(request["params"]["message"].as_str().unwrap().contains("append"), "{task:#}");
    // Responses to other questions are ignored.
    let mut other = task.clone();
    other["inputRequests"] = json!({ "77-00000000": {}, "x": {} });
    update(&mut wire, &other, "yes");
    assert_eq!(get(&mut wire, &id)["inputRequests"], task["inputRequests"]);
    update(&mut wire, &task, "yes");
    let done = until("completed", || get(&mut wire, &id));
    assert_eq!(fields(&done["result"])["result"], "'call 1'", "{done:#}");
    // The result stays, and a second answer changes nothing.
    update(&mut wire, &task, "no");
    assert_eq!(get(&mut wire, &id)["result"], done["result"]);
    assert_eq!(fixture.calls(), ["append a"]);
    let denied = created(&execute(&mut wire, json!({ "code": APPEND })));
    let task = get(&mut wire, &denied);
    update(&mut wire, &task, "no");
    let done = until("completed", || get(&mut wire, &denied));
    assert!(fields(&done["result"])["error"].as_str().unwrap().starts_with("ToolDenied"), "{done:#}");
}

#[test]
fn input_in_a_task_is_an_update() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = created(&execute(&mut wire, json!({ "code": "input('One? ') + input('Two? ')" })));
    for (line, message) in [("a", "One? "), ("b", "Two? ")] {
        let asks = |task: &Value| task["inputRequests"].to_string().contains(message);
        let task = until("input_required", || {
            let mut task = get(&mut wire, &id);
            // The first question may still be there.
            if !asks(&task) {
                task["status"] = "working".into();
            }
            task
        });
        update(&mut wire, &task, line);
    }
    let done = until("completed", || get(&mut wire, &id));
    assert_eq!(fields(&done["result"])["result"], "'ab'", "{done:#}");
}

#[test]
fn task_survives_the_server() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = created(&execute(&mut wire, json!({ "code": APPEND })));
    let before = get(&mut wire, &id);
    kill(wire);
    let mut wire = fixture.serve();
    let task = get(&mut wire, &id);
    assert_eq!((&task["status"], &task["createdAt"]), (&json!("input_required"), &before["createdAt"]));
    // An answer to the earlier server may have been lost, so that the question is another one to the client.
    assert_ne!(task["inputRequests"], before["inputRequests"]);
    // The tool for clients without tasks has the same task.
    let resumed = ask(&mut wire, "tools/call", json!({ "name": "resume_run", "arguments": { "run_id": id } }));
    assert_eq!(created(&resumed["result"]), id);
    update(&mut wire, &task, "yes");
    let runs = |wire: &mut Wire| {
        let listed = ask(wire, "tools/call", json!({ "name": "list_runs", "arguments": {} }));
        fields(&listed["result"])["runs"].as_array().unwrap().len()
    };
    assert_eq!(runs(&mut wire), 1);
    until("completed", || get(&mut wire, &id));
    // The model does not need a result that its client has.
    assert_eq!(runs(&mut wire), 0);
    kill(wire);
    let mut wire = fixture.serve();
    let done = get(&mut wire, &id);
    assert_eq!(fields(&done["result"])["result"], "'call 1'", "{done:#}");
    assert_eq!(fixture.calls(), ["append a"]);
}

#[test]
fn cell_that_waits_becomes_a_task_that_survives_the_server() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let code = "import asyncio\nawait asyncio.sleep(15)\n'slept'";
    let result = execute(&mut wire, json!({ "code": code }));
    let id = created(&result);
    assert_eq!(result["status"], "working", "{result:#}");
    kill(wire);
    let mut wire = fixture.serve();
    let done = until("completed", || get(&mut wire, &id));
    assert_eq!(fields(&done["result"])["result"], "'slept'", "{done:#}");
}

#[test]
fn call_that_ends_when_it_would_become_a_task_has_a_result_either_way() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let capabilities = json!({ "extensions": { EXTENSION: {} } });
    let calls: Vec<u64> = (0..24)
        .map(|n| {
            let code = format!("import asyncio\nawait asyncio.sleep({})\n{n}", 1.8 + 0.03 * f64::from(n));
            let call = json!({ "name": "execute_code", "arguments": { "code": code } });
            wire.send("tools/call", modern(call, capabilities.clone()))
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        let mut result = wire.answer(call)["result"].take();
        if result["resultType"] == "task" {
            let id = created(&result);
            result = until("completed", || get(&mut wire, &id))["result"].take();
        }
        assert_eq!(fields(&result)["result"], n.to_string());
    }
}

#[test]
fn task_whose_server_ended_while_its_code_ran_has_that_error() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = created(&execute(&mut wire, json!({ "code": format!("{APPEND}\n{APPEND}\nwhile True: pass") })));
    let task = get(&mut wire, &id);
    update(&mut wire, &task, "session");
    // The second call is one of code that has gone on.
    let begin = Instant::now();
    while fixture.calls().len() < 2 {
        assert!(begin.elapsed() < Duration::from_secs(180), "the tool is not called twice");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(wire);
    let mut wire = fixture.serve();
    let done = until("completed", || get(&mut wire, &id));
    let error = fields(&done["result"])["error"].as_str().unwrap();
    assert!(error.contains("the server ended while the code ran"), "{done:#}");
}

#[test]
fn result_is_deleted_after_its_time() {
    let fixture = Fixture::new(&["--run-ttl", "15"]);
    let mut wire = fixture.serve();
    let id = created(&execute(&mut wire, json!({ "code": APPEND })));
    let task = get(&mut wire, &id);
    update(&mut wire, &task, "yes");
    until("completed", || get(&mut wire, &id));
    assert!(fixture.result_file(&id).exists());
    let begin = Instant::now();
    loop {
        let answer = ask(&mut wire, "tasks/get", json!({ "taskId": id }));
        if answer["error"]["code"] == -32602 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(180), "the result stays: {answer:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!fixture.result_file(&id).exists());
}

#[test]
fn cancelled_task_is_interrupted() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let session = open(&mut wire);
    let code = format!("x = 2\n{APPEND}");
    let id = created(&execute(&mut wire, json!({ "code": code, "session_id": session })));
    let task = get(&mut wire, &id);
    let cancelled = ask(&mut wire, "tasks/cancel", json!({ "taskId": id }));
    assert_eq!(cancelled["result"], json!({ "resultType": "complete" }), "{cancelled:#}");
    assert_eq!(get(&mut wire, &id)["status"], "cancelled");
    // The session goes on after the interrupt.
    let next = execute(&mut wire, json!({ "code": "x", "session_id": session }));
    assert_eq!(fields(&next)["result"], "2");
    update(&mut wire, &task, "yes");
    kill(wire);
    let mut wire = fixture.serve();
    assert_eq!(get(&mut wire, &id)["status"], "cancelled");
    assert_eq!(fixture.calls(), [""; 0]);
}

#[test]
fn belljar_mcp_client_polls_tasks_and_answers_their_questions() {
    let fixture = Fixture::new(&[]);
    let client = Client::new(ProtocolEra::Modern, &fixture.arguments(), &["yes", "session"]);
    client.run(async |server| {
        let code = "import asyncio\nfrom tools import t\none = await t.append(text='a')\nawait asyncio.sleep(3)\n\
                    (one, await t.append(text='b'))";
        let (_, structured) = call(&server, "execute_code", json!({ "code": code })).await;
        assert_eq!(structured["result"], "('call 1', 'call 2')", "{structured:#}");
    });
    assert_eq!(client.questions.lock().unwrap().len(), 2);
    let listening = Listening::start("streamable-http", fixture.options());
    let client = Client::over_http(ProtocolEra::Modern, &listening.url, &["yes"]);
    client.run(async |server| {
        let (_, structured) = call(&server, "execute_code", json!({ "code": APPEND })).await;
        assert_eq!(structured["result"], "'call 3'", "{structured:#}");
    });
    assert_eq!(client.questions.lock().unwrap().len(), 1);
}

#[test]
fn python_sdk_1_calls_the_tools_as_tasks() {
    let fixture = Fixture::with_toolset("all", &[]);
    legacy_client("tests/sessions/task_client.py", &fixture.options().collect::<Vec<_>>());
}
