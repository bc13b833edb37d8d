//! A configuration file: its formats, and the builders of its servers.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::entry::Entry;
use super::expand::Variables;
use crate::error::{ConfigError, McpError};
use crate::server::{AnyServerBuilder, McpServer};

/// The maximum size of a configuration file.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// A configuration file with servers, of this or another program.
///
/// | file | key of the servers | also supported |
/// | --- | --- | --- |
/// | pydantic-ai's, Claude Desktop's | `mcpServers` | |
/// | Claude Code's `.mcp.json` | `mcpServers` | `oauth` with `clientId`, `callbackPort` |
/// | Cursor's `mcp.json` | `mcpServers` | `envFile`, `auth` with `CLIENT_ID`, `CLIENT_SECRET`, `scopes` |
/// | VS Code's `mcp.json`, or `settings.json` | `servers`, or `mcp.servers` | comments, `envFile`, `inputs` with a default, `oauth` with `clientId` |
/// | Codex's `config.toml` | `[mcp_servers.NAME]` | `bearer_token_env_var`, `env_vars`, `http_headers`, `env_http_headers`, `enabled`, `enabled_tools`, `disabled_tools`, timeouts |
///
/// A server with a `command` is a child process. A server with a `url` uses streamable HTTP, or HTTP with server-sent
/// events if `type` is `sse` or if `type` is missing and the path of the URL ends in `/sse`. In all strings `${NAME}`
/// is replaced by an environment variable and `${NAME:-text}` by the variable or else the text; VS Code's
/// `${env:NAME}`, `${workspaceFolder}` and `${userHome}` are supported as well. The OAuth client of an entry is used
/// once the program adds [`oauth`](crate::AnyServerBuilder), because only the program can ask the user for consent.
///
/// ```
/// use belljar_mcp_client::ConfigFile;
///
/// # fn main() -> Result<(), belljar_mcp_client::McpError> {
/// let text = r#"{"mcpServers": {"web": {"url": "https://example.org/mcp"}, "git": {"command": "mcp-git"}}}"#;
/// let file = ConfigFile::parse(text, "mcp.json".as_ref())?;
/// assert_eq!(file.names(), ["web", "git"]);
/// let web = file.builder("web")?.bearer_token("secret")?.build();
/// assert_eq!(web.label(), "web");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    entries: Entries,
    variables: Variables,
}

/// The entries of enabled servers, in the order of the file.
struct Entries(Vec<(String, Value)>);

impl std::fmt::Debug for Entries {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may be secrets.
        formatter.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl ConfigFile {
    /// Reads a file. Its extension determines the format: TOML, or else JSON, which may contain comments.
    ///
    /// ```
    /// use belljar_mcp_client::{ConfigError, ConfigFile, McpError};
    ///
    /// let error = ConfigFile::load("/no/such/mcp.json").unwrap_err();
    /// assert!(matches!(error, McpError::Config(ConfigError::NotFound { .. })));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the file does not exist, cannot be read or parsed, or does not define servers.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, McpError> {
        let path = path.as_ref();
        Self::parse(&read(path)?, path)
    }

    /// Parses the text of a file. The path determines the format and the base of relative paths.
    ///
    /// ```
    /// let text = "[mcp_servers.docs]\nurl = \"https://example.org/mcp\"\n";
    /// let file = belljar_mcp_client::ConfigFile::parse(text, "config.toml".as_ref()).unwrap();
    /// assert_eq!(file.names(), ["docs"]);
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`load`](Self::load).
    pub fn parse(text: &str, path: &Path) -> Result<Self, McpError> {
        let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
        let (format, parsed) = if is_toml { ("TOML", parse_toml(text)) } else { ("JSON", parse_json(text)) };
        let whole = parsed.map_err(|reason| ConfigError::Syntax { path: path.to_owned(), format, reason })?;
        let servers = servers(&whole).ok_or_else(|| ConfigError::NoServers { path: path.to_owned() })?;
        let mut entries = Vec::new();
        for (name, value) in servers {
            // A disabled server may refer to variables that are not set.
            if Entry::deserialize(value).map_err(|error| in_server(path, name, error))?.is_enabled() {
                entries.push((name.clone(), value.clone()));
            }
        }
        let variables = Variables::new(workspace(path), whole.get("inputs"));
        Ok(Self { path: path.to_owned(), entries: Entries(entries), variables })
    }

    /// Returns the names of the servers that are not disabled, in the order of the file.
    ///
    /// ```
    /// let text = r#"{"mcpServers": {"b": {"command": "x"}, "a": {"command": "x"}, "off": {"disabled": true}}}"#;
    /// let file = belljar_mcp_client::ConfigFile::parse(text, "mcp.json".as_ref()).unwrap();
    /// assert_eq!(file.names(), ["b", "a"]);
    /// ```
    pub fn names(&self) -> Vec<&str> {
        self.entries.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the builder of a server. Other servers of the file need not be valid.
    ///
    /// ```
    /// let text = r#"{"mcpServers": {"git": {"command": "mcp-git"}, "web": {"url": "${NO_SUCH_VARIABLE}"}}}"#;
    /// let file = belljar_mcp_client::ConfigFile::parse(text, "mcp.json".as_ref()).unwrap();
    /// let server = file.builder("git").unwrap().timeout(std::time::Duration::from_secs(60)).build();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the file does not define the server, or its entry is invalid.
    pub fn builder(&self, name: &str) -> Result<AnyServerBuilder, McpError> {
        let entry = self.entries.0.iter().find(|(other, _)| other == name).map(|(_, value)| value);
        let entry = entry.ok_or_else(|| ConfigError::UnknownServer {
            path: self.path.clone(),
            name: name.to_owned(),
            known: self.names().into_iter().map(str::to_owned).collect(),
        })?;
        self.entry_builder(name, entry).map_err(|error| match error {
            McpError::Config(error) => in_server(&self.path, name, error).into(),
            other => other,
        })
    }

    fn entry_builder(&self, name: &str, entry: &Value) -> Result<AnyServerBuilder, McpError> {
        Entry::deserialize(&self.variables.expand(entry)?)?.builder(name, &self.variables)
    }

    /// Builds all servers; `configure` may change each builder.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let text = r#"{"mcpServers": {"git": {"command": "mcp-git"}}}"#;
    /// let file = belljar_mcp_client::ConfigFile::parse(text, "mcp.json".as_ref())?;
    /// let servers = file.build_with(|_name, server| Ok(server.timeout(Duration::from_secs(60))))?;
    /// assert_eq!(servers.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`builder`](Self::builder), and errors of `configure`.
    pub fn build_with(
        &self,
        mut configure: impl FnMut(&str, AnyServerBuilder) -> Result<AnyServerBuilder, McpError>,
    ) -> Result<Vec<McpServer>, McpError> {
        let names = self.names().into_iter();
        names.map(|name| Ok(configure(name, self.builder(name)?)?.build())).collect()
    }
}

fn in_server(path: &Path, name: &str, error: ConfigError) -> ConfigError {
    ConfigError::Server { path: path.to_owned(), name: name.to_owned(), error: Box::new(error) }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => ConfigError::NotFound { path: path.to_owned() },
        _ => ConfigError::Read { path: path.to_owned(), error },
    };
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
    // The complete message quotes the line, which may contain a secret.
    toml::from_str(text).map_err(|error: toml::de::Error| match error.span() {
        Some(span) => {
            let line = text.get(..span.start).unwrap_or(text).matches('\n').count() + 1;
            format!("{} in line {line}", error.message())
        }
        None => error.message().to_owned(),
    })
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
