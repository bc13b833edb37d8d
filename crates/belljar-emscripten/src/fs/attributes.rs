//! The attributes of inodes: `stat`, permissions, times; and `statfs` of the filesystem.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::descriptors::Target;
use super::node::{FileType, NodeId, NodeKind};
use super::path_resolution::PathTarget;
use super::time::{SetTime, Times};
use super::{Filesystem, Timestamp};
use crate::Errno;

/// The result of `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// `st_dev`: 1 in memory, and from 2 on one number for each mounted host directory.
    pub device: u32,
    /// `st_ino`.
    pub ino: u64,
    /// The type bits of `st_mode`.
    pub file_type: FileType,
    /// The permission bits of `st_mode`.
    pub mode: u32,
    /// `st_nlink`: 1, or 0 once removed. Hard links are not supported.
    pub links: u32,
    /// `st_rdev`.
    pub special: u32,
    /// `st_size`, in bytes.
    pub size: u64,
    /// `st_blocks`, in units of 512 bytes.
    pub blocks: u64,
    /// `st_atim`, `st_mtim`, `st_ctim`.
    pub(super) times: Times,
}

impl Stat {
    /// Returns the attributes of a socket.
    fn for_socket(fd: i32) -> Self {
        Self {
            device: 1,
            ino: u64::from(fd.unsigned_abs()),
            file_type: FileType::Other,
            mode: 0o777,
            links: 1,
            special: 0,
            size: 0,
            blocks: 0,
            times: Times::all(Timestamp::default()),
        }
    }

    /// Returns `st_atim`, `st_mtim` and `st_ctim`.
    pub fn times(&self) -> [Timestamp; 3] {
        [self.times.accessed, self.times.modified, self.times.changed]
    }
}

/// The mode argument of `access`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// `R_OK`.
    pub read: bool,
    /// `W_OK`.
    pub write: bool,
    /// `X_OK`.
    pub execute: bool,
}

/// The result of `statfs`: free space in terms of the quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// The number of blocks of 4096 bytes.
    pub blocks: u64,
    /// The number of free blocks.
    pub free_blocks: u64,
    /// The number of inodes.
    pub inodes: u64,
    /// The number of free inodes.
    pub free_inodes: u64,
}

impl Filesystem {
    /// Implements `fstatat`.
    pub fn stat_at(&mut self, dirfd: i32, path: &str, follow: bool) -> Result<Stat, Errno> {
        let place = self.resolve(dirfd, path, follow)?;
        self.stat_place(&place)
    }

    /// Implements `fstat`.
    pub fn stat_fd(&self, fd: i32) -> Result<Stat, Errno> {
        match &self.description(fd)?.target {
            Target::Node(id) => self.stat_node(*id),
            Target::HostFile { mount, file, .. } => Ok(file.stat()?.in_mount(*mount)),
            Target::HostDirectory { mount, path, .. } => Ok(self.mounted(*mount)?.stat(path)?.in_mount(*mount)),
            Target::Socket(_) => Ok(Stat::for_socket(fd)),
        }
    }

    pub(super) fn stat_place(&self, place: &PathTarget) -> Result<Stat, Errno> {
        match place {
            PathTarget::Node(id) => self.stat_node(*id),
            PathTarget::Host { mount, path } => Ok(self.mounted(*mount)?.stat(path)?.in_mount(*mount)),
        }
    }

    fn stat_node(&self, id: NodeId) -> Result<Stat, Errno> {
        let node = self.nodes.get(id)?;
        let size = match &node.kind {
            NodeKind::File(content) => content.size(),
            NodeKind::Link(target) => target.len() as u64,
            NodeKind::Directory(_) => 4096,
            NodeKind::Device(_) | NodeKind::Pipe(_) => 0,
        };
        let blocks = match &node.kind {
            NodeKind::File(content) => {
                let lower = content.lower().map_or(0, |(_, shown)| shown.div_ceil(512));
                (content.stored() / 512).max(lower)
            }
            _ => 0,
        };
        Ok(Stat {
            device: 1,
            ino: node.ino,
            file_type: node.kind.file_type(),
            mode: node.mode,
            links: u32::from(node.linked || matches!(node.kind, NodeKind::Pipe(_))),
            special: if let NodeKind::Device(device) = node.kind { device.number() } else { 0 },
            size,
            blocks,
            times: node.times,
        })
    }

    /// Implements `faccessat`. Fails with [`Errno::EACCES`] if a requested access is not allowed.
    pub fn access_at(&mut self, dirfd: i32, path: &str, access: Access, follow: bool) -> Result<(), Errno> {
        let place = self.resolve(dirfd, path, follow)?;
        let asked = [(access.read, 0o444), (access.write, 0o222), (access.execute, 0o111)];
        for (_, bits) in asked.into_iter().filter(|(asked, _)| *asked) {
            match &place {
                PathTarget::Node(id) => self.check_mode(*id, bits)?,
                PathTarget::Host { mount, path } => self.mounted(*mount)?.check_mode(path, bits)?,
            }
        }
        Ok(())
    }

    /// Implements `fchmodat`. A link has its own mode, which has no effect, as in Emscripten. The mode of a link in a
    /// host directory cannot be changed ([`Errno::EOPNOTSUPP`]).
    pub fn chmod_at(&mut self, dirfd: i32, path: &str, mode: u32, follow: bool) -> Result<(), Errno> {
        match self.resolve(dirfd, path, follow)? {
            PathTarget::Node(id) => self.chmod_node(id, mode),
            PathTarget::Host { mount, path } => {
                let directory = self.mounted(mount)?;
                if directory.link_target(&path)?.is_some() {
                    return Err(Errno::EOPNOTSUPP);
                }
                directory.set_mode(&path, mode)
            }
        }
    }

    /// Implements `fchmod`.
    pub fn chmod_fd(&mut self, fd: i32, mode: u32) -> Result<(), Errno> {
        match self.description(fd)?.target.clone() {
            Target::Node(id) => self.chmod_node(id, mode),
            Target::HostFile { mount, file, .. } => {
                self.mounted(mount)?.check_writable()?;
                file.set_mode(mode)
            }
            Target::HostDirectory { mount, path, .. } => self.mounted(mount)?.set_mode(&path, mode),
            Target::Socket(_) => Err(Errno::EINVAL),
        }
    }

    fn chmod_node(&mut self, id: NodeId, mode: u32) -> Result<(), Errno> {
        let now = self.now();
        let node = self.nodes.get_mut(id)?;
        node.mode = mode & 0o7777;
        node.times.changed = now;
        Ok(())
    }

    /// Implements `utimensat`.
    pub fn set_times_at(
        &mut self,
        dirfd: i32,
        path: &str,
        accessed: SetTime,
        modified: SetTime,
        follow: bool,
    ) -> Result<(), Errno> {
        match self.resolve(dirfd, path, follow)? {
            PathTarget::Node(id) => self.set_times_node(id, accessed, modified),
            PathTarget::Host { mount, path } => self.mounted(mount)?.set_times(&path, accessed, modified),
        }
    }

    /// Implements `futimens`.
    pub fn set_times_fd(&mut self, fd: i32, accessed: SetTime, modified: SetTime) -> Result<(), Errno> {
        match self.description(fd)?.target.clone() {
            Target::Node(id) => self.set_times_node(id, accessed, modified),
            Target::HostFile { mount, file, .. } => {
                self.mounted(mount)?.check_writable()?;
                file.set_times(accessed, modified)
            }
            Target::HostDirectory { mount, path, .. } => self.mounted(mount)?.set_times(&path, accessed, modified),
            Target::Socket(_) => Err(Errno::EINVAL),
        }
    }

    fn set_times_node(&mut self, id: NodeId, accessed: SetTime, modified: SetTime) -> Result<(), Errno> {
        let now = self.now();
        let times = &mut self.nodes.get_mut(id)?.times;
        times.accessed = accessed.apply(times.accessed, now);
        times.modified = modified.apply(times.modified, now);
        if accessed != SetTime::Keep || modified != SetTime::Keep {
            times.changed = now;
        }
        Ok(())
    }

    /// Implements `readlinkat`. Fails with [`Errno::EINVAL`] for files other than links.
    pub fn read_link_at(&mut self, dirfd: i32, path: &str) -> Result<Arc<str>, Errno> {
        match self.resolve(dirfd, path, false)? {
            PathTarget::Node(id) => match &self.nodes.get(id)?.kind {
                NodeKind::Link(target) => Ok(target.clone()),
                _ => Err(Errno::EINVAL),
            },
            PathTarget::Host { mount, path } => self.mounted(mount)?.link_target(&path)?.ok_or(Errno::EINVAL),
        }
    }

    /// Implements `statfs` of the in-memory filesystem.
    pub fn statfs(&self) -> StatFs {
        let inodes = u64::from(self.quota.inodes);
        StatFs {
            blocks: self.quota.bytes / 4096,
            free_blocks: self.budget() / 4096,
            inodes,
            free_inodes: inodes.saturating_sub(u64::from(self.usage.inodes)),
        }
    }
}
