//! Inodes: what files, directories, links, devices and pipes are made of.
//!
//! All inodes stand in one table and refer to each other by number, so a copy of a filesystem is a copy of the table,
//! and a directory tree of any depth is dropped, saved and copied without recursion. There are no hard links
//! (Emscripten's libc answers `EMLINK` by itself), so an inode knows the one directory and name it is found under.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::content::Content;
use super::time::Times;
use crate::Errno;

/// Place in the inode table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct NodeId(pub(super) u32);

/// The root directory's place.
pub(super) const ROOT: NodeId = NodeId(0);

/// One inode.
#[derive(Clone)]
pub(super) struct Node {
    /// The number that the guest sees; stays the same for the life of the inode.
    pub(super) ino: u64,
    /// The directory it is in, while `linked`. The root is its own parent.
    pub(super) parent: NodeId,
    /// Its name there.
    pub(super) name: Arc<str>,
    /// Whether a directory lists it. An inode that is neither linked nor open is gone.
    pub(super) linked: bool,
    /// Open file descriptions and working directories that refer to it.
    pub(super) opens: u32,
    /// Permission bits, at most `0o7777`.
    pub(super) mode: u32,
    pub(super) times: Times,
    pub(super) kind: Kind,
    /// Whether it was made here, and counts against the quota, rather than found in a layer.
    pub(super) private: bool,
}

#[derive(Clone)]
pub(super) enum Kind {
    File(Content),
    Directory(Directory),
    Link(Arc<str>),
    Device(Device),
    Pipe(Box<Pipe>),
}

impl Kind {
    pub(super) fn file_type(&self) -> FileType {
        match self {
            Kind::File(_) => FileType::Regular,
            Kind::Directory(_) => FileType::Directory,
            Kind::Link(_) => FileType::Link,
            Kind::Device(_) => FileType::CharacterDevice,
            Kind::Pipe(_) => FileType::Pipe,
        }
    }

    /// Bytes that count against the quota.
    pub(super) fn stored(&self) -> u64 {
        match self {
            Kind::File(content) => content.stored(),
            Kind::Link(target) => target.len() as u64,
            _ => 0,
        }
    }
}

/// A directory: what changed here, over the directories of the layers that it shows.
#[derive(Clone, Default)]
pub(super) struct Directory {
    /// Entries made here, those of `lower` that were looked up, and whiteouts for those that were removed.
    pub(super) entries: Arc<BTreeMap<Arc<str>, Entry>>,
    /// Directories of layers, the topmost first.
    pub(super) lower: Arc<[LowerDirectory]>,
    /// The host directory mounted over this one, by its place in the list of mounts.
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
    /// Hides what the layers have under this name.
    Whiteout,
}

/// Character devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// `/dev/null`.
    Null,
    /// `/dev/zero`.
    Zero,
    /// `/dev/random` and `/dev/urandom`.
    Random,
    /// Standard input. Its reads are the caller's business: see [`super::Filesystem::device`].
    Stdin,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Device {
    /// `st_rdev`: Linux's numbers for what Linux has, a major number of our own for the streams.
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

    /// Whether it stands for a standard stream.
    pub fn is_console(self) -> bool {
        matches!(self, Device::Stdin | Device::Stdout | Device::Stderr)
    }
}

/// Bytes on their way from one descriptor to another.
#[derive(Clone, Default)]
pub(super) struct Pipe {
    pub(super) buffer: VecDeque<u8>,
    /// Open descriptions of the reading end.
    pub(super) readers: u32,
    /// Open descriptions of the writing end.
    pub(super) writers: u32,
}

/// Bytes that a pipe holds, as on Linux.
pub(super) const PIPE_CAPACITY: usize = 64 << 10;

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    /// Something that only a mounted host directory can hold: a socket, a block device.
    Other,
}

impl FileType {
    /// The type bits of `st_mode`.
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

    /// `d_type` of a directory entry: the type bits of `st_mode`, shifted.
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
    /// A table with these places; `None` when there are more than can be numbered.
    pub(super) fn from_slots(slots: Vec<Option<Node>>) -> Option<Self> {
        let count = u32::try_from(slots.len()).ok()?;
        // The last one freed is the first one used.
        let free = (0..count).zip(&slots).filter(|(_, slot)| slot.is_none()).map(|(at, _)| at).rev().collect();
        Some(Self { slots, free })
    }

    /// The inode at `id`. [`Errno::EIO`] when there is none: no reference outlives its inode, so that would be a
    /// mistake in this module.
    pub(super) fn get(&self, id: NodeId) -> Result<&Node, Errno> {
        self.slots.get(id.0 as usize).and_then(Option::as_ref).ok_or(Errno::EIO)
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> Result<&mut Node, Errno> {
        self.slots.get_mut(id.0 as usize).and_then(Option::as_mut).ok_or(Errno::EIO)
    }

    /// Puts an inode into the first free place.
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
            Kind::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn directory_mut(&mut self, id: NodeId) -> Result<&mut Directory, Errno> {
        match &mut self.get_mut(id)?.kind {
            Kind::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Lets no inode that there is so far count against the quota.
    pub(super) fn own_by_host(&mut self) {
        self.slots.iter_mut().flatten().for_each(|node| node.private = false);
    }

    /// Every place of the table, with the inode in it.
    pub(super) fn slots(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0..).map(NodeId).zip(&self.slots).filter_map(|(id, slot)| Some((id, slot.as_ref()?)))
    }
}
