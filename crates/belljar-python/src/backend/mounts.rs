//! Directories of the host in the file systems of interpreters.

use std::path::Path;
use std::sync::Arc;

use belljar_core::SessionFolder;
use belljar_core::kernel::KernelError;
use belljar_emscripten::fs::{AT_FDCWD, FileError, FileType, Filesystem, HostDirectory, Stat};

use crate::guest::DATA_LINK;
use crate::session::SESSION_DIRECTORY;

/// A directory of the host that code sees at a path of its own.
#[derive(Debug, Clone)]
pub struct GuestMount {
    /// The path inside, such as `/data`.
    pub guest: String,
    /// The directory.
    pub directory: Arc<HostDirectory>,
}

impl GuestMount {
    /// Mounts the directory. At or below `/mnt/data` it takes the place of the link to the working directory.
    ///
    /// # Errors
    /// Returns an error if the path cannot be mounted over.
    pub fn attach(&self, files: &mut Filesystem) -> Result<(), FileError> {
        let covers_link = Path::new(&self.guest).starts_with(DATA_LINK);
        let is_link = |stat: Stat| stat.file_type == FileType::Link;
        if covers_link && files.stat_at(AT_FDCWD, DATA_LINK, false).is_ok_and(is_link) {
            files.remove(DATA_LINK)?;
        }
        files.mount(&self.guest, self.directory.clone())
    }
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
    for mount in mounts {
        mount.attach(files).map_err(|error| failed(&mount.guest, error.errno.to_string()))?;
    }
    Ok(())
}
