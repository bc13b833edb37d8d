//! Directories of the host in the file systems of interpreters.

use std::sync::Arc;

use belljar_core::SessionFolder;
use belljar_core::kernel::KernelError;
use belljar_emscripten::fs::{Filesystem, HostDirectory};

use crate::session::SESSION_DIRECTORY;

/// A directory of the host that code sees at a path of its own.
#[derive(Debug, Clone)]
pub struct GuestMount {
    /// The path inside, such as `/data`.
    pub guest: String,
    /// The directory.
    pub directory: Arc<HostDirectory>,
}

/// Mounts directories, and over the working directory the folder of a session.
///
/// # Errors
/// Returns an error if a path inside cannot be mounted over: code of the session may have put a file there.
pub(super) fn mount_all(
    files: &mut Filesystem,
    mounts: &[GuestMount],
    folder: Option<&SessionFolder>,
) -> Result<(), KernelError> {
    let failed = |guest: &str, error: String| KernelError::Failed(format!("failed to mount {guest}: {error}").into());
    if let Some(folder) = folder {
        let directory = folder.directory.try_clone().map_err(|error| failed(SESSION_DIRECTORY, error.to_string()))?;
        let mounted = files.mount(SESSION_DIRECTORY, HostDirectory::from_descriptor(directory, true));
        mounted.map_err(|error| failed(SESSION_DIRECTORY, error.errno.to_string()))?;
    }
    for GuestMount { guest, directory } in mounts {
        files.mount(guest, directory.clone()).map_err(|error| failed(guest, error.errno.to_string()))?;
    }
    Ok(())
}
