//! Windows.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

/// An open directory of the host.
pub type DirectoryHandle = std::os::windows::io::OwnedHandle;

/// Creates a directory and its parents, unless it exists. It has the permissions of the directory that it is in.
///
/// # Errors
/// Returns the error of the system if a directory cannot be created.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Does nothing: a new file has the permissions of its directory, also if it is temporary.
///
/// # Errors
/// Never fails.
pub fn make_public(_: &File) -> io::Result<()> {
    Ok(())
}

/// Returns zero: the processor time of code is neither recorded nor counted towards quotas. Limits of single calls do
/// not depend on it: their clock is that of `belljar-emscripten`.
pub fn thread_time() -> Duration {
    Duration::ZERO
}

/// Does nothing: this system treats all threads alike.
pub(crate) fn set_idle_policy() {}
