//! Inodes: files, directories, links, devices and pipes.
//!
//! All inodes are in one table and refer to each other by number, so a copy of a filesystem is a copy of the table, and
//! directory trees of any depth are dropped, saved and copied without recursion. Hard links are not supported
//! (Emscripten's libc returns `EMLINK` by itself), so an inode stores the one directory and name under which it is
//! found.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::content::FileContent;
use super::time::Times;
use crate::Errno;

/// An index into the inode table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct NodeId(pub(super) u32);

/// The index of the root directory.
pub(super) const ROOT: NodeId = NodeId(0);

/// An inode.
#[derive(Clone)]
pub(super) struct Node {
    /// The inode number that the guest sees; it never changes.
    pub(super) ino: u64,
    /// The directory that lists the inode, while `linked`. The root is its own parent.
    pub(super) parent: NodeId,
    /// The name in that directory.
    pub(super) name: Arc<str>,
    /// Set while a directory lists the inode. An inode that is neither linked nor open is freed.
    pub(super) linked: bool,
    /// The number of open file descriptions and working directories that refer to it.
    pub(super) opens: u32,
    /// The permission bits, at most `0o7777`.
    pub(super) mode: u32,
    pub(super) times: Times,
    pub(super) kind: NodeKind,
    /// Set if the inode was created here, and counts against the quota; clear if it was found in a layer.
    pub(super) private: bool,
}

#[derive(Clone)]
pub(super) enum NodeKind {
    File(FileContent),
    Directory(Directory),
    Link(Arc<str>),
    Device(Device),
    Pipe(Box<Pipe>),
}

impl NodeKind {
    pub(super) fn file_type(&self) -> FileType {
        match self {
            NodeKind::File(_) => FileType::Regular,
            NodeKind::Directory(_) => FileType::Directory,
            NodeKind::Link(_) => FileType::Link,
            NodeKind::Device(_) => FileType::CharacterDevice,
            NodeKind::Pipe(_) => FileType::Pipe,
        }
    }

    /// Returns the number of bytes that count against the quota.
    pub(super) fn stored(&self) -> u64 {
        match self {
            NodeKind::File(content) => content.stored(),
            NodeKind::Link(target) => target.len() as u64,
            _ => 0,
        }
    }
}

/// A directory: its changes, over the directories of the layers that it merges.
#[derive(Clone, Default)]
pub(super) struct Directory {
    /// The entries created here, those of `lower` that were looked up, and whiteouts for removed ones.
    pub(super) entries: Arc<BTreeMap<Arc<str>, Entry>>,
    /// The directories of layers, the topmost first.
    pub(super) lower: Arc<[LowerDirectory]>,
    /// The index of the host directory mounted over this one, in the list of mounts.
    pub(super) mount: Option<u32>,
}

/// A directory in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LowerDirectory {
    pub(super) layer: u32,
    pub(super) node: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Node(NodeId),
    /// Hides the entry of this name in the layers.
    Whiteout,
}

/// A character device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// `/dev/null`.
    Null,
    /// `/dev/zero`.
    Zero,
    /// `/dev/random` and `/dev/urandom`.
    Random,
    /// Standard input. The caller handles reads: see [`super::Filesystem::device`].
    Stdin,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Device {
    /// Returns `st_rdev`: Linux's numbers for devices of Linux, and a major number that Linux does not use for the
    /// streams.
    pub(super) fn number(self) -> u32 {
        let (major, minor) = match self {
            Device::Null => (1, 3),
            Device::Zero => (1, 5),
            Device::Random => (1, 9),
            Device::Stdin => (64, 0),
            Device::Stdout => (64, 1),
            Device::Stderr => (64, 2),
        };
        major << 8 | minor
    }

    /// Returns whether the device is a standard stream.
    pub fn is_console(self) -> bool {
        matches!(self, Device::Stdin | Device::Stdout | Device::Stderr)
    }
}

/// Bytes in transit from one descriptor to another.
#[derive(Clone, Default)]
pub(super) struct Pipe {
    pub(super) buffer: VecDeque<u8>,
    /// The number of open descriptions of the reading end.
    pub(super) readers: u32,
    /// The number of open descriptions of the writing end.
    pub(super) writers: u32,
}

/// The capacity of a pipe in bytes, as on Linux.
pub(super) const PIPE_CAPACITY: usize = 64 << 10;

/// The type of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A character device.
    CharacterDevice,
    /// A pipe.
    Pipe,
    /// A socket, or another file that only a mounted host directory can contain, such as a block device.
    Other,
}

impl FileType {
    /// Returns the type bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileType::Regular => 0o100_000,
            FileType::Directory => 0o040_000,
            FileType::Link => 0o120_000,
            FileType::CharacterDevice => 0o020_000,
            FileType::Pipe => 0o010_000,
            FileType::Other => 0o140_000,
        }
    }

    /// Returns `d_type` of a directory entry: the type bits of `st_mode`, shifted.
    pub fn entry_type(self) -> u8 {
        (self.mode_bits() >> 12) as u8
    }
}

/// The inode table.
#[derive(Clone, Default)]
pub(super) struct Nodes {
    slots: Vec<Option<Node>>,
    free: Vec<u32>,
}

impl Nodes {
    /// Creates a table with these slots; `None` if there are more than can be numbered.
    pub(super) fn from_slots(slots: Vec<Option<Node>>) -> Option<Self> {
        let count = u32::try_from(slots.len()).ok()?;
        // Slots are taken from the end of this list, so the lowest free one is used first.
        let free = (0..count).zip(&slots).filter(|(_, slot)| slot.is_none()).map(|(at, _)| at).rev().collect();
        Some(Self { slots, free })
    }

    /// Returns the inode at `id`. Fails with [`Errno::EIO`] if the slot is empty: references never outlive their inode,
    /// so that would be an error in this module.
    pub(super) fn get(&self, id: NodeId) -> Result<&Node, Errno> {
        self.slots.get(id.0 as usize).and_then(Option::as_ref).ok_or(Errno::EIO)
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> Result<&mut Node, Errno> {
        self.slots.get_mut(id.0 as usize).and_then(Option::as_mut).ok_or(Errno::EIO)
    }

    /// Puts an inode into a free slot.
    pub(super) fn insert(&mut self, make: impl FnOnce(NodeId) -> Node) -> Result<NodeId, Errno> {
        let next = u32::try_from(self.slots.len()).map_err(|_| Errno::ENOSPC)?;
        let id = NodeId(self.free.pop().unwrap_or(next));
        let node = Some(make(id));
        match self.slots.get_mut(id.0 as usize) {
            Some(slot) => *slot = node,
            None => self.slots.push(node),
        }
        Ok(id)
    }

    pub(super) fn remove(&mut self, id: NodeId) -> Option<Node> {
        let node = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        Some(node)
    }

    pub(super) fn directory(&self, id: NodeId) -> Result<&Directory, Errno> {
        match &self.get(id)?.kind {
            NodeKind::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn directory_mut(&mut self, id: NodeId) -> Result<&mut Directory, Errno> {
        match &mut self.get_mut(id)?.kind {
            NodeKind::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Excludes all present inodes from the quota.
    pub(super) fn exclude_from_quota(&mut self) {
        self.slots.iter_mut().flatten().for_each(|node| node.private = false);
    }

    /// Sets the times of all inodes.
    pub(super) fn set_times(&mut self, times: Times) {
        self.slots.iter_mut().flatten().for_each(|node| node.times = times);
    }

    /// Returns every inode of the table with its index.
    pub(super) fn slots(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0..).map(NodeId).zip(&self.slots).filter_map(|(id, slot)| Some((id, slot.as_ref()?)))
    }
}
