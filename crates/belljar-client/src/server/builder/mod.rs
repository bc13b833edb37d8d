//! Builders of servers: the settings common to all transports. The submodules add those of handlers, of connections and
//! of each transport.

mod any;
mod connections;
mod handlers;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "stdio")]
mod stdio;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rmcp::model::Implementation;
use serde_json::{Map, Value};

#[cfg(feature = "sse")]
pub use self::http::McpServerSse;
#[cfg(feature = "http")]
pub use self::http::{HttpServerBuilderExt, McpServerStreamableHttp};
pub use any::AnyServerBuilder;
#[cfg(feature = "stdio")]
pub use stdio::McpServerStdio;

use super::McpServer;
use super::hook::{CallTool, ClosureHook, ProcessToolCall};
use super::settings::{ProtocolEra, ReconnectPolicy, ResultMapping, Settings, ToolErrorBehavior};
use crate::error::McpError;
use crate::handlers::LogLevel;
use crate::run_context::RunContext;
use crate::toolset::ToolOutcome;
use crate::transport::Connector;

/// A builder of a server with the transport `T`. Its aliases are [`McpServerStdio`], [`McpServerStreamableHttp`] and
/// [`McpServerSse`].
///
/// ```
/// use belljar_mcp_client::{McpServer, McpServerStdio, ServerBuilder};
/// use std::time::Duration;
///
/// /// Applies the settings that all servers of a program share.
/// fn with_defaults<T>(server: ServerBuilder<T>) -> ServerBuilder<T> {
///     server.timeout(Duration::from_secs(30)).client_info("my agent", "1.0")
/// }
///
/// let server: McpServer = with_defaults(McpServerStdio::new("server")).build();
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

impl<T: Connector> ServerBuilder<T> {
    pub(super) fn over(transport: T) -> Self {
        Self { transport, settings: Settings::default() }
    }

    /// Builds the server. Nothing is started or connected yet.
    ///
    /// ```
    /// use belljar_mcp_client::transport::Connector;
    /// use belljar_mcp_client::{McpServer, McpServerStdio, ServerBuilder};
    ///
    /// fn patient<T: Connector>(server: ServerBuilder<T>) -> McpServer {
    ///     server.timeout(std::time::Duration::from_secs(60)).build()
    /// }
    ///
    /// let server = patient(McpServerStdio::new("server"));
    /// ```
    pub fn build(self) -> McpServer {
        McpServer::new(Arc::new(self.transport), self.settings)
    }
}

impl<T> ServerBuilder<T> {
    /// Sets the ID of this server, for error messages and comparisons. Without [`tool_prefix`](Self::tool_prefix) it
    /// does not prefix tools.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").id("files").build();
    /// assert_eq!(server.id(), Some("files"));
    /// ```
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.settings.id = Some(id.into());
        self
    }

    /// Prefixes the names of the server's tools: `{prefix}_{name}`. Hooks receive the bare name.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").tool_prefix("files").build();
    /// assert_eq!(server.id(), Some("files"));
    /// ```
    pub fn tool_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.tool_prefix = Some(prefix.into()).filter(|prefix| !prefix.is_empty());
        self
    }

    /// Sets the era of the protocol. Defaults to [`ProtocolEra::Auto`].
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # use belljar_mcp_client::ProtocolEra;
    /// let server = McpServerStdio::new("server").era(ProtocolEra::Legacy);
    /// ```
    pub fn era(mut self, era: ProtocolEra) -> Self {
        self.settings.era = era;
        self
    }

    /// Sets the level of log messages to request. By default a server of the legacy era chooses the level, and one of
    /// the modern era sends none.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # use belljar_mcp_client::LogLevel;
    /// let server = McpServerStdio::new("server").log_level(LogLevel::Info);
    /// ```
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.settings.log_level = Some(level);
        self
    }

    /// Sets the time within which the server must start and respond to the first request. Defaults to 5 s.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # use std::time::Duration;
    /// let server = McpServerStdio::new("server").timeout(Duration::from_secs(30));
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Sets the idle timeout of a call: without a response, progress, a log message or a request of the server for this
    /// long, the call is cancelled. Defaults to 300 s.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # use std::time::Duration;
    /// let server = McpServerStdio::new("server").read_timeout(Duration::from_secs(60));
    /// ```
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.settings.read_timeout = timeout;
        self
    }

    /// Sets the number of times that a model may retry a failed tool. By default the agent's own number applies:
    /// [`ToolRunner::max_retries`](crate::ToolRunner::max_retries).
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").max_retries(3);
    /// ```
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.settings.max_retries = Some(retries);
        self
    }

    /// Enables caching the list of tools until the server announces a change or the connection closes. Defaults to
    /// true.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").cache_tools(false);
    /// ```
    pub fn cache_tools(mut self, cache: bool) -> Self {
        self.settings.cache_tools = cache;
        self
    }

    /// Enables caching of resources and their templates, as [`cache_tools`](Self::cache_tools) does of tools.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").cache_resources(false);
    /// ```
    pub fn cache_resources(mut self, cache: bool) -> Self {
        self.settings.cache_resources = cache;
        self
    }

    /// Enables caching of prompts, as [`cache_tools`](Self::cache_tools) does of tools.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").cache_prompts(false);
    /// ```
    pub fn cache_prompts(mut self, cache: bool) -> Self {
        self.settings.cache_prompts = cache;
        self
    }

    /// Includes the server's instructions in [`Toolset::instructions`](crate::Toolset::instructions). Defaults to
    /// false, because they are untrusted text in the model's instructions.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").include_instructions(true);
    /// ```
    pub fn include_instructions(mut self, include: bool) -> Self {
        self.settings.include_instructions = include;
        self
    }

    /// Sets whether to show the tools' output schemas to the model; copied to
    /// [`ToolDefinition::include_return_schema`](crate::ToolDefinition::include_return_schema).
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").include_return_schema(true);
    /// ```
    pub fn include_return_schema(mut self, include: bool) -> Self {
        self.settings.include_return_schema = Some(include);
        self
    }

    /// Validates arguments against a tool's schema before sending them; invalid arguments are a
    /// [`ToolOutcome::Retry`](crate::ToolOutcome::Retry). Defaults to false, because servers validate as well.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").validate_arguments(true);
    /// ```
    #[cfg(feature = "validate")]
    pub fn validate_arguments(mut self, validate: bool) -> Self {
        self.settings.validate_arguments = validate;
        self
    }

    /// Shows only these tools to models, by their bare names; models cannot call other tools. The program can, with
    /// [`direct_call_tool`](McpServer::direct_call_tool). Defaults to all tools.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").enabled_tools(["read", "search"]);
    /// ```
    pub fn enabled_tools<I: IntoIterator<Item = impl Into<String>>>(mut self, names: I) -> Self {
        self.settings.enabled_tools = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Hides these tools from models, as [`enabled_tools`](Self::enabled_tools) hides all others.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").disabled_tools(["delete"]);
    /// ```
    pub fn disabled_tools<I: IntoIterator<Item = impl Into<String>>>(mut self, names: I) -> Self {
        self.settings.disabled_tools.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets the treatment of a tool that reports failure, and in [`Toolset::call`](crate::Toolset::call) of a server
    /// that cannot be reached or sends an invalid response. Defaults to a retry.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # use belljar_mcp_client::ToolErrorBehavior;
    /// let server = McpServerStdio::new("server").tool_error_behavior(ToolErrorBehavior::Error);
    /// ```
    pub fn tool_error_behavior(mut self, behavior: ToolErrorBehavior) -> Self {
        self.settings.tool_error_behavior = behavior;
        self
    }

    /// Sets the conversion of results to the output for models. Defaults to [`ResultMapping::PydanticAi1`].
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServerStdio, ResultMapping};
    /// let server = McpServerStdio::new("server").result_mapping(ResultMapping::PydanticAi2);
    /// ```
    pub fn result_mapping(mut self, mapping: ResultMapping) -> Self {
        self.settings.result_mapping = mapping;
        self
    }

    /// Sets the client's name and version, which servers see. Defaults to `belljar` and this crate's version.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").client_info("my agent", "1.0");
    /// ```
    pub fn client_info(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.settings.client_info = Implementation::new(name, version);
        self
    }

    /// Sets all that servers see of the client: also its title, description, icons and website.
    ///
    /// ```
    /// use belljar_mcp_client::{McpServerStdio, protocol::Implementation};
    ///
    /// let info = Implementation::new("my-agent", "1.0").with_title("My agent").with_website_url("https://example.org");
    /// let server = McpServerStdio::new("server").client_implementation(info);
    /// ```
    pub fn client_implementation(mut self, client: Implementation) -> Self {
        self.settings.client_info = client;
        self
    }

    /// Sets a hook around every tool call. It receives the bare name, and may change the call, add metadata, repeat it,
    /// or return an outcome of its own.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServerStdio, ProcessToolCall};
    /// # fn with(hook: impl ProcessToolCall) {
    /// let server = McpServerStdio::new("server").process_tool_call(hook);
    /// # }
    /// ```
    pub fn process_tool_call(mut self, hook: impl ProcessToolCall) -> Self {
        self.settings.process_tool_call = Some(Arc::new(hook));
        self
    }

    /// Sets a hook around every tool call, as [`process_tool_call`](Self::process_tool_call) does, from a closure.
    ///
    /// ```
    /// use belljar_mcp_client::McpServerStdio;
    ///
    /// let server = McpServerStdio::new("server").process_tool_call_with(|_run, call, name, mut arguments| {
    ///     arguments.insert("user".into(), "ada".into());
    ///     Box::pin(async move { call.call(name, arguments).await })
    /// });
    /// ```
    pub fn process_tool_call_with<F>(self, hook: F) -> Self
    where
        F: for<'a> Fn(
                &'a RunContext,
                CallTool<'a>,
                &'a str,
                Map<String, Value>,
            ) -> BoxFuture<'a, Result<ToolOutcome, McpError>>
            + Send
            + Sync
            + 'static,
    {
        self.process_tool_call(ClosureHook(hook))
    }

    /// Sets the policy for reconnecting when an HTTP connection in use is lost. A call in progress fails in any case:
    /// only the program knows whether it may be repeated.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServerStreamableHttp, ReconnectPolicy};
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.reconnect(ReconnectPolicy::never());
    /// # Ok(())
    /// # }
    /// ```
    pub fn reconnect(mut self, policy: ReconnectPolicy) -> Self {
        self.settings.reconnect = policy;
        self
    }
}
