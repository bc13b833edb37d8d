//! The on-disk cache of resolutions. Repeating a request costs one small read.
//!
//! A resolution is a function of the request, the settings and the indexes' content at the time. A digest of the
//! request and the settings is the file's name. Since the indexes change, a cached resolution expires after [`TTL`];
//! offline it is valid for as long as the file exists.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use belljar_cache::Cache;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::atomic_file::write_atomically;
use crate::resolution::Resolution;

/// The lifetime of a cached resolution while an index is reachable, which equals the usual lifetime of index pages.
const TTL: Duration = Duration::from_secs(600);
/// The age at which unused files are deleted.
const MAX_UNUSED_AGE: Duration = Duration::from_secs(90 * 24 * 3600);
/// The format version, incremented when the meaning of the files changes.
const FORMAT: u32 = 3;

/// The directory of cached resolutions.
#[derive(Debug, Clone)]
pub(crate) struct ResolutionCache {
    directory: PathBuf,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct CachedResolution {
    format: u32,
    #[serde(rename = "made")]
    created: SystemTime,
    resolution: Resolution,
}

impl ResolutionCache {
    pub(crate) fn new(cache: &Cache) -> Self {
        ResolutionCache { directory: cache.root().join("resolutions") }
    }

    /// Returns the resolution for a key, unless it has expired. With `ignore_age`, resolutions do not expire.
    pub(crate) fn get(&self, key: &ResolutionKey, ignore_age: bool) -> Option<Resolution> {
        let bytes = std::fs::read(self.path(key)).ok()?;
        let cached: CachedResolution = serde_json::from_slice(&bytes).ok()?;
        // `elapsed` fails if the clock was set back. The resolution then counts as expired.
        let is_fresh = cached.created.elapsed().is_ok_and(|age| age < TTL);
        (cached.format == FORMAT && (is_fresh || ignore_age)).then_some(cached.resolution)
    }

    /// Stores a resolution. Errors are ignored, since the user may have only read access to the cache.
    pub(crate) fn put(&self, key: &ResolutionKey, resolution: &Resolution) {
        let cached = CachedResolution { format: FORMAT, created: SystemTime::now(), resolution: resolution.clone() };
        if let Err(error) = self.write(key, &cached) {
            tracing::debug!(%error, "failed to cache a resolution");
        }
    }

    pub(crate) fn remove(&self, key: &ResolutionKey) {
        let _ = std::fs::remove_file(self.path(key));
    }

    fn write(&self, key: &ResolutionKey, cached: &CachedResolution) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        self.delete_unused();
        let bytes = serde_json::to_vec(cached)?;
        write_atomically(&self.path(key), |file| file.write_all(&bytes))
    }

    fn path(&self, key: &ResolutionKey) -> PathBuf {
        self.directory.join(format!("{}.json", key.0))
    }

    /// Deletes files that have not been used for [`MAX_UNUSED_AGE`].
    fn delete_unused(&self) {
        let Ok(files) = self.directory.read_dir() else { return };
        for file in files.flatten() {
            let old = |time: SystemTime| time.elapsed().is_ok_and(|age| age > MAX_UNUSED_AGE);
            if file.metadata().and_then(|metadata| metadata.modified()).is_ok_and(old) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

/// A digest of everything that a resolution depends on, except for the indexes' content.
#[derive(Debug, Clone)]
pub(crate) struct ResolutionKey(String);

impl ResolutionKey {
    /// Digests `parts`, each prefixed with its length, so that different lists give different keys.
    pub(crate) fn new<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        ResolutionKey(hex::encode(digest.finalize()))
    }
}

#[cfg(test)]
mod tests {
    use belljar_cache::Cache;

    use super::{ResolutionCache, ResolutionKey};
    use crate::platform::Platform;
    use crate::resolution::Resolution;

    #[test]
    fn stored_resolution_is_found_and_a_damaged_file_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let cache = ResolutionCache::new(&Cache::open(Some(directory.path().into())).unwrap());
        let key = ResolutionKey::new(["rich"]);
        assert_eq!(cache.get(&key, true), None);
        let resolution = Resolution::new(&Platform::cpython_3_14(), Vec::new());
        cache.put(&key, &resolution);
        assert_eq!(cache.get(&key, false), Some(resolution));
        std::fs::write(cache.path(&key), "{").unwrap();
        assert_eq!(cache.get(&key, true), None);
    }
}
