//! The network of code in another process: what its sockets ask of this process, which has the connections.
//!
//! The requests are those of [`Network`](belljar_emscripten::network::Network) and
//! [`Connection`](belljar_emscripten::network::Connection), whose functions say what they mean.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use belljar_emscripten::Errno;
use belljar_emscripten::fs::{Readiness, SocketFamily};
use belljar_emscripten::network::ResolveError;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The most bytes that a request reads or writes.
pub const MAX_TRANSFER: usize = 256 << 10;

/// The number of a connection. None is used twice for one interpreter.
pub type ConnectionId = u64;

/// Is called when a connection may have changed, from any thread.
pub type ChangeObserver = Arc<dyn Fn() + Send + Sync>;

/// A request of the code's sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkRequest {
    /// Looks up a name.
    Resolve {
        /// The name.
        name: String,
        /// The family that the address must have.
        family: Option<SocketFamily>,
        /// The port that the code has in mind.
        port: Option<u16>,
    },
    /// Begins a connection.
    Connect(SocketAddr),
    /// Asks for the state of a connection.
    State(ConnectionId),
    /// Reads at most `max` received bytes.
    Read {
        /// The connection.
        connection: ConnectionId,
        /// At most [`MAX_TRANSFER`].
        max: u32,
        /// True if the bytes can be read again.
        peek: bool,
    },
    /// Sends at most [`MAX_TRANSFER`] bytes.
    Write {
        /// The connection.
        connection: ConnectionId,
        /// The bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Ends directions of a connection.
    Shutdown {
        /// The connection.
        connection: ConnectionId,
        /// True to end the direction to the code.
        read: bool,
        /// True to end the direction from the code.
        write: bool,
    },
    /// Asks for the error with which opening a connection failed, once.
    TakeError(ConnectionId),
    /// Closes a connection.
    Close(ConnectionId),
}

/// The reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkReply {
    /// The reply to [`NetworkRequest::Resolve`].
    Resolved(Result<IpAddr, ResolveError>),
    /// The reply to [`NetworkRequest::Connect`].
    Connected(Result<NewConnection, Errno>),
    /// The reply to [`NetworkRequest::State`].
    State(ConnectionState),
    /// The reply to [`NetworkRequest::Read`].
    Read(Result<ByteBuf, Errno>),
    /// The reply to [`NetworkRequest::Write`]: the number of bytes that were sent.
    Written(Result<u32, Errno>),
    /// The reply to [`NetworkRequest::TakeError`].
    Error(Option<Errno>),
    /// The reply to all others.
    Done,
}

/// A connection that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewConnection {
    /// Its number.
    pub id: ConnectionId,
    /// The code's own address.
    pub local: SocketAddr,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionState {
    /// The operations that would not wait.
    pub readiness: Readiness,
    /// True once it was opened.
    pub is_connected: bool,
}
