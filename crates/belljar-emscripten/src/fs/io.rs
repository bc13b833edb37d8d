//! Reading, writing, seeking and truncating through descriptors.

use super::descriptors::{Description, Target};
use super::node::{Device, NodeId, NodeKind, PIPE_CAPACITY, Pipe};
use super::{AT_FDCWD, Filesystem};
use crate::Errno;
use crate::sources::Sources;

/// The base of an offset (`SEEK_SET`, `SEEK_CUR`, `SEEK_END`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The start of the file.
    Start,
    /// The current offset.
    Current,
    /// The end of the file.
    End,
}

impl Filesystem {
    /// Implements `read`: fills `buffer` from the descriptor's offset and advances it. Returns 0 at the end.
    ///
    /// Reading an empty pipe that has writers fails with [`Errno::EAGAIN`], regardless of `O_NONBLOCK`: there is only
    /// one thread, so no data could arrive while it waits.
    pub fn read(&mut self, fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
        let offset = self.readable(fd)?.offset;
        let count = self.read_target(fd, offset, buffer)?;
        self.advance(fd, offset, count)
    }

    /// Implements `pread`: reads at `offset` without changing the descriptor's own. Fails with [`Errno::ESPIPE`] for a
    /// pipe.
    pub fn read_at(&mut self, fd: i32, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.readable(fd)?;
        self.check_seekable(fd)?;
        self.read_target(fd, offset, buffer)
    }

    /// Implements `write`: writes at the descriptor's offset and advances it, or, with `O_APPEND`, writes at the end.
    ///
    /// Writes only a part of `data` if the quota is reached, and fails with [`Errno::ENOSPC`] if not even one byte
    /// fits. Writing to a full pipe fails with [`Errno::EAGAIN`], as for [`Filesystem::read`]; to one without readers
    /// with [`Errno::EPIPE`].
    pub fn write(&mut self, fd: i32, data: &[u8]) -> Result<usize, Errno> {
        let description = self.writable(fd)?;
        let (offset, appends) = (description.offset, description.flags.appends());
        let offset = if appends { self.end_of(fd)? } else { offset };
        let count = self.write_target(fd, offset, data)?;
        self.advance(fd, offset, count)
    }

    /// Implements `pwrite`: writes at `offset`, regardless of `O_APPEND`, without changing the descriptor's own.
    pub fn write_at(&mut self, fd: i32, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        self.writable(fd)?;
        self.check_seekable(fd)?;
        self.write_target(fd, offset, data)
    }

    /// Implements `lseek`. Returns the new offset. Fails with [`Errno::ESPIPE`] for pipes and the console.
    pub fn seek(&mut self, fd: i32, offset: i64, whence: Whence) -> Result<u64, Errno> {
        self.check_seekable(fd)?;
        if self.device(fd)?.is_some() {
            return Ok(0);
        }
        let from = match whence {
            Whence::Start => 0,
            Whence::Current => self.description(fd)?.offset,
            Whence::End => self.end_of(fd)?,
        };
        let from = i64::try_from(from).map_err(|_| Errno::EOVERFLOW)?;
        let to = from.checked_add(offset).ok_or(Errno::EOVERFLOW)?;
        let to = u64::try_from(to).map_err(|_| Errno::EINVAL)?;
        self.description_mut(fd)?.offset = to;
        Ok(to)
    }

    /// Implements `truncate`: cuts the file off at `size`, or adds a hole up to it.
    pub fn truncate_at(&mut self, path: &str, size: u64) -> Result<(), Errno> {
        match self.resolve(AT_FDCWD, path, true)? {
            super::PathTarget::Node(id) => {
                if matches!(self.nodes.get(id)?.kind, NodeKind::Directory(_)) {
                    return Err(Errno::EISDIR);
                }
                self.check_mode(id, 0o222)?;
                self.truncate_node(id, size)
            }
            super::PathTarget::Host { mount, path } => {
                let directory = self.mounted(mount)?;
                if directory.is_directory(&path)? {
                    return Err(Errno::EISDIR);
                }
                directory.open_file(&path, super::OpenFlags::WRITE_ONLY, 0)?.truncate(size)
            }
        }
    }

    /// Implements `ftruncate`. Fails with [`Errno::EINVAL`] for a descriptor that is not open for writing.
    pub fn truncate_fd(&mut self, fd: i32, size: u64) -> Result<(), Errno> {
        let description = self.description(fd)?;
        if !description.flags.writes() {
            return Err(Errno::EINVAL);
        }
        match description.target.clone() {
            Target::Node(id) => self.truncate_node(id, size),
            Target::HostFile { file, .. } => file.truncate(size),
            Target::HostDirectory { .. } => Err(Errno::EISDIR),
            Target::Socket(_) => Err(Errno::EINVAL),
        }
    }

    /// Implements `posix_fallocate`: extends the file to at least `end` bytes. Does not reserve space, but fails with
    /// [`Errno::ENOSPC`] if the quota has not enough.
    pub fn allocate(&mut self, fd: i32, end: u64) -> Result<(), Errno> {
        if !self.description(fd)?.flags.writes() {
            return Err(Errno::EBADF);
        }
        self.check_seekable(fd)?;
        let size = self.end_of(fd)?;
        if end <= size {
            return Ok(());
        }
        if matches!(self.description(fd)?.target, Target::Node(_)) && end - size > self.budget() {
            return Err(Errno::ENOSPC);
        }
        self.truncate_fd(fd, end).map_err(|errno| if errno == Errno::EINVAL { Errno::ENODEV } else { errno })
    }

    /// Implements `fsync`, which has no effect on files in memory; files of the host are synchronised.
    pub fn synchronise(&self, fd: i32) -> Result<(), Errno> {
        match &self.description(fd)?.target {
            Target::HostFile { file, .. } => file.synchronise(),
            _ => Ok(()),
        }
    }

    /// Returns the number of bytes that can be read without waiting (`FIONREAD`).
    pub fn bytes_to_read(&self, fd: i32) -> Result<u64, Errno> {
        let description = self.description(fd)?;
        if let Target::Node(id) = description.target {
            match &self.nodes.get(id)?.kind {
                NodeKind::Pipe(pipe) => return Ok(pipe.buffer.len() as u64),
                NodeKind::File(content) => return Ok(content.size().saturating_sub(description.offset)),
                _ => return Err(Errno::ENOTTY),
            }
        }
        Ok(self.end_of(fd)?.saturating_sub(description.offset))
    }

    pub(super) fn truncate_node(&mut self, id: NodeId, size: u64) -> Result<(), Errno> {
        let now = self.now();
        let node = self.nodes.get_mut(id)?;
        let NodeKind::File(content) = &mut node.kind else { return Err(Errno::EINVAL) };
        let before = content.stored();
        content.truncate(size)?;
        let freed = before.saturating_sub(content.stored());
        node.times.modified = now;
        node.times.changed = now;
        self.usage.bytes = self.usage.bytes.saturating_sub(freed);
        Ok(())
    }

    fn readable(&self, fd: i32) -> Result<&Description, Errno> {
        let description = self.description(fd)?;
        if description.flags.reads() { Ok(description) } else { Err(Errno::EBADF) }
    }

    fn writable(&self, fd: i32) -> Result<&Description, Errno> {
        let description = self.description(fd)?;
        if description.flags.writes() { Ok(description) } else { Err(Errno::EBADF) }
    }

    fn check_seekable(&self, fd: i32) -> Result<(), Errno> {
        match self.description(fd)?.target {
            Target::Node(id) => match self.nodes.get(id)?.kind {
                NodeKind::Pipe(_) => Err(Errno::ESPIPE),
                NodeKind::Device(device) if device.is_console() => Err(Errno::ESPIPE),
                _ => Ok(()),
            },
            Target::Socket(_) => Err(Errno::ESPIPE),
            _ => Ok(()),
        }
    }

    /// Returns the size of the file that `fd` is open on; 0 for files without a size.
    fn end_of(&self, fd: i32) -> Result<u64, Errno> {
        match &self.description(fd)?.target {
            Target::Node(id) => match &self.nodes.get(*id)?.kind {
                NodeKind::File(content) => Ok(content.size()),
                _ => Ok(0),
            },
            Target::HostFile { file, .. } => Ok(file.stat()?.size),
            Target::HostDirectory { .. } | Target::Socket(_) => Ok(0),
        }
    }

    fn advance(&mut self, fd: i32, offset: u64, count: usize) -> Result<usize, Errno> {
        self.description_mut(fd)?.offset = offset.saturating_add(count as u64);
        Ok(count)
    }

    fn read_target(&mut self, fd: i32, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let id = match &self.description(fd)?.target {
            Target::Node(id) => *id,
            Target::HostFile { file, .. } => return file.read_at(offset, buffer),
            Target::Socket(_) => return self.socket(fd)?.read(buffer, false),
            Target::HostDirectory { .. } => return Err(Errno::EISDIR),
        };
        let node = self.nodes.get_mut(id)?;
        let count = match &mut node.kind {
            NodeKind::File(content) => content.read_at(offset, buffer),
            NodeKind::Directory(_) => return Err(Errno::EISDIR),
            NodeKind::Link(_) => return Err(Errno::EBADF),
            NodeKind::Device(device) => return read_device(*device, buffer, &self.sources),
            NodeKind::Pipe(pipe) => read_pipe(pipe, buffer)?,
        };
        if count > 0 {
            node.times.accessed = self.sources.file_time();
        }
        Ok(count)
    }

    fn write_target(&mut self, fd: i32, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let id = match &self.description(fd)?.target {
            Target::Node(id) => *id,
            Target::HostFile { file, .. } => return file.write_at(offset, data),
            Target::Socket(_) => return self.socket(fd)?.write(data),
            Target::HostDirectory { .. } => return Err(Errno::EISDIR),
        };
        let budget = self.budget();
        let node = self.nodes.get_mut(id)?;
        let count = match &mut node.kind {
            NodeKind::File(content) => {
                let before = content.stored();
                let count = content.write_at(offset, data, budget)?;
                let added = content.stored().saturating_sub(before);
                self.usage.bytes = self.usage.bytes.saturating_add(added);
                count
            }
            NodeKind::Directory(_) => return Err(Errno::EISDIR),
            NodeKind::Link(_) => return Err(Errno::EBADF),
            // Writes to the console are handled by the caller, and the other devices accept all data.
            NodeKind::Device(_) => data.len(),
            NodeKind::Pipe(pipe) => write_pipe(pipe, data)?,
        };
        if count > 0 {
            let now = self.sources.file_time();
            node.times.modified = now;
            node.times.changed = now;
        }
        Ok(count)
    }
}

/// The maximum number of random bytes of one read: generating more would take so long that the program could not be
/// stopped in time. Linux has such a limit too.
const MAX_RANDOM_READ: usize = 1 << 20;

fn read_device(device: Device, buffer: &mut [u8], sources: &Sources) -> Result<usize, Errno> {
    match device {
        Device::Null | Device::Stdin | Device::Stdout | Device::Stderr => Ok(0),
        Device::Zero => {
            buffer.fill(0);
            Ok(buffer.len())
        }
        Device::Random => {
            let count = buffer.len().min(MAX_RANDOM_READ);
            let part = buffer.get_mut(..count).unwrap_or_default();
            sources.fill_random(part)?;
            Ok(count)
        }
    }
}

fn read_pipe(pipe: &mut Pipe, buffer: &mut [u8]) -> Result<usize, Errno> {
    if pipe.buffer.is_empty() && pipe.writers > 0 && !buffer.is_empty() {
        return Err(Errno::EAGAIN);
    }
    let count = buffer.len().min(pipe.buffer.len());
    for (to, from) in buffer.iter_mut().zip(pipe.buffer.drain(..count)) {
        *to = from;
    }
    Ok(count)
}

fn write_pipe(pipe: &mut Pipe, data: &[u8]) -> Result<usize, Errno> {
    /// The maximum length of writes that are never split (`PIPE_BUF`).
    const MAX_ATOMIC_WRITE: usize = 4096;
    if pipe.readers == 0 {
        return Err(Errno::EPIPE);
    }
    let room = PIPE_CAPACITY.saturating_sub(pipe.buffer.len());
    if data.is_empty() {
        return Ok(0);
    }
    if room == 0 || (data.len() <= MAX_ATOMIC_WRITE && data.len() > room) {
        return Err(Errno::EAGAIN);
    }
    let count = data.len().min(room);
    pipe.buffer.extend(&data[..count]);
    Ok(count)
}
