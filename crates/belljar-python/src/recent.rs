//! What was used last, up to a number of things and a weight of all of them.

use std::collections::HashMap;
use std::hash::Hash;

/// A map that forgets what was used least recently.
pub(crate) struct Recent<K, V> {
    entries: HashMap<K, Kept<V>>,
    /// Counts uses.
    now: u64,
    most: usize,
    heaviest: u64,
}

struct Kept<V> {
    value: V,
    weight: u64,
    used: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Recent<K, V> {
    /// Keeps at most `most` things that weigh at most `heaviest` together, and the last one whatever it weighs.
    pub(crate) fn new(most: usize, heaviest: u64) -> Self {
        Self { entries: HashMap::new(), now: 0, most: most.max(1), heaviest }
    }

    /// Uses the thing under `key`.
    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        self.now += 1;
        let kept = self.entries.get_mut(key)?;
        kept.used = self.now;
        Some(kept.value.clone())
    }

    /// Keeps a thing, and forgets as many others as that takes.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: u64) {
        self.now += 1;
        self.entries.insert(key, Kept { value, weight, used: self.now });
        while self.entries.len() > 1 && (self.entries.len() > self.most || self.weight() > self.heaviest) {
            let oldest = self.entries.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            self.entries.remove(&oldest);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    fn weight(&self) -> u64 {
        self.entries.values().map(|kept| kept.weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;

    #[test]
    fn the_least_recently_used_is_forgotten_when_there_are_too_many() {
        let mut recent = Recent::new(2, u64::MAX);
        recent.insert("a", 1, 0);
        recent.insert("b", 2, 0);
        recent.get(&"a");
        recent.insert("c", 3, 0);
        assert_eq!((recent.get(&"a"), recent.get(&"b"), recent.get(&"c")), (Some(1), None, Some(3)));
    }

    #[test]
    fn what_is_too_heavy_together_is_forgotten_but_never_the_last() {
        let mut recent = Recent::new(9, 10);
        recent.insert("a", 1, 6);
        recent.insert("b", 2, 4);
        assert_eq!((recent.get(&"a"), recent.get(&"b")), (Some(1), Some(2)));
        recent.insert("c", 3, 99);
        assert_eq!((recent.get(&"a"), recent.get(&"b"), recent.get(&"c")), (None, None, Some(3)));
    }
}
