//! Directories of the host that code can use.

use std::path::PathBuf;
use std::sync::Arc;

use crate::os::DirectoryHandle;

/// A directory of the host that holds the files of one session, in place of files that end with the session.
///
/// A kernel that starts or is restored in it sees the files as they are then, and the host sees what the code writes.
/// Snapshots of the kernel do not contain the files.
#[derive(Debug, Clone)]
pub struct SessionFolder {
    /// The absolute path, whose last component is not a link.
    pub path: PathBuf,
    /// The directory, open for reading.
    pub directory: Arc<DirectoryHandle>,
}
