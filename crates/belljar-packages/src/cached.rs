//! What of packages lies in the cache, for people who want to know or to clean up.

use std::time::{Duration, SystemTime};

use belljar_cache::{Cache, EntryUsage};

use crate::error::InstallError;

/// The kind of cache entries that hold archives of packages.
const KIND: &str = "wheel";

/// An archive in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedWheel {
    /// Its file name.
    pub filename: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was last used, to ten minutes.
    pub last_used: SystemTime,
}

/// The archives in a cache, by file name.
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

/// Deletes the archives that were not used for a time (all, if that is zero) and gives them. Resolutions that name
/// them stay: what is pinned is fetched again. With a time of zero, resolutions and the pages of indexes go too.
pub fn clean_wheels(cache: &Cache, unused_for: Duration) -> Result<Vec<CachedWheel>, InstallError> {
    let mut deleted = Vec::new();
    for entry in entries(cache)? {
        let unused = entry.last_used.elapsed().unwrap_or_default();
        if unused < unused_for {
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
