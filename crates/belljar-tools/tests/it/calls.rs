//! Calls, their arguments and their results.

use serde_json::json;

use crate::harness::{Session, error, one, server};
use belljar_tools::{ApprovalMode, ToolLimits, ToolPolicy};

#[test]
fn results_become_values() {
    let session = Session::plain();
    let run = session.run();
    assert_eq!(one(run.call("add", json!({"a": 2}))), json!(3));
    assert_eq!(one(run.call("note", json!({"text": "x"}))), json!("noted x"));
    assert_eq!(one(run.call("echo", json!({"value": {"$int": [1]}}))), json!({"value": {"$dict": [["$int", [1]]]}}));
    let picture = run.call("picture", json!({})).unwrap();
    assert_eq!(picture, json!({"many": [{"value": "a picture"}, {"file": {"$bytes": 0}, "mime": "image/png"}]}));
    assert_eq!(run.call("link", json!({})).unwrap()["one"]["link"]["uri"], json!("test://note"));
    assert_eq!(run.statuses(), ["ok"; 5]);
    let log = run.run.log();
    assert_eq!((log.calls[0].server.as_str(), log.calls[0].tool.as_str()), ("t", "add"));
    assert_eq!(log.calls[0].arguments, r#"{"a":2}"#);
    assert!(log.calls[0].result_bytes > 0 && log.calls[0].duration_ms > 0.0);
}

#[test]
fn results_are_those_of_the_client() {
    use belljar_mcp_client::ToolOutput;
    let session = Session::plain();
    let run = session.run();
    let client = server("t", "plain");
    for (tool, arguments) in [
        ("add", json!({"a": 2})),
        ("note", json!({"text": "{\"a\": 1}"})),
        ("echo", json!({"value": [1, {"b": null}]})),
        ("echo", json!({"value": 0})),
    ] {
        let outcome = crate::harness::runtime().block_on(client.direct_call_tool(tool, arguments.clone())).unwrap();
        let expected = match outcome.output().unwrap() {
            ToolOutput::Text(text) => json!(text),
            ToolOutput::Json(value) => value.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(one(run.call(tool, arguments)), expected, "{tool}");
    }
}

#[test]
fn resources_are_listed_and_read() {
    let session = Session::plain();
    let run = session.run();
    assert_eq!(run.operate("resources", json!(["t"])).unwrap()[0]["uri"], json!("test://note"));
    let read = run.operate("read", json!(["t", "test://note", ""]));
    assert_eq!(one(read), json!("contents of test://note"));
}

#[test]
fn invalid_arguments_are_reported_with_the_signature() {
    let session = Session::plain();
    let run = session.run();
    let (class, message) = error(run.call("add", json!({"a": "two", "c": 3})));
    assert_eq!(class, "tools.ToolError");
    assert_eq!(
        message,
        "invalid arguments of t.add: there is no parameter `c`; a: \"two\" is not of type \"integer\"\n\
         add(*, a: int, b: int = 1) -> int"
    );
    assert!(error(run.call("add", json!({}))).1.contains("\"a\" is a required property"));
    assert_eq!(run.statuses(), ["error", "error"]);
}

#[test]
fn failed_tool_is_an_error_with_its_message() {
    let session = Session::plain();
    let run = session.run();
    let failed = error(run.call("fail", json!({"message": "no such city"})));
    assert_eq!(failed, ("tools.ToolError".into(), "no such city".into()));
    let (class, message) = error(run.call("ad", json!({})));
    assert_eq!(class, "tools.ToolError");
    assert!(message.starts_with("server `t` has no tool `ad`; it has add, echo, "), "{message}");
    assert!(error(run.operate("call", json!(["u", "x", "{}", "", false]))).1.starts_with("there is no server `u`"));
    assert_eq!(error(run.operate("function", json!(["t", "nothing"]))).0, "AttributeError");
    assert_eq!(error(run.operate("unknown", json!([]))).0, "NameError");
    assert_eq!(error(run.operate("call", json!([7]))).0, "TypeError");
}

#[test]
fn original_names_are_accepted() {
    let session = Session::plain();
    let run = session.run();
    let arguments = json!({"from": "a", "to-place": "b"});
    let called = json!(["t", "from-to", arguments.to_string(), "", true]);
    assert_eq!(one(run.operate("call", called)), json!(["from-to", arguments]));
    let function = run.operate("function", json!(["t", "from_to"])).unwrap();
    assert_eq!(function["renamed"], json!([["from_", "from"], ["to_place", "to-place"]]));
    assert_eq!(one(run.call("from_to", arguments.clone())), json!(["from-to", arguments]));
}

#[test]
fn server_that_is_down_does_not_affect_others() {
    let down = belljar_mcp_client::McpServerStdio::new("no-such-program").id("down").build();
    let policy = ToolPolicy::new(&[], &[], ApprovalMode::None).unwrap();
    let session = Session::new(&[down, server("t", "plain")], policy, ToolLimits::default());
    let run = session.run();
    let (class, message) = error(run.operate("call", json!(["down", "x", "{}", "", false])));
    assert_eq!(class, "tools.ToolUnavailable");
    // Commands are not for the code.
    assert_eq!(message, "server `down` is unavailable: its program does not exist");
    assert_eq!(one(run.call("add", json!({"a": 1}))), json!(2));
    let found = run.operate("search", json!(["add", 5, "summary"])).unwrap();
    let found = found.as_str().unwrap();
    assert!(found.starts_with("t.add(*, a: int, b: int = 1) -> int  # Adds.\n"), "{found}");
    assert!(found.contains("# down is unavailable: "), "{found}");
}

#[test]
fn server_that_ended_is_started_again() {
    let session = Session::plain();
    let run = session.run();
    assert_eq!(error(run.call("die", json!({}))).0, "tools.ToolUnavailable");
    assert_eq!(one(run.call("add", json!({"a": 1}))), json!(2));
}

#[test]
fn denied_tool_is_not_listed_and_not_called() {
    let policy = ToolPolicy::new(&[], &["t.fro*".into(), "*.add".into(), "t.resources".into()], ApprovalMode::None);
    let session = Session::new(&[server("t", "plain")], policy.unwrap(), ToolLimits::default());
    let run = session.run();
    let names = run.operate("names", json!(["t"])).unwrap();
    assert!(!names.as_array().unwrap().iter().any(|name| name == "add" || name == "from_to"), "{names}");
    for tool in ["add", "from_to", "from-to"] {
        let denied = error(run.call(tool, json!({"a": 1})));
        assert_eq!(denied, ("tools.ToolDenied".into(), format!("the policy denies `t.{tool}`")));
    }
    assert_eq!(error(run.operate("read", json!(["t", "test://note", ""]))).0, "tools.ToolDenied");
    assert_eq!(run.statuses(), ["denied"; 4]);
    assert!(!crate::harness::runtime().block_on(session.tools.stubs()).contains("def add"));
}
