//! The connection to a kernel, an untrusted peer: the Jupyter protocol over ZMTP on unix sockets.
//!
//! | module | subject |
//! | --- | --- |
//! | `frame` | decodes bytes into ZMTP messages, within bounds |
//! | `peer` | one connection, with deadlines |
//! | `path` | opens a socket in a directory that the guest can change |
//! | `message` | Jupyter messages: signatures, headers, contents |
//!
//! The `zeromq` crate does not bound a frame's length: a kernel that announces a frame of 2^40 bytes aborts the process
//! that reads it. This module implements the small part of ZMTP that a client of a kernel needs.

pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod path;
pub(crate) mod peer;

/// The reason why a connection to a kernel cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum ZmtpError {
    /// The kernel closed its socket.
    #[error("the kernel closed its socket")]
    Closed,
    /// The kernel does not follow the protocol, or exceeds its bounds.
    #[error("the kernel broke the protocol: {0}")]
    Protocol(String),
    /// The kernel announced a message that is longer than [`frame::MAX_MESSAGE`].
    #[error("the kernel sent more than {} bytes at once", frame::MAX_MESSAGE)]
    TooLong,
    /// The kernel did not do something before the deadline.
    #[error("the kernel did not {0} in time")]
    Timeout(&'static str),
    /// The socket could not be opened or used.
    #[error("failed to use the kernel's socket: {0}")]
    Io(#[from] std::io::Error),
}
