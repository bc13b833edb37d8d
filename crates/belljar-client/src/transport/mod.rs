//! Transports: those of the crate, and the trait for custom ones.

pub(crate) mod any;
#[cfg(feature = "http")]
pub(crate) mod endpoint;
pub(crate) mod error_chain;
pub(crate) mod headers;
#[cfg(feature = "http")]
pub(crate) mod http;
mod identity_headers;
#[cfg(feature = "http")]
mod keep_alive;
#[cfg_attr(not(all(feature = "stdio", feature = "sse")), allow(dead_code, reason = "its readers are transports"))]
pub(crate) mod message;
pub(crate) mod network;
pub(crate) mod ordered;
#[cfg(feature = "http")]
pub(crate) mod redaction;
#[cfg(feature = "http")]
pub(crate) mod retry_after;
#[cfg(feature = "sse")]
pub(crate) mod sse;
#[cfg(feature = "stdio")]
mod stderr;
#[cfg(feature = "stdio")]
pub(crate) mod stdio;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::{IntoTransport, Transport};
#[cfg(feature = "http")]
use tokio_util::sync::{CancellationToken, DropGuard};

#[cfg(feature = "http")]
pub use self::http::StreamableHttp;
pub use any::{AnyTransport, CustomTransport};
#[cfg(feature = "http")]
pub use endpoint::HeaderProvider;
pub use identity_headers::IdentityHeaders;
#[cfg(feature = "sse")]
pub use sse::Sse;
#[cfg(feature = "stdio")]
pub use stderr::{ChildStderr, LineHandler};
#[cfg(feature = "stdio")]
pub use stdio::ChildProcess;

use self::network::Network;
use crate::error::{BoxError, McpError};

/// A message from the server.
///
/// ```
/// # use belljar_mcp_client::transport::Incoming;
/// fn read(line: &str) -> serde_json::Result<Incoming> {
///     serde_json::from_str(line)
/// }
/// ```
pub type Incoming = RxJsonRpcMessage<RoleClient>;

/// Parses bytes of a server as a message, as the transports do. Returns whether they are one. For fuzz targets.
#[doc(hidden)]
pub fn parse_message(bytes: &[u8]) -> bool {
    message::read(bytes).is_ok()
}

/// A message to the server.
///
/// ```
/// # use belljar_mcp_client::transport::Outgoing;
/// fn write(message: &Outgoing) -> serde_json::Result<String> {
///     serde_json::to_string(message)
/// }
/// ```
pub type Outgoing = TxJsonRpcMessage<RoleClient>;

/// The maximum size of a message on any transport: 16 MiB.
///
/// ```
/// assert_eq!(belljar_mcp_client::transport::MAX_MESSAGE_BYTES, 16 << 20);
/// ```
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// A factory of connections to one server.
///
/// The crate's own are behind [`McpServerStdio`](crate::McpServerStdio),
/// [`McpServerStreamableHttp`](crate::McpServerStreamableHttp) and [`McpServerSse`](crate::McpServerSse).
/// [`McpServer::custom`](crate::McpServer::custom) accepts another one:
///
/// ```
/// use belljar_mcp_client::async_trait;
/// use belljar_mcp_client::transport::{Connector, OpenTransport};
/// use belljar_mcp_client::{McpError, McpServer};
///
/// /// Connects to a server that exchanges lines of JSON on a TCP port.
/// #[derive(Debug)]
/// struct Tcp(std::net::SocketAddr);
///
/// #[async_trait]
/// impl Connector for Tcp {
///     async fn connect(&self) -> Result<OpenTransport, McpError> {
///         let failed = |error| McpError::connect(self.identity(), "the port refused the connection").caused_by(error);
///         let stream = tokio::net::TcpStream::connect(self.0).await.map_err(failed)?;
///         Ok(OpenTransport::new(stream))
///     }
///
///     fn identity(&self) -> String {
///         format!("tcp://{}", self.0)
///     }
/// }
///
/// let server = McpServer::custom(Tcp("127.0.0.1:7000".parse().unwrap())).build();
/// assert_eq!(server.label(), "tcp://127.0.0.1:7000");
/// ```
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Opens a transport to the server. No message is sent yet.
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Spawn`] or [`McpError::Connect`].
    async fn connect(&self) -> Result<OpenTransport, McpError>;

    /// Opens a transport whose every request carries the headers of a run's identity, from the first one on. The
    /// default is for transports without headers.
    ///
    /// # Errors
    ///
    /// The same as [`connect`](Self::connect).
    async fn connect_as(&self, headers: &Arc<IdentityHeaders>) -> Result<OpenTransport, McpError> {
        let _ = headers;
        self.connect().await
    }

    /// Returns whether requests have headers. Runs with different headers then get different sessions.
    fn sends_headers(&self) -> bool {
        false
    }

    /// Returns the identity of the server: command and arguments, or URL. Two servers are equal if their identities
    /// are.
    fn identity(&self) -> String;

    /// Returns the name of the server in error messages. Defaults to [`identity`](Self::identity); override it to leave
    /// out secrets.
    fn label(&self) -> String {
        self.identity()
    }

    /// Returns whether a user is being asked for consent, for example in a browser. That time does not count against
    /// the server's timeout.
    fn waits_for_user(&self) -> bool {
        false
    }

    /// Returns whether a lost connection may be reestablished while it is in use. A child process cannot: its state is
    /// lost with it.
    fn reconnects(&self) -> bool {
        false
    }

    /// Returns a transport of this crate as [`AnyTransport`], for further configuration of a built server.
    #[doc(hidden)]
    fn to_any(&self) -> Option<AnyTransport> {
        None
    }
}

/// An open transport to a server.
///
/// ```
/// use belljar_mcp_client::transport::OpenTransport;
///
/// async fn through(path: &str) -> std::io::Result<OpenTransport> {
///     Ok(OpenTransport::new(tokio::net::UnixStream::connect(path).await?))
/// }
/// ```
pub struct OpenTransport {
    pub(crate) transport: BoxTransport,
    pub(crate) disconnect_reason: Arc<dyn DisconnectReason>,
    pub(crate) network: Network,
}

impl OpenTransport {
    /// Wraps any transport that `rmcp` accepts: a pair of sink and stream, a value that can be read and written, or an
    /// implementation of its trait.
    ///
    /// ```
    /// let (client_end, _server_end) = tokio::io::duplex(4096);
    /// let transport = belljar_mcp_client::transport::OpenTransport::new(client_end);
    /// ```
    pub fn new<T, E, A>(transport: T) -> Self
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        Self {
            transport: BoxTransport::new(transport.into_transport()),
            disconnect_reason: Arc::new(NoDisconnectReason),
            network: Network::default(),
        }
    }

    /// Cancels the token when the transport is dropped, so that what the connection waits for ends with it.
    #[cfg(feature = "http")]
    pub(crate) fn cancelling(mut self, token: CancellationToken) -> Self {
        self.transport._cancels = Some(token.drop_guard());
        self
    }
}

impl fmt::Debug for OpenTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OpenTransport").finish_non_exhaustive()
    }
}

/// Diagnostics of a closed or idle connection.
#[async_trait]
pub(crate) trait DisconnectReason: Send + Sync {
    /// Returns the reason for which the connection was closed; may wait briefly for it to become known.
    async fn reason(&self) -> Option<String>;

    /// Returns diagnostics that may explain a timeout.
    fn timeout_diagnostics(&self) -> Option<String> {
        None
    }
}

/// The diagnostics of a transport that has none.
struct NoDisconnectReason;

#[async_trait]
impl DisconnectReason for NoDisconnectReason {
    async fn reason(&self) -> Option<String> {
        None
    }
}

/// A wrapper for the errors of all transports.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TransportError(#[source] pub(crate) BoxError);

/// `rmcp`'s transport as a trait object.
trait ErasedTransport: Send {
    fn send(&mut self, message: Outgoing) -> BoxFuture<'static, Result<(), TransportError>>;
    fn receive(&mut self) -> BoxFuture<'_, Option<Incoming>>;
    fn close(&mut self) -> BoxFuture<'_, Result<(), TransportError>>;
}

impl<T: Transport<RoleClient>> ErasedTransport for T {
    fn send(&mut self, message: Outgoing) -> BoxFuture<'static, Result<(), TransportError>> {
        let sending = Transport::send(self, message);
        Box::pin(async move { sending.await.map_err(|error| TransportError(Box::new(error))) })
    }

    fn receive(&mut self) -> BoxFuture<'_, Option<Incoming>> {
        Box::pin(Transport::receive(self))
    }

    fn close(&mut self) -> BoxFuture<'_, Result<(), TransportError>> {
        let closing = Transport::close(self);
        Box::pin(async move { closing.await.map_err(|error| TransportError(Box::new(error))) })
    }
}

pub(crate) struct BoxTransport {
    transport: Box<dyn ErasedTransport>,
    /// Cancels the token of [`OpenTransport::cancelling`].
    #[cfg(feature = "http")]
    _cancels: Option<DropGuard>,
}

impl BoxTransport {
    fn new(transport: impl Transport<RoleClient> + 'static) -> Self {
        Self {
            transport: Box::new(transport),
            #[cfg(feature = "http")]
            _cancels: None,
        }
    }
}

impl Transport<RoleClient> for BoxTransport {
    type Error = TransportError;

    fn send(&mut self, message: Outgoing) -> impl Future<Output = Result<(), TransportError>> + Send + 'static {
        self.transport.send(message)
    }

    fn receive(&mut self) -> impl Future<Output = Option<Incoming>> + Send {
        self.transport.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), TransportError>> + Send {
        self.transport.close()
    }
}
