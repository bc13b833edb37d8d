//! `belljar config`: prints the configuration of a client, with the path of this binary.

use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::command_error::CommandError;
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

/// Prints the configuration to standard output, and its place to standard error.
pub(crate) fn config(client: Client) -> ExitCode {
    match executable_path() {
        Ok(path) => {
            let (place, text) = snippet(client, &path);
            eprintln!("{place}:");
            print_line(text);
            ExitCode::SUCCESS
        }
        Err(error) => fail(error),
    }
}

/// Returns the path of this binary, for configuration files.
///
/// # Errors
/// Returns an error if the path is unknown or not UTF-8.
pub(crate) fn executable_path() -> Result<String, CommandError> {
    let path = std::env::current_exe()
        .map_err(|error| CommandError::new(format!("failed to determine the path of this binary: {error}")))?;
    path.into_os_string().into_string().map_err(|path| {
        CommandError::new(format!("the path of this binary is not UTF-8: {}", path.display()))
            .with_hint("move the binary: configuration files contain UTF-8 text")
    })
}

/// Returns the place of the configuration and its text.
fn snippet(client: Client, path: &str) -> (&'static str, String) {
    let pretty = |value: Value| serde_json::to_string_pretty(&value).unwrap_or_default();
    let entry = || json!({ "command": path, "args": ["stdio"] });
    let servers = || pretty(json!({ "mcpServers": { "belljar": entry() } }));
    // A JSON string with common escapes only is also a valid string in TOML, YAML and Python.
    let quoted = Value::from(path).to_string();
    match client {
        Client::ClaudeDesktop => ("claude_desktop_config.json (Settings, Developer, Edit Config)", servers()),
        Client::Cursor => ("~/.cursor/mcp.json, or .cursor/mcp.json in a project", servers()),
        Client::ClaudeCode => ("in a shell", format!("claude mcp add belljar -- {} stdio", shell_quote(path))),
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

/// Quotes a word for a POSIX shell. A path contains no NUL byte, the only character that cannot be quoted.
fn shell_quote(word: &str) -> String {
    shlex::try_quote(word).unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_each_format() {
        let path = "/a b/it's \"x\"";
        for client in Client::value_variants() {
            let (_, text) = snippet(*client, path);
            assert!(text.contains(r#""/a b/it's \"x\"""#), "{text}");
        }
        assert!(snippet(Client::ClaudeCode, "/usr/bin/belljar").1.ends_with("-- /usr/bin/belljar stdio"));
    }
}
