//! A server that an agent is attached to.

mod apps;
mod builder;
mod calls;
mod connection;
mod extras;
mod hook;
mod lists;
mod options;
mod rounds;
mod session;
mod settings;
mod subscription;
mod tasks;

use std::fmt;
use std::sync::Arc;

pub use apps::AppResult;
pub(crate) use apps::{Audience, is_visible_to, resource_uri};
pub use builder::{McpServerSse, McpServerStdio, McpServerStreamableHttp, OverHttp, ServerBuilder};
pub use extras::{Argument, Prompt, PromptContent, PromptMessage};
pub use hook::{CallTool, ProcessToolCall};
pub use options::CallOptions;
pub use session::Running;
pub use settings::{ProtocolEra, ReconnectPolicy, ToolErrorBehavior};
pub use subscription::ResourceUpdates;

use session::Slot;
use settings::Settings;

use crate::error::McpError;
use crate::transport::Connector;

/// The old name of [`McpServerSse`], as `pydantic_ai.mcp.MCPServerHTTP` is of `MCPServerSSE`.
///
/// ```
/// #![allow(deprecated)]
/// let server = belljar_client::McpServerHttp::new("http://localhost:8000/sse").unwrap();
/// ```
#[deprecated(note = "use `McpServerSse`, or `McpServerStreamableHttp` for the transport that replaced it")]
pub type McpServerHttp = McpServerSse;

/// An MCP server, as a toolset of an agent.
///
/// It is made by one of its builders and connected by [`connect`](Self::connect): the guard that this gives keeps the
/// connection open. Guards nest: the first connects, the last to go closes, in whichever task. Without a guard every method
/// connects for its own duration. A clone is another handle to the same server.
///
/// ```no_run
/// use belljar_client::{McpServerStdio, ToolOutcome};
/// use serde_json::json;
///
/// # async fn run() -> Result<(), belljar_client::McpError> {
/// let server = McpServerStdio::new("npx").args(["-y", "@modelcontextprotocol/server-everything"]).build();
/// let running = server.connect().await?;
/// for tool in server.list_tools().await? {
///     println!("{}", tool.name);
/// }
/// match server.direct_call_tool("echo", json!({"message": "hi"})).await? {
///     ToolOutcome::Output(output) => println!("{}", output.to_text()),
///     ToolOutcome::Retry(retry) => println!("the model should try again: {}", retry.message),
///     ToolOutcome::Failed(message) => println!("it failed: {message}"),
///     ToolOutcome::Denied(reason) => println!("not allowed: {reason}"),
/// }
/// running.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct McpServer {
    inner: Arc<Inner>,
}

struct Inner {
    connector: Arc<dyn Connector>,
    settings: Settings,
    slot: Slot,
}

impl McpServer {
    pub(crate) fn new(connector: Arc<dyn Connector>, settings: Settings) -> Self {
        Self { inner: Arc::new(Inner { connector, settings, slot: Slot::default() }) }
    }

    /// A server behind a transport of your own.
    ///
    /// ```
    /// use belljar_client::{McpServer, transport::Connector};
    ///
    /// fn over(way: impl Connector) -> McpServer {
    ///     McpServer::custom(way).build()
    /// }
    /// ```
    pub fn custom(connector: impl Connector) -> ServerBuilder<CustomTransport> {
        ServerBuilder::over(CustomTransport(Arc::new(connector)))
    }

    /// Connects, or joins the connection that there is, and keeps it open until the guard is gone.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// let running = server.connect().await?;
    /// println!("{} tools", running.list_tools().await?.len());
    /// running.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`McpError::Spawn`], [`McpError::Connect`], [`McpError::Unauthorized`], or [`McpError::Timeout`] when the server
    /// does not answer within [`timeout`](ServerBuilder::timeout).
    pub async fn connect(&self) -> Result<Running, McpError> {
        Ok(Running::new(self.clone(), self.session().await?))
    }

    /// Whether somebody keeps a connection open.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// assert!(!McpServerStdio::new("server").build().is_running());
    /// ```
    pub fn is_running(&self) -> bool {
        self.inner.slot.is_occupied()
    }

    /// The id that was given, or else the prefix, if there is one.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// assert_eq!(McpServerStdio::new("server").tool_prefix("files").build().id(), Some("files"));
    /// ```
    pub fn id(&self) -> Option<&str> {
        self.inner.settings.id.as_deref().or_else(|| self.tool_prefix())
    }

    /// The prefix of this server's tools, without the underscore that follows it.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// assert_eq!(McpServerStdio::new("server").id("files").build().tool_prefix(), None);
    /// ```
    pub fn tool_prefix(&self) -> Option<&str> {
        self.inner.settings.tool_prefix.as_deref()
    }

    /// How errors call this server: its id, else its command or URL.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// assert_eq!(McpServerStdio::new("server").build().label(), "server");
    /// ```
    pub fn label(&self) -> String {
        self.inner.label()
    }

    pub(crate) fn includes_instructions(&self) -> bool {
        self.inner.settings.include_instructions
    }

    /// How often a model may try a failed tool again.
    ///
    /// ```
    /// # use belljar_client::McpServerStdio;
    /// assert_eq!(McpServerStdio::new("server").build().max_retries(), 1);
    /// ```
    pub fn max_retries(&self) -> u32 {
        self.inner.settings.max_retries
    }
}

/// A transport of the program's own, as a builder holds it.
///
/// ```
/// # use belljar_client::{CustomTransport, ServerBuilder};
/// fn patient(server: ServerBuilder<CustomTransport>) -> ServerBuilder<CustomTransport> {
///     server.timeout(std::time::Duration::from_secs(60))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct CustomTransport(Arc<dyn Connector>);

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

/// Equal are servers of the same id, prefix, transport, and command or URL.
///
/// ```
/// use belljar_client::McpServerStdio;
///
/// assert_eq!(McpServerStdio::new("a").build(), McpServerStdio::new("a").build());
/// assert_ne!(McpServerStdio::new("a").build(), McpServerStdio::new("a").arg("x").build());
/// ```
impl PartialEq for McpServer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
            || (self.id() == other.id()
                && self.tool_prefix() == other.tool_prefix()
                && self.inner.connector.identity() == other.inner.connector.identity())
    }
}

impl Eq for McpServer {}
