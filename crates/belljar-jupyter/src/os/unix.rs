//! The part that Linux and macOS have in common: sockets as files.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// Returns whether a path is that of a socket.
pub(crate) fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}
