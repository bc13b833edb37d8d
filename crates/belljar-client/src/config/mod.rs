//! Servers from configuration files: pydantic-ai's and Claude Desktop's, VS Code's, Cursor's, Codex's.

mod entry;
mod expand;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::McpError;
use crate::server::McpServer;
use entry::Entry;
use expand::Variables;

/// Bytes that a configuration file may have.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Servers that are configured in a file. Each has the name that it has there for its id and its prefix.
///
/// | file | where servers stand | what else |
/// | --- | --- | --- |
/// | pydantic-ai's, Claude Desktop's, Claude Code's `.mcp.json` | `mcpServers` | |
/// | Cursor's `mcp.json` | `mcpServers` | `envFile` |
/// | VS Code's `mcp.json`, or `settings.json` | `servers`, or `mcp.servers` | comments, `envFile`, `inputs` with a default |
/// | Codex's `config.toml` | `[mcp_servers.NAME]` | `bearer_token_env_var`, `env_vars`, `http_headers`, `env_http_headers`, `enabled`, `enabled_tools`, `disabled_tools`, timeouts |
///
/// A server with a `command` is a child process, one with a `url` speaks streamable HTTP, or HTTP with server-sent events
/// if `type` says `sse` or, without a `type`, the URL ends in `/sse`. In every text `${NAME}` stands for a variable of the
/// environment, `${NAME:-text}` for that or else the text; `${env:NAME}` is VS Code's way to say it, which also knows
/// `${workspaceFolder}` and `${userHome}`. Servers that are switched off are left out.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let path = std::env::temp_dir().join("belljar-doc-servers.json");
/// std::fs::write(&path, r#"{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}}"#)?;
/// let servers = belljar_client::load_mcp_servers(&path)?;
/// assert_eq!(servers[0].id(), Some("git"));
/// assert_eq!(servers[0].tool_prefix(), Some("git"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`McpError::Config`] says what is wrong with the file, and with which of its servers: above all a variable that is not
/// set.
pub fn load_mcp_servers(path: impl AsRef<Path>) -> Result<Vec<McpServer>, McpError> {
    let path = path.as_ref();
    let text = read(path).map_err(|reason| McpError::Config(format!("{}: {reason}", path.display())))?;
    parse_mcp_servers(&text, path)
}

/// As [`load_mcp_servers`], of a text. The path says what kind of file it is, and where relative things in it are.
///
/// ```
/// let text = "[mcp_servers.docs]\nurl = \"https://example.org/mcp\"\n";
/// let servers = belljar_client::parse_mcp_servers(text, "config.toml".as_ref()).unwrap();
/// assert_eq!(servers[0].label(), "docs");
/// ```
///
/// # Errors
///
/// As [`load_mcp_servers`].
pub fn parse_mcp_servers(text: &str, path: &Path) -> Result<Vec<McpServer>, McpError> {
    let failed = |reason: String| McpError::Config(format!("{}: {reason}", path.display()));
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    let whole = if is_toml { parse_toml(text) } else { parse_json(text) }.map_err(&failed)?;
    let servers = servers(&whole).ok_or_else(|| {
        failed("it has no servers: `mcpServers`, `servers`, or `[mcp_servers.NAME]` in a TOML file".to_owned())
    })?;
    let variables = Variables::new(workspace(path), whole.get("inputs"));
    let mut built = Vec::new();
    for (name, value) in servers {
        let of_server = |reason: String| failed(format!("server `{name}`: {reason}"));
        let entry = read_entry(value, &variables).map_err(of_server)?;
        if !entry.is_enabled() {
            continue;
        }
        built.push(entry.build(name, &variables).map_err(|reason| failed(format!("server `{name}`: {reason}")))?);
    }
    Ok(built)
}

fn read_entry(value: &Value, variables: &Variables) -> Result<Entry, String> {
    // One that is switched off may name what is not there.
    let plain = Entry::deserialize(value.clone())?;
    if !plain.is_enabled() {
        return Ok(plain);
    }
    Entry::deserialize(variables.expand(value)?)
}

fn read(path: &Path) -> Result<String, String> {
    let length = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > MAX_BYTES {
        return Err(format!("it has {length} bytes, more than a configuration file may have"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

fn parse_json(text: &str) -> Result<Value, String> {
    jsonc_parser::parse_to_serde_value::<Value>(text, &jsonc_parser::ParseOptions::default())
        .map_err(|error| format!("it is no JSON: {error}"))
}

fn parse_toml(text: &str) -> Result<Value, String> {
    toml::from_str(text).map_err(|error| format!("it is no TOML: {error}"))
}

/// Where in a file the servers stand.
fn servers(whole: &Value) -> Option<&Map<String, Value>> {
    ["/mcpServers", "/servers", "/mcp/servers", "/mcp_servers"]
        .iter()
        .find_map(|place| whole.pointer(place))
        .and_then(Value::as_object)
}

/// The directory that a file is about: its own, or the one above for an editor's hidden one.
fn workspace(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let directory = absolute.parent().map(Path::to_owned).unwrap_or_default();
    let is_hidden = directory.file_name().is_some_and(|name| name == ".vscode" || name == ".cursor");
    match directory.parent() {
        Some(above) if is_hidden => above.to_owned(),
        _ => directory,
    }
}
