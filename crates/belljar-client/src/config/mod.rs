//! Servers from the configuration files of pydantic-ai, Claude Desktop, VS Code, Cursor and Codex.

mod entry;
mod expand;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{ConfigError, McpError};
use crate::server::McpServer;
use entry::Entry;
use expand::Variables;

/// The maximum size of a configuration file.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Loads the servers of a configuration file. The name of a server in the file becomes its ID and its prefix.
///
/// | file | key of the servers | also supported |
/// | --- | --- | --- |
/// | pydantic-ai's, Claude Desktop's, Claude Code's `.mcp.json` | `mcpServers` | |
/// | Cursor's `mcp.json` | `mcpServers` | `envFile` |
/// | VS Code's `mcp.json`, or `settings.json` | `servers`, or `mcp.servers` | comments, `envFile`, `inputs` with a default |
/// | Codex's `config.toml` | `[mcp_servers.NAME]` | `bearer_token_env_var`, `env_vars`, `http_headers`, `env_http_headers`, `enabled`, `enabled_tools`, `disabled_tools`, timeouts |
///
/// A server with a `command` is a child process. A server with a `url` uses streamable HTTP, or HTTP with server-sent
/// events if `type` is `sse` or if `type` is missing and the URL ends in `/sse`. In all strings `${NAME}` is replaced
/// by an environment variable and `${NAME:-text}` by the variable or else the text; VS Code's `${env:NAME}`,
/// `${workspaceFolder}` and `${userHome}` are supported as well. Disabled servers are skipped.
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
/// [`McpError::Config`] if the file or one of its servers is invalid; most often because a variable is not set.
pub fn load_mcp_servers(path: impl AsRef<Path>) -> Result<Vec<McpServer>, McpError> {
    let path = path.as_ref();
    let text = read(path)?;
    parse_mcp_servers(&text, path)
}

/// Parses the servers of a configuration text, as [`load_mcp_servers`] does. The path determines the format and the
/// base of relative paths.
///
/// ```
/// let text = "[mcp_servers.docs]\nurl = \"https://example.org/mcp\"\n";
/// let servers = belljar_client::parse_mcp_servers(text, "config.toml".as_ref()).unwrap();
/// assert_eq!(servers[0].label(), "docs");
/// ```
///
/// # Errors
///
/// The same as [`load_mcp_servers`].
pub fn parse_mcp_servers(text: &str, path: &Path) -> Result<Vec<McpServer>, McpError> {
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    let (format, parsed) = if is_toml { ("TOML", parse_toml(text)) } else { ("JSON", parse_json(text)) };
    let whole = parsed.map_err(|reason| ConfigError::Syntax { path: path.to_owned(), format, reason })?;
    let servers = servers(&whole).ok_or_else(|| ConfigError::NoServers { path: path.to_owned() })?;
    let variables = Variables::new(workspace(path), whole.get("inputs"));
    let mut built = Vec::new();
    for (name, value) in servers {
        let server = build(name, value, &variables).map_err(|error| match error {
            McpError::Config(source) => {
                ConfigError::Server { path: path.to_owned(), name: name.clone(), source: Box::new(source) }.into()
            }
            other => other,
        })?;
        built.extend(server);
    }
    Ok(built)
}

/// Builds the server of an entry; returns `None` if it is disabled.
fn build(name: &str, value: &Value, variables: &Variables) -> Result<Option<McpServer>, McpError> {
    // A disabled server may refer to variables that are not set.
    if !Entry::deserialize(value.clone())?.is_enabled() {
        return Ok(None);
    }
    let entry = Entry::deserialize(variables.expand(value)?)?;
    if entry.is_enabled() { entry.build(name, variables).map(Some) } else { Ok(None) }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > MAX_BYTES {
        return Err(ConfigError::TooLarge { path: path.to_owned(), limit: MAX_BYTES });
    }
    std::fs::read_to_string(path).map_err(failed)
}

fn parse_json(text: &str) -> Result<Value, String> {
    jsonc_parser::parse_to_serde_value::<Value>(text, &jsonc_parser::ParseOptions::default())
        .map_err(|error| error.to_string())
}

fn parse_toml(text: &str) -> Result<Value, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

/// Returns the servers' table of a file.
fn servers(whole: &Value) -> Option<&Map<String, Value>> {
    ["/mcpServers", "/servers", "/mcp/servers", "/mcp_servers"]
        .iter()
        .find_map(|place| whole.pointer(place))
        .and_then(Value::as_object)
}

/// Returns the workspace of a file: its own directory, or the parent of an editor's hidden directory.
fn workspace(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let directory = absolute.parent().map(Path::to_owned).unwrap_or_default();
    let is_hidden = directory.file_name().is_some_and(|name| name == ".vscode" || name == ".cursor");
    match directory.parent() {
        Some(above) if is_hidden => above.to_owned(),
        _ => directory,
    }
}
