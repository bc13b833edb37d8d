//! Sessions with clients of the protocol's modern era: elicitation between two calls, and notifications to listeners.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use belljar_mcp_client::{
    BoxError, Elicitation, ElicitationResponse, McpServer, McpServerStdio, McpServerStreamableHttp, ProtocolEra,
    ServerBuilder,
};
use serde_json::{Map, Value, json};

use crate::harness::server_options;
use crate::serve::clients::modern_client;
use crate::serve::http::Listening;
use crate::wire::{Wire, text};

const PATIENT: Duration = Duration::from_secs(300);

/// Returns a request's parameters, from a client that supports elicitation.
fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    params
}

fn wire() -> Wire {
    Wire::silent(["--toolset", "interpreter", "--no-install"])
}

fn call(code: &str) -> Value {
    modern(json!({ "name": "execute_code", "arguments": { "code": code } }))
}

/// Returns the same call with an answer to the elicitation in `asked`.
fn answered(code: &str, asked: &Value, answer: Value) -> Value {
    let mut params = call(code);
    params["inputResponses"] = json!({ "input": answer });
    params["requestState"] = asked["requestState"].clone();
    params
}

fn ask(wire: &mut Wire, params: Value) -> Value {
    let answer = wire.ask("tools/call", params);
    if answer["result"].is_null() { panic!("{answer:#}") } else { answer["result"].clone() }
}

fn fields(result: &Value) -> Value {
    serde_json::from_str(&text(result)).unwrap_or_else(|error| panic!("{error}: {result:#}"))
}

fn accept(line: &str) -> Value {
    json!({ "action": "accept", "content": { "value": line } })
}

#[test]
fn elicitation_ends_a_call_and_the_next_brings_the_answer() {
    let mut wire = wire();
    let code = "print('before')\none = input('One? ')\ntwo = input('Two? ')\none + two";
    let asked = ask(&mut wire, call(code));
    assert_eq!(asked["resultType"], "input_required", "{asked:#}");
    let question = &asked["inputRequests"]["input"];
    assert_eq!((&question["method"], &question["params"]["message"]), (&json!("elicitation/create"), &json!("One? ")));
    let again = ask(&mut wire, answered(code, &asked, accept("a")));
    assert_eq!(again["inputRequests"]["input"]["params"]["message"], "Two? ", "{again:#}");
    assert_ne!(again["requestState"], asked["requestState"]);
    let done = fields(&ask(&mut wire, answered(code, &again, accept("b"))));
    assert_eq!((&done["result"], &done["output"]), (&json!("'ab'"), &json!(["before\n"])));
    // Only the last answer names the session, which is like any other.
    let id = done["session_info"]["session_id"].as_str().unwrap().to_owned();
    let next = modern(json!({ "name": "execute_code", "arguments": { "code": "two", "session_id": id } }));
    assert_eq!(fields(&ask(&mut wire, next))["result"], "'b'");
}

#[test]
fn elicitation_answer_is_accepted_once_with_its_call() {
    let mut wire = wire();
    let code = "input('Who? ')";
    let asked = ask(&mut wire, call(code));
    let other = ask(&mut wire, answered("print('other')", &asked, accept("ada")));
    assert!(text(&other).contains("arguments differ from the original call"), "{other:#}");
    // A call without an answer gets a new elicitation, which invalidates the previous state.
    let mut empty = answered(code, &asked, Value::Null);
    empty.as_object_mut().unwrap().remove("inputResponses");
    let again = ask(&mut wire, empty);
    assert_eq!(again["inputRequests"], asked["inputRequests"]);
    let old = ask(&mut wire, answered(code, &asked, accept("ada")));
    assert!(text(&old).contains("no cell waits for this answer"), "{old:#}");
    let done = ask(&mut wire, answered(code, &again, json!({ "action": "decline" })));
    assert_eq!(fields(&done)["error"], "StdinNotImplementedError: the question was declined");
    let twice = ask(&mut wire, answered(code, &again, accept("ada")));
    assert_eq!(twice["isError"], true, "{twice:#}");
}

#[test]
fn waiting_cells_are_interruptible_and_limited() {
    let mut wire = wire();
    let id = fields(&ask(&mut wire, call("pass")))["session_info"]["session_id"].as_str().unwrap().to_owned();
    let code = "input('Who? ')";
    let mut params = call(code);
    params["arguments"]["session_id"] = id.as_str().into();
    let asked = ask(&mut wire, params);
    let interrupt = modern(json!({ "name": "interrupt_session", "arguments": { "session_id": id } }));
    assert_eq!(fields(&ask(&mut wire, interrupt))["message"], "The running code was interrupted");
    let mut late = answered(code, &asked, accept("ada"));
    late["arguments"]["session_id"] = id.as_str().into();
    let late = fields(&ask(&mut wire, late));
    assert!(late["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{late:#}");
    let waiting = (0..8).filter(|_| ask(&mut wire, call(code))["resultType"] == "input_required").count();
    assert_eq!(waiting, 8);
    let refused = fields(&ask(&mut wire, call(code)));
    assert!(refused["error"].as_str().unwrap().contains("8 cells wait for answers already"), "{refused:#}");
}

#[test]
fn modern_client_without_elicitation_gets_an_error() {
    let mut wire = wire();
    let mut params = call("input('Who? ')");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let error = fields(&ask(&mut wire, params))["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("StdinNotImplementedError: input() is not available"), "{error}");
}

#[test]
fn listening_client_is_notified_of_file_changes() {
    let mut wire = wire();
    let done = fields(&ask(&mut wire, call("open('a.txt', 'w').write('1')")));
    let (id, uri) = (&done["session_info"]["session_id"], &done["files"][0]["uri"]);
    let nowhere = "kernel://aaaaaaaaaaaaaaaa/x";
    let filter =
        json!({ "resourcesListChanged": true, "toolsListChanged": true, "resourceSubscriptions": [uri, nowhere] });
    let listening = wire.send("subscriptions/listen", modern(json!({ "notifications": filter })));
    let acknowledged = wire.next().unwrap();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged:#}");
    let accepted = json!({ "resourcesListChanged": true, "resourceSubscriptions": [uri] });
    assert_eq!(acknowledged["params"]["notifications"], accepted);
    let mut run = |code: &str| {
        let arguments = json!({ "code": code, "session_id": id });
        ask(&mut wire, modern(json!({ "name": "execute_code", "arguments": arguments })));
        let methods: Vec<String> =
            wire.received.iter().filter_map(|it| Some(it["method"].as_str()?.to_owned())).collect();
        wire.received.clear();
        methods
    };
    assert_eq!(run("open('a.txt', 'w').write('22')"), ["notifications/resources/updated"]);
    assert_eq!(run("open('b.txt', 'w').write('1')"), ["notifications/resources/list_changed"]);
    assert_eq!(run("1 + 1"), [""; 0]);
    wire.notify("notifications/cancelled", json!({ "requestId": listening }));
    ask(&mut wire, modern(json!({ "name": "clear_session", "arguments": { "session_id": id } })));
    assert_eq!(wire.notifications("notifications/resources/list_changed").len(), 0);
}

#[test]
fn flood_of_listen_requests_is_bounded() {
    let mut wire = wire();
    let done = fields(&ask(&mut wire, call("open('a.txt', 'w').write('1')")));
    let (id, uri) = (&done["session_info"]["session_id"], &done["files"][0]["uri"]);
    let filter = json!({ "resourceSubscriptions": [uri] });
    let requests: Vec<u64> =
        (0..1100).map(|_| wire.send("subscriptions/listen", modern(json!({ "notifications": filter })))).collect();
    // Those beyond the limit are answered at once, and the others once they are cancelled.
    let mut refused = Vec::new();
    while refused.len() < 100 {
        let message = wire.next().unwrap();
        if let Some(request) = message["id"].as_u64() {
            assert_eq!(message["error"]["message"], "too many subscriptions are open", "{message}");
            refused.push(request);
        }
    }
    let arguments = json!({ "code": "open('a.txt', 'w').write('22')", "session_id": id });
    wire.received.clear();
    ask(&mut wire, modern(json!({ "name": "execute_code", "arguments": arguments })));
    assert_eq!(wire.notifications("notifications/resources/updated").len(), 1000);
    for request in requests.iter().filter(|request| !refused.contains(request)) {
        wire.notify("notifications/cancelled", json!({ "requestId": request }));
    }
    // The server handles a cancellation at some time after it arrives.
    let begin = Instant::now();
    loop {
        wire.received.clear();
        let arguments = json!({ "code": "open('a.txt', 'a').write('3')", "session_id": id });
        ask(&mut wire, modern(json!({ "name": "execute_code", "arguments": arguments })));
        let left = wire.notifications("notifications/resources/updated").len();
        if left == 0 {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(180), "{left} cancelled subscriptions are left");
    }
}

/// Answers an elicitation with the last word of its message.
async fn echo(question: Elicitation) -> Result<ElicitationResponse, BoxError> {
    let word = question.message().split_whitespace().last().unwrap_or_default().to_owned();
    Ok(ElicitationResponse::Accept(Some(Map::from_iter([("value".to_owned(), json!(word))]))))
}

/// Checks elicitation and notifications with Belljar's client.
fn exercise<T>(server: ServerBuilder<T>, build: fn(ServerBuilder<T>) -> McpServer, lists: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = build(server.timeout(PATIENT).era(ProtocolEra::Modern).elicitation_handler(echo));
        let running = server.connect().await.unwrap();
        let call = async |code: &str, session: &str| {
            let arguments = json!({ "code": code, "session_id": session });
            let outcome = server.direct_call_tool("execute_code", arguments).await.unwrap();
            serde_json::from_str::<Value>(outcome.to_text().lines().next().unwrap_or_default())
                .unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
        };
        let first = call("input('Say one') + input('Say two')", "").await;
        assert_eq!(first["result"], "'onetwo'", "{first:#}");
        let id = first["session_info"]["session_id"].as_str().unwrap().to_owned();
        call("open('a.txt', 'w').write('1')", &id).await;
        let mut updates = server.subscribe_resource(&format!("kernel://{id}/a.txt")).await.unwrap();
        let changes = Arc::<Mutex<usize>>::default();
        let count = changes.clone();
        let counting = tokio::spawn(async move {
            while updates.changed().await.is_some() {
                *count.lock().unwrap() += 1;
            }
        });
        call("open('a.txt', 'w').write('22')", &id).await;
        for _ in 0..9000 {
            if *changes.lock().unwrap() > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(*changes.lock().unwrap(), 1);
        counting.abort();
        if lists {
            // The client caches the list until it is notified of a change.
            assert_eq!(server.list_resources().await.unwrap().len(), 1);
            call("open('b.txt', 'w').write('1')", &id).await;
            let mut there = 0;
            for _ in 0..9000 {
                there = server.list_resources().await.unwrap().len();
                if there == 2 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(there, 2);
        }
        running.close().await.unwrap();
    });
}

#[test]
fn belljar_mcp_client_handles_elicitation_and_notifications() {
    let mut arguments = ["stdio", "--toolset", "interpreter"].map(str::to_owned).to_vec();
    arguments.extend(server_options());
    exercise(McpServerStdio::new(env!("CARGO_BIN_EXE_belljar")).args(arguments), |server| server.build(), true);
    let listening = Listening::start("streamable-http", ["--toolset", "interpreter"]);
    // Calls over HTTP have no connection in this era, so the server does not know any client's list.
    exercise(McpServerStreamableHttp::new(&listening.url).unwrap(), |server| server.build(), false);
}

#[test]
fn python_sdk_2_handles_elicitation_and_notifications() {
    modern_client("tests/sessions/modern_client.py", &["--toolset", "interpreter"]);
}
