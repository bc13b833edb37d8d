//! Other systems than Linux.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

/// Returns `None`: the process's resident memory is not measured.
pub(crate) fn resident_memory() -> Option<i64> {
    None
}

/// Does nothing: connections of clients that do not read stay open for as long as the system keeps them.
pub(crate) fn set_unread_timeout(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}
