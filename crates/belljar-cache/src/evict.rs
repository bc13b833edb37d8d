//! Eviction: deletes the least recently used entries to make room.

use std::time::SystemTime;

use super::lock::EntryLock;
use super::usage::EntryUsage;
use super::{Cache, CacheError};

/// The totals of what [`Cache::evict`] deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Eviction {
    /// The number of entries.
    pub entries: usize,
    /// The size of their files in bytes.
    pub bytes: u64,
}

impl Cache {
    /// Deletes entries of `kinds`, the least recently used first, until the remaining ones have at most `max_bytes`.
    ///
    /// Entries that a process is creating or verifying, or has pinned ([`Cache::get_pinned`]), are kept, as are entries
    /// used since this call began. Any number of processes may evict at the same time.
    ///
    /// # Errors
    /// Fails if the cache cannot be read. Entries that cannot be deleted are skipped.
    pub fn evict(&self, kinds: &[&str], max_bytes: u64) -> Result<Eviction, CacheError> {
        let mut entries = self.usage()?;
        entries.retain(|entry| kinds.contains(&entry.kind()));
        let mut remaining: u64 = entries.iter().map(|entry| entry.bytes).sum();
        entries.sort_by(|one, other| (one.last_used, &one.name).cmp(&(other.last_used, &other.name)));
        let mut evicted = Eviction::default();
        for entry in entries {
            if remaining <= max_bytes {
                break;
            }
            let Some(_lock) = EntryLock::try_lock_exclusive(&self.root, &entry.name) else { continue };
            if self.last_used(&entry.name) != Some(entry.last_used) {
                continue;
            }
            match self.discard(&entry.name) {
                Ok(()) => {
                    tracing::debug!(entry = entry.name, bytes = entry.bytes, "evicted from the cache");
                    remaining = remaining.saturating_sub(entry.bytes);
                    evicted.entries += 1;
                    evicted.bytes += entry.bytes;
                }
                Err(error) => tracing::warn!(entry = entry.name, %error, "failed to delete a cache entry"),
            }
        }
        Ok(evicted)
    }

    /// Returns the time of an entry's last use, or `None` if the entry no longer exists.
    fn last_used(&self, name: &str) -> Option<SystemTime> {
        self.entries().join(name).join(super::manifest::MANIFEST).metadata().ok()?.modified().ok()
    }
}

impl EntryUsage {
    /// Returns the entry's kind, which is the first part of its name.
    pub fn kind(&self) -> &str {
        self.name.split_once('-').map_or(self.name.as_str(), |(kind, _)| kind)
    }
}
