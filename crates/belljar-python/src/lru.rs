//! A least-recently-used cache, bounded by the number of its entries and by their total weight.

use std::collections::HashMap;
use std::hash::Hash;

/// A map that evicts the least recently used entries.
///
/// Both bounds apply at once. The entry that was inserted last is kept even if it exceeds the maximum weight by itself,
/// since the caller has just built it and will use it again. There are at most a few hundred entries, so that searching
/// all of them for an eviction takes no noticeable time.
///
/// `quick_cache` and `moka` apply one bound, and may refuse the entry that was just inserted.
pub(crate) struct LruCache<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// The number of uses so far, which serves as the clock.
    uses: u64,
    max_entries: usize,
    max_weight: u64,
}

struct Entry<V> {
    value: V,
    weight: u64,
    last_use: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> LruCache<K, V> {
    /// Creates a cache of at most `max_entries` entries (at least one) with a total weight of at most `max_weight`.
    pub(crate) fn new(max_entries: usize, max_weight: u64) -> Self {
        Self { entries: HashMap::new(), uses: 0, max_entries: max_entries.max(1), max_weight }
    }

    /// Returns the value of `key`, and marks it as used.
    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        entry.last_use = self.uses;
        Some(entry.value.clone())
    }

    /// Inserts a value, and evicts other entries until the bounds hold.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: u64) {
        self.uses += 1;
        self.entries.insert(key, Entry { value, weight, last_use: self.uses });
        while self.entries.len() > 1 && (self.entries.len() > self.max_entries || self.weight() > self.max_weight) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_use).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            self.entries.remove(&oldest);
        }
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    fn weight(&self) -> u64 {
        self.entries.values().map(|entry| entry.weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::LruCache;

    #[test]
    fn least_recently_used_entry_is_evicted_when_full() {
        let mut cache = LruCache::new(2, u64::MAX);
        cache.insert("a", 1, 0);
        cache.insert("b", 2, 0);
        cache.get(&"a");
        cache.insert("c", 3, 0);
        assert_eq!((cache.get(&"a"), cache.get(&"b"), cache.get(&"c")), (Some(1), None, Some(3)));
    }

    #[test]
    fn last_entry_is_kept_even_if_too_heavy() {
        let mut cache = LruCache::new(9, 10);
        cache.insert("a", 1, 6);
        cache.insert("b", 2, 4);
        assert_eq!((cache.get(&"a"), cache.get(&"b")), (Some(1), Some(2)));
        cache.insert("c", 3, 99);
        assert_eq!((cache.get(&"a"), cache.get(&"b"), cache.get(&"c")), (None, None, Some(3)));
    }
}
