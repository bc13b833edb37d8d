//! Servers that list names, descriptions and schemas against their client.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::harness::{Session, error, one, runtime};

/// Checks with Python's own parser that a text has only definitions, and returns the names of the functions.
fn functions(source: &str) -> Vec<String> {
    const CHECK: &str = "
import ast, json, sys
tree = ast.parse(sys.stdin.read())
names = []
for node in tree.body:
    if isinstance(node, ast.AsyncFunctionDef):
        assert len(node.body) == 1 and isinstance(node.body[0], ast.Expr), ast.dump(node)
        assert isinstance(node.body[0].value, ast.Constant), ast.dump(node)
        assert not any(isinstance(part, (ast.Call, ast.Attribute)) for part in ast.walk(node)), ast.dump(node)
        names.append(node.name)
    elif isinstance(node, ast.ClassDef):
        assert all(isinstance(part, ast.AnnAssign) and part.value is None for part in node.body), ast.dump(node)
    elif isinstance(node, ast.Assign):
        assert node.value.func.id == 'TypedDict', ast.dump(node)
    else:
        assert isinstance(node, ast.ImportFrom) and node.module == 'typing', ast.dump(node)
compile(tree, 'stubs', 'exec')
json.dump(names, sys.stdout)
";
    let mut python = Command::new("python3");
    let mut child = python.args(["-c", CHECK]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{source}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn description_cannot_leave_its_docstring() {
    let session = Session::with_mode("hostile");
    let stubs = runtime().block_on(session.tools.stubs());
    let names = functions(&stubs);
    let (first, rest) = names.split_first().unwrap();
    assert!(first.starts_with("x___") && first.ends_with('_'), "{first}");
    let expected = ["_evil__31m_", "tool__class__", "import_", "resources_2", "a_b_2", "a_b", "quotes"];
    assert_eq!(rest, expected, "{stubs}");
    let is_hidden = |c: char| c.is_control() && c != '\n' || ('\u{2028}'..='\u{202e}').contains(&c);
    assert!(!stubs.contains(is_hidden), "{stubs:?}");
}

#[test]
fn every_hostile_tool_can_be_called() {
    let session = Session::with_mode("hostile");
    let run = session.run();
    let names = run.operate("names", json!(["t"])).unwrap();
    for name in names.as_array().unwrap() {
        let name = name.as_str().unwrap();
        let function = run.operate("function", json!(["t", name])).unwrap();
        let text = function["doc"].as_str().unwrap();
        assert!(!text.contains(['\0', '\u{1b}', '\u{202e}', '\u{2028}']), "{text:?}");
        if function["parameters"].as_array().unwrap().iter().all(|parameter| !parameter["default"].is_null()) {
            assert!(one(run.call(name, json!({}))).is_array(), "{name}");
        }
    }
}

#[test]
fn thousand_tools_are_listed_and_searched() {
    let session = Session::with_mode("many");
    let run = session.run();
    assert_eq!(run.operate("names", json!(["t"])).unwrap().as_array().unwrap().len(), 1000);
    let found = run.operate("search", json!(["thing 777", 1, "names"])).unwrap();
    assert_eq!(found, json!("t.tool_777\n# 999 more tools match.\n"));
    assert_eq!(functions(&runtime().block_on(session.tools.stubs())).len(), 1000);
}

#[test]
fn schema_of_ten_megabytes_is_cut_off() {
    let session = Session::with_mode("large");
    let stubs = runtime().block_on(session.tools.stubs());
    assert_eq!(functions(&stubs), ["huge"]);
    assert!(stubs.len() < 20_000, "{}", stubs.len());
    // It is too large to be checked here: the server gets the arguments.
    assert_eq!(one(session.run().call("huge", json!({"wide": "y"}))).as_array().unwrap()[0], json!("huge"));
}

#[test]
fn response_of_a_hundred_megabytes_ends_the_connection() {
    let session = Session::plain();
    let run = session.run();
    let (class, message) = error(run.call("large", json!({"size": 100_000_000})));
    assert_eq!(
        (class.as_str(), message.as_str()),
        ("tools.ToolUnavailable", "server `t` is unavailable: the connection was closed")
    );
    // The next call connects again.
    assert_eq!(one(run.call("add", json!({"a": 1}))), json!(2));
}

#[test]
fn notifications_of_other_tools_are_counted() {
    let session = Session::with_mode("changing");
    let run = session.run();
    let mut changes = session.tools.changes();
    let before = run.operate("describe", json!([["t.note"]])).unwrap();
    assert!(!changes.has_changed().unwrap());
    run.call("change", json!({})).unwrap();
    let limit = std::time::Duration::from_secs(60);
    let changed = runtime().block_on(async { tokio::time::timeout(limit, changes.changed()).await });
    changed.unwrap().unwrap();
    let after = run.operate("describe", json!([["t.note"]])).unwrap();
    let (before, after) = (before.as_str().unwrap(), after.as_str().unwrap());
    assert!(before.contains("Writes a note.") && after.contains("Deletes everything."), "{before}\n{after}");
    // Reading the list that was announced is not another change.
    assert!(!changes.has_changed().unwrap());
}
