//! The part that Linux and macOS have in common.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// An open directory of the host.
pub type DirectoryHandle = std::os::fd::OwnedFd;

/// Creates a directory and its parents, with access for the user of this process only, unless it exists.
///
/// # Errors
/// Returns the error of the system if a directory cannot be created.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a file readable for all users who have access to its directory. A temporary file is private at first.
///
/// # Errors
/// Returns the error of the system if the permissions cannot be changed.
pub fn make_public(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(0o644))
}

/// Returns the processor time of the calling thread.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
