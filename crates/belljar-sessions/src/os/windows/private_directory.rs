//! Directories and files of the store, with the interface of the ones for Unix. New files have the permissions of the
//! store's directory, which by default is in the user's profile.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use belljar_core::os::create_private_directory;

use crate::store::private_directory::DirectoryError;

/// `FILE_FLAG_OPEN_REPARSE_POINT` of `CreateFile`: opens a link and not its target.
const OPEN_LINK: u32 = 0x0020_0000;

/// A directory of the store.
#[derive(Debug)]
pub(crate) struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    /// Opens the root of a store, whose path the operator chose, and which may be a link. Creates it if it does not
    /// exist.
    pub(crate) fn open_root(path: &Path) -> io::Result<Self> {
        create_private_directory(path)?;
        Ok(Self(path.canonicalize()?))
    }

    /// Opens a directory in this one, such as that of a session. Creates it first if `create` is set.
    pub(crate) fn subdirectory(&self, name: &str, create: bool) -> Result<Self, DirectoryError> {
        let path = self.0.join(name);
        if create {
            match fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
                _ => {}
            }
        }
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            return Ok(Self(path));
        }
        // The name may be a session ID, which errors must not contain.
        Err(DirectoryError::WrongType { name: "directory", found: describe(&metadata) })
    }

    /// Returns the path of this directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.0.clone()
    }

    /// Returns whether a directory exists in this one, and is not a link to one.
    pub(crate) fn has_subdirectory(&self, name: &str) -> bool {
        fs::symlink_metadata(self.0.join(name)).is_ok_and(|metadata| metadata.is_dir())
    }

    /// Returns the names of all entries.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    /// Returns whether a file of any type exists.
    pub(crate) fn contains(&self, name: &str) -> bool {
        fs::symlink_metadata(self.0.join(name)).is_ok()
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, name: &'static str) -> Result<File, DirectoryError> {
        self.open_regular(name, File::options().read(true))
    }

    /// Opens a file for writing at its end. Creates it if it does not exist.
    pub(crate) fn open_to_append(&self, name: &'static str) -> Result<File, DirectoryError> {
        self.open_regular(name, File::options().append(true).create(true))
    }

    /// Creates an empty file. A file that has the name is removed, and not written to.
    pub(crate) fn create(&self, name: &'static str) -> Result<File, DirectoryError> {
        self.remove(name)?;
        self.open_regular(name, File::options().write(true).create_new(true))
    }

    /// Removes a file, if it exists. A link is removed, and not its target.
    pub(crate) fn remove(&self, name: &'static str) -> Result<(), DirectoryError> {
        match fs::remove_file(self.0.join(name)) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.explain(error, name)),
        }
    }

    /// Renames a file, in place of an existing one.
    pub(crate) fn rename(&self, from: &'static str, to: &'static str) -> Result<(), DirectoryError> {
        Ok(fs::rename(self.0.join(from), self.0.join(to))?)
    }

    /// Gives a file a second name. Does not follow a link.
    pub(crate) fn link(&self, name: &'static str, second: &'static str) -> Result<(), DirectoryError> {
        Ok(fs::hard_link(self.0.join(name), self.0.join(second))?)
    }

    /// Does nothing: the system writes the entries of a directory to the disk itself.
    pub(crate) fn sync(&self) -> Result<(), DirectoryError> {
        Ok(())
    }

    /// Opens a regular file. Does not follow a link.
    fn open_regular(&self, name: &'static str, options: &mut OpenOptions) -> Result<File, DirectoryError> {
        let opened = options.custom_flags(OPEN_LINK).open(self.0.join(name));
        let file = opened.map_err(|error| self.explain(error, name))?;
        let metadata = file.metadata()?;
        if metadata.is_file() { Ok(file) } else { Err(DirectoryError::WrongType { name, found: describe(&metadata) }) }
    }

    /// Returns the error of a file that could not be opened or removed: the type of the file if that is the reason.
    fn explain(&self, error: io::Error, name: &'static str) -> DirectoryError {
        match fs::symlink_metadata(self.0.join(name)) {
            Ok(metadata) if !metadata.is_file() => DirectoryError::WrongType { name, found: describe(&metadata) },
            _ => error.into(),
        }
    }
}

/// Returns a number that a file keeps as long as it exists, and the time of its last change in nanoseconds since 1601.
/// The number is the time of its creation: metadata of the standard library has no other.
pub(crate) fn identity(metadata: &Metadata) -> (u64, i128) {
    (metadata.creation_time(), i128::from(metadata.last_write_time()) * 100)
}

/// Returns the name of a type of file, with an article.
fn describe(metadata: &Metadata) -> &'static str {
    if metadata.is_dir() {
        "a directory"
    } else if metadata.is_symlink() {
        "a symbolic link"
    } else if metadata.is_file() {
        "a regular file"
    } else {
        "a file of another type"
    }
}
