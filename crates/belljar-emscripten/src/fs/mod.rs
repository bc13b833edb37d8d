//! The files of one instance: an in-memory filesystem with POSIX semantics.
//!
//! What the guest writes is held in memory, within a [`Quota`]. Under it lie read-only [`Layer`]s that instances
//! share, and over parts of it host directories may be mounted ([`HostDirectory`]). Nothing else of the host can be
//! reached from here. A `Filesystem` is cheap to clone: each restored snapshot gets a copy of its own, which shares
//! file contents until one of them writes.
//!
//! | file | subject |
//! | --- | --- |
//! | `node`, `content`, `bytes`, `time` | inodes and what they hold |
//! | `layer`, `overlay` | read-only trees and how they show through |
//! | `mount` | directories of the host |
//! | `walk` | from paths to inodes |
//! | `names` | making, removing and renaming |
//! | `attributes` | `stat`, permissions, times |
//! | `descriptors`, `open`, `io`, `listing` | what a descriptor can do |
//! | `embed` | what the host does to the guest's files |
//! | `saved` | the form in which snapshots keep it |
//!
//! Permissions are Emscripten's (`FS.nodePermissions`): there is one user, and any of the three read, write or execute
//! bits suffices for all. Errors are those of Linux, where POSIX leaves a choice.

mod attributes;
mod bytes;
mod content;
mod descriptors;
mod embed;
mod io;
mod layer;
mod listing;
mod mount;
mod names;
mod node;
mod open;
mod overlay;
mod saved;
mod time;
mod walk;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use attributes::{Access, Stat, Status};
pub use bytes::FileBytes;
pub use descriptors::Readiness;
pub use embed::{FileError, Listed, Listing};
pub use io::Whence;
pub use layer::{Layer, LayerBuilder, LayerError};
pub use listing::DirectoryEntry;
pub use mount::HostDirectory;
pub use node::{Device, FileType};
pub use open::{AT_FDCWD, OpenFlags};
pub use saved::{LoadError, SavedFiles};
pub use time::{SetTime, Timestamp};

use self::descriptors::Descriptors;
use self::mount::Mount;
use self::node::{Kind, Node, NodeId, Nodes, ROOT};
use self::time::Times;
use self::walk::Place;
use crate::Errno;

/// The longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest path, in bytes, with its terminator.
pub const PATH_MAX: usize = crate::guest::PATH_MAX;

/// Bounds on one instance's private files. Read-only layers do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Bytes in all files, in blocks of 512. Holes do not count, as far as they cover pieces of 64 KiB.
    pub bytes: u64,
    /// Files, directories, links and pipes.
    pub inodes: u32,
    /// Open descriptors; also the bound on their numbers.
    pub open_files: u32,
}

impl Default for Quota {
    fn default() -> Self {
        Self { bytes: 512 << 20, inodes: 100_000, open_files: 1024 }
    }
}

/// What of a [`Quota`] is in use.
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
/// Operations named `*_at` take a directory descriptor and a path as the `*at` system calls do: [`AT_FDCWD`] stands for
/// the working directory.
#[derive(Clone)]
pub struct Filesystem {
    nodes: Nodes,
    descriptors: Descriptors,
    working_directory: Place,
    layers: Vec<Arc<Layer>>,
    mounts: Vec<Mount>,
    quota: Quota,
    usage: Usage,
    umask: u32,
    /// Whether permission bits are looked at: not while the host itself is at work.
    enforcing: bool,
}

impl Filesystem {
    /// A filesystem with `/dev`, `/tmp` and an empty `/home`, which is the working directory; descriptors 0, 1 and 2
    /// are open on the standard streams.
    pub fn new(quota: Quota) -> Self {
        let mut files = Self::empty(quota);
        // What is made here cannot fail: the tree is new, and the quota is not looked at by `make`.
        files.populate();
        files
    }

    fn empty(quota: Quota) -> Self {
        let mut nodes = Nodes::default();
        // The first inode of an empty table takes its first place, the root's.
        let _ = nodes.insert(|id| Node {
            ino: 1,
            parent: id,
            name: "".into(),
            linked: true,
            opens: 0,
            mode: 0o755,
            times: Times::all(Timestamp::now()),
            kind: Kind::Directory(node::Directory::default()),
            private: false,
        });
        Self {
            nodes,
            descriptors: Descriptors::default(),
            working_directory: Place::Node(ROOT),
            layers: Vec::new(),
            mounts: Vec::new(),
            quota,
            usage: Usage::default(),
            umask: 0o022,
            enforcing: true,
        }
    }

    fn populate(&mut self) {
        let made = (|| {
            let devices = self.make(ROOT, "dev", 0o755, Kind::Directory(node::Directory::default()))?;
            for (name, device) in [
                ("null", Device::Null),
                ("zero", Device::Zero),
                ("random", Device::Random),
                ("urandom", Device::Random),
                ("stdin", Device::Stdin),
                ("stdout", Device::Stdout),
                ("stderr", Device::Stderr),
            ] {
                self.make(devices, name, 0o666, Kind::Device(device))?;
            }
            self.make(ROOT, "tmp", 0o1777, Kind::Directory(node::Directory::default()))?;
            let home = self.make(ROOT, "home", 0o755, Kind::Directory(node::Directory::default()))?;
            for (name, flags) in [("stdin", 0), ("stdout", 1), ("stderr", 1)] {
                let device = self.child(devices, name)?.ok_or(Errno::ENOENT)?;
                self.add_description(descriptors::Target::Node(device), OpenFlags(flags), 0)?;
            }
            self.set_working_directory(Place::Node(home))
        })();
        if let Err(errno) = made {
            tracing::error!(%errno, "cannot lay out a new filesystem");
        }
        // The layout is the host's, not the guest's to pay for.
        self.nodes.own_by_host();
        self.usage = Usage::default();
    }

    /// Bounds in force.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Sets other bounds. What already exceeds them stays; it can only shrink.
    pub fn set_quota(&mut self, quota: Quota) {
        self.quota = quota;
    }

    /// What is in use.
    pub fn usage(&self) -> Usage {
        Usage { open_files: self.descriptors.open(), ..self.usage }
    }

    /// Sets the file mode creation mask and answers the one before (`umask`).
    pub fn set_umask(&mut self, mask: u32) -> u32 {
        std::mem::replace(&mut self.umask, mask & 0o777)
    }

    /// Bytes that may still be written.
    fn budget(&self) -> u64 {
        self.quota.bytes.saturating_sub(self.usage.bytes)
    }

    /// Runs `work` without looking at permission bits.
    fn as_host<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.enforcing = false;
        let result = work(self);
        self.enforcing = true;
        result
    }

    /// Adds an inode to a directory.
    fn make(&mut self, parent: NodeId, name: &str, mode: u32, kind: Kind) -> Result<NodeId, Errno> {
        let stored = kind.stored();
        let name: Arc<str> = name.into();
        let now = Timestamp::now();
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
        self.enter(parent, name, id)?;
        Ok(id)
    }

    /// Counts one more reference to an inode.
    fn hold(&mut self, id: NodeId) -> Result<(), Errno> {
        let node = self.nodes.get_mut(id)?;
        node.opens = node.opens.checked_add(1).ok_or(Errno::ENFILE)?;
        Ok(())
    }

    /// Gives back a reference that [`Filesystem::hold`] counted.
    fn release(&mut self, id: NodeId) {
        if let Ok(node) = self.nodes.get_mut(id) {
            node.opens = node.opens.saturating_sub(1);
        }
        self.discard_unused(id);
    }

    /// Frees an inode that nothing refers to any more, and gives its space back.
    fn discard_unused(&mut self, id: NodeId) {
        let unused = self.nodes.get(id).is_ok_and(|node| !node.linked && node.opens == 0);
        if let Some(node) = unused.then(|| self.nodes.remove(id)).flatten() {
            self.usage.bytes = self.usage.bytes.saturating_sub(node.kind.stored());
            self.usage.inodes = self.usage.inodes.saturating_sub(u32::from(node.private));
        }
    }

    fn set_working_directory(&mut self, place: Place) -> Result<(), Errno> {
        if let Place::Node(id) = place {
            self.hold(id)?;
        }
        let left = std::mem::replace(&mut self.working_directory, place);
        if let Place::Node(id) = left {
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
