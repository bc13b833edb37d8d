//! Wheels that are installed together.

use std::collections::BTreeSet;
use std::sync::Arc;

use belljar_emscripten::fs::Layer;
use sha2::{Digest, Sha256};

use super::{InstalledWheel, Member};

/// Names a set of wheels by their contents: equal for equal sets, in whatever order they came.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetKey([u8; 32]);

impl SetKey {
    /// The key of these wheels.
    pub fn of(members: &[Member]) -> Self {
        let sorted: BTreeSet<&Member> = members.iter().collect();
        let mut digest = Sha256::new();
        for member in sorted {
            for part in [&member.name, &member.version, &member.sha256] {
                digest.update((part.len() as u64).to_le_bytes());
                digest.update(part);
            }
        }
        Self(digest.finalize().into())
    }

    /// The key as bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Wheels as layers, ready to be put under an interpreter. Cheap to clone.
#[derive(Clone)]
pub struct PackageSet {
    key: SetKey,
    wheels: Arc<[Arc<InstalledWheel>]>,
}

impl PackageSet {
    /// No wheels at all.
    pub fn none() -> Self {
        Self::new(Vec::new())
    }

    pub(crate) fn new(mut wheels: Vec<Arc<InstalledWheel>>) -> Self {
        wheels.sort_by(|one, other| one.member.cmp(&other.member));
        let members: Vec<Member> = wheels.iter().map(|wheel| wheel.member.clone()).collect();
        Self { key: SetKey::of(&members), wheels: wheels.into() }
    }

    /// These wheels, and those of `other`, which take the place of ours of the same name.
    pub(crate) fn with(&self, other: &Self) -> Self {
        let replaced =
            |wheel: &&Arc<InstalledWheel>| other.wheels.iter().any(|new| new.member.name == wheel.member.name);
        let kept = self.wheels.iter().filter(|wheel| !replaced(wheel));
        Self::new(kept.chain(other.wheels.iter()).cloned().collect())
    }

    /// What the set is known by.
    pub fn key(&self) -> &SetKey {
        &self.key
    }

    /// The wheels, sorted by name.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.wheels.iter().map(|wheel| &wheel.member)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.wheels.is_empty()
    }

    /// Whether the module `name`, dotted, is one of the set's, or in a package of it.
    pub fn provides(&self, name: &str) -> bool {
        let has = |module: &String| {
            name.strip_prefix(module.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.wheels.iter().any(|wheel| wheel.modules.iter().any(has))
    }

    /// The layers of the wheels that `other` does not have.
    pub fn layers_beside(&self, other: &Self) -> impl Iterator<Item = &Arc<Layer>> {
        let has = |wheel: &&Arc<InstalledWheel>| !other.wheels.iter().any(|there| there.member == wheel.member);
        self.wheels.iter().filter(has).map(|wheel| &wheel.layer)
    }

    pub(crate) fn wheels(&self) -> &[Arc<InstalledWheel>] {
        &self.wheels
    }

    pub(crate) fn layers(&self) -> impl Iterator<Item = &Arc<Layer>> {
        self.wheels.iter().map(|wheel| &wheel.layer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, sha256: &str) -> Member {
        Member { name: name.into(), version: "1".into(), sha256: sha256.into() }
    }

    #[test]
    fn a_set_is_known_by_its_members_and_not_by_their_order() {
        let key = SetKey::of(&[member("a", "0"), member("b", "1")]);
        assert_eq!(key, SetKey::of(&[member("b", "1"), member("a", "0")]));
        assert_ne!(key, SetKey::of(&[member("a", "0"), member("b", "2")]));
        assert_ne!(key, SetKey::of(&[member("a", "0")]));
    }
}
