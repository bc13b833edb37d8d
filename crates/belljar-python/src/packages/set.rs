//! Sets of wheels that are installed together.

use std::collections::BTreeSet;
use std::sync::Arc;

use belljar_emscripten::fs::Layer;
use sha2::{Digest, Sha256};

use super::reachable::ModulePaths;
use super::{InstalledWheel, WheelId, bytecode};

/// A key that identifies a set of wheels by their contents, in any order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetKey([u8; 32]);

impl SetKey {
    /// Computes the key of these wheels.
    pub fn from_wheels(ids: &[WheelId]) -> Self {
        let sorted: BTreeSet<&WheelId> = ids.iter().collect();
        let mut digest = Sha256::new();
        for id in sorted {
            for part in [&id.name, &id.version, &id.sha256] {
                digest.update((part.len() as u64).to_le_bytes());
                digest.update(part);
            }
        }
        Self(digest.finalize().into())
    }

    /// Returns the key as bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A set of wheels as layers, ready to be added to an interpreter. Cheap to clone.
#[derive(Clone)]
pub struct PackageSet {
    key: SetKey,
    wheels: Arc<[Arc<InstalledWheel>]>,
}

impl PackageSet {
    /// Returns a set without wheels.
    pub fn empty() -> Self {
        Self::new(Vec::new())
    }

    pub(crate) fn new(mut wheels: Vec<Arc<InstalledWheel>>) -> Self {
        wheels.sort_by(|one, other| one.id.cmp(&other.id));
        let ids: Vec<WheelId> = wheels.iter().map(|wheel| wheel.id.clone()).collect();
        Self { key: SetKey::from_wheels(&ids), wheels: wheels.into() }
    }

    /// Returns the union of both sets. Wheels of `other` replace those of the same name.
    pub(crate) fn with(&self, other: &Self) -> Self {
        let replaced = |wheel: &&Arc<InstalledWheel>| other.wheels.iter().any(|new| new.id.name == wheel.id.name);
        let kept = self.wheels.iter().filter(|wheel| !replaced(wheel));
        Self::new(kept.chain(other.wheels.iter()).cloned().collect())
    }

    /// Returns the key of the set.
    pub fn key(&self) -> &SetKey {
        &self.key
    }

    /// Returns the identities of the wheels, sorted by name.
    pub fn wheel_ids(&self) -> impl Iterator<Item = &WheelId> {
        self.wheels.iter().map(|wheel| &wheel.id)
    }

    /// Returns whether the set has no wheels.
    pub fn is_empty(&self) -> bool {
        self.wheels.is_empty()
    }

    /// Returns whether a wheel of the set provides the module `name` (dotted) or a package that contains it.
    pub fn provides(&self, name: &str) -> bool {
        let has = |module: &String| {
            name.strip_prefix(module.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.wheels.iter().any(|wheel| wheel.modules.iter().any(has))
    }

    /// Returns the layers of the wheels that `other` does not contain.
    pub fn layers_not_in(&self, other: &Self) -> impl Iterator<Item = &Arc<Layer>> {
        let has = |wheel: &&Arc<InstalledWheel>| !other.wheels.iter().any(|there| there.id == wheel.id);
        self.wheels.iter().filter(has).map(|wheel| &wheel.layer)
    }

    pub(crate) fn wheels(&self) -> &[Arc<InstalledWheel>] {
        &self.wheels
    }

    /// Returns the modules without bytecode that guests have imported from their sources since the last call: their
    /// paths, by wheel.
    pub(crate) fn take_uncompiled(&self) -> ModulePaths {
        let missed = |wheel: &Arc<InstalledWheel>| {
            wheel.layer.take_missed().iter().filter_map(|path| bytecode::source_of(path)).collect()
        };
        self.wheels.iter().map(missed).collect()
    }

    pub(crate) fn layers(&self) -> impl Iterator<Item = &Arc<Layer>> {
        self.wheels.iter().map(|wheel| &wheel.layer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, sha256: &str) -> WheelId {
        WheelId { name: name.into(), version: "1".into(), sha256: sha256.into() }
    }

    #[test]
    fn key_depends_on_the_wheels_not_their_order() {
        let key = SetKey::from_wheels(&[id("a", "0"), id("b", "1")]);
        assert_eq!(key, SetKey::from_wheels(&[id("b", "1"), id("a", "0")]));
        assert_ne!(key, SetKey::from_wheels(&[id("a", "0"), id("b", "2")]));
        assert_ne!(key, SetKey::from_wheels(&[id("a", "0")]));
    }
}
