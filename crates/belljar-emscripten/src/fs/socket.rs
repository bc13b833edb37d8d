//! Sockets: descriptors whose far end is a connection of the embedder's.
//!
//! A connection belongs to one instance. Copies of the files, and snapshots of them, contain the socket without its
//! connection: every operation on it fails with [`Errno::ECONNRESET`].

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::descriptors::Target;
use super::{Filesystem, OpenFlags, Readiness};
use crate::Errno;
use crate::host::NETWORK;
use crate::network::Connection;

/// The domain of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketFamily {
    /// `AF_INET`.
    Ipv4,
    /// `AF_INET6`.
    Ipv6,
}

/// A stream socket.
pub struct Socket {
    family: SocketFamily,
    state: SocketState,
}

enum SocketState {
    Unconnected,
    Connection(Box<dyn Connection>),
    Reset,
}

impl Clone for Socket {
    fn clone(&self) -> Self {
        Self { family: self.family, state: SocketState::Reset }
    }
}

impl Socket {
    /// Creates a socket whose connection was lost.
    pub(super) fn reset() -> Self {
        Self { family: SocketFamily::Ipv4, state: SocketState::Reset }
    }

    /// Returns the domain.
    pub fn family(&self) -> SocketFamily {
        self.family
    }

    /// Returns the connection.
    ///
    /// # Errors
    /// Returns [`Errno::ENOTCONN`] without a connection, and [`Errno::ECONNRESET`] if it was lost with the instance
    /// that opened it.
    pub fn connection(&self) -> Result<&dyn Connection, Errno> {
        match &self.state {
            SocketState::Connection(connection) => Ok(&**connection),
            SocketState::Unconnected => Err(Errno::ENOTCONN),
            SocketState::Reset => Err(Errno::ECONNRESET),
        }
    }

    /// Sets the connection.
    pub fn set_connection(&mut self, connection: Box<dyn Connection>) {
        self.state = SocketState::Connection(connection);
    }

    /// Reads received bytes; removes them unless `peek` is set.
    pub fn read(&self, buffer: &mut [u8], peek: bool) -> Result<usize, Errno> {
        let connection = self.connection()?;
        if buffer.is_empty() {
            return Ok(0);
        }
        connection.read(buffer, peek)
    }

    /// Sends bytes; possibly fewer than given.
    pub fn write(&self, data: &[u8]) -> Result<usize, Errno> {
        let connection = self.connection()?;
        if data.is_empty() {
            return Ok(0);
        }
        connection.write(data)
    }

    /// Takes the error with which opening the connection failed (`SO_ERROR`).
    pub fn take_error(&self) -> Option<Errno> {
        match &self.state {
            SocketState::Connection(connection) => connection.take_error(),
            SocketState::Unconnected => None,
            SocketState::Reset => Some(Errno::ECONNRESET),
        }
    }

    /// Returns the program's own address, and that of the peer; `None` without a connection.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.connection().ok().map(|connection| (connection.local(), connection.peer()))
    }

    pub(super) fn readiness(&self) -> Readiness {
        match &self.state {
            SocketState::Connection(connection) => connection.readiness(),
            // As on Linux, for a socket that was never connected.
            SocketState::Unconnected => Readiness { writable: true, hung_up: true, ..Readiness::default() },
            SocketState::Reset => Readiness { readable: true, writable: true, hung_up: true, broken: true },
        }
    }
}

impl Filesystem {
    /// Implements `socket` for stream sockets.
    pub fn open_socket(&mut self, family: SocketFamily, flags: OpenFlags) -> Result<i32, Errno> {
        self.note_network();
        let socket = Socket { family, state: SocketState::Unconnected };
        self.add_description(Target::Socket(socket), OpenFlags::READ_WRITE.with(flags.pipe_options()), 0)
    }

    /// Returns the socket behind a descriptor.
    ///
    /// # Errors
    /// Returns [`Errno::ENOTSOCK`] for other files.
    pub fn socket(&self, fd: i32) -> Result<&Socket, Errno> {
        let Target::Socket(socket) = &self.description(fd)?.target else { return Err(Errno::ENOTSOCK) };
        self.note_network();
        Ok(socket)
    }

    /// Notes in a recording of the program that it used the network: it cannot be replayed.
    pub(super) fn note_network(&self) {
        if let Some(recording) = self.sources.as_recorded() {
            recording.set_incomplete(NETWORK);
        }
    }

    /// Returns the socket behind a descriptor, to connect it.
    ///
    /// # Errors
    /// As for [`Filesystem::socket`].
    pub fn socket_mut(&mut self, fd: i32) -> Result<&mut Socket, Errno> {
        match &mut self.description_mut(fd)?.target {
            Target::Socket(socket) => Ok(socket),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// Returns whether any socket has a connection.
    pub fn has_connections(&self) -> bool {
        let mut open = self.descriptors.all().filter_map(|(_, description, _)| self.descriptors.at(description));
        open.any(|description| matches!(&description.target, Target::Socket(socket) if socket.connection().is_ok()))
    }

    /// Returns whether `fd` is a socket whose operations block.
    pub fn is_blocking_socket(&self, fd: i32) -> bool {
        let description = self.description(fd);
        description.is_ok_and(|description| {
            matches!(description.target, Target::Socket(_)) && !description.flags.is_non_blocking()
        })
    }
}
