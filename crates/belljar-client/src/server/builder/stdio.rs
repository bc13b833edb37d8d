//! Builders of servers that are child processes.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::ServerBuilder;
use crate::transport::ChildStderr;
use crate::transport::stdio::ChildProcess;

/// The builder of a server that is a child process and communicates over its standard streams.
///
/// The child inherits only `HOME`, `LOGNAME`, `PATH`, `SHELL`, `TERM` and `USER` from the environment (on Windows the
/// variables that programs require); [`env`](ServerBuilder::env) adds others. Closing the connection ends the child and
/// its descendants: its standard input is closed, after two seconds it gets SIGTERM, after one more SIGKILL.
///
/// ```
/// use belljar_mcp_client::McpServerStdio;
///
/// let server = McpServerStdio::new("uvx")
///     .args(["mcp-server-git", "--repository", "."])
///     .env("GIT_AUTHOR_NAME", "agent")
///     .tool_prefix("git")
///     .build();
/// assert_eq!(server.tool_prefix(), Some("git"));
/// ```
pub type McpServerStdio = ServerBuilder<ChildProcess>;

impl ServerBuilder<ChildProcess> {
    /// Creates the builder of a server that this command starts: a program on `PATH`, or a path.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server");
    /// ```
    pub fn new(command: impl AsRef<OsStr>) -> Self {
        Self::over(ChildProcess::new(command.as_ref()))
    }

    /// Adds an argument.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").arg("--verbose");
    /// ```
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.transport.args.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").args(["--root", "/tmp"]);
    /// ```
    pub fn args<I: IntoIterator<Item = impl AsRef<OsStr>>>(mut self, arguments: I) -> Self {
        self.transport.args.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the child's environment.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").env("API_KEY", "secret");
    /// ```
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.transport.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets variables of the child's environment.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").envs([("API_KEY", "secret"), ("LANG", "C.UTF-8")]);
    /// ```
    pub fn envs<I, N, V>(mut self, variables: I) -> Self
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let variables = variables.into_iter();
        let variables = variables.map(|(name, value)| (name.as_ref().to_owned(), value.as_ref().to_owned()));
        self.transport.env.extend(variables);
        self
    }

    /// Lets the child inherit all environment variables of the program, which may contain secrets that the server does
    /// not need.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").inherit_env().env("LANG", "C.UTF-8");
    /// ```
    pub fn inherit_env(mut self) -> Self {
        self.transport.inherits_env = true;
        self
    }

    /// Sets the directory to start the child in. Defaults to that of the program.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").cwd("/tmp");
    /// ```
    pub fn cwd(mut self, directory: impl Into<PathBuf>) -> Self {
        self.transport.cwd = Some(directory.into());
        self
    }

    /// Sets the destination of the child's standard error. By default the last lines are part of error messages.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # use belljar_mcp_client::transport::ChildStderr;
    /// let server = McpServerStdio::new("server").stderr(ChildStderr::Inherit);
    /// ```
    pub fn stderr(mut self, destination: ChildStderr) -> Self {
        self.transport.stderr = destination;
        self
    }
}
