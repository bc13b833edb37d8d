//! Listing and deletion of the wheels in the cache.

use std::time::{Duration, SystemTime};

use belljar_cache::{Cache, EntryUsage};

use crate::error::InstallError;

/// The kind of cache entries that contain wheels.
const KIND: &str = "wheel";

/// A wheel in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedWheel {
    /// The file name.
    pub filename: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The time of its last use, to within ten minutes.
    pub last_used: SystemTime,
}

/// Returns the wheels in a cache, sorted by file name.
pub fn cached_wheels(cache: &Cache) -> Result<Vec<CachedWheel>, InstallError> {
    let mut wheels: Vec<_> = entries(cache)?
        .map(|entry| CachedWheel {
            filename: entry.files.first().cloned().unwrap_or(entry.name),
            bytes: entry.bytes,
            last_used: entry.last_used,
        })
        .collect();
    wheels.sort_by(|one, other| one.filename.cmp(&other.filename));
    Ok(wheels)
}

/// Deletes the wheels that have not been used for `unused_for` and returns them. Cached resolutions that contain them
/// are kept, and their files are fetched again when needed. If `unused_for` is zero, deletes all wheels, and the cached
/// resolutions and index pages as well.
pub fn clean_wheels(cache: &Cache, unused_for: Duration) -> Result<Vec<CachedWheel>, InstallError> {
    let mut deleted = Vec::new();
    for entry in entries(cache)? {
        let idle = entry.last_used.elapsed().unwrap_or_default();
        if idle < unused_for {
            continue;
        }
        cache.remove_entry(&entry.name)?;
        let filename = entry.files.first().cloned().unwrap_or(entry.name);
        deleted.push(CachedWheel { filename, bytes: entry.bytes, last_used: entry.last_used });
    }
    if unused_for.is_zero() {
        for name in ["resolutions", "uv", "pyodide"] {
            let path = cache.root().join(name);
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(InstallError::Io { action: "delete", path, source: error });
                }
                _ => {}
            }
        }
    }
    deleted.sort_by(|one, other| one.filename.cmp(&other.filename));
    Ok(deleted)
}

fn entries(cache: &Cache) -> Result<impl Iterator<Item = EntryUsage>, InstallError> {
    Ok(cache.usage()?.into_iter().filter(|entry| entry.kind() == KIND))
}
