//! Counts the uses of the cache's entries by this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_core::{CacheStatistics, CacheUses};
use parking_lot::Mutex;

use super::{Cache, CacheError, EntryKey};

/// The number of uses by kind of entry. Clones share the numbers. A use reads files, so that counting it costs nothing
/// in comparison.
#[derive(Debug, Clone, Default)]
pub(crate) struct UseCounts(Arc<Mutex<BTreeMap<&'static str, CacheUses>>>);

impl UseCounts {
    pub(crate) fn count_lookup(&self, key: &EntryKey, is_hit: bool) {
        let mut uses = self.0.lock();
        let uses = uses.entry(key.kind()).or_default();
        if is_hit { uses.hits += 1 } else { uses.misses += 1 }
    }

    pub(crate) fn count_build(&self, key: &EntryKey) {
        self.0.lock().entry(key.kind()).or_default().builds += 1;
    }
}

impl Cache {
    /// Returns the uses of this handle and its clones, and the size of the cache. Reads the manifest of each entry.
    ///
    /// # Errors
    /// Fails if the cache cannot be read.
    pub fn statistics(&self) -> Result<CacheStatistics, CacheError> {
        let usage = self.usage()?;
        let bytes = usage.iter().map(|entry| entry.bytes).sum();
        Ok(CacheStatistics { uses: self.uses.0.lock().clone(), entries: usage.len() as u64, bytes })
    }
}
