//! The errors of configuration files and settings.

use std::path::PathBuf;

use super::BoxError;

/// An invalid configuration file or setting.
///
/// ```
/// use belljar_mcp_client::{ConfigError, McpError, McpServerStreamableHttp};
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
    pub(super) fn hint(&self) -> Option<String> {
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
pub(super) fn names(wanted: &str, known: &[String]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_come_first_and_the_rest_is_counted() {
        let known: Vec<String> = (0..30).map(|number| format!("tool_{number}")).chain(["git_log".to_owned()]).collect();
        let text = names("log", &known);
        assert!(text.starts_with("`git_log`, `tool_0`, "), "{text}");
        assert!(text.ends_with("`tool_18` and 11 more"), "{text}");
        // A name with a prefix that the toolset does not have is similar to the bare name.
        assert!(
            names("server_tool_25", &known).starts_with("`tool_2`, `tool_25`, "),
            "{}",
            names("server_tool_25", &known)
        );
        assert_eq!(names("", &["x".repeat(200)]), format!("`{}`", "x".repeat(128)));
        assert_eq!(names("x", &[]), "none");
    }
}
