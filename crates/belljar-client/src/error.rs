//! What can go wrong between a program and an MCP server, in one enum.

use serde_json::Value;

/// A boxed cause, as `std::error::Error::source` hands it on.
///
/// ```
/// let error: belljar_client::BoxError = std::io::Error::other("no").into();
/// assert_eq!(error.to_string(), "no");
/// ```
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of a server or of the way to it.
///
/// What a model can mend by trying again is not an error but [`ToolOutcome::Retry`](crate::ToolOutcome::Retry).
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
    /// The program of a stdio server could not be started.
    #[error("could not start `{command}`: {source}; check that it is installed and on PATH")]
    Spawn {
        /// The program as it was given.
        command: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The connection could not be made, or the server refused it.
    #[error("could not connect to {server}: {reason}")]
    Connect {
        /// The server's label.
        server: String,
        /// What happened, in words; the last lines of a child's standard error where there are some.
        reason: String,
        /// The transport's own error.
        #[source]
        source: Option<BoxError>,
    },
    /// The connection ended while something was asked, or was over before.
    #[error("the connection to {server} is closed: {reason}")]
    Closed {
        /// The server's label.
        server: String,
        /// Why, as far as it is known; the last lines of a child's standard error where there are some.
        reason: String,
    },
    /// A request did not get through: the network failed, or HTTP answered with an error.
    #[error("a request to {server} did not get through: {reason}")]
    Unreachable {
        /// The server's label.
        server: String,
        /// What the transport says.
        reason: String,
    },
    /// The server did not answer in time.
    #[error("{server} did not answer `{method}` within {seconds} s{hint}")]
    Timeout {
        /// The server's label.
        server: String,
        /// The method that was asked for.
        method: String,
        /// How long it was waited, in seconds.
        seconds: f64,
        /// What else is known: a child's last lines, or nothing.
        hint: String,
    },
    /// The server answered with a JSON-RPC error.
    #[error("{message} (code {code})")]
    Protocol {
        /// The JSON-RPC error code, −32601 for an unknown method for one.
        code: i32,
        /// The server's message.
        message: String,
        /// What the server added to it.
        data: Option<Value>,
    },
    /// The server answered with something that the protocol does not allow.
    #[error("{server} broke the protocol: {reason}")]
    BadAnswer {
        /// The server's label.
        server: String,
        /// What was wrong.
        reason: String,
    },
    /// The server wants authorization that it did not get.
    #[error("{server} wants authorization: {reason}; give it a bearer token or an `OAuth`")]
    Unauthorized {
        /// The server's label.
        server: String,
        /// The challenge of the server (`WWW-Authenticate`), or what went wrong on the way to a token.
        reason: String,
    },
    /// A tool failed and the server was configured with
    /// [`ToolErrorBehavior::Error`](crate::ToolErrorBehavior::Error).
    #[error("tool `{tool}` failed: {message}")]
    ToolFailed {
        /// The tool.
        tool: String,
        /// What the server said.
        message: String,
    },
    /// There is no such tool.
    #[error("there is no tool `{name}`; there are: {}", names(.known))]
    UnknownTool {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// Two toolsets offer a tool of the same name.
    #[error("{first} and {second} both have a tool `{name}`; {hint}")]
    NameClash {
        /// The name.
        name: String,
        /// Label of the toolset that came first.
        first: String,
        /// Label of the other.
        second: String,
        /// What to do about it.
        hint: String,
    },
    /// A configuration could not be read, or says what cannot be done.
    #[error("{0}")]
    Config(String),
    /// A hook or handler of the program itself failed.
    #[error("{0}")]
    Hook(String),
}

impl McpError {
    /// Whether asking again could help: the connection was lost or slow, not refused.
    ///
    /// ```
    /// use belljar_client::McpError;
    ///
    /// let lost = McpError::Closed { server: "files".into(), reason: "it ended".into() };
    /// assert!(lost.is_connection_loss());
    /// ```
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Closed { .. } | Self::Unreachable { .. } | Self::Timeout { .. })
    }

    pub(crate) fn protocol(error: rmcp::ErrorData) -> Self {
        Self::Protocol { code: error.code.0, message: error.message.into_owned(), data: error.data }
    }
}

/// Names for an error message: no more than a screenful.
fn names(known: &[String]) -> String {
    const SHOWN: usize = 20;
    if known.is_empty() {
        return "none".to_owned();
    }
    let mut text = known.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if known.len() > SHOWN {
        text.push_str(&format!(" and {} more", known.len() - SHOWN));
    }
    text
}
