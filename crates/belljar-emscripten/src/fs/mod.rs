//! The files of one instance: an in-memory filesystem with POSIX semantics.
//!
//! Data that the guest writes is held in memory, within a [`Quota`]. Below it are read-only [`Layer`]s that instances
//! share, and directories may be mounted over parts of it ([`MountedDirectory`]). No other file of the host is
//! reachable from here. A `Filesystem` is cheap to clone: each restored snapshot gets its own copy, which shares file
//! contents until one of the copies writes.
//!
//! | file | subject |
//! | --- | --- |
//! | `node`, `content`, `bytes`, `time` | inodes and their contents |
//! | `layer`, `overlay` | read-only trees and how they merge with private files |
//! | `mount`, `host_directory` | mounted directories, and those of the host |
//! | `path_resolution` | from paths to inodes |
//! | `directory_ops` | creating, removing and renaming |
//! | `attributes` | `stat`, permissions, times |
//! | `descriptors`, `open`, `io`, `listing` | operations on descriptors |
//! | `host_api` | operations of the host on the guest's files |
//! | `serialize` | the form in which snapshots store files |
//!
//! Permissions are Emscripten's (`FS.nodePermissions`): there is one user, and any of the three read, write or execute
//! bits suffices for all. Where POSIX leaves a choice, errors are those of Linux.

mod attributes;
mod bytes;
mod content;
mod descriptors;
mod directory_ops;
mod host_api;
mod host_directory;
mod io;
mod layer;
mod listing;
mod mount;
mod node;
mod open;
mod overlay;
mod path_resolution;
mod serialize;
mod socket;
mod time;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use attributes::{Access, Stat, StatFs};
pub use bytes::FileBytes;
pub use descriptors::Readiness;
pub use host_api::{FileEntry, FileError, Listing};
pub use host_directory::HostDirectory;
pub use io::Whence;
pub use layer::{Layer, LayerBuilder, LayerContent, LayerError};
pub use listing::DirectoryEntry;
pub use mount::{MountedDirectory, MountedEntry, MountedFile};
pub use node::{Device, FileType};
pub use open::{AT_FDCWD, OpenFlags};
pub use serialize::{FilesystemSnapshot, LoadError};
pub use socket::{Socket, SocketFamily};
pub use time::{SetTime, Timestamp};

use self::descriptors::Descriptors;
use self::mount::Mount;
use self::node::{Node, NodeId, NodeKind, Nodes, ROOT};
use self::path_resolution::PathTarget;
use self::time::Times;
use crate::Errno;
use crate::sources::Sources;

/// The maximum length of the name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// The maximum length of a path, in bytes, with its terminator.
pub const PATH_MAX: usize = crate::guest_memory::PATH_MAX;

/// The limits on one instance's private files. Read-only layers do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Bytes in all files, in blocks of 512. Holes do not count if they cover whole chunks of 64 KiB.
    pub bytes: u64,
    /// Files, directories, links and pipes.
    pub inodes: u32,
    /// Open descriptors; also the limit on their numbers.
    pub open_files: u32,
}

impl Default for Quota {
    fn default() -> Self {
        Self { bytes: 512 << 20, inodes: 100_000, open_files: 1024 }
    }
}

/// The part of a [`Quota`] that is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes in all files, in blocks of 512.
    pub bytes: u64,
    /// Files, directories, links and pipes.
    pub inodes: u32,
    /// Open descriptors.
    pub open_files: u32,
}

/// The files of one instance: directories, devices, pipes and open descriptors.
///
/// Operations named `*_at` take a directory descriptor and a path, as the `*at` system calls do: [`AT_FDCWD`] is the
/// working directory.
#[derive(Clone)]
pub struct Filesystem {
    nodes: Nodes,
    descriptors: Descriptors,
    working_directory: PathTarget,
    layers: Vec<Arc<Layer>>,
    mounts: Vec<Mount>,
    quota: Quota,
    usage: Usage,
    sources: Sources,
    umask: u32,
    /// Set while permission bits are enforced; clear during operations of the host.
    enforcing: bool,
}

impl Filesystem {
    /// Creates a filesystem with `/dev`, `/tmp` and an empty `/home`, which is the working directory. Descriptors 0, 1
    /// and 2 are open on the standard streams.
    pub fn new(quota: Quota) -> Self {
        let mut files = Self::empty(quota);
        // Populating cannot fail: the tree is new, and `make` does not check the quota.
        files.populate();
        files
    }

    fn empty(quota: Quota) -> Self {
        let mut nodes = Nodes::default();
        // The first inode of an empty table gets index 0, the root's.
        let _ = nodes.insert(|id| Node {
            ino: 1,
            parent: id,
            name: "".into(),
            linked: true,
            opens: 0,
            mode: 0o755,
            times: Times::all(Timestamp::now()),
            kind: NodeKind::Directory(node::Directory::default()),
            private: false,
        });
        Self {
            nodes,
            descriptors: Descriptors::default(),
            working_directory: PathTarget::Node(ROOT),
            layers: Vec::new(),
            mounts: Vec::new(),
            quota,
            usage: Usage::default(),
            sources: Sources::Host,
            umask: 0o022,
            enforcing: true,
        }
    }

    fn populate(&mut self) {
        let made = (|| {
            let devices = self.make(ROOT, "dev", 0o755, NodeKind::Directory(node::Directory::default()))?;
            for (name, device) in [
                ("null", Device::Null),
                ("zero", Device::Zero),
                ("random", Device::Random),
                ("urandom", Device::Random),
                ("stdin", Device::Stdin),
                ("stdout", Device::Stdout),
                ("stderr", Device::Stderr),
            ] {
                self.make(devices, name, 0o666, NodeKind::Device(device))?;
            }
            self.make(ROOT, "tmp", 0o1777, NodeKind::Directory(node::Directory::default()))?;
            let home = self.make(ROOT, "home", 0o755, NodeKind::Directory(node::Directory::default()))?;
            for (name, flags) in [("stdin", 0), ("stdout", 1), ("stderr", 1)] {
                let device = self.child(devices, name)?.ok_or(Errno::ENOENT)?;
                self.add_description(descriptors::Target::Node(device), OpenFlags(flags), 0)?;
            }
            self.set_working_directory(PathTarget::Node(home))
        })();
        if let Err(errno) = made {
            tracing::error!(%errno, "failed to populate a new filesystem");
        }
        // The initial layout does not count against the guest's quota.
        self.nodes.exclude_from_quota();
        self.usage = Usage::default();
    }

    /// Returns the quota.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Replaces the quota. Existing files that exceed it remain, but can only shrink.
    pub fn set_quota(&mut self, quota: Quota) {
        self.quota = quota;
    }

    /// Returns the usage.
    pub fn usage(&self) -> Usage {
        Usage { open_files: self.descriptors.open(), ..self.usage }
    }

    /// Sets the file mode creation mask and returns the previous one (`umask`).
    pub fn set_umask(&mut self, mask: u32) -> u32 {
        std::mem::replace(&mut self.umask, mask & 0o777)
    }

    /// Sets the sources of file times and of random bytes.
    pub(crate) fn set_sources(&mut self, sources: Sources) {
        self.sources = sources;
    }

    /// Sets the times of all files to the current time.
    pub(crate) fn reset_times(&mut self) {
        let times = Times::all(self.now());
        self.nodes.set_times(times);
    }

    /// Returns the current time, for a file's status.
    fn now(&self) -> Timestamp {
        self.sources.file_time()
    }

    /// Returns the number of bytes that may still be written.
    fn budget(&self) -> u64 {
        self.quota.bytes.saturating_sub(self.usage.bytes)
    }

    /// Runs `work` without enforcing permission bits.
    fn with_root_permissions<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.enforcing = false;
        let result = work(self);
        self.enforcing = true;
        result
    }

    /// Adds an inode to a directory.
    fn make(&mut self, parent: NodeId, name: &str, mode: u32, kind: NodeKind) -> Result<NodeId, Errno> {
        let stored = kind.stored();
        let name: Arc<str> = name.into();
        let now = self.now();
        let id = self.nodes.insert(|id| Node {
            ino: u64::from(id.0) + 1,
            parent,
            name: name.clone(),
            linked: true,
            opens: 0,
            mode: mode & 0o7777,
            times: Times::all(now),
            kind,
            private: true,
        })?;
        self.usage.inodes = self.usage.inodes.saturating_add(1);
        self.usage.bytes = self.usage.bytes.saturating_add(stored);
        self.insert_entry(parent, name, id)?;
        Ok(id)
    }

    /// Adds a reference to an inode.
    fn acquire(&mut self, id: NodeId) -> Result<(), Errno> {
        let node = self.nodes.get_mut(id)?;
        node.opens = node.opens.checked_add(1).ok_or(Errno::ENFILE)?;
        Ok(())
    }

    /// Releases a reference that [`Filesystem::acquire`] added.
    fn release(&mut self, id: NodeId) {
        if let Ok(node) = self.nodes.get_mut(id) {
            node.opens = node.opens.saturating_sub(1);
        }
        self.discard_unused(id);
    }

    /// Frees an inode that has no references left, and its space.
    fn discard_unused(&mut self, id: NodeId) {
        let unused = self.nodes.get(id).is_ok_and(|node| !node.linked && node.opens == 0);
        if let Some(node) = unused.then(|| self.nodes.remove(id)).flatten() {
            self.usage.bytes = self.usage.bytes.saturating_sub(node.kind.stored());
            self.usage.inodes = self.usage.inodes.saturating_sub(u32::from(node.private));
        }
    }

    fn set_working_directory(&mut self, place: PathTarget) -> Result<(), Errno> {
        if let PathTarget::Node(id) = place {
            self.acquire(id)?;
        }
        let left = std::mem::replace(&mut self.working_directory, place);
        if let PathTarget::Node(id) = left {
            self.release(id);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filesystem").field("quota", &self.quota).field("usage", &self.usage()).finish_non_exhaustive()
    }
}
