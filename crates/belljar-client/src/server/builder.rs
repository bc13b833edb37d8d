//! Builders of servers: what each transport needs, and what all of them can be told.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{Implementation, ServerNotification};

use super::calls::ProcessToolCall;
use super::settings::{ProtocolEra, ReconnectPolicy, Settings, ToolErrorBehavior};
use super::{CustomTransport, McpServer};
use crate::error::McpError;
use crate::handlers::{ElicitationHandler, LogLevel, LogMessage, Model, Progress, Root};
use crate::oauth::OAuth;
use crate::transport::Connector;
use crate::transport::http::{HeaderProvider, HttpEndpoint, StreamableHttp};
use crate::transport::sse::Sse;
use crate::transport::stdio::ChildProcess;

/// Builds a server of the transport `T`. Its names are [`McpServerStdio`], [`McpServerStreamableHttp`] and
/// [`McpServerSse`].
#[must_use = "a builder makes nothing until `build` is called"]
#[derive(Clone)]
pub struct ServerBuilder<T> {
    transport: T,
    settings: Settings,
}

impl<T: std::fmt::Debug> std::fmt::Debug for ServerBuilder<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ServerBuilder").field("transport", &self.transport).finish_non_exhaustive()
    }
}

/// A server that is a child process and speaks on its standard streams.
///
/// The child does not inherit the environment, but for `HOME`, `LOGNAME`, `PATH`, `SHELL`, `TERM` and `USER` (on Windows
/// what programs cannot do without); [`env`](ServerBuilder::env) adds to these. It is ended together with what it started: its standard
/// input is closed, after two seconds it gets SIGTERM, after one more SIGKILL.
///
/// ```
/// use belljar_client::McpServerStdio;
///
/// let server = McpServerStdio::new("uvx")
///     .args(["mcp-server-git", "--repository", "."])
///     .env("GIT_AUTHOR_NAME", "agent")
///     .tool_prefix("git")
///     .build();
/// assert_eq!(server.tool_prefix(), Some("git"));
/// ```
pub type McpServerStdio = ServerBuilder<ChildProcess>;

/// A server behind a URL that speaks streamable HTTP.
///
/// ```
/// use belljar_client::McpServerStreamableHttp;
///
/// # fn main() -> Result<(), belljar_client::McpError> {
/// let server = McpServerStreamableHttp::new("https://example.org/mcp")?
///     .bearer_token("secret")
///     .header("x-team", "blue")?
///     .build();
/// assert_eq!(server.label(), "https://example.org/mcp");
/// # Ok(())
/// # }
/// ```
pub type McpServerStreamableHttp = ServerBuilder<StreamableHttp>;

/// A server behind a URL that speaks HTTP with server-sent events, the transport of 2024.
///
/// ```
/// use belljar_client::McpServerSse;
///
/// # fn main() -> Result<(), belljar_client::McpError> {
/// let server = McpServerSse::new("http://localhost:8000/sse")?.build();
/// # Ok(())
/// # }
/// ```
pub type McpServerSse = ServerBuilder<Sse>;

impl ServerBuilder<ChildProcess> {
    /// A server that is started by this command: a program on `PATH`, or a path.
    pub fn new(command: impl Into<String>) -> Self {
        let process = ChildProcess { command: command.into(), args: Vec::new(), env: Vec::new(), cwd: None };
        Self { transport: process, settings: Settings::default() }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.transport.args.push(argument.into());
        self
    }

    /// Adds arguments.
    pub fn args<I: IntoIterator<Item = impl Into<String>>>(mut self, arguments: I) -> Self {
        self.transport.args.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the child's environment.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.transport.env.push((name.into(), value.into()));
        self
    }

    /// Sets variables of the child's environment.
    pub fn envs<I, N, V>(mut self, variables: I) -> Self
    where
        I: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: Into<String>,
    {
        self.transport.env.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// The directory to start the child in; else that of the program.
    pub fn cwd(mut self, directory: impl Into<PathBuf>) -> Self {
        self.transport.cwd = Some(directory.into());
        self
    }
}

/// What [`McpServerStreamableHttp`] and [`McpServerSse`] share.
pub trait OverHttp {
    #[doc(hidden)]
    fn endpoint(&mut self) -> &mut HttpEndpoint;
}

impl OverHttp for StreamableHttp {
    fn endpoint(&mut self) -> &mut HttpEndpoint {
        &mut self.endpoint
    }
}

impl OverHttp for Sse {
    fn endpoint(&mut self) -> &mut HttpEndpoint {
        &mut self.endpoint
    }
}

impl ServerBuilder<StreamableHttp> {
    /// A server behind this URL.
    ///
    /// # Errors
    ///
    /// [`McpError::Config`] if this is no `http` or `https` URL.
    pub fn new(url: impl AsRef<str>) -> Result<Self, McpError> {
        let endpoint = HttpEndpoint::new(url.as_ref())?;
        Ok(Self { transport: StreamableHttp { endpoint, oauth: None }, settings: Settings::default() })
    }

    /// Gets tokens by OAuth 2.1 when the server asks for them.
    ///
    /// ```
    /// use belljar_client::McpServerStreamableHttp;
    /// use belljar_client::oauth::OAuth;
    ///
    /// # fn main() -> Result<(), belljar_client::McpError> {
    /// let oauth = OAuth::new("http://127.0.0.1:8765/callback", async |url: String| {
    ///     println!("visit {url} and paste where you were sent:");
    ///     let mut answer = String::new();
    ///     std::io::stdin().read_line(&mut answer).map_err(|error| error.to_string())?;
    ///     Ok(answer.trim().to_owned())
    /// });
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.oauth(oauth).build();
    /// # Ok(())
    /// # }
    /// ```
    pub fn oauth(mut self, oauth: OAuth) -> Self {
        self.transport.oauth = Some(Arc::new(oauth));
        self
    }
}

impl ServerBuilder<Sse> {
    /// A server behind this URL, whose path by custom ends in `/sse`.
    ///
    /// # Errors
    ///
    /// [`McpError::Config`] if this is no `http` or `https` URL.
    pub fn new(url: impl AsRef<str>) -> Result<Self, McpError> {
        Ok(Self { transport: Sse { endpoint: HttpEndpoint::new(url.as_ref())? }, settings: Settings::default() })
    }
}

impl<T: OverHttp> ServerBuilder<T> {
    /// Adds a header to every request.
    ///
    /// # Errors
    ///
    /// [`McpError::Config`] if the name or value is none of HTTP, or the name is the protocol's own (`accept`,
    /// `mcp-session-id`, …).
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, McpError> {
        let bad = |what: &str| McpError::Config(format!("the header `{name}` has a {what} that HTTP does not allow"));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("name"))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad("value"))?;
        value.set_sensitive(true);
        self.transport.endpoint().add_header(header, value)?;
        Ok(self)
    }

    /// Adds headers to every request.
    ///
    /// # Errors
    ///
    /// As [`header`](Self::header).
    pub fn headers(mut self, headers: &HeaderMap) -> Result<Self, McpError> {
        for (name, value) in headers {
            self.transport.endpoint().add_header(name.clone(), value.clone())?;
        }
        Ok(self)
    }

    /// Sends `Authorization: Bearer …` with every request.
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.transport.endpoint().bearer = Some(token.into());
        self
    }

    /// Asks for further headers before each request: tokens that grow old, for one.
    ///
    /// ```
    /// use belljar_client::McpServerStreamableHttp;
    /// use http::{HeaderMap, HeaderValue};
    ///
    /// # fn main() -> Result<(), belljar_client::McpError> {
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.header_provider(async || {
    ///     Ok(HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer fresh"))]))
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn header_provider(mut self, provider: impl HeaderProvider) -> Self {
        self.transport.endpoint().provider = Some(Arc::new(provider));
        self
    }

    /// Uses this HTTP client: for proxies, certificates, timeouts of your own.
    ///
    /// The crate's own client follows redirects within the same origin only, so that headers reach no other host; a client
    /// of yours should do so too.
    pub fn http_client(mut self, client: reqwest::Client) -> Self {
        self.transport.endpoint().client = Some(client);
        self
    }
}

impl ServerBuilder<CustomTransport> {
    pub(super) fn over(transport: CustomTransport) -> Self {
        Self { transport, settings: Settings::default() }
    }

    /// The server.
    pub fn build(self) -> McpServer {
        McpServer::new(self.transport.0, self.settings)
    }
}

macro_rules! build {
    ($($transport:ty),*) => {$(
        impl ServerBuilder<$transport> {
            /// The server. Nothing is started or connected yet.
            pub fn build(self) -> McpServer {
                McpServer::new(Arc::new(self.transport) as Arc<dyn Connector>, self.settings)
            }
        }
    )*};
}

build!(ChildProcess, StreamableHttp, Sse);

impl<T> ServerBuilder<T> {
    /// A name for this server, for errors and comparisons. Without [`tool_prefix`](Self::tool_prefix) it prefixes nothing.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.settings.id = Some(id.into());
        self
    }

    /// Names the server's tools `{prefix}_{name}`. Hooks see the bare name.
    pub fn tool_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.tool_prefix = Some(prefix.into()).filter(|prefix| !prefix.is_empty());
        self
    }

    /// Which era of the protocol to speak. [`ProtocolEra::Auto`] unless told.
    pub fn era(mut self, era: ProtocolEra) -> Self {
        self.settings.era = era;
        self
    }

    /// Which log messages the server should send. Unless told, a server of the legacy era sends what it likes, one of the
    /// modern era none.
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.settings.log_level = Some(level);
        self
    }

    /// Gets the server's log messages, in order, each before the result of the call that it belongs to. It must not block.
    ///
    /// ```
    /// use belljar_client::McpServerStdio;
    ///
    /// let server = McpServerStdio::new("server").log_handler(|message| eprintln!("{}", message.text()));
    /// ```
    pub fn log_handler(mut self, handler: impl Fn(LogMessage) + Send + Sync + 'static) -> Self {
        self.settings.handlers.log = Some(Arc::new(handler));
        self
    }

    /// Gets the progress of every call that has no handler of its own. It must not block.
    pub fn progress_handler(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.settings.handlers.progress = Some(Arc::new(handler));
        self
    }

    /// Gets every notification as the protocol has it, before the other handlers. It must not block.
    pub fn message_handler(mut self, handler: impl Fn(&ServerNotification) + Send + Sync + 'static) -> Self {
        self.settings.handlers.message = Some(Arc::new(handler));
        self
    }

    /// How long the server may take to start and to answer the first request. 5 s unless told.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// The longest silence of a call: without an answer, a step of its progress, a log message or a question of the server
    /// for this long it is given up, and the server is told. 300 s unless told.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.settings.read_timeout = timeout;
        self
    }

    /// How often a model may try a failed tool again. 1 unless told. The agent's loop keeps the count, see
    /// [`ToolDefinition::max_retries`](crate::ToolDefinition::max_retries).
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.settings.max_retries = retries;
        self
    }

    /// Keeps the list of tools until the server says that it changed, or the connection closes. On unless told.
    pub fn cache_tools(mut self, cache: bool) -> Self {
        self.settings.cache_tools = cache;
        self
    }

    /// As [`cache_tools`](Self::cache_tools), for resources and their templates.
    pub fn cache_resources(mut self, cache: bool) -> Self {
        self.settings.cache_resources = cache;
        self
    }

    /// As [`cache_tools`](Self::cache_tools), for prompts.
    pub fn cache_prompts(mut self, cache: bool) -> Self {
        self.settings.cache_prompts = cache;
        self
    }

    /// Whether [`Toolset::instructions`](crate::Toolset::instructions) hands on what the server says about its use. Off
    /// unless told: it is text of the server in the model's instructions.
    pub fn include_instructions(mut self, include: bool) -> Self {
        self.settings.include_instructions = include;
        self
    }

    /// Whether the model should be told the tools' output schemas; handed on in
    /// [`ToolDefinition::include_return_schema`](crate::ToolDefinition::include_return_schema).
    pub fn include_return_schema(mut self, include: bool) -> Self {
        self.settings.include_return_schema = Some(include);
        self
    }

    /// Checks arguments against a tool's schema before they are sent; what does not fit is a
    /// [`ToolOutcome::Retry`](crate::ToolOutcome::Retry). Off unless told: servers check themselves.
    pub fn validate_arguments(mut self, validate: bool) -> Self {
        self.settings.validate_arguments = validate;
        self
    }

    /// What becomes of a tool that says it failed. A retry unless told.
    pub fn tool_error_behavior(mut self, behavior: ToolErrorBehavior) -> Self {
        self.settings.tool_error_behavior = behavior;
        self
    }

    /// Who the server is told it speaks to. `belljar` and this crate's version unless told.
    pub fn client_info(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.settings.client_info = Implementation::new(name, version);
        self
    }

    /// A hook around every call of a tool. It sees the bare name, and may change the call, add metadata, repeat it, or
    /// answer itself.
    ///
    /// See [`ProcessToolCall`] for an example.
    pub fn process_tool_call(mut self, hook: impl ProcessToolCall) -> Self {
        self.settings.process_tool_call = Some(Arc::new(hook));
        self
    }

    /// The model that the server may use.
    pub fn sampling_model(mut self, model: impl Model) -> Self {
        self.settings.handlers.model = Some(Arc::new(model));
        self
    }

    /// Whether the server may use the model at all. On unless told; without a model it changes nothing.
    pub fn allow_sampling(mut self, allow: bool) -> Self {
        self.settings.allow_sampling = allow;
        self
    }

    /// Puts the server's questions to the user.
    pub fn elicitation_handler(mut self, handler: impl ElicitationHandler) -> Self {
        self.settings.handlers.elicitation = Some(Arc::new(handler));
        self
    }

    /// The directories that the server is told it works on, as `file://` URIs.
    ///
    /// ```
    /// use belljar_client::{McpServerStdio, Root};
    ///
    /// let server = McpServerStdio::new("server").roots([Root::new("file:///home/me/project")]);
    /// ```
    pub fn roots(mut self, roots: impl IntoIterator<Item = Root>) -> Self {
        self.settings.handlers.roots = Some(roots.into_iter().collect());
        self
    }

    /// How to connect anew when a connection over HTTP is lost while it is in use. A call that was under way fails all the
    /// same: only the program knows whether it may be repeated.
    pub fn reconnect(mut self, policy: ReconnectPolicy) -> Self {
        self.settings.reconnect = policy;
        self
    }
}
