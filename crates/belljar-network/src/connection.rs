//! A connection as the code has it: a stream socket that does not block.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::channel::SharedChannel;
use crate::connections::OpenHandle;
use crate::tls_request::TlsRequest;

/// A function that is called when the readiness of a connection may have changed, from any thread.
pub type ChangeCallback = Arc<dyn Fn() + Send + Sync>;

/// The events of a connection, as `poll` reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A read returns bytes, the end or an error.
    pub readable: bool,
    /// A write takes bytes or returns an error.
    pub writable: bool,
    /// Both directions ended.
    pub hung_up: bool,
    /// [`Connection::take_error`] returns an error.
    pub error: bool,
}

/// A connection of the code. No method blocks: `io::ErrorKind::WouldBlock` is returned instead. Dropping it closes it;
/// what was written is still sent.
pub struct Connection {
    pub(crate) channel: SharedChannel,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) _open: OpenHandle,
}

impl Connection {
    /// Returns the events that are ready.
    pub fn readiness(&self) -> Readiness {
        self.channel.readiness()
    }

    /// Reads bytes; 0 is the end. With `peek` they stay.
    ///
    /// # Errors
    /// Returns `WouldBlock`, or the error of the connection, once, after the bytes that arrived before it.
    pub fn read(&self, buffer: &mut [u8], peek: bool) -> io::Result<usize> {
        self.channel.read(buffer, peek)
    }

    /// Writes bytes and returns how many were taken. A write that begins with [`tls_token`] is a request for TLS: see
    /// the crate's documentation.
    ///
    /// [`tls_token`]: crate::Connections::tls_token
    ///
    /// # Errors
    /// Returns `WouldBlock` if the buffer is full or the connection is not established, `BrokenPipe` after a shutdown
    /// or an error, `InvalidData` for a request for TLS that is not valid, or the error of the connection, once.
    pub fn write(&self, data: &[u8]) -> io::Result<usize> {
        self.channel.write(data)
    }

    /// Lets the code make TLS itself: what is written from now on is passed on unread. The connection is reset if rules
    /// or secrets apply to the host, or if the server name does not fit: see [`Connections::tls_handling`].
    ///
    /// [`Connections::tls_handling`]: crate::Connections::tls_handling
    pub fn pass_tls(&self, server_name: Option<&str>) {
        let server_hostname = server_name.map(str::to_owned);
        self.channel.request_tls(TlsRequest { server_hostname, passes: true, ..TlsRequest::default() });
    }

    /// Ends reading, writing, or both. The server sees the end of the stream after what was written.
    pub fn shutdown(&self, read: bool, write: bool) {
        self.channel.shutdown(read, write);
    }

    /// Returns the error of the connection, once (`SO_ERROR`): refused by the server, unreachable, timed out, reset, a
    /// name that is not found (`NotFound`), or an address that the policy refuses (`PermissionDenied`, with the text of
    /// the refusal).
    pub fn take_error(&self) -> Option<io::Error> {
        self.channel.take_error()
    }

    /// Returns whether the connection is established and has not failed.
    pub fn is_connected(&self) -> bool {
        self.channel.is_connected()
    }

    /// Returns the address that the code connected to, which is synthetic for names.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns a synthetic local address: that of the host is not shown.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sets the function that is called when the readiness may have changed. It must not block. It may be called often,
    /// from any thread, and also during a method of this connection.
    pub fn on_change(&self, notify: ChangeCallback) {
        self.channel.on_change(notify);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.channel.close();
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}
