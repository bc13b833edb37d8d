//! `pyodide-lock.json`: the wheels that were built for a Pyodide release.
//!
//! Format: <https://pyodide.org/en/stable/development/abi.html> and Pyodide's `pyodide-lock` library. The kinds of
//! entries are used as follows:
//! - wheels for the platform are offered to the resolver, with their `depends` as metadata;
//! - pure wheels only give preferred versions, since the index has the same versions with another hash;
//! - shared libraries (zips) are added to the resolution of the wheels that list them in `depends`;
//! - tests that were split off from packages (zips too) are ignored.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::Url;
use uv_normalize::PackageName;

use crate::error::{InstallError, Setting};
use crate::resolution::{FileKind, FileSource, PinnedFile};
use crate::settings::PyodideSource;

/// The maximum size of a lock file. The file of 2026 has 120 KB.
const MAX_BYTES: u64 = 16 << 20;

/// The installable entries of a lock, by normalised name.
#[derive(Debug)]
pub(crate) struct PyodideLock {
    packages: BTreeMap<String, Entry>,
    /// Maps import names to normalised package names.
    imports: HashMap<String, String>,
    /// A digest of the lock's bytes and the base URL.
    pub(crate) digest: String,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) version: String,
    pub(crate) filename: String,
    pub(crate) url: Url,
    pub(crate) sha256: String,
    /// The normalised names of its dependencies.
    pub(crate) depends: Vec<String>,
    pub(crate) kind: EntryKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A wheel with compiled code.
    Compiled,
    /// A wheel for any platform.
    Pure,
    SharedLibrary,
}

#[derive(Deserialize)]
struct LockFile {
    packages: BTreeMap<String, LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    file_name: String,
    sha256: String,
    #[serde(default)]
    package_type: String,
    #[serde(default)]
    depends: Vec<String>,
    #[serde(default)]
    imports: Vec<String>,
}

impl PyodideLock {
    pub(crate) fn read(source: &PyodideSource) -> Result<Self, InstallError> {
        let failed = |error| InstallError::Io { action: "read", path: source.lock.clone(), source: error };
        if std::fs::metadata(&source.lock).map_err(failed)?.len() > MAX_BYTES {
            return Err(unreadable(&source.lock, "it is too large"));
        }
        let bytes = std::fs::read(&source.lock).map_err(failed)?;
        let base = base_url(&source.base_url)?;
        let lock: LockFile =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(&source.lock, &error.to_string()))?;
        let mut digest = Sha256::new();
        digest.update(base.as_str());
        digest.update([0]);
        digest.update(&bytes);
        let mut read =
            PyodideLock { packages: BTreeMap::new(), imports: HashMap::new(), digest: hex::encode(digest.finalize()) };
        for package in lock.packages.into_values() {
            read.add(package, &base);
        }
        Ok(read)
    }

    /// Adds an entry, unless it cannot be installed.
    fn add(&mut self, package: LockedPackage, base: &Url) {
        let Some(name) = normalised(&package.name) else { return };
        let Ok(url) = base.join(&package.file_name) else { return };
        let Some(filename) = url.path_segments().and_then(|mut segments| segments.next_back()).map(str::to_owned)
        else {
            return;
        };
        let kind = match (package.package_type.as_str(), filename.ends_with(".whl")) {
            ("shared_library", false) => EntryKind::SharedLibrary,
            (_, true) if filename.ends_with("-none-any.whl") => EntryKind::Pure,
            (_, true) => EntryKind::Compiled,
            // Tests that were split off, libraries of other kinds.
            (_, false) => return,
        };
        let sha256 = package.sha256.to_ascii_lowercase();
        if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            tracing::debug!(package = name, "the lock gives no SHA-256");
            return;
        }
        if kind != EntryKind::SharedLibrary {
            for import in &package.imports {
                self.imports.entry(import.clone()).or_insert_with(|| name.clone());
            }
        }
        let depends = package.depends.iter().filter_map(|name| normalised(name)).collect();
        self.packages.insert(name, Entry { version: package.version, filename, url, sha256, depends, kind });
    }

    /// Returns the package that provides a module.
    pub(crate) fn distribution_of(&self, import: &str) -> Option<&str> {
        self.imports.get(import).map(String::as_str)
    }

    /// Returns the names of all packages.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.packages.keys().map(String::as_str)
    }

    /// Returns the wheels of both kinds, for the resolver.
    pub(crate) fn wheels(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.packages
            .iter()
            .filter(|(_, entry)| entry.kind != EntryKind::SharedLibrary)
            .map(|(name, entry)| (name.as_str(), entry))
    }

    /// Returns the wheel of a package.
    pub(crate) fn wheel(&self, name: &str) -> Option<&Entry> {
        self.packages.get(name).filter(|entry| entry.kind != EntryKind::SharedLibrary)
    }

    /// Returns the packages that a wheel depends on, without the shared libraries.
    pub(crate) fn required_packages<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = &'a str> {
        let library = |name: &str| self.packages.get(name).is_some_and(|entry| entry.kind == EntryKind::SharedLibrary);
        entry.depends.iter().map(String::as_str).filter(move |name| !library(name))
    }

    /// Returns the shared libraries that these wheels depend on, directly or through another library.
    pub(crate) fn shared_libraries<'a>(&self, wheels: impl Iterator<Item = &'a PinnedFile>) -> Vec<PinnedFile> {
        let mut open: Vec<&str> = Vec::new();
        // Compare by hash, since the same file may also come from a directory.
        for wheel in wheels {
            if let Some(entry) = self.packages.get(&wheel.name).filter(|entry| entry.sha256 == wheel.sha256) {
                open.extend(entry.depends.iter().map(String::as_str));
            }
        }
        let mut seen = BTreeSet::new();
        let mut libraries = Vec::new();
        while let Some(name) = open.pop() {
            let Some(entry) = self.packages.get(name).filter(|entry| entry.kind == EntryKind::SharedLibrary) else {
                continue;
            };
            if seen.insert(name) {
                open.extend(entry.depends.iter().map(String::as_str));
                libraries.push(PinnedFile {
                    name: name.to_owned(),
                    version: entry.version.clone(),
                    filename: entry.filename.clone(),
                    sha256: entry.sha256.clone(),
                    size: None,
                    kind: FileKind::SharedLibrary,
                    source: FileSource::Pyodide,
                    url: entry.url.to_string(),
                });
            }
        }
        libraries
    }

    /// Returns the compiled wheels as a page of links (PEP 503), the form in which uv accepts wheels without an index.
    pub(crate) fn links_page(&self) -> String {
        let mut page = String::from("<!DOCTYPE html>\n<html><body>\n");
        for entry in self.packages.values().filter(|entry| entry.kind == EntryKind::Compiled) {
            // URLs and normalised file names contain neither quotes nor angle brackets.
            let _ = writeln!(page, "<a href=\"{}#sha256={}\">{}</a>", entry.url, entry.sha256, entry.filename);
        }
        page.push_str("</body></html>\n");
        page
    }
}

/// Parses a base URL, adding the trailing slash that makes file names relative to it.
fn base_url(text: &str) -> Result<Url, InstallError> {
    let slash = if text.ends_with('/') { "" } else { "/" };
    Url::parse(&format!("{text}{slash}")).map_err(|error| InstallError::Setting {
        setting: Setting::PyodideUrl,
        value: text.to_owned(),
        reason: error.to_string(),
    })
}

fn normalised(name: &str) -> Option<String> {
    PackageName::from_str(name).ok().map(|name| name.to_string())
}

fn unreadable(path: &Path, reason: &str) -> InstallError {
    let value = path.display().to_string();
    InstallError::Setting { setting: Setting::PyodideLock, value, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{EntryKind, PyodideLock};
    use crate::resolution::{FileKind, FileSource, PinnedFile};
    use crate::settings::PyodideSource;

    fn lock(text: &str) -> PyodideLock {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pyodide-lock.json");
        std::fs::write(&path, text).unwrap();
        PyodideLock::read(&PyodideSource { lock: path, base_url: "https://cdn.example/v1/full".into() }).unwrap()
    }

    fn entry(name: &str, file: &str, kind: &str, depends: &str, imports: &str) -> String {
        let sha256 = "0".repeat(64);
        format!(
            r#""{name}": {{"name": "{name}", "version": "1.0", "file_name": "{file}", "package_type": "{kind}",
            "sha256": "{sha256}", "depends": [{depends}], "imports": [{imports}], "install_dir": "site"}}"#
        )
    }

    fn example() -> PyodideLock {
        lock(&format!(
            r#"{{"info": {{}}, "packages": {{{}, {}, {}, {}, {}}}}}"#,
            entry(
                "Scipy",
                "scipy-1.0-cp314-cp314-pyemscripten_2026_0_wasm32.whl",
                "package",
                r#""numpy", "libsuite""#,
                r#""scipy""#
            ),
            entry("six", "six-1.0-py2.py3-none-any.whl", "package", "", r#""six""#),
            entry("libsuite", "libsuite-1.zip", "shared_library", r#""libblas""#, ""),
            entry("libblas", "libblas-1.zip", "shared_library", "", ""),
            entry("six-tests", "six-tests.zip", "package", "", r#""six""#),
        ))
    }

    #[test]
    fn lock_is_parsed_into_entries_of_the_right_kind() {
        let lock = example();
        assert_eq!(lock.names().collect::<Vec<_>>(), ["libblas", "libsuite", "scipy", "six"]);
        assert_eq!(lock.packages["scipy"].kind, EntryKind::Compiled);
        assert_eq!(lock.packages["six"].kind, EntryKind::Pure);
        assert_eq!(lock.distribution_of("six"), Some("six"));
        let required: Vec<_> = lock.required_packages(&lock.packages["scipy"]).collect();
        assert_eq!(required, ["numpy"]);
    }

    #[test]
    fn only_compiled_wheels_are_offered_to_the_resolver() {
        let page = example().links_page();
        assert!(page.contains("https://cdn.example/v1/full/scipy-1.0-cp314"), "{page}");
        assert_eq!(page.matches("<a ").count(), 1, "{page}");
    }

    #[test]
    fn wheels_bring_the_shared_libraries_that_they_depend_on() {
        let lock = example();
        let wheel = PinnedFile {
            name: "scipy".into(),
            version: "1.0".into(),
            filename: "scipy-1.0-cp314-cp314-pyemscripten_2026_0_wasm32.whl".into(),
            sha256: "0".repeat(64),
            size: None,
            kind: FileKind::Wheel,
            source: FileSource::Pyodide,
            url: String::new(),
        };
        let names: Vec<_> = lock.shared_libraries([&wheel].into_iter()).into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["libsuite", "libblas"]);
        let from_directory = PinnedFile { source: FileSource::FindLinks, ..wheel.clone() };
        assert_eq!(lock.shared_libraries([&from_directory].into_iter()).len(), 2);
        let from_index = PinnedFile { sha256: "1".repeat(64), ..wheel };
        assert!(lock.shared_libraries([&from_index].into_iter()).is_empty());
    }
}
