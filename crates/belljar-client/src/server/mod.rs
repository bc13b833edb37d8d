//! MCP servers: the handle, its builders, and its methods by subject.

mod apps;
mod builder;
mod cache;
mod calls;
mod completion;
mod connection;
mod custom;
mod failures;
mod hook;
mod identity;
mod info;
mod lists;
mod options;
mod prompts;
mod resources;
mod restart;
mod retry;
mod roots;
mod rounds;
mod session;
mod settings;
mod shared_list;
mod span;
mod subscription;
mod tasks;
mod toolset;
mod transport_error;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[cfg(feature = "sse")]
pub use builder::McpServerSse;
#[cfg(feature = "stdio")]
pub use builder::McpServerStdio;
pub use builder::{AnyServerBuilder, ServerBuilder};
#[cfg(feature = "http")]
pub use builder::{HttpServerBuilderExt, McpServerStreamableHttp};
pub use completion::CompletionArgument;
pub use hook::{CallTool, ProcessToolCall};
pub use options::CallOptions;
pub use prompts::{PromptContent, PromptMessage, PromptResult};
pub use restart::RestartPolicy;
pub use retry::RetryPolicy;
pub use session::ConnectionGuard;
pub use settings::{ProtocolEra, ReconnectPolicy, ResultMapping, ToolErrorBehavior};
pub use shared_list::SharedList;
pub use subscription::ResourceUpdates;

use identity::{RunBinding, SessionPool};
use session::SessionSlot;
use settings::Settings;

use crate::error::McpError;
use crate::handlers::Model;
use crate::transport::{Connector, CustomTransport};

/// The old name of [`McpServerSse`], as `pydantic_ai.mcp.MCPServerHTTP` is the old name of `MCPServerSSE`.
///
/// ```
/// #![allow(deprecated)]
/// let server = belljar_mcp_client::McpServerHttp::new("http://localhost:8000/sse").unwrap();
/// ```
#[cfg(feature = "sse")]
#[deprecated(note = "use `McpServerSse`, or `McpServerStreamableHttp` for the transport that replaced it")]
pub type McpServerHttp = McpServerSse;

/// An MCP server, usable as a toolset of an agent.
///
/// A builder creates it, and [`connect`](Self::connect) connects it: the returned guard keeps the connection open.
/// Guards nest: the first one connects and dropping the last one closes the connection, on any task. Without a guard
/// every method opens a connection for its own duration. A clone is another handle to the same server.
///
/// ```no_run
/// use belljar_mcp_client::{McpServerStdio, ToolOutcome};
/// use serde_json::json;
///
/// # async fn run() -> Result<(), belljar_mcp_client::McpError> {
/// let server = McpServerStdio::new("npx").args(["-y", "@modelcontextprotocol/server-everything"]).build();
/// let running = server.connect().await?;
/// for tool in &server.list_tools().await? {
///     println!("{}", tool.name);
/// }
/// match server.direct_call_tool("echo", json!({"message": "hi"})).await? {
///     ToolOutcome::Output(result) => println!("{}", result.to_text()),
///     ToolOutcome::Retry(retry) => println!("the model should try again: {}", retry.message),
///     other => println!("no result: {}", other.to_text()),
/// }
/// running.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct McpServer {
    inner: Arc<Inner>,
    /// The run that this handle is bound to.
    binding: Option<Arc<RunBinding>>,
}

/// A server with its sessions: one of the program, and those of the identities of runs.
struct Inner {
    core: Arc<Core>,
    slot: SessionSlot,
    pool: Arc<SessionPool>,
}

/// The properties of a server, which its sessions share.
struct Core {
    connector: Arc<dyn Connector>,
    settings: Settings,
    /// True if `server/discover` failed on a server of unknown era, which is then of the legacy era.
    is_legacy: AtomicBool,
}

impl std::ops::Deref for Inner {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl McpServer {
    pub(crate) fn new(connector: Arc<dyn Connector>, mut settings: Settings) -> Self {
        // Servers that were built from the same builder have their own models.
        settings.handlers.model = settings.handlers.model.detached();
        let pool = Arc::new(SessionPool::new(settings.identities));
        let core = Arc::new(Core { connector, settings, is_legacy: AtomicBool::new(false) });
        Self { inner: Arc::new(Inner { core, slot: SessionSlot::default(), pool }), binding: None }
    }

    /// Creates the builder of a server with a custom transport.
    ///
    /// ```
    /// use belljar_mcp_client::{McpServer, transport::Connector};
    ///
    /// fn over(connector: impl Connector) -> McpServer {
    ///     McpServer::custom(connector).build()
    /// }
    /// ```
    pub fn custom(connector: impl Connector) -> ServerBuilder<CustomTransport> {
        ServerBuilder::over(CustomTransport::new(connector))
    }

    /// Creates the builder of a server at this URL: with the transport of 2024 if its path ends in `/sse`, and else
    /// with streamable HTTP.
    ///
    /// ```
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// use belljar_mcp_client::McpServer;
    ///
    /// let server = McpServer::from_url("https://example.org/mcp")?.bearer_token("secret")?.build();
    /// assert_eq!(server.label(), "https://example.org/mcp");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if this is not an `http` or `https` URL.
    #[cfg(feature = "http")]
    pub fn from_url(url: impl AsRef<str>) -> Result<AnyServerBuilder, McpError> {
        AnyServerBuilder::from_url(url.as_ref())
    }

    /// Returns a builder with the transport and the settings of this server, for a server that differs in some of them.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").id("files").build();
    /// let patient = server.to_builder().timeout(std::time::Duration::from_secs(60)).build();
    /// assert_eq!(patient, server);
    /// ```
    pub fn to_builder(&self) -> AnyServerBuilder {
        let connector = &self.inner.connector;
        let transport = connector.to_any().unwrap_or_else(|| CustomTransport::shared(connector.clone()).into());
        AnyServerBuilder::with_settings(transport, self.inner.settings.clone())
    }

    /// Sets the model that the server may use, instead of the present one. A connection that was opened without a model
    /// does not announce one, so that the server uses it from the next connection on.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServer, Model};
    /// fn equip(servers: &[McpServer], model: std::sync::Arc<dyn Model>) {
    ///     for server in servers {
    ///         server.set_sampling_model(model.clone());
    ///     }
    /// }
    /// ```
    pub fn set_sampling_model(&self, model: impl Model) {
        self.inner.settings.handlers.model.set(model);
    }

    /// Connects, or shares the existing connection, and keeps it open until the guard is dropped.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// let running = server.connect().await?;
    /// println!("{} tools", running.list_tools().await?.len());
    /// running.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Spawn`], [`McpError::Connect`], [`McpError::Unauthorized`], or [`McpError::Timeout`] if the
    /// server does not respond within [`timeout`](ServerBuilder::timeout).
    pub async fn connect(&self) -> Result<ConnectionGuard, McpError> {
        Ok(ConnectionGuard::new(self.clone(), self.session().await?))
    }

    /// Returns whether a connection of this handle's identity is open: a guard keeps it, or a call is in progress, or
    /// it is kept for the next use by [the same identity](Self::for_run).
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// assert!(!McpServerStdio::new("server").build().is_running());
    /// ```
    pub fn is_running(&self) -> bool {
        self.has_session()
    }

    /// Returns the configured ID, or else the prefix.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// assert_eq!(McpServerStdio::new("server").tool_prefix("files").build().id(), Some("files"));
    /// ```
    pub fn id(&self) -> Option<&str> {
        self.inner.settings.id.as_deref().or_else(|| self.tool_prefix())
    }

    /// Returns the prefix of this server's tools, without the underscore that follows it.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// assert_eq!(McpServerStdio::new("server").id("files").build().tool_prefix(), None);
    /// ```
    pub fn tool_prefix(&self) -> Option<&str> {
        self.inner.settings.tool_prefix.as_deref()
    }

    /// Returns the name of this server in error messages: its ID, or else its command or URL.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// assert_eq!(McpServerStdio::new("server").build().label(), "server");
    /// ```
    pub fn label(&self) -> String {
        self.inner.label()
    }

    /// Returns the number of times that a model may retry a failed tool, if configured.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// assert_eq!(McpServerStdio::new("server").max_retries(2).build().max_retries(), Some(2));
    /// ```
    pub fn max_retries(&self) -> Option<u32> {
        self.inner.settings.max_retries
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("McpServer")
            .field("id", &self.inner.settings.id)
            .field("tool_prefix", &self.inner.settings.tool_prefix)
            .field("transport", &self.inner.connector)
            .finish_non_exhaustive()
    }
}

/// Servers are equal if their ID, prefix, transport, and command or URL are equal, and the identities that the handles
/// are bound to.
///
/// ```
/// use belljar_mcp_client::McpServerStdio;
///
/// assert_eq!(McpServerStdio::new("a").build(), McpServerStdio::new("a").build());
/// assert_ne!(McpServerStdio::new("a").build(), McpServerStdio::new("a").arg("x").build());
/// ```
impl PartialEq for McpServer {
    fn eq(&self, other: &Self) -> bool {
        RunBinding::has_same_identity(self.binding.as_ref(), other.binding.as_ref())
            && (Arc::ptr_eq(&self.inner, &other.inner)
                || (self.id() == other.id()
                    && self.tool_prefix() == other.tool_prefix()
                    && self.inner.connector.identity() == other.inner.connector.identity()))
    }
}

impl Eq for McpServer {}

impl Hash for McpServer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.id(), self.tool_prefix(), self.inner.connector.identity()).hash(state);
    }
}
