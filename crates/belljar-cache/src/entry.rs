//! Entries that were found.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::CacheError;
use super::lock::EntryLock;
use super::manifest::Manifest;
use super::os::MemoryFile;
use super::sparse;

/// An entry whose files passed the integrity check.
#[derive(Debug)]
pub struct Entry {
    directory: PathBuf,
    manifest: Manifest,
    /// The files, if the entry is in memory because the cache cannot be written.
    memory: Option<Arc<MemoryFiles>>,
    /// The shared lock that prevents eviction, if the entry is pinned.
    _pin: Option<EntryLock>,
}

impl Entry {
    pub(crate) fn new(directory: PathBuf, manifest: Manifest) -> Self {
        Entry { directory, manifest, memory: None, _pin: None }
    }

    /// Returns an entry whose files are in memory. `directory` is its place in the cache, where it is not.
    pub(crate) fn in_memory(directory: PathBuf, manifest: Manifest, files: Arc<MemoryFiles>) -> Self {
        Entry { directory, manifest, memory: Some(files), _pin: None }
    }

    pub(crate) fn with_pin(self, pin: EntryLock) -> Self {
        Entry { _pin: Some(pin), ..self }
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Returns the path of one of the entry's files. The file can be opened as long as the entry or its cache exists.
    ///
    /// # Errors
    /// Returns an error if the entry has no such file.
    pub fn file(&self, name: &str) -> Result<PathBuf, CacheError> {
        let path = match &self.memory {
            Some(files) => files.path(name),
            None => self.manifest.files.contains_key(name).then(|| self.directory.join(name)),
        };
        path.ok_or_else(|| CacheError::NoSuchFile { directory: self.directory.clone(), name: name.to_owned() })
    }

    /// Returns the directory that contains the files. Other files in it are not part of the entry. Packed entries of a
    /// bundle may have no directory; their files have to be opened with [`Entry::file`].
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the names of the entry's files, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.manifest.files.keys().map(String::as_str)
    }
}

/// The files of an entry that is in this process's memory. They have paths while this value exists, also in processes
/// that are forked from this one.
#[derive(Debug)]
pub(crate) struct MemoryFiles(BTreeMap<String, MemoryFile>);

impl MemoryFiles {
    /// Copies files into memory.
    ///
    /// # Errors
    /// Fails if the system cannot create files in memory.
    pub(crate) fn new(files: &[(&str, &[u8])]) -> io::Result<Self> {
        let copy = |&(name, bytes): &(&str, &[u8])| {
            let mut file = MemoryFile::create()?;
            sparse::write(file.file(), bytes)?;
            Ok::<_, io::Error>((name.to_owned(), file))
        };
        Ok(MemoryFiles(files.iter().map(copy).collect::<io::Result<_>>()?))
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.0.get(name).map(MemoryFile::path)
    }
}
