//! Directories of the host that hold the files of sessions, with the interface of the one for Unix.

use std::fs::{self, File};
use std::io;
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use belljar_core::SessionFolder;
use belljar_core::os::DirectoryHandle;

use crate::folders::CopyBudget;

/// `FILE_FLAG_BACKUP_SEMANTICS` of `CreateFile`, without which directories are not opened, and
/// `FILE_FLAG_OPEN_REPARSE_POINT`, which opens a link and not its target.
const OPEN_DIRECTORY: u32 = 0x0200_0000 | 0x0020_0000;

/// A directory of the host, which was not a link when it was opened.
pub(crate) struct HostDirectory(PathBuf);

impl HostDirectory {
    /// Opens a directory by its path. Fails for a link.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        open_directory(path)?;
        Ok(Self(path.to_owned()))
    }

    /// Returns the same directory once more.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.clone()))
    }

    /// Opens a directory in this one. Fails for a link.
    pub(crate) fn subdirectory(&self, name: &str) -> io::Result<Self> {
        Self::open(&self.0.join(name))
    }

    /// Opens a directory in this one, for a session. Fails for a link.
    pub(crate) fn open_handle(&self, name: &str) -> io::Result<DirectoryHandle> {
        open_directory(&self.0.join(name))
    }

    /// Creates a directory in this one. Returns `false` if a file of that name exists.
    pub(crate) fn create(&self, name: &str) -> io::Result<bool> {
        match fs::create_dir(self.0.join(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a directory in this one, which must be empty.
    pub(crate) fn remove_empty(&self, name: &str) -> io::Result<()> {
        fs::remove_dir(self.0.join(name))
    }
}

/// Opens a directory. Fails for a link.
fn open_directory(path: &Path) -> io::Result<DirectoryHandle> {
    let file = File::options().read(true).custom_flags(OPEN_DIRECTORY).open(path)?;
    if file.metadata()?.is_dir() { Ok(file.into()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Copies the contents of a folder: regular files and directories alone.
///
/// # Errors
/// Returns [`io::ErrorKind::QuotaExceeded`] if the contents exceed the budget, and other errors if a file cannot be
/// copied.
pub(crate) fn copy(from: &SessionFolder, to: &SessionFolder, budget: &mut CopyBudget) -> io::Result<()> {
    copy_directory(&from.path, &to.path, 0, budget)
}

fn copy_directory(from: &Path, to: &Path, depth: usize, budget: &mut CopyBudget) -> io::Result<()> {
    budget.enter(depth)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        budget.count()?;
        // A file that was removed meanwhile is left out.
        let Ok(kind) = entry.file_type() else { continue };
        let target = to.join(entry.file_name());
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy_directory(&entry.path(), &target, depth + 1, budget)?;
        } else if kind.is_file() {
            budget.copy(File::open(entry.path())?, File::create_new(&target)?)?;
        }
    }
    Ok(())
}
