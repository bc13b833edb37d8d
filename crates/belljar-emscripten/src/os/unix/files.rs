//! Files of mounted host directories on Unix: their attributes, permissions, ways of opening, and error numbers.

use std::fs::File;
use std::io;

use cap_std::fs::{DirBuilder, DirBuilderExt, Metadata, MetadataExt, OpenOptions, OpenOptionsExt, PermissionsExt};

use crate::Errno;
use crate::os::FileAttributes;

/// An open directory of the host.
pub type DirectoryHandle = std::os::fd::OwnedFd;

pub(crate) fn attributes(metadata: &Metadata) -> FileAttributes {
    FileAttributes {
        ino: metadata.ino(),
        mode: metadata.mode(),
        links: metadata.nlink(),
        blocks: metadata.blocks(),
        accessed: (metadata.atime(), metadata.atime_nsec()),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    }
}

/// Makes opening neither block nor follow a link in the last component.
pub(crate) fn neither_block_nor_follow(options: &mut OpenOptions) {
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
}

/// Makes opening give a directory whose times can be set, and fail for anything else.
pub(crate) fn set_for_directory_times(options: &mut OpenOptions) {
    options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
}

/// Sets the permissions of a file that is created.
pub(crate) fn set_new_mode(options: &mut OpenOptions, mode: u32) {
    options.mode(mode);
}

/// Returns a builder of directories with these permissions.
pub(crate) fn directory_builder(mode: u32) -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(mode);
    builder
}

/// Sets the permissions of the file at `path`.
pub(crate) fn set_mode_at(directory: &cap_std::fs::Dir, path: &str, mode: u32) -> io::Result<()> {
    directory.set_permissions(path, cap_std::fs::Permissions::from_mode(mode))
}

pub(crate) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
}

/// Converts an error number of the host to the guest's, if both have one with that meaning.
pub(crate) fn errno(raw: i32) -> Option<Errno> {
    Some(match raw {
        libc::EACCES => Errno::EACCES,
        libc::EBUSY => Errno::EBUSY,
        libc::EDQUOT | libc::ENOSPC => Errno::ENOSPC,
        libc::EEXIST => Errno::EEXIST,
        libc::EFBIG => Errno::EFBIG,
        libc::EINVAL => Errno::EINVAL,
        libc::EISDIR => Errno::EISDIR,
        libc::ELOOP => Errno::ELOOP,
        libc::EMFILE | libc::ENFILE => Errno::ENFILE,
        libc::EMLINK => Errno::EMLINK,
        libc::ENAMETOOLONG => Errno::ENAMETOOLONG,
        libc::ENOENT => Errno::ENOENT,
        libc::ENOMEM => Errno::ENOMEM,
        libc::ENOTDIR => Errno::ENOTDIR,
        libc::ENOTEMPTY => Errno::ENOTEMPTY,
        libc::ENXIO => Errno::ENXIO,
        libc::EPERM => Errno::EPERM,
        libc::EROFS => Errno::EROFS,
        libc::ETXTBSY => Errno::ETXTBSY,
        libc::EXDEV => Errno::EXDEV,
        _ => return None,
    })
}
