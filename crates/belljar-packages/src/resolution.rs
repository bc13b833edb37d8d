//! A resolved set: which file of which version of each package, by hash.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::platform::Platform;

/// What came of resolving: pinned files, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    pinned: Vec<Pinned>,
    key: String,
    absent: Vec<Absent>,
}

/// A package that imports seemed to ask for, and that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Its normalised name.
    pub name: String,
    /// What was found instead, in words to act on.
    pub reason: String,
}

/// One file of a resolution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// The package's normalised name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The file's name.
    pub filename: String,
    /// sha256 of the file, in lower-case hexadecimal.
    pub sha256: String,
    /// The file's size in bytes, where the index tells it.
    pub size: Option<u64>,
    /// What the file is.
    pub kind: Kind,
    /// Where it comes from.
    pub source: Source,
    /// Its address, without credentials.
    pub url: String,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A wheel.
    Wheel,
    /// A wheel for another platform, of which only what is not compiled is used: the package can do without.
    PythonOnly,
    /// A zip of shared libraries that some of Pyodide's wheels need.
    SharedLibrary,
}

/// Where a file comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Source {
    /// A package index.
    Index,
    /// A directory or page of wheels (`--find-links`).
    FindLinks,
    /// The files of a Pyodide release.
    Pyodide,
}

impl Resolution {
    pub(crate) fn new(platform: &Platform, mut pinned: Vec<Pinned>) -> Self {
        pinned.sort_by(|one, other| (&one.name, &one.filename).cmp(&(&other.name, &other.filename)));
        let mut digest = Sha256::new();
        digest.update(platform.fingerprint());
        for file in &pinned {
            digest.update([0]);
            digest.update(&file.filename);
            digest.update([0]);
            digest.update(&file.sha256);
        }
        let key = hexadecimal(&digest.finalize());
        Resolution { pinned, key, absent: Vec::new() }
    }

    pub(crate) fn without(self, absent: Vec<Absent>) -> Self {
        Resolution { absent, ..self }
    }

    /// What was left out because no package has that name.
    pub fn absent(&self) -> &[Absent] {
        &self.absent
    }

    /// The files, sorted by package name.
    pub fn pinned(&self) -> &[Pinned] {
        &self.pinned
    }

    /// Whether nothing is needed.
    pub fn is_empty(&self) -> bool {
        self.pinned.is_empty()
    }

    /// A digest of the platform and of every file: equal keys, equal bytes.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The file of a package. `name` is normalised.
    pub fn get(&self, name: &str) -> Option<&Pinned> {
        self.pinned.iter().find(|file| file.name == name)
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Kind, Pinned, Resolution, Source};
    use crate::platform::Platform;

    fn pinned(name: &str, sha256: &str) -> Pinned {
        Pinned {
            name: name.into(),
            version: "1".into(),
            filename: format!("{name}-1-py3-none-any.whl"),
            sha256: sha256.into(),
            size: None,
            kind: Kind::Wheel,
            source: Source::Index,
            url: String::new(),
        }
    }

    #[test]
    fn the_key_depends_on_the_files_and_not_on_their_order() {
        let platform = Platform::cpython_3_14();
        let one = Resolution::new(&platform, vec![pinned("a", "00"), pinned("b", "01")]);
        let other = Resolution::new(&platform, vec![pinned("b", "01"), pinned("a", "00")]);
        assert_eq!(one, other);
        assert_ne!(one.key(), Resolution::new(&platform, vec![pinned("a", "00"), pinned("b", "02")]).key());
    }
}
