//! Making, removing and renaming: what changes directories.

use super::node::{Directory, Kind, NodeId, ROOT};
use super::walk::{Last, Located, Place, join};
use super::{Filesystem, PATH_MAX};
use crate::Errno;

/// The directory and name under which something new can be made; [`Errno::EEXIST`] when there is something already.
pub(super) fn absent(located: Located) -> Result<(Place, String), Errno> {
    match (located.last, located.found) {
        (Last::Name(name), None) => Ok((located.parent, name)),
        _ => Err(Errno::EEXIST),
    }
}

impl Filesystem {
    /// `mkdirat`.
    pub fn make_directory_at(&mut self, dirfd: i32, path: &str, mode: u32) -> Result<(), Errno> {
        let base = self.base(dirfd, path)?;
        let (parent, name) = absent(self.locate(base, path, false)?)?;
        let mode = mode & 0o1777 & !self.umask;
        match parent {
            Place::Node(parent) => self.create(parent, &name, mode, Kind::Directory(Directory::default())).map(drop),
            Place::Host { mount, path } => self.mounted(mount)?.make_directory(&join(&path, &name), mode),
        }
    }

    /// `symlinkat`. In a mounted host directory it is [`Errno::EPERM`]: programs of the host would follow the link.
    pub fn make_link_at(&mut self, target: &str, dirfd: i32, path: &str) -> Result<(), Errno> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let base = self.base(dirfd, path)?;
        let located = self.locate(base, path, false)?;
        let slash = located.slash;
        let (parent, name) = absent(located)?;
        if slash {
            return Err(Errno::ENOENT);
        }
        match parent {
            Place::Node(parent) => self.create(parent, &name, 0o777, Kind::Link(target.into())).map(drop),
            Place::Host { mount, .. } => {
                self.mounted(mount)?.check_writable()?;
                Err(Errno::EPERM)
            }
        }
    }

    /// Makes an inode for the guest: within the quota, and where permissions allow it.
    pub(super) fn create(&mut self, parent: NodeId, name: &str, mode: u32, kind: Kind) -> Result<NodeId, Errno> {
        self.may_change(parent)?;
        if self.usage.inodes >= self.quota.inodes || kind.stored() > self.budget() {
            return Err(Errno::ENOSPC);
        }
        self.make(parent, name, mode, kind)
    }

    /// Whether entries may be made in or taken from a directory.
    fn may_change(&self, directory: NodeId) -> Result<(), Errno> {
        if !self.nodes.get(directory)?.linked {
            return Err(Errno::ENOENT);
        }
        self.check_mode(directory, 0o222)?;
        self.check_mode(directory, 0o111)
    }

    /// `unlinkat` without `AT_REMOVEDIR`. An open file lives on until its last descriptor is closed.
    pub fn unlink_at(&mut self, dirfd: i32, path: &str) -> Result<(), Errno> {
        let base = self.base(dirfd, path)?;
        let located = self.locate(base, path, false)?;
        let Last::Name(name) = located.last else { return Err(Errno::EISDIR) };
        let found = located.found.ok_or(Errno::ENOENT)?;
        let is_directory = self.is_directory(&found)?;
        if located.slash && !is_directory {
            return Err(Errno::ENOTDIR);
        }
        match (located.parent, found) {
            (Place::Node(parent), Place::Node(id)) => {
                self.may_change(parent)?;
                if is_directory {
                    return Err(Errno::EISDIR);
                }
                self.leave(parent, &name)?;
                self.discard_unused(id);
                Ok(())
            }
            (_, Place::Host { .. }) if is_directory => Err(Errno::EISDIR),
            (_, Place::Host { mount, path }) => self.mounted(mount)?.remove_file(&path),
            (Place::Host { .. }, Place::Node(_)) => Err(Errno::EIO),
        }
    }

    /// `unlinkat` with `AT_REMOVEDIR`.
    pub fn remove_directory_at(&mut self, dirfd: i32, path: &str) -> Result<(), Errno> {
        let base = self.base(dirfd, path)?;
        let located = self.locate(base, path, false)?;
        let name = match located.last {
            Last::Name(name) => name,
            Last::Root => return Err(Errno::EBUSY),
            Last::Dot => return Err(Errno::EINVAL),
            Last::DotDot => return Err(Errno::ENOTEMPTY),
        };
        let found = located.found.ok_or(Errno::ENOENT)?;
        match (located.parent, found) {
            (Place::Node(parent), Place::Node(id)) => {
                self.may_change(parent)?;
                if !self.is_empty(id)? {
                    return Err(Errno::ENOTEMPTY);
                }
                self.leave(parent, &name)?;
                self.discard_unused(id);
                Ok(())
            }
            // The root of a mount.
            (Place::Node(_), Place::Host { .. }) => Err(Errno::EBUSY),
            (_, Place::Host { mount, path }) => self.mounted(mount)?.remove_directory(&path),
            (Place::Host { .. }, Place::Node(_)) => Err(Errno::EIO),
        }
    }

    /// `renameat`.
    pub fn rename_at(&mut self, old_dirfd: i32, old: &str, new_dirfd: i32, new: &str) -> Result<(), Errno> {
        let base = self.base(old_dirfd, old)?;
        let from = self.locate(base, old, false)?;
        let base = self.base(new_dirfd, new)?;
        let to = self.locate(base, new, false)?;
        let (Last::Name(from_name), Last::Name(to_name)) = (from.last, to.last) else { return Err(Errno::EBUSY) };
        let moved = from.found.ok_or(Errno::ENOENT)?;
        let directory = self.is_directory(&moved)?;
        if (from.slash || to.slash) && !directory {
            return Err(Errno::ENOTDIR);
        }
        match (from.parent, to.parent) {
            (Place::Node(from), Place::Node(to_parent)) => match (moved, to.found) {
                (Place::Node(moved), None) => self.rename_node(from, &from_name, moved, to_parent, &to_name, None),
                (Place::Node(moved), Some(Place::Node(replaced))) => {
                    self.rename_node(from, &from_name, moved, to_parent, &to_name, Some(replaced))
                }
                // One of them is the root of a mount.
                _ => Err(Errno::EBUSY),
            },
            (Place::Host { mount, path: from }, Place::Host { mount: other, path: to }) if mount == other => {
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
        self.may_change(from)?;
        self.may_change(to)?;
        let directory = matches!(self.nodes.get(moved)?.kind, Kind::Directory(_));
        if directory && self.is_inside(to, moved)? {
            return Err(Errno::EINVAL);
        }
        if let Some(replaced) = replaced {
            match (directory, &self.nodes.get(replaced)?.kind) {
                (true, Kind::Directory(_)) if !self.is_empty(replaced)? => return Err(Errno::ENOTEMPTY),
                (true, Kind::Directory(_)) => {}
                (true, _) => return Err(Errno::ENOTDIR),
                // An ancestor of what is moved cannot be empty.
                (false, Kind::Directory(_)) if self.is_inside(from, replaced)? => return Err(Errno::ENOTEMPTY),
                (false, Kind::Directory(_)) => return Err(Errno::EISDIR),
                (false, _) => {}
            }
            self.leave(to, to_name)?;
            self.discard_unused(replaced);
        }
        self.leave(from, from_name)?;
        self.enter(to, to_name.into(), moved)
    }

    /// Whether `node` is `directory` or lies below it.
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

    /// `chdir`.
    pub fn change_directory(&mut self, path: &str) -> Result<(), Errno> {
        let place = self.resolve(super::AT_FDCWD, path, true)?;
        self.enter_directory(place)
    }

    /// `fchdir`.
    pub fn change_directory_fd(&mut self, fd: i32) -> Result<(), Errno> {
        let place = self.place_of(fd)?;
        self.enter_directory(place)
    }

    fn enter_directory(&mut self, place: Place) -> Result<(), Errno> {
        if !self.is_directory(&place)? {
            return Err(Errno::ENOTDIR);
        }
        if let Place::Node(id) = place {
            self.check_mode(id, 0o111)?;
        }
        self.set_working_directory(place)
    }

    /// `getcwd`, of at most `limit` bytes: [`Errno::ERANGE`] when it is longer, [`Errno::ENOENT`] when it was removed.
    pub fn working_directory(&self, limit: usize) -> Result<String, Errno> {
        self.path_of(&self.working_directory, limit).map_err(|errno| match errno {
            Errno::ENAMETOOLONG => Errno::ERANGE,
            errno => errno,
        })
    }
}
