//! Packs: entries of a bundle that are compressed together, and unpacked into the cache when one of them is first
//! looked up. A bundle has at most one pack.
//!
//! | file of the bundle | contents |
//! | --- | --- |
//! | `packed/index.json` | [`Index`] |
//! | `packed/entries.zst` | the files of these entries, by the names of entries and files, as one frame of zstd |
//!
//! The frame is the difference to another file of the bundle: zstd finds repetitions of that file, too. An image that
//! was built from another one takes two fifths of the space in this way.
//!
//! Unpacked entries are compared with the hashes in the index. A pack that does not match is not used any more by this
//! process, and its entries are created as if there were no bundle. If the cache cannot be written, they are unpacked
//! into memory, once for each process.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, DParameter};

use super::entry::MemoryFiles;
use super::lock::EntryLock;
use super::manifest::Manifest;
use super::{Cache, CacheError, Entry, EntryKey, NewEntry};

const DIRECTORY: &str = "packed";
const INDEX: &str = "index.json";
const ENTRIES: &str = "entries.zst";
/// The zstd level: packs are written once, for each release, and are downloaded by each user.
const LEVEL: i32 = 19;
/// The bounds of the binary logarithm of zstd's window, which contains the whole input if possible.
const MIN_WINDOW: u32 = 20;
const MAX_WINDOW: u32 = 30;
/// The maximum size of the unpacked files, in bytes.
const MAX_CONTENT: u64 = 1 << 30;

/// The index of a pack.
#[derive(Debug, Serialize, Deserialize)]
struct Index {
    /// The path in the bundle of the file that the entries resemble.
    resembled: String,
    /// The manifests of the entries, by their names.
    entries: BTreeMap<String, Manifest>,
}

/// The pack of a bundle, which may be missing.
#[derive(Debug)]
pub(crate) struct Pack {
    bundle: PathBuf,
    /// Read when an entry is first looked up that the bundle does not contain otherwise.
    index: OnceLock<Option<Index>>,
    is_damaged: AtomicBool,
    /// The entries that could not be written to the cache.
    in_memory: Mutex<BTreeMap<String, Arc<MemoryFiles>>>,
}

/// An error of unpacking.
#[derive(Debug, thiserror::Error)]
enum UnpackError {
    /// The contents do not match the index.
    #[error("`{0}` differs from its recorded content")]
    Differs(String),
    /// The contents cannot be read.
    #[error("failed to read its packed entries: {0}")]
    Read(io::Error),
    /// Neither the cache nor memory can be written.
    #[error("failed to create files in memory: {0}")]
    Memory(io::Error),
    /// An entry cannot be written to the cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

impl Pack {
    pub(crate) fn new(bundle: &Path) -> Self {
        let (index, is_damaged, in_memory) = (OnceLock::new(), AtomicBool::new(false), Mutex::default());
        Pack { bundle: bundle.to_owned(), index, is_damaged, in_memory }
    }

    /// Returns the index if the pack contains the entry with this name.
    fn index_with(&self, name: &str) -> Option<&Index> {
        let read = || {
            let bytes = fs::read(self.bundle.join(DIRECTORY).join(INDEX)).ok()?;
            let index: Option<Index> = serde_json::from_slice(&bytes).ok();
            let index = index.filter(|index| index.entries.values().all(Manifest::is_valid));
            if index.is_none() {
                tracing::warn!(bundle = %self.bundle.display(), "the installation of belljar is damaged");
            }
            index
        };
        let index = self.index.get_or_init(read).as_ref()?;
        let is_usable = index.entries.contains_key(name) && !self.is_damaged.load(Ordering::Relaxed);
        is_usable.then_some(index)
    }

    /// Returns the contents of the entries, one after the other.
    fn read(&self, index: &Index) -> io::Result<Vec<u8>> {
        let records = index.entries.values().flat_map(|manifest| manifest.files.values());
        let size = records.fold(0u64, |size, record| size.saturating_add(record.size));
        let resembled = fs::read(self.bundle.join(&index.resembled))?;
        decompress(&fs::read(self.bundle.join(DIRECTORY).join(ENTRIES))?, &resembled, size)
    }
}

impl Cache {
    /// Returns whether the bundle's pack contains the entry for a key.
    pub(crate) fn is_packed(&self, key: &EntryKey) -> bool {
        self.bundle.as_ref().is_some_and(|bundle| bundle.pack.index_with(&key.directory_name()).is_some())
    }

    /// Unpacks the entries of the bundle's pack that the cache lacks, if the one for a key is among them, and returns
    /// it. Returns `None` if the pack does not contain it or is damaged.
    pub(crate) fn unpack(&self, key: &EntryKey) -> Option<Entry> {
        let (pack, name) = (&self.bundle.as_ref()?.pack, key.directory_name());
        let index = pack.index_with(&name)?;
        let manifest = index.entries.get(&name)?;
        let in_memory =
            |files: &Arc<MemoryFiles>| Entry::in_memory(self.entries().join(&name), manifest.clone(), files.clone());
        if let Some(files) = pack.in_memory.lock().get(&name) {
            return Some(in_memory(files));
        }
        // The first process unpacks, and others wait for it. A cache that cannot be locked cannot be written either.
        let lock = EntryLock::lock_exclusive(&self.root, &name, None);
        if let Ok(lock) = &lock {
            if let Some(entry) = self.verify(&name, Some(lock)) {
                return Some(entry);
            }
            if lock.is_exclusive() {
                self.remove_leftovers(&name);
            }
        }
        // Threads wait here if the cache cannot be locked. No thread waits for another lock while it has this one.
        let mut unpacked = pack.in_memory.lock();
        if let Some(files) = unpacked.get(&name) {
            return Some(in_memory(files));
        }
        match self.unpack_all(pack, index, &name, lock.as_ref(), &mut unpacked) {
            Ok(Some(entry)) => Some(entry),
            Ok(None) => unpacked.get(&name).map(in_memory),
            Err(error @ UnpackError::Memory(_)) => {
                tracing::warn!("failed to unpack the entries of the bundle: {error}");
                None
            }
            Err(error) => {
                pack.is_damaged.store(true, Ordering::Relaxed);
                tracing::warn!(bundle = %pack.bundle.display(), "the installation of belljar is damaged: {error}");
                None
            }
        }
    }

    /// Unpacks entries into the cache, and into `memory` if that fails. Returns the entry `wanted` if it is in the
    /// cache then. `lock` is the lock of this entry, or the reason why the cache cannot be locked.
    fn unpack_all(
        &self,
        pack: &Pack,
        index: &Index,
        wanted: &str,
        lock: Result<&EntryLock, &CacheError>,
        memory: &mut BTreeMap<String, Arc<MemoryFiles>>,
    ) -> Result<Option<Entry>, UnpackError> {
        let content = pack.read(index).map_err(UnpackError::Read)?;
        let (mut rest, mut found) = (&content[..], None);
        for (name, manifest) in &index.entries {
            let files = split_off(manifest, &mut rest)?;
            let written = match lock {
                Ok(_) if name == wanted => self.write_unpacked(name, manifest, &files).map(Some),
                Ok(lock) => self.write_if_missing(name, manifest, &files, lock),
                Err(error) => {
                    tracing::debug!(%error, "failed to lock the cache");
                    Ok(None)
                }
            };
            let is_stored = match written {
                Ok(entry) if name == wanted => {
                    found = entry;
                    found.is_some()
                }
                Ok(_) => lock.is_ok(),
                Err(UnpackError::Cache(error)) => {
                    tracing::debug!(%error, entry = name, "failed to unpack an entry into the cache");
                    false
                }
                Err(error) => return Err(error),
            };
            if !is_stored {
                check_hashes(manifest, &files)?;
                memory.insert(name.clone(), Arc::new(MemoryFiles::new(&files).map_err(UnpackError::Memory)?));
            }
        }
        Ok(found)
    }

    /// Writes an entry whose lock the caller has.
    fn write_unpacked(&self, name: &str, manifest: &Manifest, files: &[(&str, &[u8])]) -> Result<Entry, UnpackError> {
        let new = NewEntry::create(&self.entries(), name)?;
        for (file, bytes) in files {
            new.write_sparse(file, bytes)?;
        }
        let stored = new.finalize()?;
        if !stored.has_contents_of(manifest) {
            return Err(UnpackError::Differs(name.to_owned()));
        }
        let directory = self.entries().join(name);
        new.publish(&directory)?;
        self.sync.add(&directory, stored.clone());
        Ok(Entry::new(directory, stored))
    }

    /// Writes an entry if it does not exist and no other process is creating it. `held` is the lock of another entry.
    /// This method waits for no lock, so that two processes never wait for each other.
    fn write_if_missing(
        &self,
        name: &str,
        manifest: &Manifest,
        files: &[(&str, &[u8])],
        held: &EntryLock,
    ) -> Result<Option<Entry>, UnpackError> {
        let lock = EntryLock::try_lock_exclusive(&self.root, name);
        // Without a lock on a file system that has locks, another process uses or creates the entry.
        if self.entries().join(name).exists() || (lock.is_none() && held.is_exclusive()) {
            return Ok(None);
        }
        self.write_unpacked(name, manifest, files).map(Some)
    }
}

/// Writes the pack of a bundle: the entries with these names and manifests, from the directory `entries`. They are
/// compressed as their difference to the bundle's file `resembled`.
///
/// # Errors
/// Fails if a file cannot be read or written.
pub(crate) fn write(
    entries: &Path,
    packed: Vec<(String, Manifest)>,
    resembled: String,
    bundle: &Path,
) -> Result<(), CacheError> {
    let packed = packed.into_iter().map(|(name, manifest)| (name, manifest.without_stamps())).collect();
    let index = Index { resembled, entries: packed };
    let mut content = Vec::new();
    for (name, manifest) in &index.entries {
        for file in manifest.files.keys() {
            let path = entries.join(name).join(file);
            content.extend(fs::read(&path).map_err(CacheError::io("read", &path))?);
        }
    }
    let path = bundle.join(&index.resembled);
    let resembled = fs::read(&path).map_err(CacheError::io("read", &path))?;
    let directory = bundle.join(DIRECTORY);
    let failed = |error| CacheError::writing(&directory, None, error);
    fs::create_dir_all(&directory).map_err(failed)?;
    fs::write(directory.join(ENTRIES), compress(&content, &resembled).map_err(failed)?).map_err(failed)?;
    let json = serde_json::to_vec(&index).map_err(|error| failed(error.into()))?;
    fs::write(directory.join(INDEX), json).map_err(failed)
}

/// Splits the files of an entry off the contents of a pack.
fn split_off<'a, 'b>(manifest: &'a Manifest, rest: &mut &'b [u8]) -> Result<Vec<(&'a str, &'b [u8])>, UnpackError> {
    let mut files = Vec::with_capacity(manifest.files.len());
    for (name, record) in &manifest.files {
        let length = usize::try_from(record.size).unwrap_or(usize::MAX);
        let (bytes, following) = rest.split_at_checked(length).ok_or_else(|| UnpackError::Differs(name.clone()))?;
        files.push((name.as_str(), bytes));
        *rest = following;
    }
    Ok(files)
}

/// Compares files that are not written to the cache with their records.
fn check_hashes(manifest: &Manifest, files: &[(&str, &[u8])]) -> Result<(), UnpackError> {
    for (name, bytes) in files {
        let expected = manifest.files.get(*name).map(|record| record.sha256.as_str());
        if expected != Some(hex::encode(Sha256::digest(bytes)).as_str()) {
            return Err(UnpackError::Differs((*name).to_owned()));
        }
    }
    Ok(())
}

/// Compresses `content` as its difference to `resembled`, which may be empty.
///
/// # Errors
/// Fails if memory is short.
pub(crate) fn compress(content: &[u8], resembled: &[u8]) -> io::Result<Vec<u8>> {
    let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
    let parameters = [
        CParameter::CompressionLevel(LEVEL),
        CParameter::WindowLog(window_log(content.len() + resembled.len())),
        CParameter::EnableLongDistanceMatching(true),
    ];
    for parameter in parameters {
        context.set_parameter(parameter).map_err(zstd_error)?;
    }
    context.ref_prefix(resembled).map_err(zstd_error)?;
    let mut compressed = Vec::with_capacity(zstd_safe::compress_bound(content.len()));
    context.compress2(&mut compressed, content).map_err(zstd_error)?;
    Ok(compressed)
}

/// Returns the content of `size` bytes that [`compress`] compressed as its difference to `resembled`.
///
/// # Errors
/// Fails if the input is damaged, or if the content has another size.
fn decompress(compressed: &[u8], resembled: &[u8], size: u64) -> io::Result<Vec<u8>> {
    let size = usize::try_from(size).ok().filter(|_| size <= MAX_CONTENT);
    let size = size.ok_or_else(|| io::Error::other("its index is damaged"))?;
    let mut context = DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
    context.set_parameter(DParameter::WindowLogMax(MAX_WINDOW)).map_err(zstd_error)?;
    context.ref_prefix(resembled).map_err(zstd_error)?;
    let mut content = Vec::with_capacity(size);
    context.decompress(&mut content, compressed).map_err(zstd_error)?;
    if content.len() == size { Ok(content) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Returns the binary logarithm of the window for an input of this many bytes.
fn window_log(size: usize) -> u32 {
    size.max(1).next_power_of_two().ilog2().clamp(MIN_WINDOW, MAX_WINDOW)
}

fn zstd_error(code: usize) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
}

#[cfg(test)]
mod tests;
