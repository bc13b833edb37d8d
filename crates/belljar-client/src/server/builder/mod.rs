//! Builders of servers: what all of them can be told. What each transport needs is in the files beside this one.

mod http;
mod stdio;

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{Implementation, ServerNotification};

pub use self::http::{McpServerSse, McpServerStreamableHttp, OverHttp};
pub use stdio::McpServerStdio;

use super::hook::ProcessToolCall;
use super::settings::{ProtocolEra, ReconnectPolicy, Settings, ToolErrorBehavior};
use super::{CustomTransport, McpServer};
use crate::handlers::{ElicitationHandler, LogLevel, LogMessage, Model, Progress, Root, RootsHandler};
use crate::transport::Connector;
use crate::transport::http::StreamableHttp;
use crate::transport::sse::Sse;
use crate::transport::stdio::ChildProcess;

/// Builds a server of the transport `T`. Its names are [`McpServerStdio`], [`McpServerStreamableHttp`] and
/// [`McpServerSse`].
///
/// ```
/// use belljar_client::{McpServer, McpServerStdio, ServerBuilder};
/// use std::time::Duration;
///
/// /// What is the same for all servers of a program.
/// fn ours<T>(server: ServerBuilder<T>) -> ServerBuilder<T> {
///     server.timeout(Duration::from_secs(30)).client_info("my agent", "1.0")
/// }
///
/// let server: McpServer = ours(McpServerStdio::new("server")).build();
/// ```
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

impl ServerBuilder<CustomTransport> {
    pub(super) fn over(transport: CustomTransport) -> Self {
        Self { transport, settings: Settings::default() }
    }

    /// The server.
    ///
    /// ```
    /// use belljar_client::{McpServer, transport::Connector};
    ///
    /// fn over(way: impl Connector) -> McpServer {
    ///     McpServer::custom(way).id("mine").build()
    /// }
    /// ```
    pub fn build(self) -> McpServer {
        McpServer::new(self.transport.0, self.settings)
    }
}

macro_rules! build {
    ($($transport:ty),*) => {$(
        impl ServerBuilder<$transport> {
            /// The server. Nothing is started or connected yet.
            ///
            /// ```
            /// # use belljar_client::McpServerStdio;
            /// let server = McpServerStdio::new("server").build();
            /// ```
            pub fn build(self) -> McpServer {
                McpServer::new(Arc::new(self.transport) as Arc<dyn Connector>, self.settings)
            }
        }
    )*};
}

build!(ChildProcess, StreamableHttp, Sse);

impl<T> ServerBuilder<T> {
    /// A name for this server, for errors and comparisons. Without [`tool_prefix`](Self::tool_prefix) it prefixes nothing.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").id("files").build();
    /// assert_eq!(server.id(), Some("files"));
    /// ```
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.settings.id = Some(id.into());
        self
    }

    /// Names the server's tools `{prefix}_{name}`. Hooks see the bare name.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").tool_prefix("files").build();
    /// assert_eq!(server.id(), Some("files"));
    /// ```
    pub fn tool_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.tool_prefix = Some(prefix.into()).filter(|prefix| !prefix.is_empty());
        self
    }

    /// Which era of the protocol to speak. [`ProtocolEra::Auto`] unless told.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// # use belljar_client::ProtocolEra;
    /// let server = McpServerStdio::new("server").era(ProtocolEra::Legacy);
    /// ```
    pub fn era(mut self, era: ProtocolEra) -> Self {
        self.settings.era = era;
        self
    }

    /// Which log messages the server should send. Unless told, a server of the legacy era sends what it likes, one of the
    /// modern era none.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// # use belljar_client::LogLevel;
    /// let server = McpServerStdio::new("server").log_level(LogLevel::Info);
    /// ```
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
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").progress_handler(|step| eprintln!("{:?}", step.message));
    /// ```
    pub fn progress_handler(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.settings.handlers.progress = Some(Arc::new(handler));
        self
    }

    /// Gets every notification as the protocol has it, before the other handlers. It must not block.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").message_handler(|notification| eprintln!("{notification:?}"));
    /// ```
    pub fn message_handler(mut self, handler: impl Fn(&ServerNotification) + Send + Sync + 'static) -> Self {
        self.settings.handlers.message = Some(Arc::new(handler));
        self
    }

    /// How long the server may take to start and to answer the first request. 5 s unless told.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// # use std::time::Duration;
    /// let server = McpServerStdio::new("server").timeout(Duration::from_secs(30));
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// The longest silence of a call: without an answer, a step of its progress, a log message or a question of the server
    /// for this long it is given up, and the server is told. 300 s unless told.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// # use std::time::Duration;
    /// let server = McpServerStdio::new("server").read_timeout(Duration::from_secs(60));
    /// ```
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.settings.read_timeout = timeout;
        self
    }

    /// How often a model may try a failed tool again. 1 unless told. The agent's loop keeps the count, see
    /// [`ToolDefinition::max_retries`](crate::ToolDefinition::max_retries).
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").max_retries(3);
    /// ```
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.settings.max_retries = retries;
        self
    }

    /// Keeps the list of tools until the server says that it changed, or the connection closes. On unless told.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").cache_tools(false);
    /// ```
    pub fn cache_tools(mut self, cache: bool) -> Self {
        self.settings.cache_tools = cache;
        self
    }

    /// As [`cache_tools`](Self::cache_tools), for resources and their templates.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").cache_resources(false);
    /// ```
    pub fn cache_resources(mut self, cache: bool) -> Self {
        self.settings.cache_resources = cache;
        self
    }

    /// As [`cache_tools`](Self::cache_tools), for prompts.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").cache_prompts(false);
    /// ```
    pub fn cache_prompts(mut self, cache: bool) -> Self {
        self.settings.cache_prompts = cache;
        self
    }

    /// Whether [`Toolset::instructions`](crate::Toolset::instructions) hands on what the server says about its use. Off
    /// unless told: it is text of the server in the model's instructions.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").include_instructions(true);
    /// ```
    pub fn include_instructions(mut self, include: bool) -> Self {
        self.settings.include_instructions = include;
        self
    }

    /// Whether the model should be told the tools' output schemas; handed on in
    /// [`ToolDefinition::include_return_schema`](crate::ToolDefinition::include_return_schema).
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").include_return_schema(true);
    /// ```
    pub fn include_return_schema(mut self, include: bool) -> Self {
        self.settings.include_return_schema = Some(include);
        self
    }

    /// Checks arguments against a tool's schema before they are sent; what does not fit is a
    /// [`ToolOutcome::Retry`](crate::ToolOutcome::Retry). Off unless told: servers check themselves.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").validate_arguments(true);
    /// ```
    pub fn validate_arguments(mut self, validate: bool) -> Self {
        self.settings.validate_arguments = validate;
        self
    }

    /// Shows these tools to models, by their bare names, and no others; nor can a model call others. The program still can,
    /// with [`direct_call_tool`](McpServer::direct_call_tool). All of them unless told.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").enabled_tools(["read", "search"]);
    /// ```
    pub fn enabled_tools<I: IntoIterator<Item = impl Into<String>>>(mut self, names: I) -> Self {
        self.settings.enabled_tools = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Hides these tools from models, as [`enabled_tools`](Self::enabled_tools) does all others.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").disabled_tools(["delete"]);
    /// ```
    pub fn disabled_tools<I: IntoIterator<Item = impl Into<String>>>(mut self, names: I) -> Self {
        self.settings.disabled_tools.extend(names.into_iter().map(Into::into));
        self
    }

    /// What becomes of a tool that says it failed. A retry unless told.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// # use belljar_client::ToolErrorBehavior;
    /// let server = McpServerStdio::new("server").tool_error_behavior(ToolErrorBehavior::Error);
    /// ```
    pub fn tool_error_behavior(mut self, behavior: ToolErrorBehavior) -> Self {
        self.settings.tool_error_behavior = behavior;
        self
    }

    /// Who the server is told it speaks to. `belljar` and this crate's version unless told.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").client_info("my agent", "1.0");
    /// ```
    pub fn client_info(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.settings.client_info = Implementation::new(name, version);
        self
    }

    /// A hook around every call of a tool. It sees the bare name, and may change the call, add metadata, repeat it, or
    /// answer itself.
    ///
    /// ```
    /// # use belljar_client::{McpServerStdio, ProcessToolCall};
    /// # fn with(hook: impl ProcessToolCall) {
    /// let server = McpServerStdio::new("server").process_tool_call(hook);
    /// # }
    /// ```
    pub fn process_tool_call(mut self, hook: impl ProcessToolCall) -> Self {
        self.settings.process_tool_call = Some(Arc::new(hook));
        self
    }

    /// The model that the server may use.
    ///
    /// ```
    /// # use belljar_client::{McpServerStdio, Model};
    /// # fn with(model: impl Model) {
    /// let server = McpServerStdio::new("server").sampling_model(model);
    /// # }
    /// ```
    pub fn sampling_model(mut self, model: impl Model) -> Self {
        self.settings.handlers.model = Some(Arc::new(model));
        self
    }

    /// Whether the server may use the model at all. On unless told; without a model it changes nothing.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").allow_sampling(false);
    /// ```
    pub fn allow_sampling(mut self, allow: bool) -> Self {
        self.settings.allow_sampling = allow;
        self
    }

    /// Puts the server's questions to the user.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// # use belljar_client::ElicitationResponse;
    /// let server = McpServerStdio::new("server").elicitation_handler(async |_question| Ok(ElicitationResponse::Decline));
    /// ```
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
    pub fn roots(self, roots: impl IntoIterator<Item = Root>) -> Self {
        let roots: Vec<Root> = roots.into_iter().collect();
        self.roots_handler(move || std::future::ready(Ok(roots.clone())))
    }

    /// As [`roots`](Self::roots), asked for anew whenever the server wants to know. Call
    /// [`notify_roots_changed`](McpServer::notify_roots_changed) when the answer would be another.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// # use belljar_client::Root;
    /// let server = McpServerStdio::new("server").roots_handler(async || Ok(vec![Root::new("file:///tmp")]));
    /// ```
    pub fn roots_handler(mut self, handler: impl RootsHandler) -> Self {
        self.settings.handlers.roots = Some(Arc::new(handler));
        self
    }

    /// Tells the server that the program shows pages of [MCP Apps](https://modelcontextprotocol.io/extensions/apps/overview),
    /// without which some servers offer none. Off unless told.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").shows_apps(true);
    /// ```
    pub fn shows_apps(mut self, shows: bool) -> Self {
        self.settings.handlers.shows_apps = shows;
        self
    }

    /// How to connect anew when a connection over HTTP is lost while it is in use. A call that was under way fails all the
    /// same: only the program knows whether it may be repeated.
    ///
    /// ```
    /// # use belljar_client::{McpServerStreamableHttp, ReconnectPolicy};
    /// # fn main() -> Result<(), belljar_client::McpError> {
    /// let never = ReconnectPolicy { attempts: 0, ..Default::default() };
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.reconnect(never);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reconnect(mut self, policy: ReconnectPolicy) -> Self {
        self.settings.reconnect = policy;
        self
    }
}
