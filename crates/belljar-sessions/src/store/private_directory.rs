//! Directories and files of the store, opened so that nothing that was put in their place has an effect: links are not
//! followed, only regular files are read and written, and new files are accessible to the user of this process alone.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, linkat, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

/// The mode of new directories.
const DIRECTORY_MODE: Mode = Mode::RWXU;
/// The mode of new files.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The error of an operation on a file of the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file exists, but is not of the type that the store writes.
    #[error("{name} is {found}")]
    WrongType {
        name: &'static str,
        /// The type, with an article.
        found: &'static str,
    },
    #[error("{0} is too long")]
    TooLong(&'static str),
}

impl From<DirectoryError> for io::Error {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Io(error) => error,
            error => Self::other(error),
        }
    }
}

impl From<Errno> for DirectoryError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl DirectoryError {
    /// Returns whether the file does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// A directory of the store, which is open.
#[derive(Debug)]
pub(crate) struct PrivateDirectory(OwnedFd);

impl PrivateDirectory {
    /// Opens the root of a store, whose path the operator chose, and which may be a link. Creates it if it does not
    /// exist.
    pub(crate) fn open_root(path: &Path) -> io::Result<Self> {
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(path)?;
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

    /// Reads a file of at most `max_bytes`.
    pub(crate) fn read(&self, name: &'static str, max_bytes: u64) -> Result<Vec<u8>, DirectoryError> {
        let file = self.open(name)?;
        let length = file.metadata()?.len();
        if length > max_bytes {
            return Err(DirectoryError::TooLong(name));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        // The file may grow meanwhile.
        file.take(max_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
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
pub(crate) fn identity(metadata: &fs::Metadata) -> (u64, i128) {
    use std::os::unix::fs::MetadataExt as _;
    let changed = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
    (metadata.ino(), changed)
}

/// Returns a path of an open directory.
#[cfg(target_os = "linux")]
fn path_of(directory: &OwnedFd) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
}

/// Returns the present path of an open directory: this system has none that does not depend on names.
#[cfg(not(target_os = "linux"))]
fn path_of(directory: &OwnedFd) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    let path = rustix::fs::getpath(directory).map(std::ffi::CString::into_bytes).unwrap_or_default();
    std::ffi::OsString::from_vec(path).into()
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
