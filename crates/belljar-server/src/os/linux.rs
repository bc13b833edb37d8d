//! Linux.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

/// Returns the process's resident memory in bytes, or `None` if `/proc` is not available.
pub(crate) fn resident_memory() -> Option<i64> {
    let kibibytes = procfs::process::Process::myself().ok()?.status().ok()?.vmrss?;
    i64::try_from(kibibytes).ok()?.checked_mul(1024)
}

/// Has the system close the connection if sent data is not acknowledged, or its client has no room for more, for
/// `timeout` (`TCP_USER_TIMEOUT`, RFC 5482).
pub(crate) fn set_unread_timeout(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    SockRef::from(stream).set_tcp_user_timeout(Some(timeout))
}
