//! The on-disk cache of resolutions and refusals. Repeating a request costs one small read.
//!
//! A resolution is a function of the request, the settings and the indexes' content at the time, and so is the error of
//! a request that cannot be met. A digest of the request and the settings is the file's name. Since the indexes change,
//! both expire after [`TTL`]; offline a resolution is valid for as long as the file exists. With `--refresh`
//! ([`Settings::refreshed_since`](crate::Settings::refreshed_since)) nothing from before the start of the process is
//! used.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::atomic_file::write_atomically;
use crate::error::InstallError;
use crate::refusal::Refusal;
use crate::resolution::Resolution;
use crate::settings::Settings;

/// The lifetime of a cached resolution while an index is reachable, and of a refusal. It equals the usual lifetime of
/// index pages.
const TTL: Duration = Duration::from_secs(600);
/// The age at which unused files are deleted.
const MAX_UNUSED_AGE: Duration = Duration::from_secs(90 * 24 * 3600);
/// The format version, incremented when the meaning of the files changes.
const FORMAT: u32 = 5;

/// The directory of cached resolutions and refusals.
#[derive(Debug, Clone)]
pub(crate) struct ResolutionCache {
    directory: PathBuf,
    /// Files that were made before are ignored.
    not_before: Option<SystemTime>,
    /// Being offline is not part of keys, and makes requests fail that can be met otherwise.
    is_offline: bool,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct CachedResolution {
    format: u32,
    #[serde(rename = "made")]
    created: SystemTime,
    outcome: Result<Resolution, Refusal>,
}

impl ResolutionCache {
    pub(crate) fn new(settings: &Settings) -> Self {
        ResolutionCache {
            directory: settings.cache.root().join("resolutions"),
            not_before: settings.refreshed_since,
            is_offline: settings.offline,
        }
    }

    /// Returns the outcome for a key, unless it has expired. With `ignore_age`, resolutions do not expire, but refusals
    /// do.
    ///
    /// # Errors
    /// Returns the error of resolving the request, if that was stored.
    pub(crate) fn get(&self, key: &ResolutionKey, ignore_age: bool) -> Result<Option<Resolution>, InstallError> {
        let Some(cached) = self.read(key) else { return Ok(None) };
        // `elapsed` fails if the clock was set back. The outcome then counts as expired.
        let is_fresh = cached.created.elapsed().is_ok_and(|age| age < TTL);
        match cached.outcome {
            Ok(resolution) => Ok(Some(resolution).filter(|_| is_fresh || ignore_age)),
            Err(refusal) if is_fresh => Err(refusal.into()),
            Err(_) => Ok(None),
        }
    }

    /// Returns the stored error of a request that was refused less than `max_age` ago.
    pub(crate) fn refusal(&self, key: &ResolutionKey, max_age: Duration) -> Option<InstallError> {
        let cached = self.read(key)?;
        let is_fresh = cached.created.elapsed().is_ok_and(|age| age < max_age);
        cached.outcome.err().filter(|_| is_fresh).map(InstallError::from)
    }

    fn read(&self, key: &ResolutionKey) -> Option<CachedResolution> {
        let bytes = std::fs::read(self.path(key)).ok()?;
        let cached: CachedResolution = serde_json::from_slice(&bytes).ok()?;
        let is_usable = cached.format == FORMAT && self.not_before.is_none_or(|time| cached.created >= time);
        is_usable.then_some(cached)
    }

    /// Stores the outcome of resolving a request, unless it is an error that may not occur again, or an error while
    /// Belljar is offline.
    ///
    /// Errors of writing are ignored, since the user may have only read access to the cache.
    pub(crate) fn put(&self, key: &ResolutionKey, outcome: Result<&Resolution, &InstallError>) {
        let outcome = match outcome.map_err(Refusal::from_error) {
            Ok(resolution) => Ok(resolution.clone()),
            Err(Some(refusal)) => Err(refusal),
            Err(None) => return,
        };
        if outcome.is_err() && self.is_offline {
            return;
        }
        let cached = CachedResolution { format: FORMAT, created: SystemTime::now(), outcome };
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

    use std::time::{Duration, SystemTime};

    use super::{CachedResolution, FORMAT, Refusal, ResolutionCache, ResolutionKey, TTL};
    use crate::error::InstallError;
    use crate::platform::Platform;
    use crate::resolution::Resolution;
    use crate::settings::Settings;

    fn settings(directory: &tempfile::TempDir) -> Settings {
        Settings::new(Cache::open(Some(directory.path().into())).unwrap())
    }

    fn unknown() -> InstallError {
        InstallError::UnknownPackage { name: "rihc".into(), suggestions: vec!["rich".into()] }
    }

    #[test]
    fn stored_resolution_is_found_and_a_damaged_file_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let cache = ResolutionCache::new(&settings(&directory));
        let key = ResolutionKey::new(["rich"]);
        assert_eq!(cache.get(&key, true).unwrap(), None);
        let resolution = Resolution::new(&Platform::cpython_3_14(), Vec::new());
        cache.put(&key, Ok(&resolution));
        assert_eq!(cache.get(&key, false).unwrap(), Some(resolution));
        std::fs::write(cache.path(&key), "{").unwrap();
        assert_eq!(cache.get(&key, true).unwrap(), None);
    }

    #[test]
    fn refusal_is_found_until_it_expires() {
        let directory = tempfile::tempdir().unwrap();
        let cache = ResolutionCache::new(&settings(&directory));
        let key = ResolutionKey::new(["rihc"]);
        cache.put(&key, Err(&unknown()));
        assert_eq!(cache.get(&key, false).unwrap_err().to_string(), unknown().to_string());
        let created = SystemTime::now() - TTL - Duration::from_secs(1);
        let outcome = Err(Refusal::from_error(&unknown()).unwrap());
        cache.write(&key, &CachedResolution { format: FORMAT, created, outcome }).unwrap();
        assert_eq!(cache.get(&key, true).unwrap(), None);
    }

    #[test]
    fn errors_of_the_network_and_without_it_are_not_stored() {
        let directory = tempfile::tempdir().unwrap();
        let cache = ResolutionCache::new(&settings(&directory));
        let key = ResolutionKey::new(["rich"]);
        cache.put(&key, Err(&InstallError::Network { cause: "connection reset".into() }));
        let offline = ResolutionCache::new(&Settings { offline: true, ..settings(&directory) });
        offline.put(&key, Err(&unknown()));
        assert!(!cache.path(&key).exists());
    }

    #[test]
    fn refreshing_ignores_what_was_stored_before() {
        let directory = tempfile::tempdir().unwrap();
        let key = ResolutionKey::new(["rihc"]);
        ResolutionCache::new(&settings(&directory)).put(&key, Err(&unknown()));
        let refreshed_since = Some(SystemTime::now());
        let refreshing = ResolutionCache::new(&Settings { refreshed_since, ..settings(&directory) });
        assert_eq!(refreshing.get(&key, false).unwrap(), None);
        refreshing.put(&key, Err(&unknown()));
        assert!(refreshing.get(&key, false).is_err());
    }
}
