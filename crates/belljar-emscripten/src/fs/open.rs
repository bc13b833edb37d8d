//! Opening files.

use super::descriptors::Target;
use super::node::{NodeId, NodeKind};
use super::path_resolution::{FinalComponent, PathTarget, ResolvedPath, join};
use super::{Filesystem, directory_ops};
use crate::Errno;

/// The directory descriptor that denotes the working directory.
pub const AT_FDCWD: i32 = -100;

/// Flags of `open`, with the numbers of Emscripten's libc (`arch/emscripten/bits/fcntl.h`), which are Linux's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// `O_RDONLY`.
    pub const READ_ONLY: Self = Self(0);
    /// `O_WRONLY`.
    pub const WRITE_ONLY: Self = Self(1);
    /// `O_RDWR`.
    pub const READ_WRITE: Self = Self(2);
    /// `O_CREAT`.
    pub const CREATE: Self = Self(0o100);
    /// `O_EXCL`.
    pub const EXCLUSIVE: Self = Self(0o200);
    /// `O_TRUNC`.
    pub const TRUNCATE: Self = Self(0o1000);
    /// `O_APPEND`.
    pub const APPEND: Self = Self(0o2000);
    /// `O_NONBLOCK`.
    pub const NON_BLOCKING: Self = Self(0o4000);
    /// `O_DIRECTORY`.
    pub const DIRECTORY: Self = Self(0o200_000);
    /// `O_NOFOLLOW`.
    pub const NO_FOLLOW: Self = Self(0o400_000);
    /// `O_CLOEXEC`.
    pub const CLOSE_ON_EXEC: Self = Self(0o2_000_000);
    /// `O_PATH`.
    pub const PATH: Self = Self(0o10_000_000);

    /// Returns the union of both sets of flags.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 == flag.0
    }

    /// Returns whether the access mode allows reading.
    pub fn reads(self) -> bool {
        !self.has(Self::PATH) && matches!(self.0 & 3, 0 | 2)
    }

    /// Returns whether the access mode allows writing.
    pub fn writes(self) -> bool {
        !self.has(Self::PATH) && matches!(self.0 & 3, 1 | 2)
    }

    pub(super) fn creates(self) -> bool {
        self.has(Self::CREATE) && !self.has(Self::PATH)
    }

    pub(super) fn excludes(self) -> bool {
        self.has(Self::EXCLUSIVE)
    }

    pub(super) fn truncates(self) -> bool {
        self.has(Self::TRUNCATE) && !self.has(Self::PATH)
    }

    pub(super) fn appends(self) -> bool {
        self.has(Self::APPEND)
    }

    pub(super) fn is_non_blocking(self) -> bool {
        self.has(Self::NON_BLOCKING)
    }

    pub(super) fn closes_on_exec(self) -> bool {
        self.has(Self::CLOSE_ON_EXEC)
    }

    /// Returns the flags that `F_GETFL` reports: all except those that matter only while opening.
    pub(super) fn status(self) -> Self {
        let gone = [Self::CREATE, Self::EXCLUSIVE, Self::TRUNCATE, Self::NO_FOLLOW, Self::CLOSE_ON_EXEC];
        gone.into_iter().fold(self, |flags, flag| Self(flags.0 & !flag.0))
    }

    /// Returns these flags, with those that `F_SETFL` can change taken from `other`.
    pub(super) fn with_changeable(self, other: Self) -> Self {
        let changeable = Self::APPEND.with(Self::NON_BLOCKING).0;
        Self(self.0 & !changeable | other.0 & changeable)
    }

    /// Returns the subset of these flags that `pipe2` knows.
    pub(super) fn pipe_options(self) -> Self {
        Self(self.0 & Self::NON_BLOCKING.with(Self::CLOSE_ON_EXEC).0)
    }
}

impl Filesystem {
    /// Implements `openat`. `mode` is that of a file to be created, before the mask.
    pub fn open_at(&mut self, dirfd: i32, path: &str, flags: OpenFlags, mode: u32) -> Result<i32, Errno> {
        if flags.0 & 3 == 3 {
            return Err(Errno::EINVAL);
        }
        // Checked first, so that an open that fails neither creates nor truncates a file.
        self.check_descriptor_free()?;
        let base = self.base(dirfd, path)?;
        let exclusive = flags.creates() && flags.excludes();
        let slash = path.ends_with('/');
        let follow = match (slash, flags.creates()) {
            // Such an open always fails.
            (true, true) => false,
            (true, false) => true,
            (false, _) => !exclusive && !flags.has(OpenFlags::NO_FOLLOW),
        };
        let resolved = self.locate(base, path, follow)?;
        let mode = mode & 0o7777 & !self.umask;
        match resolved.found {
            _ if flags.creates() && resolved.slash => Err(Errno::EISDIR),
            Some(_) if exclusive => Err(Errno::EEXIST),
            None if !flags.creates() => Err(Errno::ENOENT),
            None => self.open_new(resolved, flags, mode),
            Some(PathTarget::Node(id)) => self.open_node(id, flags, resolved.slash),
            Some(PathTarget::Host { mount, path }) => self.open_host(mount, path, flags, resolved.slash),
        }
    }

    fn open_new(&mut self, resolved: ResolvedPath, flags: OpenFlags, mode: u32) -> Result<i32, Errno> {
        let FinalComponent::Name(name) = resolved.last else { return Err(Errno::ENOENT) };
        match resolved.parent {
            PathTarget::Node(parent) => {
                let id = self.create(parent, &name, mode, NodeKind::File(Default::default()))?;
                self.add_description(Target::Node(id), flags, 0)
            }
            PathTarget::Host { mount, path } => {
                let file = self.mounted(mount)?.open_file(&join(&path, &name), flags, mode)?;
                self.add_description(Target::HostFile { mount, file }, flags, 0)
            }
        }
    }

    fn open_node(&mut self, id: NodeId, flags: OpenFlags, slash: bool) -> Result<i32, Errno> {
        let only_directory = slash || flags.has(OpenFlags::DIRECTORY);
        match &self.nodes.get(id)?.kind {
            NodeKind::Link(_) if !flags.has(OpenFlags::PATH) => return Err(Errno::ELOOP),
            NodeKind::Directory(_) if flags.writes() || flags.creates() || flags.truncates() => {
                return Err(Errno::EISDIR);
            }
            NodeKind::Directory(_) => {}
            _ if only_directory => return Err(Errno::ENOTDIR),
            _ => {}
        }
        if flags.reads() {
            self.check_mode(id, 0o444)?;
        }
        if flags.writes() || flags.truncates() {
            self.check_mode(id, 0o222)?;
        }
        if flags.truncates() && matches!(self.nodes.get(id)?.kind, NodeKind::File(_)) {
            self.truncate_node(id, 0)?;
        }
        self.add_description(Target::Node(id), flags, 0)
    }

    fn open_host(&mut self, mount: u32, path: String, flags: OpenFlags, slash: bool) -> Result<i32, Errno> {
        let directory = self.mounted(mount)?;
        let target = if directory.is_directory(&path)? {
            if flags.writes() || flags.creates() || flags.truncates() {
                return Err(Errno::EISDIR);
            }
            Target::HostDirectory { mount, path, listing: None }
        } else if slash || flags.has(OpenFlags::DIRECTORY) {
            return Err(Errno::ENOTDIR);
        } else if directory.link_target(&path)?.is_some() {
            return Err(Errno::ELOOP);
        } else {
            Target::HostFile { mount, file: directory.open_file(&path, flags, 0)? }
        };
        self.add_description(target, flags, 0)
    }

    /// Implements `mknodat` for regular files. Fails with [`Errno::EPERM`] for named pipes, devices and sockets.
    pub fn make_file_at(&mut self, dirfd: i32, path: &str, mode: u32) -> Result<(), Errno> {
        let base = self.base(dirfd, path)?;
        let resolved = self.locate(base, path, false)?;
        let slash = resolved.slash;
        let (parent, name) = directory_ops::parent_for_new_entry(resolved)?;
        if slash {
            return Err(Errno::ENOENT);
        }
        let mode = mode & 0o7777 & !self.umask;
        match parent {
            PathTarget::Node(parent) => self.create(parent, &name, mode, NodeKind::File(Default::default())).map(drop),
            PathTarget::Host { mount, path } => {
                let flags = OpenFlags::WRITE_ONLY.with(OpenFlags::CREATE).with(OpenFlags::EXCLUSIVE);
                self.mounted(mount)?.open_file(&join(&path, &name), flags, mode).map(drop)
            }
        }
    }
}
