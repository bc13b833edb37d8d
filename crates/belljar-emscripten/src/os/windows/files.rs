//! Files of mounted host directories on Windows: their attributes, in the terms of Unix, and error numbers.

use std::fs::File;
use std::io;

use cap_std::fs::{Dir, DirBuilder, Metadata, MetadataExt, OpenOptions, OpenOptionsExt};
use windows_sys::Win32::Foundation as errors;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_WRITE_ATTRIBUTES,
};

use crate::Errno;
use crate::os::FileAttributes;

/// An open directory of the host.
pub type DirectoryHandle = std::os::windows::io::OwnedHandle;

pub(crate) fn attributes(metadata: &Metadata) -> FileAttributes {
    let modified = since_1970(metadata.last_write_time());
    FileAttributes {
        // Programs compare the numbers of files to find out whether they are the same. The system's own identifiers are
        // not part of this metadata; the time of creation has the same property but for files of one moment.
        ino: metadata.creation_time(),
        mode: mode(metadata),
        links: 1,
        blocks: metadata.len().div_ceil(512),
        accessed: since_1970(metadata.last_access_time()),
        modified,
        changed: modified,
    }
}

/// Returns the type and permissions as `st_mode` has them on Unix. The system has one permission in common with it:
/// that of writing.
pub(crate) fn mode(metadata: &Metadata) -> u32 {
    if metadata.is_symlink() {
        0o120_777
    } else if metadata.is_dir() {
        0o040_777
    } else if metadata.permissions().readonly() {
        0o100_555
    } else {
        0o100_777
    }
}

/// Makes opening not follow a link in the last component.
pub(crate) fn neither_block_nor_follow(options: &mut OpenOptions) {
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
}

/// Makes opening give a directory whose times can be set.
pub(crate) fn set_for_directory_times(options: &mut OpenOptions) {
    options.access_mode(FILE_WRITE_ATTRIBUTES).custom_flags(FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT);
}

/// Does nothing: permissions of new files are inherited from their directory.
pub(crate) fn set_new_mode(_: &mut OpenOptions, _: u32) {}

/// Returns a builder of directories, whose permissions are inherited.
pub(crate) fn directory_builder(_: u32) -> DirBuilder {
    DirBuilder::new()
}

/// Makes the file at `path` read-only, or writable, as the owner's bit of `mode` says.
pub(crate) fn set_mode_at(directory: &Dir, path: &str, mode: u32) -> io::Result<()> {
    let metadata = directory.metadata(path)?;
    // On a directory, the attribute has another meaning.
    if metadata.is_dir() {
        return Ok(());
    }
    let mut permissions = metadata.permissions();
    permissions.set_readonly(mode & 0o200 == 0);
    directory.set_permissions(path, permissions)
}

/// Makes a file read-only, or writable, as the owner's bit of `mode` says.
pub(crate) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    let mut permissions = file.metadata()?.permissions();
    permissions.set_readonly(mode & 0o200 == 0);
    file.set_permissions(permissions)
}

/// Converts an error number of the host to the guest's, if the guest has one with that meaning.
pub(crate) fn errno(raw: i32) -> Option<Errno> {
    Some(match raw.cast_unsigned() {
        errors::ERROR_ACCESS_DENIED => Errno::EACCES,
        errors::ERROR_SHARING_VIOLATION | errors::ERROR_LOCK_VIOLATION | errors::ERROR_BUSY => Errno::EBUSY,
        errors::ERROR_DISK_FULL | errors::ERROR_HANDLE_DISK_FULL | errors::ERROR_DISK_QUOTA_EXCEEDED => Errno::ENOSPC,
        errors::ERROR_ALREADY_EXISTS | errors::ERROR_FILE_EXISTS => Errno::EEXIST,
        errors::ERROR_FILE_TOO_LARGE => Errno::EFBIG,
        errors::ERROR_INVALID_PARAMETER | errors::ERROR_INVALID_NAME => Errno::EINVAL,
        errors::ERROR_STOPPED_ON_SYMLINK | errors::ERROR_CANT_RESOLVE_FILENAME => Errno::ELOOP,
        errors::ERROR_TOO_MANY_OPEN_FILES => Errno::EMFILE,
        errors::ERROR_TOO_MANY_LINKS => Errno::EMLINK,
        errors::ERROR_FILENAME_EXCED_RANGE => Errno::ENAMETOOLONG,
        errors::ERROR_FILE_NOT_FOUND | errors::ERROR_PATH_NOT_FOUND => Errno::ENOENT,
        errors::ERROR_NOT_ENOUGH_MEMORY | errors::ERROR_OUTOFMEMORY => Errno::ENOMEM,
        errors::ERROR_DIRECTORY => Errno::ENOTDIR,
        errors::ERROR_DIR_NOT_EMPTY => Errno::ENOTEMPTY,
        errors::ERROR_PRIVILEGE_NOT_HELD => Errno::EPERM,
        errors::ERROR_WRITE_PROTECT => Errno::EROFS,
        errors::ERROR_NOT_SAME_DEVICE => Errno::EXDEV,
        _ => return None,
    })
}

/// Converts a time of the system, in units of 100 nanoseconds since 1601, to seconds and nanoseconds since 1970.
fn since_1970(time: u64) -> (i64, i64) {
    /// The seconds from 1601 to 1970.
    const OFFSET: i64 = 11_644_473_600;
    let (seconds, rest) = (time / 10_000_000, time % 10_000_000);
    // Both numbers are far below the limits of the type.
    (seconds as i64 - OFFSET, rest as i64 * 100)
}
