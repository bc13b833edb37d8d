//! What the host does to the guest's files: put some there, look at them, take them away.
//!
//! Paths are the guest's; a relative one starts in its working directory. Symbolic links are followed by the guest's
//! rules, which never lead to anything but the guest's files. Permission bits do not stop the host; the quota does.

use std::sync::Arc;

use super::content::Content;
use super::descriptors::Target;
use super::node::{Device, Directory, Kind, NodeId};
use super::walk::{Last, Place, join};
use super::{AT_FDCWD, FileBytes, FileType, Filesystem, OpenFlags, PATH_MAX, Timestamp};
use crate::Errno;

/// Why something could not be done to one of the guest's files.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("`{path}`: {errno}")]
pub struct FileError {
    /// The path that was given.
    pub path: String,
    /// The reason.
    pub errno: Errno,
}

/// One of the guest's files, as [`Filesystem::list`] shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Path from the directory that was listed.
    pub path: String,
    /// What it is.
    pub file_type: FileType,
    /// Length in bytes; that of the target path for a link, 0 for directories.
    pub size: u64,
    /// When it was last written.
    pub modified: Timestamp,
}

/// What a directory holds, and all directories in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Every directory comes before what is in it.
    pub files: Vec<Listed>,
    /// Whether there was more than what was asked for.
    pub truncated: bool,
}

impl Filesystem {
    /// Writes a whole file, in place of what was there. Directories above it are made when they are missing.
    ///
    /// When it does not fit the quota ([`Errno::ENOSPC`]), what was there stays.
    pub fn write_file(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.on_path(path, |files| {
            if let Some((directory, _)) = path.rsplit_once('/').filter(|(directory, _)| !directory.is_empty()) {
                files.make_directories(directory)?;
            }
            let base = files.base(AT_FDCWD, path)?;
            let located = files.locate(base, path, true)?;
            let (Last::Name(name), false) = (located.last, located.slash) else { return Err(Errno::EISDIR) };
            match (located.parent, located.found) {
                (_, Some(Place::Node(id))) => files.replace_content(id, bytes),
                (Place::Node(parent), None) => {
                    let id = files.create(parent, &name, 0o644, Kind::File(Content::default()))?;
                    files.replace_content(id, bytes).inspect_err(|_| {
                        // Nothing was there before; a failure to take it away again leaves an empty file.
                        let _ = files.leave(parent, &name);
                        files.discard_unused(id);
                    })
                }
                (Place::Host { mount, path }, _) => files.write_host_file(mount, &join(&path, &name), bytes),
                (Place::Node(_), Some(Place::Host { .. })) => Err(Errno::EISDIR),
            }
        })
    }

    fn replace_content(&mut self, id: NodeId, bytes: &[u8]) -> Result<(), Errno> {
        let before = match &self.nodes.get(id)?.kind {
            Kind::File(content) => content.stored(),
            Kind::Directory(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        };
        let mut content = Content::default();
        if content.write_at(0, bytes, self.budget().saturating_add(before))? < bytes.len() {
            return Err(Errno::ENOSPC);
        }
        self.usage.bytes = self.usage.bytes.saturating_sub(before).saturating_add(content.stored());
        let node = self.nodes.get_mut(id)?;
        node.kind = Kind::File(content);
        let now = Timestamp::now();
        node.times.modified = now;
        node.times.changed = now;
        Ok(())
    }

    fn write_host_file(&mut self, mount: u32, path: &str, bytes: &[u8]) -> Result<(), Errno> {
        let flags = OpenFlags::WRITE_ONLY.with(OpenFlags::CREATE).with(OpenFlags::TRUNCATE);
        let file = self.mounted(mount)?.open_file(path, flags, 0o644)?;
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match file.write_at(written as u64, rest)? {
                0 => return Err(Errno::EIO),
                count => written += count,
            }
        }
        Ok(())
    }

    /// The whole of a regular file, of at most `limit` bytes: [`Errno::EFBIG`] for a longer one. (A guest can make
    /// files of any length that consist of a hole.)
    pub fn read_file(&mut self, path: &str, limit: u64) -> Result<Vec<u8>, FileError> {
        self.on_path(path, |files| match files.resolve(AT_FDCWD, path, true)? {
            Place::Node(id) => match &files.nodes.get(id)?.kind {
                Kind::File(content) => {
                    let mut bytes = buffer(content.size(), limit)?;
                    content.read_at(0, &mut bytes);
                    Ok(bytes)
                }
                Kind::Directory(_) => Err(Errno::EISDIR),
                _ => Err(Errno::EINVAL),
            },
            Place::Host { mount, path } => {
                let directory = files.mounted(mount)?;
                if directory.is_directory(&path)? {
                    return Err(Errno::EISDIR);
                }
                let file = directory.open_file(&path, OpenFlags::READ_ONLY, 0)?;
                let mut bytes = buffer(file.size()?, limit)?;
                let mut filled = 0;
                while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                    match file.read_at(filled as u64, rest)? {
                        0 => break,
                        count => filled += count,
                    }
                }
                bytes.truncate(filled);
                Ok(bytes)
            }
        })
    }

    /// `length` bytes of a regular file from `offset` on, or as many as there are.
    pub fn read_part(&mut self, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, FileError> {
        self.on_path(path, |files| {
            let Place::Node(id) = files.resolve(AT_FDCWD, path, true)? else { return Err(Errno::EINVAL) };
            let Kind::File(content) = &files.nodes.get(id)?.kind else { return Err(Errno::EINVAL) };
            let left = content.size().saturating_sub(offset);
            let mut bytes = buffer(length.min(left), left)?;
            content.read_at(offset, &mut bytes);
            Ok(bytes)
        })
    }

    /// The contents of a file, links followed, as long as they are still those that a layer gives it. `None` for
    /// anything that the guest wrote, for what a host directory holds, and for what does not exist.
    ///
    /// This is what decides whether a dynamic library may be loaded.
    pub fn pristine(&mut self, path: &str) -> Option<FileBytes> {
        let Ok(Place::Node(id)) = self.as_host(|files| files.resolve(AT_FDCWD, path, true)) else { return None };
        match &self.nodes.get(id).ok()?.kind {
            Kind::File(content) => content.pristine().map(|file| file.bytes.clone()),
            _ => None,
        }
    }

    /// Makes a directory and those above it, as far as they are missing.
    pub fn create_dir_all(&mut self, path: &str) -> Result<(), FileError> {
        self.on_path(path, |files| files.make_directories(path))
    }

    fn make_directories(&mut self, path: &str) -> Result<(), Errno> {
        let ends = path.bytes().enumerate().filter(|(at, byte)| *byte == b'/' && *at > 0).map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let part = path.get(..end).unwrap_or(path);
            match self.make_directory_at(AT_FDCWD, part, 0o777) {
                Ok(()) => {}
                Err(Errno::EEXIST) => {
                    let place = self.resolve(AT_FDCWD, part, true)?;
                    if !self.is_directory(&place)? {
                        return Err(Errno::ENOTDIR);
                    }
                }
                // Of a read-only mount: what is there may do.
                Err(Errno::EROFS) if self.resolve(AT_FDCWD, part, true).is_ok() => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Removes a file, or a directory with everything in it. A link is removed itself. [`Errno::EBUSY`] when a host
    /// directory is mounted in it: nothing of the host is ever removed here.
    pub fn remove(&mut self, path: &str) -> Result<(), FileError> {
        self.on_path(path, |files| {
            let base = files.base(AT_FDCWD, path)?;
            let located = files.locate(base, path, false)?;
            let (Last::Name(name), Place::Node(parent)) = (located.last, located.parent) else {
                return Err(Errno::EBUSY);
            };
            match located.found {
                None => Err(Errno::ENOENT),
                Some(Place::Host { .. }) => Err(Errno::EBUSY),
                Some(Place::Node(id)) => files.remove_tree(parent, name.into(), id),
            }
        })
    }

    fn remove_tree(&mut self, parent: NodeId, name: Arc<str>, id: NodeId) -> Result<(), Errno> {
        // The way down to where the work is: each directory is taken away once it is empty.
        let mut way = vec![(parent, name, id)];
        while let Some((parent, name, id)) = way.last().cloned() {
            let inner = match &self.nodes.get(id)?.kind {
                Kind::Directory(Directory { mount: Some(_), .. }) => return Err(Errno::EBUSY),
                Kind::Directory(_) => self.next_entry(id, None)?,
                _ => None,
            };
            if let Some(inner) = inner {
                let child = self.child(id, &inner.name)?.ok_or(Errno::EIO)?;
                way.push((id, inner.name, child));
            } else {
                self.leave(parent, &name)?;
                self.discard_unused(id);
                way.pop();
            }
        }
        Ok(())
    }

    /// What is in a directory and the directories in it, at most `limit` entries. Host directories mounted there are
    /// listed, but not what is in them; nor is what no path reaches because it would be too long.
    pub fn list(&mut self, path: &str, limit: usize) -> Result<Listing, FileError> {
        self.on_path(path, |files| {
            let Place::Node(top) = files.resolve(AT_FDCWD, path, true)? else { return Err(Errno::EOPNOTSUPP) };
            files.nodes.directory(top)?;
            let mut listing = Listing::default();
            // Directories in progress: the path, and the name that was listed last.
            let mut way: Vec<(NodeId, String, Option<Arc<str>>)> = vec![(top, String::new(), None)];
            while let Some((directory, prefix, after)) = way.last_mut() {
                let Some(entry) = files.next_entry(*directory, after.as_deref())? else {
                    way.pop();
                    continue;
                };
                *after = Some(entry.name.clone());
                let path = join(prefix, &entry.name);
                if path.len() >= PATH_MAX {
                    continue;
                }
                if listing.files.len() >= limit {
                    listing.truncated = true;
                    break;
                }
                let id = files.child(*directory, &entry.name)?.ok_or(Errno::EIO)?;
                let node = files.nodes.get(id)?;
                let size = match &node.kind {
                    Kind::File(content) => content.size(),
                    Kind::Link(target) => target.len() as u64,
                    _ => 0,
                };
                let modified = node.times.modified;
                listing.files.push(Listed { path: path.clone(), file_type: entry.file_type, size, modified });
                if matches!(&node.kind, Kind::Directory(Directory { mount: None, .. })) {
                    way.push((id, path, None));
                }
            }
            Ok(listing)
        })
    }

    /// Leaves the files as they are and everything else as a new program finds it: nothing is open but the standard
    /// streams, and `home`, which is made if it is missing, is the working directory.
    pub fn restart(&mut self, home: &str) -> Result<(), FileError> {
        let open: Vec<u32> = self.descriptors.all().map(|(fd, _, _)| fd).collect();
        for fd in open {
            // What is in the table can be closed.
            let _ = i32::try_from(fd).map(|fd| self.close(fd));
        }
        for (name, device, flags) in
            [("stdin", Device::Stdin, 0), ("stdout", Device::Stdout, 1), ("stderr", Device::Stderr, 1)]
        {
            let path = format!("/dev/{name}");
            // The program may have put something else there.
            let there = self.as_host(|files| match files.resolve(AT_FDCWD, &path, false) {
                Ok(Place::Node(id)) if matches!(&files.nodes.get(id)?.kind, Kind::Device(at) if *at == device) => {
                    Ok(Some(id))
                }
                _ => Ok(None),
            });
            let there = there.map_err(|errno| FileError { path: path.clone(), errno })?;
            if there.is_none() {
                self.create_dir_all("/dev")?;
                // It fails where nothing is.
                let _ = self.remove(&path);
            }
            self.on_path(&path, |files| {
                let id = match (there, files.resolve(AT_FDCWD, "/dev", true)?) {
                    (Some(id), _) => id,
                    (None, Place::Node(devices)) => files.make(devices, name, 0o666, Kind::Device(device))?,
                    (None, Place::Host { .. }) => return Err(Errno::EBUSY),
                };
                files.add_description(Target::Node(id), OpenFlags(flags), 0).map(drop)
            })?;
        }
        self.create_dir_all(home)?;
        self.set_cwd(home)
    }

    /// Makes `path` the working directory.
    pub fn set_cwd(&mut self, path: &str) -> Result<(), FileError> {
        self.on_path(path, |files| files.change_directory(path))
    }

    fn on_path<T>(&mut self, path: &str, work: impl FnOnce(&mut Self) -> Result<T, Errno>) -> Result<T, FileError> {
        self.as_host(work).map_err(|errno| FileError { path: path.into(), errno })
    }
}

/// Room for a file of this size.
fn buffer(size: u64, limit: u64) -> Result<Vec<u8>, Errno> {
    let size = usize::try_from(size).ok().filter(|_| size <= limit).ok_or(Errno::EFBIG)?;
    Ok(vec![0; size])
}
