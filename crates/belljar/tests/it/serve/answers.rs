//! The answers of `mcp-run-python` 0.0.x to the same calls, and deliberate differences.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::wire::{Wire, text};

/// The other server's answer.
#[derive(Deserialize)]
struct Recorded {
    arguments: Value,
    xml: Option<String>,
    json: Option<String>,
}

/// Belljar's answer where it differs, and the reason. An `…` matches any text.
#[derive(Deserialize)]
struct Difference {
    why: String,
    xml: String,
    json: String,
}

fn recorded() -> BTreeMap<String, Recorded> {
    serde_json::from_str(include_str!("../../serve/mcp_run_python.json")).unwrap()
}

fn differences() -> BTreeMap<String, Difference> {
    serde_json::from_str(include_str!("../../serve/differences.json")).unwrap()
}

/// Returns whether `text` is `wanted`, in which `…` matches any text.
fn is_like(text: &str, wanted: &str) -> bool {
    let mut parts = wanted.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or("")) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn recorded_calls_have_recorded_or_reviewed_answers() {
    // Without packages, since the recorded answers include imports of missing ones.
    let mut xml = Wire::start(["--no-install"]);
    let mut json = Wire::start(["--no-install", "--return-mode", "json"]);
    let mut differences = differences();
    let mut wrong = Vec::new();
    for (name, case) in recorded() {
        let got = [xml.call(case.arguments.clone()), json.call(case.arguments.clone())].map(|result| text(&result));
        let wanted = match differences.remove(&name) {
            Some(difference) => {
                assert!(difference.why.len() > 10, "{name}: say why");
                let same = case.xml.as_ref() == Some(&got[0]) && case.json.as_ref() == Some(&got[1]);
                assert!(!same, "{name}: this is no difference any more");
                [difference.xml, difference.json]
            }
            None => [case.xml, case.json].map(|text| text.unwrap_or_else(|| panic!("{name}: no answer is known"))),
        };
        for (got, wanted) in got.iter().zip(&wanted) {
            if !is_like(got, wanted) {
                wrong.push(format!("{name}\n--- wanted\n{wanted}\n--- got\n{got}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(differences.is_empty(), "differences without a case: {:?}", differences.keys());
}

#[test]
fn structured_content_equals_the_text() {
    for mode in ["xml", "json"] {
        let mut wire = Wire::start(["--no-install", "--return-mode", mode]);
        let result = wire.call(json!({ "python_code": "print('a')\nprint('b', end='')\n{'x': [1, 2.0]}" }));
        assert_eq!(
            result["structuredContent"],
            json!({ "status": "success", "output": ["a", "b"], "return_value": { "x": [1, 2.0] } }),
            "{mode}"
        );
        let result = wire.call(json!({ "python_code": "1 / 0" }));
        assert_eq!(result["structuredContent"]["status"], "run-error");
        assert!(result["structuredContent"]["error"].as_str().unwrap().contains("ZeroDivisionError"), "{result}");
        assert_ne!(result["isError"], true, "a failing program is an answer of the tool, not a failure of it");
    }
}

#[test]
fn big_integers_keep_their_digits() {
    let mut wire = Wire::start(["--no-install"]);
    let result = wire.call(json!({ "python_code": "[2 ** 63, 2 ** 64, -(10 ** 30), 1.5]" }));
    assert!(
        text(&result).contains("18446744073709551616") && text(&result).contains("-1000000000000000000000000000000")
    );
    let wanted =
        json!([9_223_372_036_854_775_808_u64, "18446744073709551616", "-1000000000000000000000000000000", 1.5]);
    assert_eq!(result["structuredContent"]["return_value"], wanted, "{result}");
}

#[test]
fn tool_has_input_and_output_schemas() {
    let mut wire = Wire::start([]);
    let tools = wire.ask("tools/list", json!({}))["result"]["tools"].take();
    assert_eq!(tools.as_array().map(Vec::len), Some(1), "{tools}");
    let tool = &tools[0];
    assert_eq!(tool["name"], "run_python_code");
    assert_eq!(tool["inputSchema"]["required"], json!(["python_code"]));
    assert_eq!(tool["inputSchema"]["properties"]["python_code"]["type"], "string");
    assert_eq!(tool["outputSchema"]["type"], "object");
    assert_eq!(tool["annotations"]["destructiveHint"], false);
    assert!(tool["icons"][0]["src"].as_str().unwrap().starts_with("data:image/svg+xml;base64,"), "{tool}");
    assert!(tool["title"].is_string() && tool["description"].as_str().unwrap().contains("PEP 723"), "{tool}");
}

#[test]
fn description_states_the_settings_of_calls() {
    let description = |options: &[&str]| {
        let mut wire = Wire::start(options.iter().copied());
        let listed = wire.ask("tools/list", json!({}));
        let text = listed["result"]["tools"][0]["description"].as_str().unwrap().to_owned();
        assert!(text.len() < 1500, "{}: {text}", text.len());
        text
    };
    let usual = description(&[]);
    assert!(usual.contains("Limits: 300 s, 2 GB of memory") && usual.contains("PEP 723"), "{usual}");
    assert!(usual.contains("in WebAssembly: no network, one thread"), "{usual}");
    let changed = description(&["--timeout", "5", "--memory", "512MB", "--max-output", "1MB", "--max-answer", "10KB"]);
    assert!(
        changed.contains("Limits: 5 s, 512 MB of memory, 512 MB of files, 1 MB of output, of which 10 KB are shown")
    );
    let few = description(&["--allow-packages", "numpy,pydantic*", "--deps", "rich"]);
    assert!(few.contains("but only: numpy, pydantic*") && few.contains("Installed: rich."), "{few}");
    assert!(description(&["--no-install"]).contains("No packages can be installed"));
}

#[test]
fn long_answers_are_cut_in_the_middle() {
    let mut wire = Wire::start(["--no-install"]);
    let code = "for n in range(100_000): print('line', n)\nlist(range(100_000))";
    let result = wire.call(json!({ "python_code": code }));
    let answer = text(&result);
    assert!(answer.len() < 25_500, "{}", answer.len());
    assert!(answer.contains("line 0\n") && answer.contains("line 99999\n"), "{answer}");
    assert_eq!(answer.matches("bytes are left out: print less").count(), 2, "{answer}");
    assert!(result["structuredContent"].to_string().len() < 30_000);
    let mut wire = Wire::start(["--no-install", "--max-answer", "2MB"]);
    assert!(wire.run(code).len() > 1_000_000);
}

#[test]
fn wrong_arguments_are_tool_errors_with_the_reason() {
    let mut wire = Wire::start(["--no-install"]);
    for (arguments, wanted) in [
        (json!({}), "python_code"),
        (json!({ "python_code": 7 }), "python_code"),
        (json!({ "python_code": "1", "global_variables": [1] }), "global_variables"),
        (json!({ "python_code": "1", "dependencies": "six" }), "dependencies"),
        (json!({ "python_code": "1", "dependencies": ["git+https://example.org/x"] }), "dependencies"),
        (json!({ "python_code": "1", "timeout": -1 }), "timeout"),
    ] {
        let result = wire.call(arguments.clone());
        assert_eq!(result["isError"], true, "{arguments}: {result}");
        assert!(text(&result).contains(wanted), "{arguments}: {result}");
    }
    let answer = wire.ask("tools/call", json!({ "name": "run_ruby_code", "arguments": {} }));
    assert!(answer["error"]["message"].as_str().unwrap().contains("run_ruby_code"), "{answer}");
}

#[test]
fn packages_are_installed_and_named() {
    let mut wire = Wire::start([]);
    let code = "# /// script\n# dependencies = [\"six\"]\n# ///\nimport six\nsix.PY3";
    assert_eq!(
        wire.run(code),
        "<status>success</status>\n<dependencies>[\"six\"]</dependencies>\n<return_value>\ntrue\n</return_value>"
    );
    assert!(wire.run("import six\nsix.PY3").contains("<dependencies>[\"six\"]</dependencies>"));
    let given = wire.call(json!({ "python_code": "import six; six.PY3", "dependencies": ["six==1.16.0"] }));
    assert!(text(&given).starts_with("<status>success</status>\n<dependencies>[\"six\"]</dependencies>"), "{given}");
    let missing = wire.run("# /// script\n# dependencies = [\"no-such-package-zzz\"]\n# ///\n1");
    assert!(missing.starts_with("<status>install-error</status>") && missing.contains("<error>"), "{missing}");
    let while_running = wire.run("import micropip\nawait micropip.install('six')\nimport six\nsix.PY3");
    assert!(while_running.contains("<return_value>\ntrue"), "{while_running}");
}

#[test]
fn modules_are_imported_ahead_of_time() {
    let mut wire = Wire::start(["--no-install", "--preload", "wave,html.parser"]);
    let code = "import sys\n[name in sys.modules for name in ('wave', 'html.parser', 'turtle')]";
    assert!(wire.run(code).contains("[\n  true,\n  true,\n  false\n]"));
    let mut wire = Wire::start(["--no-install", "--preload", "antigravity_zzz"]);
    let result = wire.call(json!({ "python_code": "1" }));
    assert_eq!(result["isError"], true, "{result}");
    assert!(text(&result).contains("antigravity-zzz"), "{result}");
}

#[test]
fn images_are_content_of_their_own() {
    let mut wire = Wire::start(["--no-install"]);
    let code = "
import base64
class Dot:
    def _repr_png_(self): return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==')
    def __repr__(self): return 'a dot'
class Drawing:
    def _repr_svg_(self): return '<svg/>'
class Broken:
    def _repr_png_(self): raise ValueError
class Forged:
    def _repr_png_(self): return b'no image'
display(Drawing(), 'text', Broken, Forged())
Dot()";
    let result = wire.call(json!({ "python_code": code }));
    let shown: Vec<_> =
        result["content"].as_array().unwrap()[1..].iter().map(|part| part["mimeType"].as_str()).collect();
    assert_eq!(shown, [Some("image/svg+xml"), Some("image/png")], "{result}");
    let text = text(&result);
    assert!(
        text.contains("\"a dot\"")
            && text.contains("text\n")
            && text.contains("not shown: the data is not a file of type image/png"),
        "{text}"
    );
    assert!(result.get("structuredContent").is_none(), "{result}");
}
