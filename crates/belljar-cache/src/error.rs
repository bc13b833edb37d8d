//! What can go wrong with the cache, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// A failure to read, write or lock the cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Neither an option nor an environment variable names a cache directory, and the platform offers none.
    #[error("there is no place for a cache: no home directory is known\nhint: set BELLJAR_CACHE to a directory")]
    NoDirectory,

    /// The disk, or the user's quota on it, is full.
    #[error(
        "no space left in the cache directory {}{}\nhint: make room there, or set BELLJAR_CACHE to a directory on another disk",
        .directory.display(),
        amount(.needed)
    )]
    Full {
        /// The directory on the full disk.
        directory: PathBuf,
        /// Bytes that were to be written, where known.
        needed: Option<u64>,
    },

    /// The directory may not be written to.
    #[error(
        "the cache directory {} cannot be written to: {source}\nhint: set BELLJAR_CACHE to a directory that you may write to",
        .directory.display()
    )]
    NotWritable {
        /// The directory that refused.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// Any other failure of the file system.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried: `read`, `lock`, `rename`.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// An entry was asked for a file that it does not hold: the maker of the entry did not write it.
    #[error("the cache entry {} holds no file named `{name}`", .directory.display())]
    NoSuchFile {
        /// The entry's directory.
        directory: PathBuf,
        /// The file that is not in it.
        name: String,
    },
}

fn amount(bytes: &Option<u64>) -> String {
    match bytes {
        Some(bytes) => format!(" ({} KiB were to be written)", bytes.div_ceil(1024)),
        None => String::new(),
    }
}

impl CacheError {
    /// The error for a failure to write `needed` bytes (where known) at `path`: a full disk and a directory that
    /// cannot be written to get words of their own.
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
