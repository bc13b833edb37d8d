//! How messages reach a server: the ways that come with the crate, and the trait by which others plug in.

pub(crate) mod endpoint;
pub(crate) mod http;
pub(crate) mod message;
pub(crate) mod observed;
pub(crate) mod sse;
pub(crate) mod stdio;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::{IntoTransport, Transport};

pub use self::http::StreamableHttp;
pub use endpoint::HeaderProvider;
pub use sse::Sse;
pub use stdio::ChildProcess;

use crate::error::{BoxError, McpError};

/// A message from the server.
///
/// ```
/// # use belljar_client::transport::Incoming;
/// fn read(line: &str) -> serde_json::Result<Incoming> {
///     serde_json::from_str(line)
/// }
/// ```
pub type Incoming = RxJsonRpcMessage<RoleClient>;
/// A message to the server.
///
/// ```
/// # use belljar_client::transport::Outgoing;
/// fn write(message: &Outgoing) -> serde_json::Result<String> {
///     serde_json::to_string(message)
/// }
/// ```
pub type Outgoing = TxJsonRpcMessage<RoleClient>;

/// Bytes that one message may have, whichever way it comes: 16 MiB.
///
/// ```
/// assert_eq!(belljar_client::transport::MAX_MESSAGE_BYTES, 16 << 20);
/// ```
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Makes connections to one server.
///
/// The crate's own are behind [`McpServerStdio`](crate::McpServerStdio),
/// [`McpServerStreamableHttp`](crate::McpServerStreamableHttp) and [`McpServerSse`](crate::McpServerSse). Another is
/// plugged in with [`McpServer::custom`](crate::McpServer::custom):
///
/// ```
/// use async_trait::async_trait;
/// use belljar_client::transport::{Connected, Connector};
/// use belljar_client::{McpError, McpServer};
///
/// /// A server that listens on a TCP port and speaks lines of JSON.
/// #[derive(Debug)]
/// struct Tcp(std::net::SocketAddr);
///
/// #[async_trait]
/// impl Connector for Tcp {
///     async fn connect(&self) -> Result<Connected, McpError> {
///         let stream = tokio::net::TcpStream::connect(self.0).await.map_err(|error| McpError::Connect {
///             server: self.identity(),
///             reason: error.to_string(),
///             source: Some(error.into()),
///         })?;
///         Ok(Connected::new(stream))
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
    /// Opens the way to the server. No message is sent yet.
    ///
    /// # Errors
    ///
    /// [`McpError::Spawn`] or [`McpError::Connect`].
    async fn connect(&self) -> Result<Connected, McpError>;

    /// What makes this server this server: command and arguments, or URL. Two servers are equal if this is.
    fn identity(&self) -> String;

    /// How errors call it. As a rule what [`identity`](Self::identity) says, without what is secret.
    fn label(&self) -> String {
        self.identity()
    }

    /// Whether a user is being asked to agree to something, in a browser for one. The time that it takes does not count as
    /// the server's.
    fn waits_for_user(&self) -> bool {
        false
    }

    /// Whether a lost connection may be made anew while it is in use. Not so for a child process: its state went with it.
    fn reconnects(&self) -> bool {
        false
    }
}

/// An open way to a server.
///
/// ```
/// use belljar_client::transport::Connected;
///
/// async fn through(path: &str) -> std::io::Result<Connected> {
///     Ok(Connected::new(tokio::net::UnixStream::connect(path).await?))
/// }
/// ```
pub struct Connected {
    pub(crate) transport: BoxTransport,
    pub(crate) diagnosis: Arc<dyn Diagnosis>,
}

impl Connected {
    /// Wraps whatever `rmcp` takes for a transport: a pair of sink and stream, something that can be read and written, or
    /// an implementation of its trait.
    ///
    /// ```
    /// let (ours, _theirs) = tokio::io::duplex(4096);
    /// let connected = belljar_client::transport::Connected::new(ours);
    /// ```
    pub fn new<T, E, A>(transport: T) -> Self
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        Self { transport: BoxTransport::new(transport.into_transport()), diagnosis: Arc::new(Nothing) }
    }
}

impl fmt::Debug for Connected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connected").finish_non_exhaustive()
    }
}

/// What is known about why a connection is over, or silent.
#[async_trait]
pub(crate) trait Diagnosis: Send + Sync {
    /// Why the connection is over: waits a moment for the reason to show.
    async fn closed(&self) -> Option<String>;

    /// What may explain a silence.
    fn silent(&self) -> Option<String> {
        None
    }
}

/// For transports that know nothing about it.
struct Nothing;

#[async_trait]
impl Diagnosis for Nothing {
    async fn closed(&self) -> Option<String> {
        None
    }
}

/// What a transport's own error is wrapped in, so that one type serves for all.
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

pub(crate) struct BoxTransport(Box<dyn ErasedTransport>);

impl BoxTransport {
    fn new(transport: impl Transport<RoleClient> + 'static) -> Self {
        Self(Box::new(transport))
    }
}

impl Transport<RoleClient> for BoxTransport {
    type Error = TransportError;

    fn send(&mut self, message: Outgoing) -> impl Future<Output = Result<(), TransportError>> + Send + 'static {
        self.0.send(message)
    }

    fn receive(&mut self) -> impl Future<Output = Option<Incoming>> + Send {
        self.0.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), TransportError>> + Send {
        self.0.close()
    }
}
