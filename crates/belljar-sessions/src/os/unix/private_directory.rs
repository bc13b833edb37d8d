//! Directories and files of the store, opened so that nothing that was put in their place has an effect: links are not
//! followed, only regular files are read and written, and new files are accessible to the user of this process alone.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use belljar_core::os::create_private_directory;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, linkat, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::os::system::path_of;
use crate::store::private_directory::DirectoryError;

/// The mode of new directories.
const DIRECTORY_MODE: Mode = Mode::RWXU;
/// The mode of new files.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

impl From<Errno> for DirectoryError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// A directory of the store, which is open.
#[derive(Debug)]
pub(crate) struct PrivateDirectory(OwnedFd);

impl PrivateDirectory {
    /// Opens the root of a store, whose path the operator chose, and which may be a link. Creates it if it does not
    /// exist.
    pub(crate) fn open_root(path: &Path) -> io::Result<Self> {
        create_private_directory(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Opens a directory in this one, such as that of a session. Creates it first if `create` is set.
    pub(crate) fn subdirectory(&self, name: &str, create: bool) -> Result<Self, DirectoryError> {
        if create {
            match mkdirat(&self.0, name, DIRECTORY_MODE) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.0, name, flags, Mode::empty());
        // The name may be a session ID, which errors must not contain.
        opened.map(Self).map_err(|errno| self.explain(errno, name, "directory", FileType::Directory))
    }

    /// Returns a path of this directory that does not depend on names, which others may change. It is valid as long as
    /// the directory is open.
    pub(crate) fn path(&self) -> PathBuf {
        path_of(&self.0)
    }

    /// Returns whether a directory exists in this one, and is not a link to one.
    pub(crate) fn has_subdirectory(&self, name: &str) -> bool {
        let stat = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }

    /// Returns the names of all entries.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }

    /// Returns whether a file of any type exists.
    pub(crate) fn contains(&self, name: &str) -> bool {
        statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, name: &'static str) -> Result<File, DirectoryError> {
        self.open_regular(name, OFlags::RDONLY)
    }

    /// Opens a file for writing at its end. Creates it if it does not exist.
    pub(crate) fn open_to_append(&self, name: &'static str) -> Result<File, DirectoryError> {
        self.open_regular(name, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)
    }

    /// Creates an empty file. A file that has the name is removed, and not written to.
    pub(crate) fn create(&self, name: &'static str) -> Result<File, DirectoryError> {
        self.remove(name)?;
        self.open_regular(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }

    /// Removes a file, if it exists. A link is removed, and not its target.
    pub(crate) fn remove(&self, name: &'static str) -> Result<(), DirectoryError> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno @ (Errno::ISDIR | Errno::PERM)) => Err(self.explain(errno, name, name, FileType::RegularFile)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Renames a file, in place of an existing one.
    pub(crate) fn rename(&self, from: &'static str, to: &'static str) -> Result<(), DirectoryError> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Gives a file a second name. Does not follow a link.
    pub(crate) fn link(&self, name: &'static str, second: &'static str) -> Result<(), DirectoryError> {
        Ok(linkat(&self.0, name, &self.0, second, AtFlags::empty())?)
    }

    /// Writes the entries of the directory to the disk.
    pub(crate) fn sync(&self) -> Result<(), DirectoryError> {
        Ok(rustix::fs::fsync(&self.0)?)
    }

    /// Opens a regular file. Does not follow a link, nor wait for the other end of a FIFO.
    fn open_regular(&self, name: &'static str, flags: OFlags) -> Result<File, DirectoryError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = openat(&self.0, name, flags, FILE_MODE)
            .map_err(|errno| self.explain(errno, name, name, FileType::RegularFile))?;
        match FileType::from_raw_mode(fstat(opened.as_fd())?.st_mode) {
            FileType::RegularFile => Ok(opened.into()),
            other => Err(DirectoryError::WrongType { name, found: describe(other) }),
        }
    }

    /// Returns the error of an entry that could not be opened: the type of the entry if that is the reason.
    fn explain(&self, errno: Errno, entry: &str, name: &'static str, expected: FileType) -> DirectoryError {
        match statat(&self.0, entry, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(found) if found != expected => DirectoryError::WrongType { name, found: describe(found) },
            _ => errno.into(),
        }
    }
}

/// Returns the inode of a file, and the time of its last change in nanoseconds since 1970.
pub(crate) fn identity(metadata: &Metadata) -> (u64, i128) {
    let changed = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
    (metadata.ino(), changed)
}

/// Returns the name of a type of file, with an article.
fn describe(file_type: FileType) -> &'static str {
    match file_type {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "a file of another type",
    }
}
