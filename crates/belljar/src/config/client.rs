//! The clients that `belljar config` knows: the place and the format of their configuration.
//!
//! The formats are those of the clients' documentation, as of 2026.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use jsonc_parser::cst::CstInputValue;
use serde_json::Value;

use super::edit::{Format, SERVER_NAME};
use crate::command_error::CommandError;
use crate::os::CLAUDE_DESKTOP_CONFIG;

/// A client of MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
    Windsurf,
    Zed,
    GeminiCli,
    Codex,
    #[value(name = "opencode")]
    OpenCode,
    Goose,
    LmStudio,
    #[value(name = "librechat")]
    LibreChat,
    #[value(name = "open-webui")]
    OpenWebUi,
    PydanticAi,
}

/// The command with which a client starts the server.
pub(super) struct ServerCommand {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
}

/// The configuration of one client.
pub(super) struct Configuration {
    place: Place,
    format: Format,
}

/// The place of a configuration.
enum Place {
    /// A file, and its description for people.
    File { file: Option<PathBuf>, description: &'static str },
    /// Something else, which `belljar config` does not write.
    Other(&'static str),
}

impl Configuration {
    /// Returns the configuration of `client` for this server.
    pub(super) fn new(client: Client, server: &ServerCommand) -> Self {
        let ServerCommand { program, arguments } = server;
        let program_value = || ("command", CstInputValue::from(program.as_str()));
        let arguments_value = || ("args", array(arguments.iter()));
        let entry = || object([program_value(), arguments_value()]);
        let file = |folders: &[&str], description| Place::File { file: in_home(folders), description };
        let json = |keys, entry| Format::Json { keys, entry };
        // A JSON string with common escapes only is also a valid string in YAML and Python, and a JSON array of them
        // is a valid list.
        let (program_json, arguments_json) = (Value::from(program.as_str()), Value::from(arguments.clone()));
        let (place, format) = match client {
            Client::ClaudeDesktop => (
                file(CLAUDE_DESKTOP_CONFIG, "claude_desktop_config.json (Settings, Developer, Edit Config)"),
                json(&["mcpServers"], entry()),
            ),
            Client::Cursor => (
                file(&[".cursor", "mcp.json"], "~/.cursor/mcp.json, or .cursor/mcp.json in a project"),
                json(&["mcpServers"], entry()),
            ),
            Client::Windsurf => (
                file(&[".codeium", "windsurf", "mcp_config.json"], "~/.codeium/windsurf/mcp_config.json"),
                json(&["mcpServers"], entry()),
            ),
            Client::GeminiCli => (
                file(&[".gemini", "settings.json"], "~/.gemini/settings.json, or .gemini/settings.json in a project"),
                json(&["mcpServers"], entry()),
            ),
            Client::LmStudio => (
                file(&[".lmstudio", "mcp.json"], "~/.lmstudio/mcp.json (Program, Install, Edit mcp.json)"),
                json(&["mcpServers"], entry()),
            ),
            Client::VsCode => (
                Place::File {
                    file: Some(Path::new(".vscode").join("mcp.json")),
                    description: ".vscode/mcp.json in a project",
                },
                json(&["servers"], object([("type", "stdio".into()), program_value(), arguments_value()])),
            ),
            Client::Zed => {
                (file(&[".config", "zed", "settings.json"], "Zed's settings.json"), json(&["context_servers"], entry()))
            }
            Client::OpenCode => {
                let command = array(std::iter::once(program).chain(arguments));
                (
                    file(
                        &[".config", "opencode", "opencode.json"],
                        "~/.config/opencode/opencode.json, or opencode.json in a project (opencode 2)",
                    ),
                    json(&["mcp", "servers"], object([("type", "local".into()), ("command", command)])),
                )
            }
            Client::Codex => (
                file(&[".codex", "config.toml"], "~/.codex/config.toml"),
                Format::Toml { table: "mcp_servers", program: program.clone(), arguments: arguments.clone() },
            ),
            Client::ClaudeCode => {
                let words = std::iter::once(program).chain(arguments).map(|word| shell_quote(word));
                let command = words.collect::<Vec<_>>().join(" ");
                (Place::Other("in a shell"), Format::Text(format!("claude mcp add {SERVER_NAME} -- {command}")))
            }
            Client::Goose => (
                Place::Other("~/.config/goose/config.yaml"),
                Format::Text(format!(
                    "extensions:\n  {SERVER_NAME}:\n    type: stdio\n    name: {SERVER_NAME}\n    enabled: true\n    \
                     cmd: {program_json}\n    args: {arguments_json}\n    timeout: 300"
                )),
            ),
            Client::LibreChat => (
                Place::Other("librechat.yaml"),
                Format::Text(format!(
                    "mcpServers:\n  {SERVER_NAME}:\n    type: stdio\n    command: {program_json}\n    args: \
                     {arguments_json}\n    timeout: 300000"
                )),
            ),
            Client::OpenWebUi => {
                // Open WebUI does not start servers: it connects to their address.
                let options = arguments.iter().skip(1).map(|word| shell_quote(word)).collect::<Vec<_>>().join(" ");
                let program = shell_quote(program);
                (
                    Place::Other(
                        "start this server; then, in Admin Settings, External Tools, add a server of the type `MCP \
                         (Streamable HTTP)` with the address http://127.0.0.1:3001/mcp",
                    ),
                    Format::Text(format!("{program} streamable-http {options}")),
                )
            }
            Client::PydanticAi => (
                Place::Other("in Python, with pydantic-ai 2.x (1.x has MCPServerStdio; see docs/clients.md)"),
                Format::Text(format!(
                    "from fastmcp.client.transports import StdioTransport\nfrom pydantic_ai import Agent\nfrom \
                     pydantic_ai.mcp import MCPToolset\n\nserver = MCPToolset(StdioTransport({program_json}, \
                     {arguments_json}), init_timeout=60)\nagent = Agent(\"openai:gpt-5\", toolsets=[server])"
                )),
            ),
        };
        Self { place, format }
    }

    /// Returns the description of the place.
    pub(super) fn place(&self) -> &'static str {
        match self.place {
            Place::File { description, .. } | Place::Other(description) => description,
        }
    }

    /// Returns the file that contains the configuration: `other`, or the client's usual file.
    ///
    /// # Errors
    /// Returns an error if `belljar config` does not write the configuration, or if the home directory is unknown.
    pub(super) fn file(&self, other: Option<&Path>) -> Result<PathBuf, CommandError> {
        match (&self.place, other) {
            (Place::File { .. }, Some(other)) => Ok(other.to_owned()),
            (Place::File { file: Some(file), .. }, None) => Ok(file.clone()),
            (Place::File { file: None, description }, None) => {
                Err(CommandError::new(format!("{description}: the home directory is unknown"))
                    .with_hint("name the file with --file"))
            }
            (Place::Other(description), _) => {
                Err(CommandError::new(format!("this configuration cannot be written: {description}"))
                    .with_hint("leave out --write, and insert what is printed"))
            }
        }
    }

    /// Returns the format.
    pub(super) fn format(&self) -> &Format {
        &self.format
    }
}

/// Returns a JSON object with these members in this order.
fn object<const N: usize>(members: [(&str, CstInputValue); N]) -> CstInputValue {
    CstInputValue::Object(members.map(|(name, value)| (name.to_owned(), value)).into())
}

/// Returns a JSON array of strings.
fn array<'a>(words: impl Iterator<Item = &'a String>) -> CstInputValue {
    CstInputValue::Array(words.map(|word| word.as_str().into()).collect())
}

/// Returns a path in the home directory.
fn in_home(folders: &[&str]) -> Option<PathBuf> {
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty())?;
    Some(folders.iter().fold(home, |path, folder| path.join(folder)))
}

/// Quotes a word for a POSIX shell. An argument contains no NUL byte, the only character that cannot be quoted.
fn shell_quote(word: &str) -> String {
    shlex::try_quote(word).unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_each_format() {
        let server = ServerCommand { program: "/a b/it's \"x\"".into(), arguments: vec!["stdio".into()] };
        for client in Client::value_variants() {
            let text = Configuration::new(*client, &server).format().merge("").unwrap();
            let is_command = matches!(client, Client::ClaudeCode | Client::OpenWebUi);
            if *client == Client::Codex {
                let document: toml_edit::DocumentMut = text.parse().unwrap();
                assert_eq!(document["mcp_servers"]["belljar"]["command"].as_str(), Some(&*server.program), "{text}");
            } else {
                assert!(is_command || text.contains(r#""/a b/it's \"x\"""#), "{text}");
            }
            if is_command {
                let words = shlex::split(&text).unwrap();
                assert!(words.contains(&server.program), "{text}");
            }
        }
    }
}
