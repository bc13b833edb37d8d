//! `belljar config`: what to write into a client's configuration, with this binary's own path.

use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::console::print_line;
use crate::outcome::fail;

/// A client that can start MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
    Zed,
    Goose,
    Codex,
    PydanticAi,
}

/// Prints the configuration on standard output, and where it goes on standard error.
pub(crate) fn config(client: Client) -> ExitCode {
    let path = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => return fail(&format!("cannot tell where this binary is: {error}")),
    };
    let Some(path) = path.to_str() else {
        return fail("this binary's path is not UTF-8 text, which no client's configuration can hold");
    };
    let (place, text) = snippet(client, path);
    eprintln!("{place}:");
    print_line(text);
    ExitCode::SUCCESS
}

/// Where it goes, and what.
fn snippet(client: Client, path: &str) -> (&'static str, String) {
    let pretty = |value: Value| serde_json::to_string_pretty(&value).unwrap_or_default();
    let entry = || json!({ "command": path, "args": ["stdio"] });
    let servers = || pretty(json!({ "mcpServers": { "belljar": entry() } }));
    // A JSON string is one in TOML, YAML and Python as well, as long as it needs no escape beyond the common ones.
    let quoted = Value::from(path).to_string();
    match client {
        Client::ClaudeDesktop => ("claude_desktop_config.json (Settings, Developer, Edit Config)", servers()),
        Client::Cursor => ("~/.cursor/mcp.json, or .cursor/mcp.json in a project", servers()),
        Client::ClaudeCode => ("in a shell", format!("claude mcp add belljar -- {} stdio", for_shell(path))),
        Client::VsCode => {
            let server = json!({ "type": "stdio", "command": path, "args": ["stdio"] });
            (".vscode/mcp.json", pretty(json!({ "servers": { "belljar": server } })))
        }
        Client::Zed => ("Zed's settings.json", pretty(json!({ "context_servers": { "belljar": entry() } }))),
        Client::Goose => (
            "~/.config/goose/config.yaml",
            format!(
                "extensions:\n  belljar:\n    type: stdio\n    name: belljar\n    enabled: true\n    cmd: {quoted}\n    \
                 args: [\"stdio\"]\n    timeout: 300"
            ),
        ),
        Client::Codex => {
            ("~/.codex/config.toml", format!("[mcp_servers.belljar]\ncommand = {quoted}\nargs = [\"stdio\"]"))
        }
        Client::PydanticAi => (
            "in Python, with pydantic-ai 2.x (1.x has MCPServerStdio; see docs/clients.md)",
            format!(
                "from fastmcp.client.transports import StdioTransport\nfrom pydantic_ai import Agent\nfrom pydantic_ai.mcp \
                 import MCPToolset\n\nserver = MCPToolset(StdioTransport({quoted}, [\"stdio\"]), init_timeout=60)\nagent = \
                 Agent(\"openai:gpt-5\", toolsets=[server])"
            ),
        ),
    }
}

/// A word as a POSIX shell reads it.
fn for_shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_as_each_format_wants_it() {
        let path = "/a b/it's \"x\"";
        for client in Client::value_variants() {
            let (_, text) = snippet(*client, path);
            let wanted = match client {
                Client::ClaudeCode => r#"'/a b/it'\''s "x"' stdio"#,
                _ => r#""/a b/it's \"x\"""#,
            };
            assert!(text.contains(wanted), "{text}");
        }
    }
}
