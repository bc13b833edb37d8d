//! The output of `belljar config`, parsed as each client parses it.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::clients::newest;
use crate::harness::{Belljar, program};

fn printed(client: &str) -> String {
    let run = Belljar::without_cache().args(["config", client]).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(!run.stderr.is_empty(), "it says where that goes");
    run.stdout
}

/// Returns the output of a program that parses a configuration.
fn read_by(command: &mut Command, configuration: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(configuration.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{configuration}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn json_formats_have_the_entry_in_the_right_place() {
    for (client, place) in [
        ("claude-desktop", "/mcpServers/belljar"),
        ("cursor", "/mcpServers/belljar"),
        ("vscode", "/servers/belljar"),
        ("zed", "/context_servers/belljar"),
    ] {
        let value: Value = serde_json::from_str(&printed(client)).unwrap();
        let entry = value.pointer(place).unwrap_or_else(|| panic!("{client}: {value}"));
        assert_eq!((&entry["command"], &entry["args"]), (&json!(program()), &json!(["stdio"])), "{client}");
    }
}

#[test]
fn codex_reads_toml_and_goose_reads_yaml() {
    let toml = "import json, sys, tomllib; print(json.dumps(tomllib.loads(sys.stdin.read())))";
    let value = read_by(Command::new("python3").args(["-c", toml]), &printed("codex"));
    let value: Value = serde_json::from_str(&value).unwrap();
    assert_eq!(value, json!({ "mcp_servers": { "belljar": { "command": program(), "args": ["stdio"] } } }));
    let yaml = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
    let value = read_by(Command::new(newest()).args(["-c", yaml]), &printed("goose"));
    let value: Value = serde_json::from_str(&value).unwrap();
    let entry = &value["extensions"]["belljar"];
    assert_eq!(
        (&entry["cmd"], &entry["args"], &entry["type"]),
        (&json!(program()), &json!(["stdio"]), &json!("stdio"))
    );
}

#[test]
fn claude_code_is_configured_by_a_command_line() {
    let script = format!("claude() {{ printf '%s\\n' \"$@\"; }}\n{}", printed("claude-code"));
    let words = read_by(Command::new("sh").arg("-c").arg(script), "");
    assert_eq!(words.lines().collect::<Vec<_>>(), ["mcp", "add", "belljar", "--", &program(), "stdio"]);
}

#[test]
fn pydantic_ai_runs_the_code_that_is_printed() {
    // The model needs no account.
    let code = printed("pydantic-ai").replace("openai:gpt-5", "test");
    let code = format!("{code}\nprint(server.client.transport.command, *server.client.transport.args)");
    let words = read_by(Command::new(newest()).args(["-W", "ignore", "-"]), &code);
    assert_eq!(words.trim(), format!("{} stdio", program()));
}
