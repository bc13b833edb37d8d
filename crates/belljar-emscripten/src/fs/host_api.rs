//! Operations of the host on the guest's files: writing, reading, listing and removing them.
//!
//! Paths are the guest's; a relative one starts in its working directory. Symbolic links are followed by the guest's
//! rules, which never lead outside of the guest's files. Permission bits do not apply to the host; the quota does.

use std::sync::Arc;

use super::content::FileContent;
use super::descriptors::Target;
use super::mount::{MountedDirectory, MountedEntry, MountedFile};
use super::node::{Device, Directory, NodeId, NodeKind};
use super::path_resolution::{FinalComponent, PathTarget, join};
use super::{AT_FDCWD, FileBytes, FileType, Filesystem, OpenFlags, PATH_MAX, Timestamp};
use crate::Errno;

/// An error in an operation on one of the guest's files.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("`{path}`: {errno}")]
pub struct FileError {
    /// The path.
    pub path: String,
    /// The reason.
    pub errno: Errno,
}

/// One of the guest's files, as listed by [`Filesystem::list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// The path, relative to the listed directory.
    pub path: String,
    /// The type of the file.
    pub file_type: FileType,
    /// The length in bytes: that of the target path for a link, 0 for directories.
    pub size: u64,
    /// The time of the last modification.
    pub modified: Timestamp,
}

/// The contents of a directory and its subdirectories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries; every directory comes before its contents.
    pub files: Vec<FileEntry>,
    /// Set if entries beyond the requested limit were left out.
    pub truncated: bool,
}

impl Filesystem {
    /// Writes a complete file and replaces an existing one. Missing parent directories are created.
    ///
    /// If the data exceeds the quota ([`Errno::ENOSPC`]), an existing file is unchanged.
    pub fn write_file(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.on_path(path, |files| {
            if let Some((directory, _)) = path.rsplit_once('/').filter(|(directory, _)| !directory.is_empty()) {
                files.make_directories(directory)?;
            }
            let base = files.base(AT_FDCWD, path)?;
            let resolved = files.locate(base, path, true)?;
            let (FinalComponent::Name(name), false) = (resolved.last, resolved.slash) else {
                return Err(Errno::EISDIR);
            };
            match (resolved.parent, resolved.found) {
                (_, Some(PathTarget::Node(id))) => files.replace_content(id, bytes),
                (PathTarget::Node(parent), None) => {
                    let id = files.create(parent, &name, 0o644, NodeKind::File(FileContent::default()))?;
                    files.replace_content(id, bytes).inspect_err(|_| {
                        // The file did not exist before; if removing it fails, an empty file remains.
                        let _ = files.remove_entry(parent, &name);
                        files.discard_unused(id);
                    })
                }
                (PathTarget::Host { mount, path }, _) => files.write_host_file(mount, &join(&path, &name), bytes),
                (PathTarget::Node(_), Some(PathTarget::Host { .. })) => Err(Errno::EISDIR),
            }
        })
    }

    fn replace_content(&mut self, id: NodeId, bytes: &[u8]) -> Result<(), Errno> {
        let before = match &self.nodes.get(id)?.kind {
            NodeKind::File(content) => content.stored(),
            NodeKind::Directory(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        };
        let mut content = FileContent::default();
        if content.write_at(0, bytes, self.budget().saturating_add(before))? < bytes.len() {
            return Err(Errno::ENOSPC);
        }
        self.usage.bytes = self.usage.bytes.saturating_sub(before).saturating_add(content.stored());
        let now = self.now();
        let node = self.nodes.get_mut(id)?;
        node.kind = NodeKind::File(content);
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

    /// Reads a complete regular file of at most `limit` bytes; fails with [`Errno::EFBIG`] for a longer one. (A guest
    /// can create files of any length that consist of a hole.)
    pub fn read_file(&mut self, path: &str, limit: u64) -> Result<Vec<u8>, FileError> {
        self.on_path(path, |files| match files.resolve(AT_FDCWD, path, true)? {
            PathTarget::Node(id) => match &files.nodes.get(id)?.kind {
                NodeKind::File(content) => {
                    let mut bytes = buffer(content.size(), limit)?;
                    content.read_at(0, &mut bytes);
                    Ok(bytes)
                }
                NodeKind::Directory(_) => Err(Errno::EISDIR),
                _ => Err(Errno::EINVAL),
            },
            PathTarget::Host { mount, path } => {
                let directory = files.mounted(mount)?;
                if directory.is_directory(&path)? {
                    return Err(Errno::EISDIR);
                }
                let file = directory.open_file(&path, OpenFlags::READ_ONLY, 0)?;
                read_host_file(&*file, 0, buffer(file.stat()?.size, limit)?)
            }
        })
    }

    /// Removes a regular file of at most `limit` bytes and returns its contents, in parts, which are not copied if
    /// possible. Fails with [`Errno::EFBIG`] for a longer file.
    pub fn take_file(&mut self, path: &str, limit: u64) -> Result<Vec<Vec<u8>>, FileError> {
        let content = self.on_path(path, |files| match files.resolve(AT_FDCWD, path, false)? {
            PathTarget::Node(id) => match &mut files.nodes.get_mut(id)?.kind {
                NodeKind::File(content) if content.size() > limit => Err(Errno::EFBIG),
                // The removal counts what is stored in the file.
                NodeKind::File(content) => Ok(content.clone()),
                _ => Err(Errno::EINVAL),
            },
            PathTarget::Host { .. } => Err(Errno::EINVAL),
        })?;
        self.remove(path)?;
        Ok(content.into_parts())
    }

    /// Reads up to `length` bytes of a regular file from `offset` on.
    pub fn read_part(&mut self, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, FileError> {
        self.on_path(path, |files| match files.resolve(AT_FDCWD, path, true)? {
            PathTarget::Node(id) => {
                let NodeKind::File(content) = &files.nodes.get(id)?.kind else { return Err(Errno::EINVAL) };
                let left = content.size().saturating_sub(offset);
                let mut bytes = buffer(length.min(left), left)?;
                content.read_at(offset, &mut bytes);
                Ok(bytes)
            }
            PathTarget::Host { mount, path } => {
                let file = files.mounted(mount)?.open_file(&path, OpenFlags::READ_ONLY, 0)?;
                let left = file.stat()?.size.saturating_sub(offset);
                read_host_file(&*file, offset, buffer(length.min(left), left)?)
            }
        })
    }

    /// Returns the contents of a file, links followed, if they are still those of a layer. Returns `None` for data that
    /// the guest wrote, for files of a host directory, and for paths that do not exist.
    ///
    /// This decides whether a dynamic library may be loaded.
    pub fn unmodified(&mut self, path: &str) -> Option<FileBytes> {
        let Ok(PathTarget::Node(id)) = self.with_root_permissions(|files| files.resolve(AT_FDCWD, path, true)) else {
            return None;
        };
        match &self.nodes.get(id).ok()?.kind {
            NodeKind::File(content) => content.unmodified().map(|file| file.bytes.clone()),
            _ => None,
        }
    }

    /// Creates a directory and its missing parents.
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
                // On a read-only mount, an existing directory suffices.
                Err(Errno::EROFS) if self.resolve(AT_FDCWD, part, true).is_ok() => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Removes a file, or a directory with its contents. Removes a link itself, not its target. Fails with
    /// [`Errno::EBUSY`] if a host directory is mounted below: files of the host are never removed here.
    pub fn remove(&mut self, path: &str) -> Result<(), FileError> {
        self.on_path(path, |files| {
            let base = files.base(AT_FDCWD, path)?;
            let resolved = files.locate(base, path, false)?;
            let (FinalComponent::Name(name), PathTarget::Node(parent)) = (resolved.last, resolved.parent) else {
                return Err(Errno::EBUSY);
            };
            match resolved.found {
                None => Err(Errno::ENOENT),
                Some(PathTarget::Host { .. }) => Err(Errno::EBUSY),
                Some(PathTarget::Node(id)) => files.remove_tree(parent, name.into(), id),
            }
        })
    }

    fn remove_tree(&mut self, parent: NodeId, name: Arc<str>, id: NodeId) -> Result<(), Errno> {
        // The stack of directories in progress: each one is removed once it is empty.
        let mut way = vec![(parent, name, id)];
        while let Some((parent, name, id)) = way.last().cloned() {
            let inner = match &self.nodes.get(id)?.kind {
                NodeKind::Directory(Directory { mount: Some(_), .. }) => return Err(Errno::EBUSY),
                NodeKind::Directory(_) => self.next_entry(id, None)?,
                _ => None,
            };
            if let Some(inner) = inner {
                let child = self.child(id, &inner.name)?.ok_or(Errno::EIO)?;
                way.push((id, inner.name, child));
            } else {
                self.remove_entry(parent, &name)?;
                self.discard_unused(id);
                way.pop();
            }
        }
        Ok(())
    }

    /// Lists a directory and its subdirectories, at most `limit` entries. Host directories that are mounted below it
    /// are listed without their contents; files whose path would be too long are left out.
    pub fn list(&mut self, path: &str, limit: usize) -> Result<Listing, FileError> {
        self.on_path(path, |files| {
            let top = match files.resolve(AT_FDCWD, path, true)? {
                PathTarget::Node(top) => top,
                PathTarget::Host { mount, path } => return list_host_directory(&*files.mounted(mount)?, &path, limit),
            };
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
                    NodeKind::File(content) => content.size(),
                    NodeKind::Link(target) => target.len() as u64,
                    _ => 0,
                };
                let modified = node.times.modified;
                listing.files.push(FileEntry { path: path.clone(), file_type: entry.file_type, size, modified });
                if matches!(&node.kind, NodeKind::Directory(Directory { mount: None, .. })) {
                    way.push((id, path, None));
                }
            }
            Ok(listing)
        })
    }

    /// Resets everything but the files to the state of a new program: only the standard streams are open, and `home`,
    /// which is created if it is missing, is the working directory.
    pub fn restart(&mut self, home: &str) -> Result<(), FileError> {
        let open: Vec<u32> = self.descriptors.all().map(|(fd, _, _)| fd).collect();
        for fd in open {
            // Every descriptor in the table can be closed.
            let _ = i32::try_from(fd).map(|fd| self.close(fd));
        }
        for (name, device, flags) in
            [("stdin", Device::Stdin, 0), ("stdout", Device::Stdout, 1), ("stderr", Device::Stderr, 1)]
        {
            let path = format!("/dev/{name}");
            // The program may have replaced the device by another file.
            let there = self.with_root_permissions(|files| match files.resolve(AT_FDCWD, &path, false) {
                Ok(PathTarget::Node(id)) if matches!(&files.nodes.get(id)?.kind, NodeKind::Device(at) if *at == device) => {
                    Ok(Some(id))
                }
                _ => Ok(None),
            });
            let there = there.map_err(|errno| FileError { path: path.clone(), errno })?;
            if there.is_none() {
                self.create_dir_all("/dev")?;
                // Fails if the path does not exist.
                let _ = self.remove(&path);
            }
            self.on_path(&path, |files| {
                let id = match (there, files.resolve(AT_FDCWD, "/dev", true)?) {
                    (Some(id), _) => id,
                    (None, PathTarget::Node(devices)) => files.make(devices, name, 0o666, NodeKind::Device(device))?,
                    (None, PathTarget::Host { .. }) => return Err(Errno::EBUSY),
                };
                files.add_description(Target::Node(id), OpenFlags(flags), 0).map(drop)
            })?;
        }
        self.create_dir_all(home)?;
        self.set_cwd(home)
    }

    /// Returns whether `path` leads to a file of a mounted host directory.
    pub fn is_on_host(&mut self, path: &str) -> bool {
        self.on_path(path, |files| files.resolve(AT_FDCWD, path, true))
            .is_ok_and(|place| matches!(place, PathTarget::Host { .. }))
    }

    /// Makes `path` the working directory.
    pub fn set_cwd(&mut self, path: &str) -> Result<(), FileError> {
        self.on_path(path, |files| files.change_directory(path))
    }

    fn on_path<T>(&mut self, path: &str, work: impl FnOnce(&mut Self) -> Result<T, Errno>) -> Result<T, FileError> {
        self.with_root_permissions(work).map_err(|errno| FileError { path: path.into(), errno })
    }
}

/// Lists a host directory and its subdirectories, at most `limit` entries. Does not follow links.
fn list_host_directory(directory: &dyn MountedDirectory, top: &str, limit: usize) -> Result<Listing, Errno> {
    let mut listing = Listing::default();
    // Directories in progress: the path below `top`, and the entries that are left.
    let mut way = vec![(String::new(), open_listing(directory, top, limit, &mut listing)?)];
    while let Some((prefix, entries)) = way.last_mut() {
        let Some(entry) = entries.next() else {
            way.pop();
            continue;
        };
        let path = join(prefix, &entry.name);
        if path.len() >= PATH_MAX {
            continue;
        }
        if listing.files.len() >= limit {
            listing.truncated = true;
            break;
        }
        let MountedEntry { file_type, size, modified, .. } = entry;
        listing.files.push(FileEntry { path: path.clone(), file_type, size, modified });
        if file_type == FileType::Directory {
            let left = limit - listing.files.len();
            let inner = if top.is_empty() { path.clone() } else { join(top, &path) };
            // A directory that was removed meanwhile, or that may not be read, is listed without its contents.
            if let Ok(entries) = open_listing(directory, &inner, left, &mut listing) {
                way.push((path, entries));
            }
        }
    }
    Ok(listing)
}

fn open_listing(
    directory: &dyn MountedDirectory,
    path: &str,
    limit: usize,
    listing: &mut Listing,
) -> Result<std::vec::IntoIter<MountedEntry>, Errno> {
    let (entries, is_complete) = directory.entries(path, limit)?;
    listing.truncated |= !is_complete;
    Ok(entries.into_iter())
}

/// Fills a buffer from `offset` on. The buffer becomes shorter if the file did meanwhile.
fn read_host_file(file: &dyn MountedFile, offset: u64, mut bytes: Vec<u8>) -> Result<Vec<u8>, Errno> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(offset.saturating_add(filled as u64), rest)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Allocates a buffer for a file of this size.
fn buffer(size: u64, limit: u64) -> Result<Vec<u8>, Errno> {
    let size = usize::try_from(size).ok().filter(|_| size <= limit).ok_or(Errno::EFBIG)?;
    Ok(vec![0; size])
}
