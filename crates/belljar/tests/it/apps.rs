//! Panels for results in clients with MCP Apps: what they declare, what they get, and that others get nothing of it.

use serde_json::{Value, json};

use crate::serve::http::Listening;
use crate::sessions::durable::kill;
use crate::tool_client::tool_server;
use crate::wire::{Wire, text};

const EXTENSION: &str = "io.modelcontextprotocol/ui";
const MIME_TYPE: &str = "text/html;profile=mcp-app";
const URI: &str = "ui://belljar/cell";
const PANEL: &str = "io.github.belljar/panel";
const MODERN: &str = "2026-07-28";
/// Code with output, a value with HTML, an image, a file and an error.
const CODE: &str = "\
import sys
print('to stdout')
print('to stderr', file=sys.stderr)
class Table:
    def __repr__(self): return 'a table'
    def _repr_html_(self): return '<table><tr><th>n</th></tr><tr><td>1</td></tr></table>'
class Picture:
    def _repr_svg_(self): return '<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\"></svg>'
display(Table(), Picture())
open('made.txt', 'w').write('made')
1 / 0";

fn apps() -> Value {
    json!({ "elicitation": {}, "extensions": { EXTENSION: { "mimeTypes": [MIME_TYPE] } } })
}

/// Returns the capabilities of clients that do not show panels.
fn others() -> [Value; 3] {
    let of = |settings: Value| json!({ "extensions": { EXTENSION: settings } });
    [json!({}), of(json!({})), of(json!({ "mimeTypes": ["text/html"] }))]
}

/// Returns parameters of a request of the modern era, from a client with these capabilities.
fn modern(mut params: Value, capabilities: &Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    params
}

fn find<'a>(tools: &'a Value, name: &str) -> &'a Value {
    let tools = tools["tools"].as_array().unwrap();
    tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{tools:#?}"))
}

/// Checks the list of tools, the page and the capabilities for a client that shows panels.
fn check_linked(capabilities: &Value, tools: &Value, listed: &Value, page: &Value) {
    assert_eq!(capabilities["extensions"][EXTENSION], json!({}), "{capabilities:#}");
    assert!(capabilities["resources"].is_object(), "{capabilities:#}");
    let linked = json!({ "resourceUri": URI, "visibility": ["model"] });
    assert_eq!(find(tools, "run_python_code")["_meta"]["ui"], linked);
    // A panel can call none of these.
    for tool in tools["tools"].as_array().unwrap() {
        assert_eq!(tool["_meta"]["ui"]["visibility"], json!(["model"]), "{tool:#}");
    }
    let resource = &listed["resources"][0];
    assert_eq!((&resource["uri"], &resource["mimeType"]), (&json!(URI), &json!(MIME_TYPE)));
    let content = &page["contents"][0];
    assert_eq!((&content["uri"], &content["mimeType"]), (&json!(URI), &json!(MIME_TYPE)));
    let csp = json!({ "connectDomains": [], "resourceDomains": [], "frameDomains": [], "baseUriDomains": [] });
    let settings = json!({ "csp": csp, "permissions": {}, "prefersBorder": true });
    assert_eq!((&content["_meta"]["ui"], &resource["_meta"]["ui"]), (&settings, &settings));
    let html = content["text"].as_str().unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains("default-src 'none'; script-src 'sha256-"), "{html}");
}

/// Checks the panel of `CODE`, and that the rest of the result is that of other clients.
fn check_panel(shown: &Value, plain: &Value) {
    let panel = &shown["_meta"][PANEL];
    assert_eq!(panel["state"], "error", "{panel:#}");
    let outputs = panel["outputs"].as_array().unwrap();
    assert_eq!(outputs[0], json!({ "type": "stream", "name": "stdout", "text": "to stdout\n" }));
    assert_eq!(outputs[1], json!({ "type": "stream", "name": "stderr", "text": "to stderr\n" }));
    let table = &outputs[2]["data"];
    assert_eq!(table["text/plain"], "a table", "{panel:#}");
    assert!(table["text/html"].as_str().unwrap().starts_with("<table>"), "{panel:#}");
    assert_eq!(outputs[3]["image"], 0, "{panel:#}");
    assert_eq!(panel["error"]["name"], "ZeroDivisionError");
    assert!(panel["files"].as_array().unwrap().iter().any(|file| file["name"] == "made.txt"), "{panel:#}");
    assert!(panel["files"][0]["uri"].as_str().unwrap().starts_with("kernel://"), "{panel:#}");
    assert!(plain.get("_meta").is_none(), "{plain:#}");
    // The sessions have other names.
    let common = |result: &Value| {
        let mut fields: Value = serde_json::from_str(&text(result)).unwrap();
        let session = fields["session_info"]["session_id"].as_str().unwrap().to_owned();
        fields["session_info"] = Value::Null;
        let content: Value = serde_json::from_str(&result["content"].to_string().replace(&session, "ID")).unwrap();
        let names: Vec<&String> = result.as_object().unwrap().keys().filter(|name| *name != "_meta").collect();
        (fields.to_string().replace(&session, "ID"), content[1].clone(), names.into_iter().cloned().collect::<Vec<_>>())
    };
    assert_eq!(common(shown), common(plain));
}

fn cell(code: &str) -> Value {
    json!({ "name": "execute_code", "arguments": { "code": code } })
}

#[test]
fn clients_of_the_legacy_era_declare_panels_once() {
    let options = ["--toolset", "all"];
    let mut wire = Wire::silent(options);
    let client = json!({ "name": "tests", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": apps(), "clientInfo": client });
    let begun = wire.ask("initialize", hello);
    wire.notify("notifications/initialized", json!({}));
    let mut ask = |method: &str, params: Value| wire.ask(method, params)["result"].take();
    let (tools, listed) = (ask("tools/list", json!({})), ask("resources/list", json!({})));
    let page = ask("resources/read", json!({ "uri": URI }));
    check_linked(&begun["result"]["capabilities"], &tools, &listed, &page);
    assert_eq!(find(&tools, "execute_code")["_meta"]["ui"]["resourceUri"], URI);
    assert_eq!(find(&tools, "clear_session")["_meta"]["ui"].get("resourceUri"), None);
    let shown = ask("tools/call", cell(CODE));
    let run = ask("tools/call", json!({ "name": "run_python_code", "arguments": { "python_code": "print(1)\n2" } }));
    let panel = &run["_meta"][PANEL];
    assert_eq!(panel["outputs"][0], json!({ "type": "stream", "name": "stdout", "text": "1\n" }), "{panel:#}");
    assert_eq!(panel["outputs"][1], json!({ "type": "result", "data": { "text/plain": "2" } }), "{panel:#}");

    for capabilities in others() {
        let mut wire = Wire::start_with(options, capabilities.clone());
        let tools = wire.ask("tools/list", json!({}));
        assert!(!tools.to_string().contains("\"ui\""), "{capabilities}: {tools:#}");
        assert_eq!(wire.ask("resources/list", json!({}))["result"]["resources"], json!([]));
        assert!(wire.ask("resources/read", json!({ "uri": URI }))["error"].is_object());
        check_panel(&shown, &wire.tool("execute_code", json!({ "code": CODE })));
        assert!(wire.call(json!({ "python_code": "1" })).get("_meta").is_none());
    }
}

#[test]
fn clients_of_the_modern_era_declare_panels_in_each_request() {
    let mut wire = Wire::silent(["--toolset", "all"]);
    let mut ask = |method: &str, params: Value, client: &Value| {
        let mut answer = wire.ask(method, modern(params, client));
        if answer["error"].is_object() { answer["error"].take() } else { answer["result"].take() }
    };
    let found = ask("server/discover", json!({}), &apps());
    let (tools, listed) = (ask("tools/list", json!({}), &apps()), ask("resources/list", json!({}), &apps()));
    let page = ask("resources/read", json!({ "uri": URI }), &apps());
    check_linked(&found["capabilities"], &tools, &listed, &page);
    let shown = ask("tools/call", cell(CODE), &apps());
    for capabilities in others() {
        let found = ask("server/discover", json!({}), &capabilities);
        assert!(found["capabilities"]["extensions"].get(EXTENSION).is_none(), "{found:#}");
        assert!(!ask("tools/list", json!({}), &capabilities).to_string().contains("\"ui\""));
        assert!(ask("resources/read", json!({ "uri": URI }), &capabilities)["code"].is_number());
        check_panel(&shown, &without_result_meta(ask("tools/call", cell(CODE), &capabilities)));
    }
}

/// Returns a result without the server's name, which results of the modern era have.
fn without_result_meta(mut result: Value) -> Value {
    if let Some(meta) = result.get_mut("_meta").and_then(Value::as_object_mut) {
        assert!(meta.keys().all(|name| name == "io.modelcontextprotocol/serverInfo"), "{meta:#?}");
        result.as_object_mut().unwrap().remove("_meta");
    }
    result
}

#[test]
fn panels_do_not_take_sessions() {
    let mut wire = Wire::start_with(["--toolset", "python", "--no-install"], apps());
    assert_eq!(wire.ask("resources/list", json!({}))["result"]["resources"].as_array().unwrap().len(), 1);
    let page = wire.ask("resources/read", json!({ "uri": URI }));
    assert_eq!(page["result"]["contents"][0]["mimeType"], MIME_TYPE);
    assert!(wire.ask("resources/read", json!({ "uri": "ui://belljar/other" }))["error"].is_object());
    let panel = wire.call(json!({ "python_code": "raise ValueError('<b>')" }))["_meta"][PANEL].take();
    assert_eq!(panel["state"], "error");
    assert!(panel["error"]["message"].as_str().unwrap().contains("ValueError: <b>"), "{panel:#}");
}

#[test]
fn panels_are_served_over_http() {
    let server = Listening::start("streamable-http", ["--toolset", "all"]);
    let headers = |method: &'static str, name: &'static str| {
        [("MCP-Protocol-Version", MODERN), ("Mcp-Method", method), ("Mcp-Name", name)]
    };
    let ask = |method: &'static str, name: &'static str, params: Value, client: &Value| {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": modern(params, client) });
        let headers = headers(method, name);
        let count = if name.is_empty() { 2 } else { 3 };
        server.answer(&headers[..count], &message)["result"].take()
    };
    let found = ask("server/discover", "", json!({}), &apps());
    let tools = ask("tools/list", "", json!({}), &apps());
    let listed = ask("resources/list", "", json!({}), &apps());
    let page = ask("resources/read", URI, json!({ "uri": URI }), &apps());
    check_linked(&found["capabilities"], &tools, &listed, &page);
    let shown = ask("tools/call", "execute_code", cell(CODE), &apps());
    check_panel(&shown, &without_result_meta(ask("tools/call", "execute_code", cell(CODE), &json!({}))));
    // In the legacy era the client declares panels once for its session.
    let client = json!({ "name": "tests", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": apps(), "clientInfo": client });
    let (_, text) = server.post(&[], &json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }));
    let id = text.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(server.post(&[("Mcp-Session-Id", id)], &ready).0, 202);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} });
    let tools = server.answer(&[("Mcp-Session-Id", id)], &list)["result"].take();
    assert_eq!(find(&tools, "execute_code")["_meta"]["ui"]["resourceUri"], URI);
}

#[test]
fn results_of_runs_have_panels_for_clients_that_show_them() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let mut wire = Wire::silent(["--toolset", "all", "--data-dir", &data]);
    for shows_panels in [true, false] {
        let mut call = cell("line = input('Line? ')\nprint(line)");
        let asked = wire.ask("tools/call", modern(call.clone(), &apps()))["result"].take();
        assert_eq!(asked["resultType"], "input_required", "{asked:#}");
        call["requestState"] = asked["requestState"].clone();
        let name = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        call["inputResponses"] = json!({ name: { "action": "accept", "content": { "value": "given" } } });
        let client = if shows_panels { apps() } else { json!({ "elicitation": {} }) };
        let ended = wire.ask("tools/call", modern(call, &client))["result"].take();
        assert!(text(&ended).contains("given"), "{ended:#}");
        let panel = &ended["_meta"][PANEL];
        assert_eq!(panel["state"] == "ok", shows_panels, "{ended:#}");
    }
}

/// Code whose call needs the user's approval.
const CALL: &str =
    "from tools import t\ntry:\n    print(await t.append(text='a'))\nexcept Exception as error:\n    print(error)";

/// A server whose code calls a tool that needs approval, for a client that shows panels and cannot be asked.
struct Approvals {
    wire: Wire,
    folder: tempfile::TempDir,
}

impl Approvals {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { wire: Self::wire(&folder), folder }
    }

    fn wire(folder: &tempfile::TempDir) -> Wire {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let server = format!("{} '{}'", tool_server("t", "recording"), path("calls"));
        let panels = json!({ "extensions": { EXTENSION: { "mimeTypes": [MIME_TYPE] } } });
        Wire::start_with(["--toolset", "all", "--data-dir", &path("data"), &server], panels)
    }

    /// Kills the server, and starts one with the same data directory.
    fn restart(self) -> Self {
        let Self { wire, folder } = self;
        kill(wire);
        Self { wire: Self::wire(&folder), folder }
    }

    /// Runs code, and returns the arguments of an answer to its question without the decision.
    fn pause(&mut self, tool: &str, code: &Value) -> Value {
        let paused = self.wire.tool(tool, code.clone());
        let fields: Value = serde_json::from_str(&text(&paused)).unwrap();
        assert_eq!(fields["status"], "paused", "{paused:#}");
        assert!(fields["hint"].as_str().unwrap().contains("in the panel"), "{fields:#}");
        let panel = &paused["_meta"][PANEL];
        assert_eq!((&panel["state"], &panel["run_id"]), (&json!("waiting"), &fields["run_id"]));
        let [question] = &panel["questions"].as_array().unwrap()[..] else { panic!("not one question: {panel:#}") };
        assert!(question["message"].as_str().unwrap().contains("append"), "{question:#}");
        // The model reads all but the `_meta`.
        let token = question["token"].as_str().unwrap();
        assert!(token.len() > 40 && !paused["content"].to_string().contains(token), "{paused:#}");
        json!({ "run_id": panel["run_id"], "question": question["number"], "token": token })
    }

    fn answer(&mut self, question: &Value, decision: &str) -> Value {
        let mut arguments = question.clone();
        arguments["decision"] = decision.into();
        self.wire.tool("answer_question", arguments)
    }

    fn resume(&mut self, question: &Value) -> Value {
        self.wire.tool("resume_run", json!({ "run_id": question["run_id"] }))
    }

    fn calls(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default()
    }
}

#[test]
fn user_decides_in_the_panel() {
    let mut approvals = Approvals::start();
    let tools = approvals.wire.ask("tools/list", json!({}))["result"].take();
    assert_eq!(find(&tools, "answer_question")["_meta"]["ui"], json!({ "visibility": ["app"] }));
    for (tool, code) in [("execute_code", "code"), ("run_python_code", "python_code")] {
        let question = approvals.pause(tool, &json!({ code: CALL }));
        let answered = approvals.answer(&question, "approve");
        assert_eq!(answered["_meta"][PANEL]["state"], "ok", "{answered:#}");
        assert!(answered["_meta"][PANEL]["outputs"].to_string().contains("a"), "{answered:#}");
        // The model gets the result, too.
        assert_eq!(text(&approvals.resume(&question)), text(&answered));
        let denied = approvals.pause(tool, &json!({ code: CALL }));
        let answered = approvals.answer(&denied, "deny");
        assert!(text(&answered).contains("denied"), "{answered:#}");
    }
    assert_eq!(approvals.calls(), "append a\nappend a\n");
    // An approval for the session is for its next cell, too.
    let code = json!({ "code": "from tools import t\nprint(await t.append(text='b'), await t.append(text='c'))" });
    let question = approvals.pause("execute_code", &code);
    let answered = approvals.answer(&question, "approve-session");
    let fields: Value = serde_json::from_str(&text(&answered)).unwrap();
    assert_eq!(fields["success"], true, "{answered:#}");
    let again = json!({ "code": CALL, "session_id": fields["session_info"]["session_id"] });
    assert_eq!(approvals.wire.tool("execute_code", again)["_meta"][PANEL]["state"], "ok");
    assert_eq!(approvals.calls().lines().count(), 5);
}

#[test]
fn question_after_a_question_is_asked_in_the_panel() {
    let mut approvals = Approvals::start();
    let code = "from tools import t\nfor text in 'ab': await t.append(text=text)\n'both'";
    let first = approvals.pause("execute_code", &json!({ "code": code }));
    let next = approvals.answer(&first, "approve")["_meta"][PANEL].take();
    assert_eq!((&next["state"], &next["run_id"]), (&json!("waiting"), &first["run_id"]), "{next:#}");
    let question = &next["questions"][0];
    let second = json!({ "run_id": first["run_id"], "question": question["number"], "token": question["token"] });
    assert_ne!(second["token"], first["token"]);
    assert_eq!(approvals.answer(&first, "approve")["isError"], true);
    let mut approvals = approvals.restart();
    // The answer wakes the run, also in a server that was started since.
    assert!(text(&approvals.answer(&second, "approve")).contains("both"));
    assert_eq!(approvals.calls(), "append a\nappend b\n");
}

#[test]
fn only_the_panel_of_a_question_answers_it() {
    let mut approvals = Approvals::start();
    let question = approvals.pause("execute_code", &json!({ "code": CALL }));
    let other = approvals.pause("execute_code", &json!({ "code": CALL }));
    let token = question["token"].as_str().unwrap();
    let forged = [
        ("token", json!("")),
        ("token", json!("A".repeat(token.len()))),
        ("token", json!(&token[..token.len() - 1])),
        ("token", json!(format!("{token}A"))),
        ("token", other["token"].clone()),
        ("token", json!(null)),
        ("question", json!(999_999)),
        ("question", json!(u64::MAX)),
        ("question", json!(-1)),
        ("run_id", other["run_id"].clone()),
        ("run_id", json!("W-zFjI5p-ns1Qiu9")),
        ("run_id", json!("../key")),
    ];
    for (field, value) in forged {
        let mut changed = question.clone();
        changed[field] = value.clone();
        let answered = approvals.answer(&changed, "approve");
        assert_eq!(answered["isError"], true, "{field} {value}: {answered:#}");
    }
    assert_eq!(approvals.answer(&question, "always")["isError"], true);
    // A client without panels neither sees the tool nor a token, and cannot call it.
    let mut approvals = approvals.restart();
    let call = |name: &str, arguments: Value| modern(json!({ "name": name, "arguments": arguments }), &json!({}));
    let mut answer = question.clone();
    answer["decision"] = "approve".into();
    let refused = approvals.wire.ask("tools/call", call("answer_question", answer));
    assert!(refused["error"].is_object() || refused["result"]["isError"] == true, "{refused:#}");
    let resumed = approvals.wire.ask("tools/call", call("resume_run", json!({ "run_id": question["run_id"] })));
    assert!(!resumed.to_string().contains(token), "{resumed:#}");
    assert!(text(&resumed["result"]).contains("paused"), "{resumed:#}");
    assert_eq!(approvals.calls(), "");
    // The question is still open for its panel.
    assert!(text(&approvals.answer(&question, "deny")).contains("denied"));
}
