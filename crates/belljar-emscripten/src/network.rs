//! The interface to a network: what is behind the sockets of a program.
//!
//! The embedder implements [`Network`], and decides for each connection whether it is allowed and where it leads. A
//! program without a network cannot create sockets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Errno;

pub use crate::fs::{Readiness, SocketFamily};

/// A network that the sockets of one program can reach.
pub trait Network: Send + Sync {
    /// Returns the address of a host name, of this family if one is given. It has a meaning for [`Network::connect`]
    /// only. `port` is that of the connection that the program has in mind, if it has one.
    ///
    /// # Errors
    /// Returns an error if the name has no such address, or must not be looked up.
    fn resolve(&self, name: &str, family: Option<SocketFamily>, port: Option<u16>) -> Result<IpAddr, ResolveError>;

    /// Begins to connect to an address, and returns at once.
    ///
    /// # Errors
    /// Returns [`Errno::EACCES`] if the address is not allowed, and other numbers if no connection can be opened.
    fn connect(&self, address: SocketAddr) -> Result<Box<dyn Connection>, Errno>;

    /// Is called when the program begins to wait for connections to change. Its limit on elapsed time is suspended
    /// until the wait ends.
    fn on_wait(&self) {}
}

/// A connection of a socket. No function waits for the far end: [`Errno::EAGAIN`] is returned instead. Dropping it
/// closes the connection.
pub trait Connection: Send + Sync {
    /// Returns which operations would not block. A connection that is being opened is neither readable nor writable.
    fn readiness(&self) -> Readiness;

    /// Reads received bytes, and removes them unless `peek` is set. Returns 0 at the end.
    ///
    /// # Errors
    /// Returns an error if the connection has failed, or no bytes have arrived yet.
    fn read(&self, buffer: &mut [u8], peek: bool) -> Result<usize, Errno>;

    /// Sends bytes; possibly fewer than given.
    ///
    /// # Errors
    /// Returns an error if the connection has failed, or no byte can be sent yet.
    fn write(&self, data: &[u8]) -> Result<usize, Errno>;

    /// Ends the given directions.
    fn shutdown(&self, read: bool, write: bool);

    /// Returns the error with which opening the connection failed, and forgets it.
    fn take_error(&self) -> Option<Errno>;

    /// Returns whether the connection has been opened.
    fn is_connected(&self) -> bool;

    /// Returns the address that the program has connected to.
    fn peer(&self) -> SocketAddr;

    /// Returns the program's own address.
    fn local(&self) -> SocketAddr;

    /// Sets the function that is called whenever [`Connection::readiness`] may have changed, from any thread.
    fn on_change(&self, notify: Arc<dyn Fn() + Send + Sync>);
}

/// An error of [`Network::resolve`], with the numbers of `getaddrinfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResolveError {
    /// The name does not exist (`EAI_NONAME`).
    Unknown,
    /// The name must not be looked up (`EAI_FAIL`).
    Refused,
}
