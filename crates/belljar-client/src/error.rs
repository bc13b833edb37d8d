//! The errors between a program and an MCP server, in one enum.

mod config;

use std::time::Duration;

use serde_json::Value;

use crate::toolset::{Retry, RetryReason, ToolOutcome};

pub use config::ConfigError;
use config::names;

/// A boxed error of a handler, a hook or a transport.
///
/// ```
/// let error: belljar_mcp_client::BoxError = std::io::Error::other("no").into();
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
/// use belljar_mcp_client::{McpError, McpServerStdio};
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
    #[non_exhaustive]
    Connect {
        /// The server's label.
        server: String,
        /// The cause; includes the last lines of a child's standard error, if any.
        reason: String,
        /// The status of the HTTP response, if the server sent one.
        status: Option<u16>,
        /// The time after which the server asked to repeat the request (`Retry-After`).
        retry_after: Option<Duration>,
        /// A further cause, whose text `reason` does not contain.
        #[source]
        source: Option<BoxError>,
    },
    /// The connection was closed before or during a request.
    #[error("the connection to {server} is closed: {reason}")]
    #[non_exhaustive]
    Closed {
        /// The server's label.
        server: String,
        /// The cause, if known; includes the last lines of a child's standard error, if any.
        reason: String,
    },
    /// A request failed in transport: a network error, or an HTTP error status.
    #[error("failed to send a request to {server}: {reason}")]
    #[non_exhaustive]
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
    #[non_exhaustive]
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
    #[non_exhaustive]
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
    #[non_exhaustive]
    InvalidResponse {
        /// The server's label.
        server: String,
        /// The violation.
        reason: String,
    },
    /// The server requires authorization and did not accept the request's credentials.
    #[error("{server} requires authorization: {reason}")]
    #[non_exhaustive]
    Unauthorized {
        /// The server's label.
        server: String,
        /// The server's challenge (`WWW-Authenticate`), or the error that occurred while obtaining a token.
        reason: String,
        /// The status of the HTTP response: 401, or 403 if the credentials are not sufficient. `None` if obtaining a
        /// token failed.
        status: Option<u16>,
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
    /// Creates the error of a connection that could not be established, for transports of the program.
    ///
    /// ```
    /// # use belljar_mcp_client::McpError;
    /// let error = McpError::connect("files", "the port does not accept connections");
    /// assert_eq!(error.to_string(), "failed to connect to files: the port does not accept connections");
    /// ```
    pub fn connect(server: impl Into<String>, reason: impl Into<String>) -> Self {
        let (server, reason) = (server.into(), reason.into());
        Self::Connect { server, reason, status: None, retry_after: None, source: None }
    }

    /// Creates the error of a connection that was closed, for transports of the program.
    ///
    /// ```
    /// # use belljar_mcp_client::McpError;
    /// let error = McpError::closed("files", "the program exited");
    /// assert_eq!(error.to_string(), "the connection to files is closed: the program exited");
    /// ```
    pub fn closed(server: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Closed { server: server.into(), reason: reason.into() }
    }

    /// Creates the error of a response that violates the protocol, for transports and toolsets of the program.
    ///
    /// ```
    /// # use belljar_mcp_client::McpError;
    /// let error = McpError::invalid_response("files", "the list is not an array");
    /// assert_eq!(error.to_string(), "invalid response from files: the list is not an array");
    /// ```
    pub fn invalid_response(server: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::InvalidResponse { server: server.into(), reason: reason.into() }
    }

    /// Creates the error of a missing authorization, for transports of the program.
    ///
    /// ```
    /// # use belljar_mcp_client::McpError;
    /// let error = McpError::unauthorized("files", "no token");
    /// assert_eq!(error.to_string(), "files requires authorization: no token");
    /// ```
    pub fn unauthorized(server: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unauthorized { server: server.into(), reason: reason.into(), status: None }
    }

    /// Adds a further cause to an error of [`connect`](Self::connect), whose text the reason does not contain.
    ///
    /// ```
    /// # use belljar_mcp_client::McpError;
    /// # use std::error::Error;
    /// let cause = std::io::Error::other("no route");
    /// let error = McpError::connect("files", "the host does not answer").caused_by(cause);
    /// assert_eq!(error.source().unwrap().to_string(), "no route");
    /// ```
    pub fn caused_by(mut self, cause: impl Into<BoxError>) -> Self {
        if let Self::Connect { source, .. } = &mut self {
            *source = Some(cause.into());
        }
        self
    }

    /// Returns the status of the HTTP response that caused the error, if the server sent one: while connecting, during
    /// a request, or with a rejected authorization.
    ///
    /// ```
    /// # use belljar_mcp_client::McpError;
    /// fn is_overloaded(error: &McpError) -> bool {
    ///     matches!(error.http_status(), Some(429 | 503))
    /// }
    /// # assert!(!is_overloaded(&McpError::connect("files", "refused")));
    /// ```
    pub fn http_status(&self) -> Option<u16> {
        match self {
            Self::Connect { status, .. } | Self::Unreachable { status, .. } | Self::Unauthorized { status, .. } => {
                *status
            }
            _ => None,
        }
    }

    /// Returns the time after which the server asked to repeat the request (`Retry-After`), if it did.
    ///
    /// ```
    /// # use belljar_mcp_client::McpError;
    /// assert_eq!(McpError::connect("files", "refused").retry_after(), None);
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Connect { retry_after, .. } | Self::Unreachable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns whether the server refused the request with an HTTP status that a repetition does not change.
    fn is_refused(&self) -> bool {
        // 408, 425 and 429 ask for a repetition.
        matches!(self.http_status(), Some(400..=407 | 409..=424 | 426..=428 | 430..=499))
    }

    /// Returns whether a repeated request could succeed: the connection was lost or slow, not refused.
    ///
    /// ```
    /// use belljar_mcp_client::McpError;
    ///
    /// let closed = McpError::closed("files", "the program exited");
    /// assert!(closed.is_connection_loss());
    /// ```
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Closed { .. } | Self::Unreachable { .. } | Self::Timeout { .. })
    }

    /// Returns whether a model can react to the error: the server cannot be reached, closed the connection, refused the
    /// request (HTTP 404, 429, 503), did not respond in time, sent an invalid response, or responded with an error.
    /// A server's tools turn such an error of a call into a [`ToolOutcome::Retry`](crate::ToolOutcome::Retry). A missing
    /// authorization, an invalid configuration, a program that cannot be started and a failed hook concern the program.
    ///
    /// ```
    /// use belljar_mcp_client::McpError;
    ///
    /// assert!(McpError::closed("files", "the program exited").is_for_model());
    /// assert!(!McpError::unauthorized("files", "no token").is_for_model());
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
    /// use belljar_mcp_client::{McpError, McpServer, ToolOutcome};
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
            error if error.is_refused() => RetryReason::Refused,
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
    /// use belljar_mcp_client::McpError;
    ///
    /// assert!(McpError::unauthorized("files", "no token").hint().unwrap().contains("bearer_token"));
    /// ```
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Spawn { .. } => Some("check that the program is installed and on PATH".to_owned()),
            Self::Unauthorized { status: Some(403), .. } => {
                Some("the credentials are not sufficient: check the scopes of the token".to_owned())
            }
            Self::Unauthorized { .. } => Some("configure the server with `bearer_token` or `oauth`".to_owned()),
            Self::Connect { status: Some(403), .. } => Some("check the credentials of the server".to_owned()),
            Self::Connect { status: Some(404 | 405), .. } => {
                Some("check the URL, and whether the server uses streamable HTTP or the transport of 2024".to_owned())
            }
            Self::Connect { status: Some(429 | 502..=504), .. } => Some("try again later".to_owned()),
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
