//! Linux: paths of open directories.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

pub(crate) use super::unix::{host_directory, private_directory};

/// Returns a path of an open directory that does not depend on names.
pub(super) fn path_of(directory: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
}
