//! Making room: what was used least recently goes first.

use std::time::SystemTime;

use super::lock::EntryLock;
use super::usage::EntryUsage;
use super::{Cache, CacheError};

/// What [`Cache::evict`] deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Entries.
    pub entries: usize,
    /// Bytes of their files.
    pub bytes: u64,
}

impl Cache {
    /// Deletes entries of `kinds` until those that are left have at most `max_bytes`, the least recently used first.
    ///
    /// An entry that a process is making, examining or holding ([`Cache::hold`]) stays, as does one that was used since
    /// this began. Any number of processes may do this at once.
    ///
    /// # Errors
    /// When the cache cannot be read. An entry that cannot be deleted is passed over.
    pub fn evict(&self, kinds: &[&str], max_bytes: u64) -> Result<Evicted, CacheError> {
        let mut entries = self.usage()?;
        entries.retain(|entry| kinds.contains(&entry.kind()));
        let mut left: u64 = entries.iter().map(|entry| entry.bytes).sum();
        entries.sort_by(|one, other| (one.last_used, &one.name).cmp(&(other.last_used, &other.name)));
        let mut evicted = Evicted::default();
        for entry in entries {
            if left <= max_bytes {
                break;
            }
            let Some(_lock) = EntryLock::try_take(&self.root, &entry.name) else { continue };
            if self.last_used(&entry.name) != Some(entry.last_used) {
                continue;
            }
            match self.discard(&entry.name) {
                Ok(()) => {
                    tracing::debug!(entry = entry.name, bytes = entry.bytes, "evicted from the cache");
                    left = left.saturating_sub(entry.bytes);
                    evicted.entries += 1;
                    evicted.bytes += entry.bytes;
                }
                Err(error) => tracing::warn!(entry = entry.name, %error, "a cache entry cannot be deleted"),
            }
        }
        Ok(evicted)
    }

    /// When an entry was last used; `None` if it is gone.
    fn last_used(&self, name: &str) -> Option<SystemTime> {
        self.entries().join(name).join(super::manifest::MANIFEST).metadata().ok()?.modified().ok()
    }
}

impl EntryUsage {
    /// The entry's kind: the first part of its name.
    pub fn kind(&self) -> &str {
        self.name.split_once('-').map_or(self.name.as_str(), |(kind, _)| kind)
    }
}
