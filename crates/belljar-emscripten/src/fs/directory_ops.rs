//! Operations that change directories: creating, removing and renaming.

use super::node::{Directory, NodeId, NodeKind, ROOT};
use super::path_resolution::{FinalComponent, PathTarget, ResolvedPath, join};
use super::{Filesystem, PATH_MAX};
use crate::Errno;

/// Returns the directory and name under which a new file can be created. Fails with [`Errno::EEXIST`] if the path
/// exists.
pub(super) fn parent_for_new_entry(resolved: ResolvedPath) -> Result<(PathTarget, String), Errno> {
    match (resolved.last, resolved.found) {
        (FinalComponent::Name(name), None) => Ok((resolved.parent, name)),
        _ => Err(Errno::EEXIST),
    }
}

impl Filesystem {
    /// Implements `mkdirat`.
    pub fn make_directory_at(&mut self, dirfd: i32, path: &str, mode: u32) -> Result<(), Errno> {
        let base = self.base(dirfd, path)?;
        let (parent, name) = parent_for_new_entry(self.locate(base, path, false)?)?;
        let mode = mode & 0o1777 & !self.umask;
        match parent {
            PathTarget::Node(parent) => {
                self.create(parent, &name, mode, NodeKind::Directory(Directory::default())).map(drop)
            }
            PathTarget::Host { mount, path } => self.mounted(mount)?.make_directory(&join(&path, &name), mode),
        }
    }

    /// Implements `symlinkat`. Fails with [`Errno::EPERM`] in a mounted host directory, where the host's programs would
    /// follow the link.
    pub fn make_link_at(&mut self, target: &str, dirfd: i32, path: &str) -> Result<(), Errno> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let base = self.base(dirfd, path)?;
        let resolved = self.locate(base, path, false)?;
        let slash = resolved.slash;
        let (parent, name) = parent_for_new_entry(resolved)?;
        if slash {
            return Err(Errno::ENOENT);
        }
        match parent {
            PathTarget::Node(parent) => self.create(parent, &name, 0o777, NodeKind::Link(target.into())).map(drop),
            PathTarget::Host { mount, .. } => {
                self.mounted(mount)?.check_writable()?;
                Err(Errno::EPERM)
            }
        }
    }

    /// Creates an inode for the guest, subject to the quota and permissions.
    pub(super) fn create(&mut self, parent: NodeId, name: &str, mode: u32, kind: NodeKind) -> Result<NodeId, Errno> {
        self.check_changeable(parent)?;
        if self.usage.inodes >= self.quota.inodes || kind.stored() > self.budget() {
            return Err(Errno::ENOSPC);
        }
        self.make(parent, name, mode, kind)
    }

    /// Fails unless entries may be added to and removed from a directory.
    fn check_changeable(&self, directory: NodeId) -> Result<(), Errno> {
        if !self.nodes.get(directory)?.linked {
            return Err(Errno::ENOENT);
        }
        self.check_mode(directory, 0o222)?;
        self.check_mode(directory, 0o111)
    }

    /// Implements `unlinkat` without `AT_REMOVEDIR`. An open file is freed when its last descriptor is closed.
    pub fn unlink_at(&mut self, dirfd: i32, path: &str) -> Result<(), Errno> {
        let base = self.base(dirfd, path)?;
        let resolved = self.locate(base, path, false)?;
        let FinalComponent::Name(name) = resolved.last else { return Err(Errno::EISDIR) };
        let found = resolved.found.ok_or(Errno::ENOENT)?;
        let is_directory = self.is_directory(&found)?;
        if resolved.slash && !is_directory {
            return Err(Errno::ENOTDIR);
        }
        match (resolved.parent, found) {
            (PathTarget::Node(parent), PathTarget::Node(id)) => {
                self.check_changeable(parent)?;
                if is_directory {
                    return Err(Errno::EISDIR);
                }
                self.remove_entry(parent, &name)?;
                self.discard_unused(id);
                Ok(())
            }
            (_, PathTarget::Host { .. }) if is_directory => Err(Errno::EISDIR),
            (_, PathTarget::Host { mount, path }) => self.mounted(mount)?.remove_file(&path),
            (PathTarget::Host { .. }, PathTarget::Node(_)) => Err(Errno::EIO),
        }
    }

    /// Implements `unlinkat` with `AT_REMOVEDIR`.
    pub fn remove_directory_at(&mut self, dirfd: i32, path: &str) -> Result<(), Errno> {
        let base = self.base(dirfd, path)?;
        let resolved = self.locate(base, path, false)?;
        let name = match resolved.last {
            FinalComponent::Name(name) => name,
            FinalComponent::Root => return Err(Errno::EBUSY),
            FinalComponent::Dot => return Err(Errno::EINVAL),
            FinalComponent::DotDot => return Err(Errno::ENOTEMPTY),
        };
        let found = resolved.found.ok_or(Errno::ENOENT)?;
        match (resolved.parent, found) {
            (PathTarget::Node(parent), PathTarget::Node(id)) => {
                self.check_changeable(parent)?;
                if !self.is_empty(id)? {
                    return Err(Errno::ENOTEMPTY);
                }
                self.remove_entry(parent, &name)?;
                self.discard_unused(id);
                Ok(())
            }
            // The root of a mount.
            (PathTarget::Node(_), PathTarget::Host { .. }) => Err(Errno::EBUSY),
            (_, PathTarget::Host { mount, path }) => self.mounted(mount)?.remove_directory(&path),
            (PathTarget::Host { .. }, PathTarget::Node(_)) => Err(Errno::EIO),
        }
    }

    /// Implements `renameat`.
    pub fn rename_at(&mut self, old_dirfd: i32, old: &str, new_dirfd: i32, new: &str) -> Result<(), Errno> {
        let base = self.base(old_dirfd, old)?;
        let from = self.locate(base, old, false)?;
        let base = self.base(new_dirfd, new)?;
        let to = self.locate(base, new, false)?;
        let (FinalComponent::Name(from_name), FinalComponent::Name(to_name)) = (from.last, to.last) else {
            return Err(Errno::EBUSY);
        };
        let moved = from.found.ok_or(Errno::ENOENT)?;
        let directory = self.is_directory(&moved)?;
        if (from.slash || to.slash) && !directory {
            return Err(Errno::ENOTDIR);
        }
        match (from.parent, to.parent) {
            (PathTarget::Node(from), PathTarget::Node(to_parent)) => match (moved, to.found) {
                (PathTarget::Node(moved), None) => self.rename_node(from, &from_name, moved, to_parent, &to_name, None),
                (PathTarget::Node(moved), Some(PathTarget::Node(replaced))) => {
                    self.rename_node(from, &from_name, moved, to_parent, &to_name, Some(replaced))
                }
                // One of them is the root of a mount.
                _ => Err(Errno::EBUSY),
            },
            (PathTarget::Host { mount, path: from }, PathTarget::Host { mount: other, path: to }) if mount == other => {
                self.mounted(mount)?.rename(&join(&from, &from_name), &join(&to, &to_name))
            }
            _ => Err(Errno::EXDEV),
        }
    }

    fn rename_node(
        &mut self,
        from: NodeId,
        from_name: &str,
        moved: NodeId,
        to: NodeId,
        to_name: &str,
        replaced: Option<NodeId>,
    ) -> Result<(), Errno> {
        if replaced == Some(moved) {
            return Ok(());
        }
        self.check_changeable(from)?;
        self.check_changeable(to)?;
        let directory = matches!(self.nodes.get(moved)?.kind, NodeKind::Directory(_));
        if directory && self.is_inside(to, moved)? {
            return Err(Errno::EINVAL);
        }
        if let Some(replaced) = replaced {
            match (directory, &self.nodes.get(replaced)?.kind) {
                (true, NodeKind::Directory(_)) if !self.is_empty(replaced)? => return Err(Errno::ENOTEMPTY),
                (true, NodeKind::Directory(_)) => {}
                (true, _) => return Err(Errno::ENOTDIR),
                // An ancestor of the moved file cannot be empty.
                (false, NodeKind::Directory(_)) if self.is_inside(from, replaced)? => return Err(Errno::ENOTEMPTY),
                (false, NodeKind::Directory(_)) => return Err(Errno::EISDIR),
                (false, _) => {}
            }
            self.remove_entry(to, to_name)?;
            self.discard_unused(replaced);
        }
        self.remove_entry(from, from_name)?;
        self.insert_entry(to, to_name.into(), moved)
    }

    /// Returns whether `node` is `directory` or lies below it.
    fn is_inside(&self, node: NodeId, directory: NodeId) -> Result<bool, Errno> {
        let mut current = node;
        loop {
            if current == directory {
                return Ok(true);
            }
            if current == ROOT {
                return Ok(false);
            }
            current = self.nodes.get(current)?.parent;
        }
    }

    /// Implements `chdir`.
    pub fn change_directory(&mut self, path: &str) -> Result<(), Errno> {
        let place = self.resolve(super::AT_FDCWD, path, true)?;
        self.enter_directory(place)
    }

    /// Implements `fchdir`.
    pub fn change_directory_fd(&mut self, fd: i32) -> Result<(), Errno> {
        let place = self.place_of(fd)?;
        self.enter_directory(place)
    }

    fn enter_directory(&mut self, place: PathTarget) -> Result<(), Errno> {
        if !self.is_directory(&place)? {
            return Err(Errno::ENOTDIR);
        }
        if let PathTarget::Node(id) = place {
            self.check_mode(id, 0o111)?;
        }
        self.set_working_directory(place)
    }

    /// Implements `getcwd` for a path of at most `limit` bytes. Fails with [`Errno::ERANGE`] if the path is longer, and
    /// with [`Errno::ENOENT`] if the directory was removed.
    pub fn working_directory(&self, limit: usize) -> Result<String, Errno> {
        self.path_of(&self.working_directory, limit).map_err(|errno| match errno {
            Errno::ENAMETOOLONG => Errno::ERANGE,
            errno => errno,
        })
    }
}
