//! Errors of the cache. Each message is the fact; advice on options and variables belongs to the front end.

use std::io;
use std::path::{Path, PathBuf};

/// A failure to read, write or lock the cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The caller named no cache directory, and the platform has no default one.
    #[error("failed to choose a cache directory: the user's home directory is unknown")]
    NoDirectory,

    /// The disk, or the user's quota on it, is full.
    #[error("no space left in the cache directory {}{}", .directory.display(), bytes_to_write(.needed))]
    Full {
        /// The directory on the full disk.
        directory: PathBuf,
        /// The number of bytes to be written, where known.
        needed: Option<u64>,
    },

    /// The user lacks permission to write to the directory, or its file system is read-only.
    #[error("failed to write to the cache directory {}: {source}", .directory.display())]
    NotWritable {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// Any other failure of the file system.
    #[error("failed to {action} {}: {source}", .path.display())]
    Io {
        /// The operation that failed: `read`, `lock`, `rename`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// The entry does not contain the requested file, because the function that created the entry did not write it.
    #[error("the cache entry {} contains no file named `{name}`", .directory.display())]
    NoSuchFile {
        /// The entry's directory.
        directory: PathBuf,
        /// The requested file.
        name: String,
    },
}

fn bytes_to_write(bytes: &Option<u64>) -> String {
    match bytes {
        Some(bytes) => format!(" ({} KiB to write)", bytes.div_ceil(1024)),
        None => String::new(),
    }
}

impl CacheError {
    /// Returns the error for a failure to write `needed` bytes (where known) at `path`. A full disk and a directory
    /// that is not writable have variants of their own.
    pub fn writing(path: &Path, needed: Option<u64>, source: io::Error) -> Self {
        let directory = || path.parent().unwrap_or(path).to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                CacheError::Full { directory: directory(), needed }
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                CacheError::NotWritable { directory: directory(), source }
            }
            _ => CacheError::Io { action: "write", path: path.to_path_buf(), source },
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| CacheError::Io { action, path: path.to_path_buf(), source }
    }
}
