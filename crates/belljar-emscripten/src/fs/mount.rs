//! Directories outside of the guest's memory, mounted into its tree.
//!
//! The embedder implements [`MountedDirectory`], which decides what can be reached. [`HostDirectory`](super::HostDirectory) is
//! a directory of the host.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::node::{FileType, NodeId};
use super::{FileError, Filesystem, OpenFlags, SetTime, Stat, Timestamp};
use crate::Errno;
use crate::host::HOST_DIRECTORY;

/// A directory that can be mounted. Paths begin at it, and consist of names with `/` in between; its own path is "".
/// Links are not followed at the end of a path.
///
/// The functions fail with the guest's errors: if a file does not exist, or must not be used in this way.
pub trait MountedDirectory: Send + Sync + fmt::Debug {
    /// Returns whether the guest may modify the contents.
    fn is_writable(&self) -> bool;

    /// Returns the attributes of a file. The device is that of no mount.
    fn stat(&self, path: &str) -> Result<Stat, Errno>;

    /// Returns the target of a link.
    fn read_link(&self, path: &str) -> Result<Arc<str>, Errno>;

    /// Opens a regular file. Fails with [`Errno::EACCES`] for other files.
    fn open_file(&self, path: &str, flags: OpenFlags, mode: u32) -> Result<Arc<dyn MountedFile>, Errno>;

    /// Creates a directory.
    fn make_directory(&self, path: &str, mode: u32) -> Result<(), Errno>;

    /// Removes a file that is not a directory.
    fn remove_file(&self, path: &str) -> Result<(), Errno>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &str) -> Result<(), Errno>;

    /// Renames a file.
    fn rename(&self, from: &str, to: &str) -> Result<(), Errno>;

    /// Sets the permission bits of a file.
    fn set_mode(&self, path: &str, mode: u32) -> Result<(), Errno>;

    /// Sets the times of a file.
    fn set_times(&self, path: &str, accessed: SetTime, modified: SetTime) -> Result<(), Errno>;

    /// Returns up to `limit` entries of a directory, sorted, and whether these are all. Names that are not UTF-8 are
    /// left out: the guest could not open them.
    fn entries(&self, path: &str, limit: usize) -> Result<(Vec<MountedEntry>, bool), Errno>;
}

/// An open file of a mounted directory. Dropping it closes the file.
pub trait MountedFile: Send + Sync {
    /// Returns the attributes. The device is that of no mount.
    fn stat(&self) -> Result<Stat, Errno>;

    /// Reads bytes from an offset on; fewer than asked for at the end of the file only.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Writes bytes; possibly fewer than given.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize, Errno>;

    /// Sets the size.
    fn truncate(&self, size: u64) -> Result<(), Errno>;

    /// Writes what is buffered to the storage.
    fn synchronise(&self) -> Result<(), Errno>;

    /// Sets the permission bits.
    fn set_mode(&self, mode: u32) -> Result<(), Errno>;

    /// Sets the times.
    fn set_times(&self, accessed: SetTime, modified: SetTime) -> Result<(), Errno>;
}

/// An entry of a mounted directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedEntry {
    /// The name.
    pub name: Arc<str>,
    /// The number of the inode.
    pub ino: u64,
    /// The type.
    pub file_type: FileType,
    /// The length in bytes: 0 for directories.
    pub size: u64,
    /// The time of the last modification.
    pub modified: Timestamp,
}

/// The maximum number of entries of a directory that is listed. A guest may have created them on the host's disk, and a
/// listing is in memory.
const MAX_LISTED: usize = 1_000_000;

/// A mounted directory.
#[derive(Clone)]
pub(super) struct Mount {
    pub(super) at: NodeId,
    pub(super) directory: Arc<dyn MountedDirectory>,
}

impl dyn MountedDirectory {
    /// Fails with [`Errno::EROFS`] unless the guest may modify the contents.
    pub(super) fn check_writable(&self) -> Result<(), Errno> {
        if self.is_writable() { Ok(()) } else { Err(Errno::EROFS) }
    }

    pub(super) fn exists(&self, path: &str) -> Result<bool, Errno> {
        match self.stat(path) {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn is_directory(&self, path: &str) -> Result<bool, Errno> {
        Ok(self.stat(path)?.file_type == FileType::Directory)
    }

    /// Returns the target of the link at `path`; `None` if the file is not a link.
    pub(super) fn link_target(&self, path: &str) -> Result<Option<Arc<str>>, Errno> {
        match self.stat(path)?.file_type {
            FileType::Link => self.read_link(path).map(Some),
            _ => Ok(None),
        }
    }

    /// Fails unless one of the permission `bits` is set and, if they include write bits, the mount allows writing.
    pub(super) fn check_mode(&self, path: &str, bits: u32) -> Result<(), Errno> {
        if self.stat(path)?.mode & bits == 0 {
            return Err(Errno::EACCES);
        }
        if bits & 0o222 != 0 { self.check_writable() } else { Ok(()) }
    }

    /// Returns all entries of the directory at `path`, sorted; fails with [`Errno::ENOMEM`] if there are too many.
    pub(super) fn list(&self, path: &str) -> Result<Vec<MountedEntry>, Errno> {
        let (entries, is_complete) = self.entries(path, MAX_LISTED)?;
        if is_complete { Ok(entries) } else { Err(Errno::ENOMEM) }
    }
}

impl Stat {
    /// Returns the attributes of a file in a mount.
    pub(super) fn in_mount(self, mount: u32) -> Self {
        Self { device: 2 + mount, ..self }
    }
}

impl Filesystem {
    /// Mounts a directory at `path`, which is created if it does not exist and must be a directory of the guest
    /// without a mount. Its previous contents are hidden. If it is the working directory, then so is the mounted
    /// one.
    pub fn mount(&mut self, path: &str, directory: Arc<dyn MountedDirectory>) -> Result<(), FileError> {
        self.create_dir_all(path)?;
        let mounted = self.with_root_permissions(|files| files.resolve(super::AT_FDCWD, path, true)).and_then(
            |place| match place {
                super::PathTarget::Node(at) if at != super::ROOT => {
                    let mount = u32::try_from(self.mounts.len()).map_err(|_| Errno::ENOMEM)?;
                    self.nodes.directory_mut(at)?.mount = Some(mount);
                    self.mounts.push(Mount { at, directory });
                    if self.working_directory == super::PathTarget::Node(at) {
                        self.set_working_directory(super::PathTarget::Host { mount, path: String::new() })?;
                    }
                    Ok(())
                }
                _ => Err(Errno::EBUSY),
            },
        );
        mounted.map_err(|errno| FileError { path: path.into(), errno })
    }

    pub(super) fn mounted(&self, mount: u32) -> Result<Arc<dyn MountedDirectory>, Errno> {
        if let Some(recording) = self.sources.as_recorded() {
            recording.set_incomplete(HOST_DIRECTORY);
        }
        self.mounts.get(mount as usize).map(|mount| mount.directory.clone()).ok_or(Errno::EIO)
    }
}
