//! The result of a resolution: the chosen file of each package, with its hash.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::platform::Platform;

/// A set of pinned files, sorted by package name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    pinned: Vec<PinnedFile>,
    key: String,
    #[serde(rename = "absent")]
    missing: Vec<MissingPackage>,
}

/// A package that was inferred from an import and is not installed: it does not exist, or its name resembles that of a
/// well-known package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPackage {
    /// The normalised name.
    pub name: String,
    /// The error with its hint, as text.
    pub reason: String,
    /// True if the name resembles that of a well-known package.
    #[serde(default)]
    pub is_lookalike: bool,
}

/// A file of a resolution, identified by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedFile {
    /// The package's normalised name.
    pub name: String,
    /// The package's version.
    pub version: String,
    /// The file's name.
    pub filename: String,
    /// The file's SHA-256 in lower-case hexadecimal.
    pub sha256: String,
    /// The file's size in bytes, if the index gives it.
    pub size: Option<u64>,
    /// The kind of the file.
    pub kind: FileKind,
    /// The origin of the file.
    pub source: FileSource,
    /// The file's URL, without credentials.
    pub url: String,
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    /// A wheel.
    Wheel,
    /// A wheel for another platform, of which the compiled files are left out, since the package works without them.
    PythonOnly,
    /// A zip of shared libraries that some of Pyodide's wheels need.
    SharedLibrary,
}

/// The origin of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileSource {
    /// A package index.
    Index,
    /// A directory or page of wheels ([`Settings::find_links`](crate::Settings::find_links)).
    FindLinks,
    /// The files of a Pyodide release.
    Pyodide,
}

impl Resolution {
    pub(crate) fn new(platform: &Platform, mut pinned: Vec<PinnedFile>) -> Self {
        pinned.sort_by(|one, other| (&one.name, &one.filename).cmp(&(&other.name, &other.filename)));
        let mut digest = Sha256::new();
        digest.update(platform.fingerprint());
        for file in &pinned {
            digest.update([0]);
            digest.update(&file.filename);
            digest.update([0]);
            digest.update(&file.sha256);
        }
        let key = hex::encode(digest.finalize());
        Resolution { pinned, key, missing: Vec::new() }
    }

    pub(crate) fn with_missing(self, missing: Vec<MissingPackage>) -> Self {
        Resolution { missing, ..self }
    }

    /// Adds packages that were left out.
    pub(crate) fn and_missing(mut self, missing: Vec<MissingPackage>) -> Self {
        self.missing.extend(missing);
        self
    }

    /// Returns the inferred packages that were left out, with the reasons.
    pub fn missing(&self) -> &[MissingPackage] {
        &self.missing
    }

    /// Returns the files, sorted by package name.
    pub fn pinned(&self) -> &[PinnedFile] {
        &self.pinned
    }

    /// Returns whether the resolution has no files.
    pub fn is_empty(&self) -> bool {
        self.pinned.is_empty()
    }

    /// Returns a digest of the platform and of every file. Equal keys mean equal bytes.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the file of a package. `name` is normalised.
    pub fn get(&self, name: &str) -> Option<&PinnedFile> {
        self.pinned.iter().find(|file| file.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::{FileKind, FileSource, PinnedFile, Resolution};
    use crate::platform::Platform;

    fn pinned(name: &str, sha256: &str) -> PinnedFile {
        PinnedFile {
            name: name.into(),
            version: "1".into(),
            filename: format!("{name}-1-py3-none-any.whl"),
            sha256: sha256.into(),
            size: None,
            kind: FileKind::Wheel,
            source: FileSource::Index,
            url: String::new(),
        }
    }

    #[test]
    fn key_depends_on_the_files_but_not_on_their_order() {
        let platform = Platform::cpython_3_14();
        let one = Resolution::new(&platform, vec![pinned("a", "00"), pinned("b", "01")]);
        let other = Resolution::new(&platform, vec![pinned("b", "01"), pinned("a", "00")]);
        assert_eq!(one, other);
        assert_ne!(one.key(), Resolution::new(&platform, vec![pinned("a", "00"), pinned("b", "02")]).key());
    }
}
