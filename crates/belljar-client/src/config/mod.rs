//! Servers from the configuration files of pydantic-ai, Claude Desktop, VS Code, Cursor and Codex.

mod entry;
mod expand;
mod file;

use std::path::Path;

pub use file::ConfigFile;

use crate::error::McpError;
use crate::server::{AnyServerBuilder, McpServer};

/// Loads the servers of a configuration file, in the order of the file. The name of a server in the file becomes its ID
/// and its prefix. [`ConfigFile`] describes the formats.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let path = std::env::temp_dir().join("belljar-doc-servers.json");
/// std::fs::write(&path, r#"{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}}"#)?;
/// let servers = belljar_mcp_client::load_mcp_servers(&path)?;
/// assert_eq!(servers[0].id(), Some("git"));
/// assert_eq!(servers[0].tool_prefix(), Some("git"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns [`McpError::Config`] if the file or one of its servers is invalid; most often because a variable is not set.
pub fn load_mcp_servers(path: impl AsRef<Path>) -> Result<Vec<McpServer>, McpError> {
    load_mcp_servers_with(path, |_, server| Ok(server))
}

/// Loads the servers of a configuration file, and passes the name and the builder of each to `configure`, which may add
/// handlers, a model, timeouts, headers or OAuth.
///
/// ```
/// use std::time::Duration;
/// use belljar_mcp_client::{ElicitationResponse, McpError, McpServer, load_mcp_servers_with};
///
/// fn load(path: &str) -> Result<Vec<McpServer>, McpError> {
///     load_mcp_servers_with(path, |name, server| {
///         let server = server
///             .timeout(Duration::from_secs(60))
///             .log_handler({
///                 let name = name.to_owned();
///                 move |message| eprintln!("{name}: {}", message.text())
///             })
///             .elicitation_handler(async |_question| Ok(ElicitationResponse::Decline));
///         if name == "tickets" { server.bearer_token("secret") } else { Ok(server) }
///     })
/// }
/// ```
///
/// # Errors
///
/// The same as [`load_mcp_servers`], and errors of `configure`.
pub fn load_mcp_servers_with(
    path: impl AsRef<Path>,
    configure: impl FnMut(&str, AnyServerBuilder) -> Result<AnyServerBuilder, McpError>,
) -> Result<Vec<McpServer>, McpError> {
    ConfigFile::load(path)?.build_with(configure)
}

/// Parses the servers of a configuration text, as [`load_mcp_servers`] does. The path determines the format and the
/// base of relative paths.
///
/// ```
/// let text = "[mcp_servers.docs]\nurl = \"https://example.org/mcp\"\n";
/// let servers = belljar_mcp_client::parse_mcp_servers(text, "config.toml".as_ref()).unwrap();
/// assert_eq!(servers[0].label(), "docs");
/// ```
///
/// # Errors
///
/// The same as [`load_mcp_servers`].
pub fn parse_mcp_servers(text: &str, path: &Path) -> Result<Vec<McpServer>, McpError> {
    ConfigFile::parse(text, path)?.build_with(|_, server| Ok(server))
}
