//! macOS: paths of open directories.

use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

pub(crate) use super::unix::{host_directory, private_directory};

/// Returns the present path of an open directory: this system has none that does not depend on names.
pub(super) fn path_of(directory: &OwnedFd) -> PathBuf {
    let path = rustix::fs::getpath(directory).map(CString::into_bytes).unwrap_or_default();
    OsString::from_vec(path).into()
}
