//! The servers that have tasks, and the clients that get them.

use belljar_mcp_client::ProtocolEra;
use serde_json::{Value, json};

use super::{APPEND, EXTENSION, Fixture, LEGACY, NOWHERE, ask, fields, get, initialize, modern, until};
use crate::serve::http::Listening;
use crate::tool_client::{Client, call};
use crate::wire::Wire;

#[test]
fn clients_get_tasks_only_if_they_support_them() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let call = json!({ "name": "execute_code", "arguments": { "code": APPEND } });
    let asked = wire.ask("tools/call", modern(call, json!({ "elicitation": {} })));
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked:#}");
    let (id, _) = asked["result"]["requestState"].as_str().unwrap().split_once('.').unwrap();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({ "taskId": id, "inputResponses": {} });
        let refused = wire.ask(method, modern(params, json!({ "elicitation": {} })));
        assert_eq!(refused["error"]["code"], -32021, "{refused:#}");
        let missing = ask(&mut wire, method, json!({ "taskId": NOWHERE, "inputResponses": {} }));
        assert_eq!(missing["error"]["code"], -32602, "{missing:#}");
    }
    for method in ["tasks/list", "tasks/result"] {
        let missing = ask(&mut wire, method, json!({ "taskId": id }));
        assert_eq!(missing["error"]["code"], -32601, "{missing:#}");
    }
    // A client that cannot be asked does not see or answer questions.
    let capabilities = json!({ "extensions": { EXTENSION: {} } });
    let answer = json!({ "action": "accept", "content": { "value": "yes" } });
    let keys = get(&mut wire, id)["inputRequests"].clone();
    let responses: serde_json::Map<String, Value> =
        keys.as_object().unwrap().keys().map(|key| (key.clone(), answer.clone())).collect();
    let params = json!({ "taskId": id, "inputResponses": responses });
    wire.ask("tasks/update", modern(params, capabilities.clone()));
    let task = wire.ask("tasks/get", modern(json!({ "taskId": id }), capabilities))["result"].take();
    assert_eq!((&task["status"], task.get("inputRequests")), (&json!("working"), None), "{task:#}");
    assert_eq!(get(&mut wire, id)["inputRequests"], keys);
}

#[test]
fn servers_without_a_data_directory_have_no_tasks() {
    let mut wire = Wire::silent(["--toolset", "interpreter"]);
    let hello = initialize(&mut wire, LEGACY);
    assert_eq!((hello["capabilities"].get("tasks"), hello["capabilities"].get("extensions")), (None, None));
    let params = json!({ "name": "execute_code", "arguments": { "code": "6 * 7" }, "task": {} });
    assert_eq!(fields(&wire.ask("tools/call", params)["result"])["result"], "42");
    for method in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"] {
        let missing = wire.ask(method, json!({ "taskId": NOWHERE }));
        assert_eq!(missing["error"]["code"], -32601, "{missing:#}");
    }
    let tools = wire.ask("tools/list", json!({}));
    assert!(!tools.to_string().contains("taskSupport"), "{tools:#}");
    // An earlier version of the protocol has no tasks either.
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let hello = initialize(&mut wire, "2025-06-18");
    assert_eq!((hello["capabilities"].get("tasks"), hello["capabilities"].get("extensions")), (None, None));
    let params = json!({ "name": "execute_code", "arguments": { "code": "6 * 7" }, "task": {} });
    assert_eq!(fields(&wire.ask("tools/call", params)["result"])["result"], "42");
    assert_eq!(wire.ask("tasks/get", json!({ "taskId": NOWHERE }))["error"]["code"], -32601);
}

#[test]
fn stateless_http_has_tasks_of_the_modern_era_only() {
    let fixture = Fixture::new(&[]);
    let server = Listening::start("streamable-http-stateless", fixture.options());
    let ask = |method: &str, params: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (_, text) = server.post(&[("MCP-Protocol-Version", LEGACY)], &message);
        text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let params = json!({ "name": "execute_code", "arguments": { "code": "6 * 7" }, "task": {} });
    assert_eq!(fields(&ask("tools/call", params)["result"])["result"], "42");
    for tool in ask("tools/list", json!({}))["result"]["tools"].as_array().unwrap() {
        assert_eq!((tool.get("execution"), tool.get("_meta")), (None, None), "{tool:#}");
    }
    let client = Client::over_http(ProtocolEra::Modern, &server.url, &["yes"]);
    client.run(async |server| {
        let (_, structured) = call(&server, "execute_code", json!({ "code": APPEND })).await;
        assert_eq!(structured["result"], "'call 1'", "{structured:#}");
    });
}

/// A client of streamable HTTP with a token.
struct HttpClient<'a> {
    server: &'a Listening,
    token: &'a str,
    session: Option<String>,
}

impl<'a> HttpClient<'a> {
    fn new(server: &'a Listening, token: &'a str) -> Self {
        let mut client = Self { server, token, session: None };
        let capabilities = json!({ "elicitation": {} });
        let (hello, session) = client.send(
            "initialize",
            json!({ "protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": { "name": "t", "version": "1" } }),
        );
        assert!(hello["result"]["capabilities"]["tasks"].is_object(), "{hello:#}");
        client.session = session;
        client
    }

    fn send(&self, method: &str, params: Value) -> (Value, Option<String>) {
        let authorization = format!("Bearer {}", self.token);
        let mut headers = vec![("Authorization", authorization.as_str())];
        headers.extend(self.session.as_deref().map(|session| ("Mcp-Session-Id", session)));
        let message = json!({ "jsonrpc": "2.0", "id": 5, "method": method, "params": params });
        let (status, text) = self.server.post(&headers, &message);
        assert_eq!(status, 200, "{text}");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).map(str::to_owned);
        let messages = body.lines().filter_map(|line| line.strip_prefix("data: "));
        let mut messages = messages.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        (messages.find(|message| message["id"] == 5).unwrap_or_else(|| panic!("{text}")), session)
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        self.send(method, params).0
    }
}

#[test]
fn tasks_of_other_clients_do_not_exist() {
    let tokens = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tokens.path(), "alice\nbob\n").unwrap();
    let fixture = Fixture::new(&["--auth-token-file", tokens.path().to_str().unwrap()]);
    let server = Listening::start("streamable-http", fixture.options());
    let [alice, bob] = ["alice", "bob"].map(|token| HttpClient::new(&server, token));
    let params = json!({ "name": "execute_code", "arguments": { "code": APPEND }, "task": {} });
    let task = alice.ask("tools/call", params)["result"]["task"].take();
    let id = task["taskId"].as_str().unwrap();
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let [found, missing] = [id, NOWHERE].map(|id| bob.ask(method, json!({ "taskId": id })));
        assert_eq!(found["error"]["code"], -32602, "{found:#}");
        assert_eq!(found, missing);
    }
    let listed = |client: &HttpClient<'_>| client.ask("tasks/list", json!({}))["result"]["tasks"].take();
    assert_eq!(listed(&bob), json!([]));
    assert_eq!(listed(&alice)[0]["taskId"], id);
    until("input_required", || alice.ask("tasks/get", json!({ "taskId": id }))["result"].take());
    // In another session of streamable HTTP, too.
    let again = HttpClient::new(&server, "alice");
    let cancelled = again.ask("tasks/cancel", json!({ "taskId": id }));
    assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled:#}");
    assert_eq!(fixture.calls(), [""; 0]);
}
