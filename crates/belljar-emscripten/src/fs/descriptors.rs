//! Descriptors, and the open file descriptions that they share.
//!
//! `dup` creates another descriptor of the same description: offset and status flags are shared, `FD_CLOEXEC` is not.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::mount::{MountedEntry, MountedFile};
use super::node::{Device, Node, NodeId, NodeKind, PIPE_CAPACITY};
use super::path_resolution::PathTarget;
use super::socket::Socket;
use super::time::Times;
use super::{Filesystem, OpenFlags};
use crate::Errno;

/// The file that a description is open on.
#[derive(Clone)]
pub(super) enum Target {
    Node(NodeId),
    HostFile {
        mount: u32,
        file: Arc<dyn MountedFile>,
    },
    HostDirectory {
        mount: u32,
        path: String,
        /// The entries, once they were listed.
        listing: Option<Arc<[MountedEntry]>>,
    },
    Socket(Socket),
}

/// An open file description.
#[derive(Clone)]
pub(super) struct Description {
    pub(super) target: Target,
    /// The offset of the next read or write; for a directory, the number of entries that were listed.
    pub(super) offset: u64,
    /// For a directory: the offset at which listing stopped, and the name of the last entry.
    pub(super) listed: (u64, Option<Arc<str>>),
    /// The access mode and status flags.
    pub(super) flags: OpenFlags,
    references: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Descriptor {
    description: u32,
    close_on_exec: bool,
}

/// The descriptor table.
#[derive(Clone, Default)]
pub(super) struct Descriptors {
    table: Vec<Option<Descriptor>>,
    descriptions: Vec<Option<Description>>,
    open: u32,
}

/// The result of `poll` for one descriptor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// A read would not block.
    pub readable: bool,
    /// A write would not block.
    pub writable: bool,
    /// The writing end of a pipe that is read, or both directions of a connection, were closed (`POLLHUP`).
    pub hung_up: bool,
    /// The reading end of a pipe that is written to was closed, or a socket has an error (`POLLERR`).
    pub broken: bool,
}

impl Descriptors {
    /// Returns the number of open descriptors.
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    fn get(&self, fd: i32) -> Result<Descriptor, Errno> {
        let index = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        self.table.get(index).copied().flatten().ok_or(Errno::EBADF)
    }

    /// Returns the lowest free number from `least` on. Fails with [`Errno::EMFILE`] if it is not below `limit`.
    fn lowest_free(&self, least: u32, limit: u32) -> Result<u32, Errno> {
        let taken = self.table.iter().skip(least as usize).take_while(|slot| slot.is_some()).count();
        let number = u32::try_from(taken).ok().and_then(|taken| least.checked_add(taken));
        number.filter(|&number| number < limit.min(i32::MAX as u32)).ok_or(Errno::EMFILE)
    }

    /// Sets a free entry of the table. The number must have been checked against the quota.
    fn set(&mut self, fd: u32, descriptor: Descriptor) {
        let index = fd as usize;
        if index >= self.table.len() {
            self.table.resize(index + 1, None);
        }
        if let Some(slot) = self.table.get_mut(index) {
            *slot = Some(descriptor);
            self.open += 1;
        }
    }

    /// Returns every open descriptor: its number, the number of its description, and `FD_CLOEXEC`.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, u32, bool)> {
        let slots = (0..).zip(&self.table);
        slots.filter_map(|(fd, slot)| slot.map(|slot| (fd, slot.description, slot.close_on_exec)))
    }

    /// Returns whether any descriptor refers to a description.
    pub(super) fn is_referred_to(&self, description: u32) -> bool {
        self.at(description).is_some_and(|description| description.references > 0)
    }

    /// Returns a description by its number.
    pub(super) fn at(&self, description: u32) -> Option<&Description> {
        self.descriptions.get(description as usize)?.as_ref()
    }
}

impl Filesystem {
    /// Returns whether a descriptor refers to a file or directory of the host.
    pub(crate) fn has_host_descriptors(&self) -> bool {
        let of_host = |description| {
            let target = self.descriptors.at(description).map(|description| &description.target);
            target.is_some_and(|target| !matches!(target, Target::Node(_)))
        };
        self.descriptors.all().any(|(_, description, _)| of_host(description))
    }

    pub(super) fn description(&self, fd: i32) -> Result<&Description, Errno> {
        let description = self.descriptors.get(fd)?.description;
        self.descriptors.at(description).ok_or(Errno::EBADF)
    }

    pub(super) fn description_mut(&mut self, fd: i32) -> Result<&mut Description, Errno> {
        let description = self.descriptors.get(fd)?.description as usize;
        self.descriptors.descriptions.get_mut(description).and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    /// Returns the directory that a descriptor is open on, as a start of path resolution.
    pub(super) fn place_of(&self, fd: i32) -> Result<PathTarget, Errno> {
        match &self.description(fd)?.target {
            Target::Node(id) => Ok(PathTarget::Node(*id)),
            Target::HostDirectory { mount, path, .. } => Ok(PathTarget::Host { mount: *mount, path: path.clone() }),
            Target::HostFile { .. } | Target::Socket(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Fails with [`Errno::EMFILE`] if no more descriptors can be opened.
    pub(super) fn check_descriptor_free(&self) -> Result<(), Errno> {
        self.descriptors.lowest_free(0, self.quota.open_files).map(drop)
    }

    /// Opens a description on `target`, under the lowest free descriptor from `least` on.
    pub(super) fn add_description(&mut self, target: Target, flags: OpenFlags, least: u32) -> Result<i32, Errno> {
        let fd = self.descriptors.lowest_free(least, self.quota.open_files)?;
        self.add_description_as(fd, target, flags)?;
        i32::try_from(fd).map_err(|_| Errno::EMFILE)
    }

    fn add_description_as(&mut self, fd: u32, target: Target, flags: OpenFlags) -> Result<(), Errno> {
        let description = self.insert_description(target, flags)?;
        self.refer(fd, description, flags.closes_on_exec());
        Ok(())
    }

    /// Adds a description that no descriptor refers to yet.
    pub(super) fn insert_description(&mut self, target: Target, flags: OpenFlags) -> Result<u32, Errno> {
        if let Target::Node(id) = target {
            self.acquire(id)?;
            if let NodeKind::Pipe(pipe) = &mut self.nodes.get_mut(id)?.kind {
                pipe.readers += u32::from(flags.reads());
                pipe.writers += u32::from(flags.writes());
            }
        }
        let description = Description { target, offset: 0, listed: (0, None), flags: flags.status(), references: 0 };
        let descriptions = &mut self.descriptors.descriptions;
        let index = descriptions.iter().position(Option::is_none).unwrap_or(descriptions.len());
        match descriptions.get_mut(index) {
            Some(slot) => *slot = Some(description),
            None => descriptions.push(Some(description)),
        }
        u32::try_from(index).map_err(|_| Errno::ENFILE)
    }

    /// Makes the free descriptor `fd` refer to a description.
    pub(super) fn refer(&mut self, fd: u32, description: u32, close_on_exec: bool) {
        if let Some(Some(shared)) = self.descriptors.descriptions.get_mut(description as usize) {
            shared.references += 1;
            self.descriptors.set(fd, Descriptor { description, close_on_exec });
        }
    }

    /// Implements `close`.
    pub fn close(&mut self, fd: i32) -> Result<(), Errno> {
        let descriptor = self.descriptors.get(fd)?;
        if let Some(slot) = usize::try_from(fd).ok().and_then(|index| self.descriptors.table.get_mut(index)) {
            *slot = None;
            self.descriptors.open -= 1;
        }
        let Some(slot) = self.descriptors.descriptions.get_mut(descriptor.description as usize) else { return Ok(()) };
        let Some(description) = slot else { return Ok(()) };
        description.references -= 1;
        if description.references > 0 {
            return Ok(());
        }
        let flags = description.flags;
        if let Some(Description { target: Target::Node(id), .. }) = slot.take() {
            if let Ok(Node { kind: NodeKind::Pipe(pipe), .. }) = self.nodes.get_mut(id) {
                pipe.readers -= u32::from(flags.reads());
                pipe.writers -= u32::from(flags.writes());
            }
            self.release(id);
        }
        Ok(())
    }

    /// Implements `dup`, and `F_DUPFD` with a minimum for the new descriptor.
    pub fn duplicate(&mut self, fd: i32, least: i32, close_on_exec: bool) -> Result<i32, Errno> {
        let descriptor = self.descriptors.get(fd)?;
        let least = u32::try_from(least).ok().filter(|least| *least < self.quota.open_files).ok_or(Errno::EINVAL)?;
        let new = self.descriptors.lowest_free(least, self.quota.open_files)?;
        self.refer(new, descriptor.description, close_on_exec);
        i32::try_from(new).map_err(|_| Errno::EMFILE)
    }

    /// Implements `dup3`, which closes `new` first if it is open. Fails with [`Errno::EINVAL`] if both are the same.
    pub fn duplicate_to(&mut self, fd: i32, new: i32, close_on_exec: bool) -> Result<i32, Errno> {
        if fd == new {
            return Err(Errno::EINVAL);
        }
        let descriptor = self.descriptors.get(fd)?;
        let number = u32::try_from(new).ok().filter(|new| *new < self.quota.open_files).ok_or(Errno::EBADF)?;
        match self.close(new) {
            Ok(()) | Err(Errno::EBADF) => {}
            Err(errno) => return Err(errno),
        }
        self.refer(number, descriptor.description, close_on_exec);
        Ok(new)
    }

    /// Returns `FD_CLOEXEC` of a descriptor. The flag has no effect, since `exec` does not exist.
    pub fn close_on_exec(&self, fd: i32) -> Result<bool, Errno> {
        Ok(self.descriptors.get(fd)?.close_on_exec)
    }

    /// Sets `FD_CLOEXEC`.
    pub fn set_close_on_exec(&mut self, fd: i32, close_on_exec: bool) -> Result<(), Errno> {
        let changed = Descriptor { close_on_exec, ..self.descriptors.get(fd)? };
        if let Some(slot) = usize::try_from(fd).ok().and_then(|index| self.descriptors.table.get_mut(index)) {
            *slot = Some(changed);
        }
        Ok(())
    }

    /// Returns the access mode and status flags (`F_GETFL`).
    pub fn flags(&self, fd: i32) -> Result<OpenFlags, Errno> {
        Ok(self.description(fd)?.flags)
    }

    /// Changes the status flags `O_APPEND` and `O_NONBLOCK` (`F_SETFL`). Other flags are ignored.
    pub fn set_flags(&mut self, fd: i32, flags: OpenFlags) -> Result<(), Errno> {
        let description = self.description_mut(fd)?;
        description.flags = description.flags.with_changeable(flags);
        Ok(())
    }

    /// Implements `pipe2`. Returns the reading and the writing end.
    pub fn pipe(&mut self, flags: OpenFlags) -> Result<[i32; 2], Errno> {
        let limit = self.quota.open_files;
        let reader = self.descriptors.lowest_free(0, limit)?;
        let writer = self.descriptors.lowest_free(reader + 1, limit)?;
        if self.usage.inodes >= self.quota.inodes {
            return Err(Errno::ENFILE);
        }
        let now = self.now();
        let id = self.nodes.insert(|id| Node {
            ino: u64::from(id.0) + 1,
            parent: id,
            name: "".into(),
            linked: false,
            opens: 0,
            mode: 0o600,
            times: Times::all(now),
            kind: NodeKind::Pipe(Box::default()),
            private: true,
        })?;
        self.usage.inodes += 1;
        for (fd, access) in [(reader, OpenFlags::READ_ONLY), (writer, OpenFlags::WRITE_ONLY)] {
            self.add_description_as(fd, Target::Node(id), access.with(flags.pipe_options()))?;
        }
        let number = |fd| i32::try_from(fd).map_err(|_| Errno::EMFILE);
        Ok([number(reader)?, number(writer)?])
    }

    /// Returns the device that `fd` is open on. The caller, who has the console, must handle reads and writes of
    /// [console devices](Device::is_console) such as [`Device::Stdin`].
    pub fn device(&self, fd: i32) -> Result<Option<Device>, Errno> {
        match self.description(fd)?.target {
            Target::Node(id) => match self.nodes.get(id)?.kind {
                NodeKind::Device(device) => Ok(Some(device)),
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Returns a descriptor that can write to the file with this `st_dev` and `st_ino`: `likely`, if it can.
    pub fn writer_of(&self, device: u32, ino: u64, likely: i32) -> Option<i32> {
        let writes = |fd: &i32| {
            let is_file = |stat: super::Stat| (stat.device, stat.ino) == (device, ino);
            self.stat_fd(*fd).is_ok_and(is_file) && self.flags(*fd).is_ok_and(OpenFlags::writes)
        };
        let open = self.descriptors.all().filter_map(|(fd, ..)| i32::try_from(fd).ok());
        std::iter::once(likely).chain(open).find(writes)
    }

    /// Returns the result of `poll`. Only operations on pipes and sockets can block.
    pub fn readiness(&self, fd: i32) -> Result<Readiness, Errno> {
        let description = self.description(fd)?;
        let always = Readiness { readable: true, writable: true, ..Readiness::default() };
        if let Target::Socket(socket) = &description.target {
            return Ok(socket.readiness());
        }
        let Target::Node(id) = description.target else { return Ok(always) };
        let NodeKind::Pipe(pipe) = &self.nodes.get(id)?.kind else { return Ok(always) };
        Ok(if description.flags.reads() {
            let hung_up = pipe.writers == 0;
            Readiness { readable: !pipe.buffer.is_empty(), hung_up, ..Readiness::default() }
        } else {
            let broken = pipe.readers == 0;
            Readiness { writable: broken || pipe.buffer.len() < PIPE_CAPACITY, broken, ..Readiness::default() }
        })
    }
}
