//! The errors between a program and an MCP server, in one enum.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::toolset::{Retry, RetryReason, ToolOutcome};

/// A boxed error of a handler, a hook or a transport.
///
/// ```
/// let error: belljar_client::BoxError = std::io::Error::other("no").into();
/// assert_eq!(error.to_string(), "no");
/// ```
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of a server or of the connection to it.
///
/// A failure that a model can correct by trying again is not an error but
/// [`ToolOutcome::Retry`](crate::ToolOutcome::Retry).
///
/// A message contains the texts of its causes; [`source`](std::error::Error::source) returns only a cause that the
/// message does not contain, so that a report with causes does not repeat itself. URLs appear without credentials and
/// without their query.
///
/// ```
/// use belljar_client::{McpError, McpServerStdio};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let server = McpServerStdio::new("no-such-program").build();
/// let error = server.connect().await.err().unwrap();
/// assert!(matches!(error, McpError::Spawn { .. }));
/// assert!(error.to_string().contains("no-such-program"));
/// # });
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// The program of a stdio server failed to start.
    #[error("failed to start `{command}`: {error}")]
    Spawn {
        /// The program, as configured.
        command: String,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// The connection could not be established, or the server refused it.
    #[error("failed to connect to {server}: {reason}")]
    Connect {
        /// The server's label.
        server: String,
        /// The cause; includes the last lines of a child's standard error, if any.
        reason: String,
        /// A further cause, whose text `reason` does not contain.
        #[source]
        source: Option<BoxError>,
    },
    /// The connection was closed before or during a request.
    #[error("the connection to {server} is closed: {reason}")]
    Closed {
        /// The server's label.
        server: String,
        /// The cause, if known; includes the last lines of a child's standard error, if any.
        reason: String,
    },
    /// A request failed in transport: a network error, or an HTTP error status.
    #[error("failed to send a request to {server}: {reason}")]
    Unreachable {
        /// The server's label.
        server: String,
        /// The transport's error message.
        reason: String,
        /// The status of the HTTP response, if the server sent one.
        status: Option<u16>,
        /// The time after which the server asked to repeat the request (`Retry-After`).
        retry_after: Option<Duration>,
    },
    /// The server did not respond in time.
    #[error("{server} did not respond to `{method}` within {seconds} s{diagnostics}")]
    Timeout {
        /// The server's label.
        server: String,
        /// The method of the request.
        method: String,
        /// The time waited, in seconds.
        seconds: f64,
        /// Further diagnostics, such as a child's last lines of standard error. May be empty.
        diagnostics: String,
    },
    /// The server responded with a JSON-RPC error.
    #[error("{server} responded with an error: {message} (code {code})")]
    Protocol {
        /// The server's label.
        server: String,
        /// The JSON-RPC error code, for example −32601 for an unknown method.
        code: i32,
        /// The server's message.
        message: String,
        /// Additional data from the server.
        data: Option<Value>,
    },
    /// The server sent a response that violates the protocol.
    #[error("invalid response from {server}: {reason}")]
    InvalidResponse {
        /// The server's label.
        server: String,
        /// The violation.
        reason: String,
    },
    /// The server requires authorization and did not accept the request's credentials.
    #[error("{server} requires authorization: {reason}")]
    Unauthorized {
        /// The server's label.
        server: String,
        /// The server's challenge (`WWW-Authenticate`), or the error that occurred while obtaining a token.
        reason: String,
    },
    /// A tool failed and the server was configured with
    /// [`ToolErrorBehavior::Error`](crate::ToolErrorBehavior::Error).
    #[error("tool `{tool}` failed: {message}")]
    ToolFailed {
        /// The name of the tool.
        tool: String,
        /// The server's error message.
        message: String,
    },
    /// The toolset does not have a tool of this name.
    #[error("unknown tool `{name}`; known tools: {}", names(.name, .known))]
    UnknownTool {
        /// The requested name.
        name: String,
        /// The names of the existing tools.
        known: Vec<String>,
    },
    /// A model used up the retries of a tool and the runner was configured with
    /// [`RetryLimitBehavior::Error`](crate::RetryLimitBehavior::Error).
    #[error("tool `{tool}` failed {failures} times in a row: {message}")]
    RetriesExhausted {
        /// The name of the tool.
        tool: String,
        /// The number of failures.
        failures: u32,
        /// The message of the last failure.
        message: String,
    },
    /// Two toolsets offer a tool of the same name.
    #[error("{first} and {second} both have a tool `{name}`")]
    NameClash {
        /// The name that both tools have.
        name: String,
        /// The label of the first toolset.
        first: String,
        /// The label of the second toolset.
        second: String,
        /// A suggestion for resolving the clash.
        hint: String,
    },
    /// A configuration file or a setting is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A hook or handler of the program failed.
    #[error(transparent)]
    Hook(BoxError),
}

impl McpError {
    /// Returns whether a repeated request could succeed: the connection was lost or slow, not refused.
    ///
    /// ```
    /// use belljar_client::McpError;
    ///
    /// let closed = McpError::Closed { server: "files".into(), reason: "the program exited".into() };
    /// assert!(closed.is_connection_loss());
    /// ```
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Closed { .. } | Self::Unreachable { .. } | Self::Timeout { .. })
    }

    /// Returns whether a model can react to the error: the server cannot be reached, closed the connection, refused the
    /// request for now (HTTP 429, 503), did not respond in time, sent an invalid response, or responded with an error.
    /// A server's tools turn such an error of a call into a [`ToolOutcome::Retry`](crate::ToolOutcome::Retry). A missing
    /// authorization, an invalid configuration, a program that cannot be started and a failed hook concern the program.
    ///
    /// ```
    /// use belljar_client::McpError;
    ///
    /// let closed = McpError::Closed { server: "files".into(), reason: "the program exited".into() };
    /// assert!(closed.is_for_model());
    /// let unauthorized = McpError::Unauthorized { server: "files".into(), reason: "no token".into() };
    /// assert!(!unauthorized.is_for_model());
    /// ```
    pub fn is_for_model(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. }
                | Self::Closed { .. }
                | Self::Unreachable { .. }
                | Self::Timeout { .. }
                | Self::Protocol { .. }
                | Self::InvalidResponse { .. }
                | Self::UnknownTool { .. }
        )
    }

    /// Returns the retry for the model if the error [is for it](Self::is_for_model), for use in toolsets.
    ///
    /// ```
    /// use belljar_client::{McpError, McpServer, ToolOutcome};
    ///
    /// async fn version(server: &McpServer) -> Result<ToolOutcome, McpError> {
    ///     match server.info().await {
    ///         Ok(info) => Ok(ToolOutcome::text(info.protocol_version.as_str())),
    ///         Err(error) => error.into_outcome(),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The error itself, if it is not for the model.
    pub fn into_outcome(self) -> Result<ToolOutcome, Self> {
        let reason = match &self {
            error if !error.is_for_model() => return Err(self),
            Self::Protocol { .. } => RetryReason::ToolFailed,
            Self::UnknownTool { .. } => RetryReason::UnknownTool,
            Self::Closed { .. } => RetryReason::Disconnected,
            Self::Timeout { .. } => RetryReason::TimedOut,
            Self::InvalidResponse { .. } => RetryReason::InvalidResponse,
            _ => RetryReason::Unavailable,
        };
        let message = match self {
            Self::Protocol { message, .. } => message,
            error => error.to_string(),
        };
        Ok(ToolOutcome::Retry(Retry::new(message).with_reason(reason)))
    }

    /// Returns a suggestion for resolving the error, if any. It is not part of the message.
    ///
    /// ```
    /// use belljar_client::McpError;
    ///
    /// let unauthorized = McpError::Unauthorized { server: "files".into(), reason: "no token".into() };
    /// assert!(unauthorized.hint().unwrap().contains("bearer_token"));
    /// ```
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Spawn { .. } => Some("check that the program is installed and on PATH".to_owned()),
            Self::Unauthorized { .. } => Some("configure the server with `bearer_token` or `oauth`".to_owned()),
            Self::NameClash { hint, .. } => Some(hint.clone()),
            Self::Config(error) => error.hint(),
            _ => None,
        }
    }

    pub(crate) fn protocol(server: &str, error: rmcp::ErrorData) -> Self {
        Self::Protocol {
            server: server.to_owned(),
            code: error.code.0,
            message: error.message.into_owned(),
            data: error.data,
        }
    }
}

/// An invalid configuration file or setting.
///
/// ```
/// use belljar_client::{ConfigError, McpError, McpServerStreamableHttp};
///
/// let error = McpServerStreamableHttp::new("ftp://example.org").err().unwrap();
/// assert!(matches!(error, McpError::Config(ConfigError::UrlScheme { .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A configuration file does not exist.
    #[error("{} does not exist", path.display())]
    NotFound {
        /// The path of the file.
        path: PathBuf,
    },
    /// A file could not be read.
    #[error("failed to read {}: {error}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// A configuration file is too large.
    #[error("{} is larger than the maximum of {limit} bytes", path.display())]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
        /// The maximum size in bytes.
        limit: u64,
    },
    /// A configuration file is not valid JSON or TOML.
    #[error("failed to parse {} as {format}: {reason}", path.display())]
    Syntax {
        /// The path of the file.
        path: PathBuf,
        /// The expected format.
        format: &'static str,
        /// The parser's error message.
        reason: String,
    },
    /// A configuration file does not have a table of servers.
    #[error("{} does not define any servers", path.display())]
    NoServers {
        /// The path of the file.
        path: PathBuf,
    },
    /// A configuration file does not define a server of this name.
    #[error("server `{name}` is not defined in {}", path.display())]
    UnknownServer {
        /// The path of the file.
        path: PathBuf,
        /// The requested name.
        name: String,
        /// The names that the file defines.
        known: Vec<String>,
    },
    /// The entry of a server in a configuration file is invalid.
    #[error("invalid server `{name}` in {}: {error}", path.display())]
    Server {
        /// The path of the file.
        path: PathBuf,
        /// The name of the server.
        name: String,
        /// The error of the entry.
        error: Box<ConfigError>,
    },
    /// A key of an entry has a value of the wrong type. The message does not contain the value, which may be secret.
    #[error("the value of `{key}` is invalid: {reason}")]
    Entry {
        /// The key.
        key: String,
        /// The parser's error message.
        reason: String,
    },
    /// An option does not apply to the transport of the server.
    #[error("`{option}` does not apply to a server that is a child process")]
    NotHttp {
        /// The option, named after the builder's method.
        option: &'static str,
    },
    /// An option does not apply to the transport of the server.
    #[error("`{option}` applies only to a server that is a child process")]
    NotChildProcess {
        /// The option, named after the builder's method.
        option: &'static str,
    },
    /// The `type` of an entry does not match its other keys.
    #[error("type `{kind}` is not valid together with a `{key}`")]
    TransportType {
        /// The value of `type`.
        kind: String,
        /// The key that determines the transport, `command` or `url`.
        key: &'static str,
    },
    /// An entry has neither a `command` nor a `url`.
    #[error("neither a `command` nor a `url` is set")]
    NoTransport,
    /// A variable that is not set in the environment.
    #[error("the environment variable `{name}` is not set")]
    UnsetVariable {
        /// The name of the variable.
        name: String,
    },
    /// An input that VS Code would ask the user for, and that does not have a default.
    #[error("the input `{id}` does not have a default")]
    UnsetInput {
        /// The ID of the input.
        id: String,
    },
    /// An environment file could not be loaded.
    #[error("failed to load the environment file {}: {reason}", path.display())]
    EnvFile {
        /// The path of the file.
        path: PathBuf,
        /// The error message.
        reason: String,
    },
    /// A URL is invalid.
    #[error("`{url}` is not a valid URL: {reason}")]
    Url {
        /// The URL, without credentials and query.
        url: String,
        /// The parser's error message.
        reason: String,
    },
    /// A URL has an unsupported scheme.
    #[error("`{url}` is not an http or https URL")]
    UrlScheme {
        /// The URL, without credentials and query.
        url: String,
    },
    /// The name of a header contains characters that HTTP does not allow.
    #[error("the name of the header `{name}` is not valid in HTTP")]
    HeaderName {
        /// The name.
        name: String,
    },
    /// The value of a header contains characters that HTTP does not allow.
    #[error("the value of the header `{name}` is not valid in HTTP")]
    HeaderValue {
        /// The name of the header. The value may be secret.
        name: String,
    },
    /// A header is reserved for the protocol.
    #[error("the header `{name}` is reserved for the protocol and cannot be set")]
    ReservedHeader {
        /// The name.
        name: String,
    },
    /// The HTTP client could not be created.
    #[error("failed to create the HTTP client: {0}")]
    HttpClient(BoxError),
    /// The arguments of a tool are not a JSON object.
    #[error("the arguments of tool `{tool}` are not a JSON object")]
    Arguments {
        /// The name of the tool.
        tool: String,
    },
    /// A tool that should be renamed does not exist.
    #[error("{toolset} does not have a tool `{old}` to rename to `{new}`; it has: {}", names(.old, .known))]
    RenamedTool {
        /// The label of the toolset.
        toolset: String,
        /// The name of the tool that does not exist.
        old: String,
        /// The name that it should get.
        new: String,
        /// The names of the existing tools.
        known: Vec<String>,
    },
    /// Renaming gave two tools the same name.
    #[error("renaming gives {toolset} two tools with the name `{name}`")]
    RenameClash {
        /// The label of the toolset.
        toolset: String,
        /// The name.
        name: String,
    },
    /// Preparing the definitions added, renamed or repeated a tool.
    #[error("preparing the tools of {toolset} added or repeated `{name}`; it may only change and remove tools")]
    PreparedTool {
        /// The label of the toolset.
        toolset: String,
        /// The name of the tool.
        name: String,
    },
    /// An answer refers to a call that was not deferred.
    #[error("the answer to the call `{id}` does not belong to a deferred call")]
    UnknownCall {
        /// The ID of the call.
        id: String,
    },
    /// A tool does not have a name.
    #[error("{toolset} has a tool without a name")]
    UnnamedTool {
        /// The label of the toolset.
        toolset: String,
    },
}

impl ConfigError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Server { error, .. } => error.hint(),
            Self::UnknownServer { name, known, .. } => Some(format!("it defines {}", names(name, known))),
            Self::NoServers { .. } => {
                Some("define `mcpServers` or `servers`, or `[mcp_servers.NAME]` in a TOML file".to_owned())
            }
            Self::RenamedTool { known, old, new, .. } if known.contains(new) => {
                Some(format!("pairs are the old name and the new one: write (\"{new}\", \"{old}\")"))
            }
            Self::RenamedTool { .. } | Self::RenameClash { .. } => {
                Some("check the names given to `renamed`".to_owned())
            }
            Self::PreparedTool { .. } => Some("use `renamed` to rename tools".to_owned()),
            Self::UnsetVariable { name } => Some(format!("set it, or write ${{{name}:-default}}")),
            Self::UnsetInput { .. } => {
                Some("only an editor asks for inputs: write ${VARIABLE} instead and set the variable".to_owned())
            }
            _ => None,
        }
    }
}

/// Formats names for an error message, at most `MAX_NAMES` of them: first those that contain the wanted name or that it
/// contains, such as the name with its prefix.
fn names(wanted: &str, known: &[String]) -> String {
    const MAX_NAMES: usize = 20;
    const MAX_NAME_CHARS: usize = 128;
    if known.is_empty() {
        return "none".to_owned();
    }
    let is_similar = |name: &&String| !wanted.is_empty() && (name.contains(wanted) || wanted.contains(name.as_str()));
    let similar = known.iter().filter(is_similar);
    let others = known.iter().filter(|name| !is_similar(name));
    let mut text = similar
        .chain(others)
        .take(MAX_NAMES)
        .map(|name| format!("`{}`", name.chars().take(MAX_NAME_CHARS).collect::<String>()))
        .collect::<Vec<_>>()
        .join(", ");
    if known.len() > MAX_NAMES {
        text.push_str(&format!(" and {} more", known.len() - MAX_NAMES));
    }
    text
}
