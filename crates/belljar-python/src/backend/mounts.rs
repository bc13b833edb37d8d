//! Directories of the host in the file systems of interpreters.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use belljar_core::SessionFolder;
use belljar_core::kernel::KernelError;
use belljar_emscripten::fs::{AT_FDCWD, FileError, FileType, Filesystem, HostDirectory, MountedDirectory, Stat};

use crate::guest::DATA_LINK;
use crate::session::SESSION_DIRECTORY;

/// A directory of the host that code sees at a path of its own.
#[derive(Debug, Clone)]
pub struct GuestMount {
    /// The path inside, such as `/data`.
    pub guest: String,
    /// The directory.
    pub directory: Arc<dyn MountedDirectory>,
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

/// Returns the directories of a session: its folder at the working directory, and those of all code.
///
/// # Errors
/// Returns an error if the folder's handle cannot be copied.
pub(super) fn mounts_of_session(
    mounts: &[GuestMount],
    folder: Option<&SessionFolder>,
) -> Result<Vec<GuestMount>, KernelError> {
    let folder = folder.map(|folder| -> Result<GuestMount, KernelError> {
        let directory = folder.directory.try_clone().map_err(|error| failed(SESSION_DIRECTORY, &error))?;
        let directory = Arc::new(HostDirectory::from_descriptor(directory, true));
        Ok(GuestMount { guest: SESSION_DIRECTORY.into(), directory })
    });
    folder.into_iter().chain(mounts.iter().cloned().map(Ok)).collect()
}

/// Mounts directories.
///
/// # Errors
/// Returns an error if a path inside cannot be mounted over: code of the session may have put a file there.
pub(super) fn mount_all(files: &mut Filesystem, mounts: &[GuestMount]) -> Result<(), KernelError> {
    mounts.iter().try_for_each(|mount| mount.attach(files).map_err(|error| failed(&mount.guest, &error.errno)))
}

fn failed(guest: &str, error: &dyn fmt::Display) -> KernelError {
    KernelError::Failed(format!("failed to mount {guest}: {error}").into())
}
