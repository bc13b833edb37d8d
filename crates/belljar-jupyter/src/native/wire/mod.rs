//! Talking to a kernel that may be hostile: the Jupyter protocol over ZeroMQ's, on unix sockets.
//!
//! | room | subject |
//! | --- | --- |
//! | `frame` | bytes to messages of ZMTP, within bounds |
//! | `peer` | one connection, with deadlines |
//! | `path` | opening a socket in a folder that the guest can change |
//! | `message` | Jupyter's messages: signatures, headers, contents |
//!
//! The `zeromq` crate has no bound on a frame's length: a kernel that announces one of 2^40 bytes aborts the process
//! that reads it. What is needed here of ZMTP is small.

pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod path;
pub(crate) mod peer;

/// Why a connection to a kernel is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The other side is gone.
    #[error("the kernel closed its socket")]
    Closed,
    /// It does not speak the protocol, or exceeds its bounds.
    #[error("the kernel broke the protocol: {0}")]
    Protocol(String),
    /// It announces a message that is longer than any that is taken.
    #[error("the kernel sent more than {} bytes at once", frame::MAX_MESSAGE)]
    TooLong,
    /// It takes too long.
    #[error("the kernel did not {0} in time")]
    Late(&'static str),
    /// The socket cannot be had or used.
    #[error("the kernel's socket: {0}")]
    Io(#[from] std::io::Error),
}
