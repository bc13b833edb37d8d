//! Directories of the host that hold the files of sessions. Names below them are opened without following links.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use belljar_core::SessionFolder;
use belljar_core::os::DirectoryHandle;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::folders::CopyBudget;

/// The mode of new directories. The owner of the directory that they are in can change it.
const DIRECTORY_MODE: Mode = Mode::RWXU;
const OPEN_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory of the host, which is open.
pub(crate) struct HostDirectory(OwnedFd);

impl HostDirectory {
    /// Opens a directory by its path.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Returns the same directory once more.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Opens a directory in this one. Fails for a link.
    pub(crate) fn subdirectory(&self, name: &str) -> io::Result<Self> {
        Ok(Self(self.open_handle(name)?))
    }

    /// Opens a directory in this one, for a session. Fails for a link.
    pub(crate) fn open_handle(&self, name: &str) -> io::Result<DirectoryHandle> {
        Ok(openat(&self.0, name, OPEN_DIRECTORY, Mode::empty())?)
    }

    /// Creates a directory in this one. Returns `false` if a file of that name exists.
    pub(crate) fn create(&self, name: &str) -> io::Result<bool> {
        match mkdirat(&self.0, name, DIRECTORY_MODE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes a directory in this one, which must be empty.
    pub(crate) fn remove_empty(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }
}

/// Copies the contents of a folder. Links are copied as links, and files of other types are left out.
///
/// # Errors
/// Returns [`io::ErrorKind::QuotaExceeded`] if the contents exceed the budget, and other errors if a file cannot be
/// copied.
pub(crate) fn copy(from: &SessionFolder, to: &SessionFolder, budget: &mut CopyBudget) -> io::Result<()> {
    copy_directory(from.directory.as_fd(), to.directory.as_fd(), 0, budget)
}

fn copy_directory(from: BorrowedFd<'_>, to: BorrowedFd<'_>, depth: usize, budget: &mut CopyBudget) -> io::Result<()> {
    budget.enter(depth)?;
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        budget.count()?;
        // A file that was removed meanwhile is left out.
        let Ok(stat) = statat(from, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                mkdirat(to, name, DIRECTORY_MODE)?;
                let inner = openat(from, name, OPEN_DIRECTORY, Mode::empty())?;
                let copy = openat(to, name, OPEN_DIRECTORY, Mode::empty())?;
                copy_directory(inner.as_fd(), copy.as_fd(), depth + 1, budget)?;
            }
            FileType::Symlink => symlinkat(readlinkat(from, name, Vec::new())?, to, name)?,
            FileType::RegularFile => copy_file(from, to, name, budget)?,
            _ => {}
        }
    }
    Ok(())
}

fn copy_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr, budget: &mut CopyBudget) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let source = openat(from, name, flags | OFlags::RDONLY, Mode::empty())?;
    let stat = fstat(&source)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    // Without the set-user-ID bits.
    let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
    let target = openat(to, name, flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)?;
    budget.copy(File::from(source), File::from(target))
}
