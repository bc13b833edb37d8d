//! Bundles: directories of entries that are installed together with the program.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::manifest::{MANIFEST, Manifest};
use super::{Cache, CacheError, Entry, EntryKey};

/// The names of the entries that were looked up. Clones of a cache share it.
pub(crate) type Recorder = Arc<Mutex<BTreeSet<String>>>;

impl Cache {
    /// Returns the same cache with a bundle, which is searched first.
    #[must_use]
    pub fn with_bundle(self, bundle: Option<PathBuf>) -> Self {
        Cache { bundle, ..self }
    }

    /// Returns the same cache, which records the entries that are looked up, for [`Cache::write_bundle`].
    #[must_use]
    pub fn recording(self) -> Self {
        Cache { recorder: Some(Recorder::default()), ..self }
    }

    /// Returns whether the bundle contains the entry for a key.
    pub fn is_bundled(&self, key: &EntryKey) -> bool {
        self.find_bundled(key).is_some()
    }

    /// Returns the bundle's entry for a key. An entry with a file of another size is not used.
    pub(crate) fn find_bundled(&self, key: &EntryKey) -> Option<Entry> {
        let directory = self.bundle.as_ref()?.join(key.directory_name());
        let manifest = Manifest::read(&File::open(directory.join(MANIFEST)).ok()?).ok().flatten();
        match manifest {
            Some(manifest) if manifest.has_sizes(&directory) => Some(Entry { directory, manifest, _pin: None }),
            _ => {
                tracing::warn!(entry = %directory.display(), "the installation of belljar is incomplete");
                None
            }
        }
    }

    /// Records a lookup.
    pub(crate) fn record(&self, key: &EntryKey) {
        if let Some(recorder) = &self.recorder {
            recorder.lock().insert(key.directory_name());
        }
    }

    /// Copies those entries that were looked up, and whose kind is one of `kinds`, into a new directory, which becomes
    /// a bundle. Requires [`Cache::recording`]. `left_out` are kinds of entries with the names of files that the bundle
    /// does not need.
    ///
    /// # Errors
    /// Fails if a file cannot be read or written.
    pub fn write_bundle(&self, kinds: &[&str], left_out: &[(&str, &str)], target: &Path) -> Result<(), CacheError> {
        let recorder = self.recorder.clone().unwrap_or_default();
        let names = recorder.lock().clone();
        let is_wanted =
            |name: &&String| kinds.iter().any(|kind| name.rsplit_once('-').is_some_and(|(k, _)| k == *kind));
        for name in names.iter().filter(is_wanted) {
            let source = self.entries().join(name);
            let Ok(file) = File::open(source.join(MANIFEST)) else { continue };
            let Some(mut manifest) = Manifest::read(&file).map_err(CacheError::io("read", &source))? else { continue };
            let kind = name.rsplit_once('-').map_or("", |(kind, _)| kind);
            manifest.files.retain(|file, _| !left_out.contains(&(kind, file)));
            let directory = target.join(name);
            let failed = |error| CacheError::writing(&directory, None, error);
            fs::create_dir_all(&directory).map_err(failed)?;
            for file in manifest.files.keys() {
                fs::copy(source.join(file), directory.join(file)).map_err(failed)?;
            }
            let bytes = manifest.without_stamps().to_bytes().map_err(failed)?;
            fs::write(directory.join(MANIFEST), bytes).map_err(failed)?;
        }
        Ok(())
    }
}
