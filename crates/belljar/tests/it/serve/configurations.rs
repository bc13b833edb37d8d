//! The output of `belljar config`, parsed as each client parses it.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::clients::newest;
use crate::harness::{Belljar, program};

/// The arguments of a server with the default options.
const ARGUMENTS: [&str; 3] = ["stdio", "--toolset", "all"];

fn printed(client: &str) -> String {
    let run = Belljar::without_cache().args(["config", client]).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(!run.stderr.is_empty(), "the place of the configuration is printed");
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

fn toml(text: &str) -> Value {
    let script = "import json, sys, tomllib; print(json.dumps(tomllib.loads(sys.stdin.read())))";
    serde_json::from_str(&read_by(Command::new("python3").args(["-c", script]), text)).unwrap()
}

fn yaml(text: &str) -> Value {
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
    serde_json::from_str(&read_by(Command::new(newest()).args(["-c", script]), text)).unwrap()
}

#[test]
fn json_formats_have_the_entry_in_the_right_place() {
    for (client, place) in [
        ("claude-desktop", "/mcpServers/belljar"),
        ("cursor", "/mcpServers/belljar"),
        ("windsurf", "/mcpServers/belljar"),
        ("gemini-cli", "/mcpServers/belljar"),
        ("lm-studio", "/mcpServers/belljar"),
        ("vscode", "/servers/belljar"),
        ("zed", "/context_servers/belljar"),
    ] {
        let text = printed(client);
        let value: Value = serde_json::from_str(&text).unwrap();
        let entry = value.pointer(place).unwrap_or_else(|| panic!("{client}: {value}"));
        assert_eq!((&entry["command"], &entry["args"]), (&json!(program()), &json!(ARGUMENTS)), "{client}");
        assert!(text.find("\"command\"") < text.find("\"args\""), "{text}");
    }
    let value: Value = serde_json::from_str(&printed("opencode")).unwrap();
    let program = program();
    let command = [&[program.as_str()], &ARGUMENTS[..]].concat();
    assert_eq!(value["mcp"]["servers"]["belljar"], json!({ "type": "local", "command": command }));
}

#[test]
fn codex_reads_toml_and_goose_and_librechat_read_yaml() {
    let value = toml(&printed("codex"));
    assert_eq!(value, json!({ "mcp_servers": { "belljar": { "command": program(), "args": ARGUMENTS } } }));
    let entry = &yaml(&printed("goose"))["extensions"]["belljar"];
    assert_eq!(
        (&entry["cmd"], &entry["args"], &entry["type"]),
        (&json!(program()), &json!(ARGUMENTS), &json!("stdio"))
    );
    let entry = &yaml(&printed("librechat"))["mcpServers"]["belljar"];
    assert_eq!((&entry["command"], &entry["args"]), (&json!(program()), &json!(ARGUMENTS)));
}

#[test]
fn claude_code_and_open_webui_are_configured_by_a_command_line() {
    let script = format!("claude() {{ printf '%s\\n' \"$@\"; }}\n{}", printed("claude-code"));
    let words = read_by(Command::new("sh").arg("-c").arg(script), "");
    let program = program();
    let expected = [&["mcp", "add", "belljar", "--", &program], &ARGUMENTS[..]].concat();
    assert_eq!(words.lines().collect::<Vec<_>>(), expected);
    assert_eq!(printed("open-webui").trim(), format!("{program} streamable-http --toolset all"));
}

#[test]
fn pydantic_ai_runs_the_code_that_is_printed() {
    // The model needs no account.
    let code = printed("pydantic-ai").replace("openai:gpt-5", "test");
    let code = format!("{code}\nprint(server.client.transport.command, *server.client.transport.args)");
    let words = read_by(Command::new(newest()).args(["-W", "ignore", "-"]), &code);
    assert_eq!(words.trim(), format!("{} stdio --toolset all", program()));
}

#[test]
fn options_are_those_of_the_server() {
    let given = ["config", "zed", "--toolset", "python", "--timeout", "5", "--session-memory", "1GB"];
    let run = Belljar::without_cache().args(given).run();
    let value: Value = serde_json::from_str(&run.stdout).unwrap();
    let arguments = json!(["stdio", "--toolset", "python", "--timeout", "5", "--session-memory", "1GB"]);
    assert_eq!(value["context_servers"]["belljar"]["args"], arguments, "{run:?}");

    let directory = tempfile::tempdir().unwrap();
    let run = Belljar::without_cache().args(["config", "zed", "--cache", "here"]).directory(directory.path()).run();
    let value: Value = serde_json::from_str(&run.stdout).unwrap();
    let cache = directory.path().canonicalize().unwrap().join("here");
    let arguments = json!(["stdio", "--toolset", "all", "--cache", cache]);
    assert_eq!(value["context_servers"]["belljar"]["args"], arguments, "{run:?}");

    for wrong in [&["--timout", "5"][..], &["--timeout", "soon"]] {
        let run = Belljar::without_cache().args(["config", "zed"]).args(wrong).run();
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.stdout.is_empty() && run.stderr.contains("--timeout"), "{run:?}");
    }
}

#[test]
fn file_is_written_and_keeps_all_else() {
    let home = tempfile::tempdir().unwrap();
    let write = |client: &str| {
        let run = Belljar::without_cache().args(["config", client, "--write"]).env("HOME", home.path()).run();
        assert_eq!(run.status, Some(0), "{run:?}");
        run.stderr
    };
    let file = home.path().join(".config/zed/settings.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let before = "// Mine\n{\n  \"theme\": \"One Dark\", // dark\n  \"context_servers\": {\n    \"other\": { \"command\": \"x\" }\n  }\n}\n";
    std::fs::write(&file, before).unwrap();
    assert!(write("zed").contains("settings.json.bak"));
    let text = std::fs::read_to_string(&file).unwrap();
    for kept in ["// Mine", "\"theme\": \"One Dark\", // dark", "\"other\": { \"command\": \"x\" }"] {
        assert!(text.contains(kept), "{text}");
    }
    assert!(text.contains(&program()), "{text}");
    assert_eq!(std::fs::read_to_string(home.path().join(".config/zed/settings.json.bak")).unwrap(), before);
    // Another time nothing changes.
    assert!(write("zed").contains("up to date"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);

    let file = home.path().join(".codex/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let before = "# Mine\nmodel = \"gpt-5\"\n\n[mcp_servers.other]\ncommand = \"x\"\n";
    std::fs::write(&file, before).unwrap();
    write("codex");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with(before), "{text}");
    assert_eq!(toml(&text)["mcp_servers"]["belljar"], json!({ "command": program(), "args": ARGUMENTS }));

    // A file that does not exist is created, with its folders.
    write("gemini-cli");
    let text = std::fs::read_to_string(home.path().join(".gemini/settings.json")).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["mcpServers"]["belljar"]["command"], json!(program()));
}

#[test]
fn file_of_another_form_is_refused_and_stays() {
    let home = tempfile::tempdir().unwrap();
    for (client, name, text) in [
        ("cursor", ".cursor/mcp.json", "{ \"mcpServers\": [] }"),
        ("cursor", ".cursor/mcp.json", "{ \"mcpServers\": {"),
        ("codex", ".codex/config.toml", "[mcp_servers"),
    ] {
        let file = home.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        let run = Belljar::without_cache().args(["config", client, "--write"]).env("HOME", home.path()).run();
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.stderr.contains("hint: "), "{run:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "no copy was made");
    }
    let run = Belljar::without_cache().args(["config", "goose", "--write"]).env("HOME", home.path()).run();
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains("leave out --write"), "{run:?}");
}
