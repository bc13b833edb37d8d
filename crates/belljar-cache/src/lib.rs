//! The on-disk cache of runtime files, compiled modules and images.
//!
//! ```text
//! CACHE/entries/KIND-DIGEST/          one entry: its files and manifest.json, moved into place by one rename
//! CACHE/entries/.new-KIND-DIGEST-…    an entry being created
//! CACHE/entries/.old-KIND-DIGEST-…    an entry being deleted
//! CACHE/locks/KIND-DIGEST             locked while the entry is created, verified or deleted; shared while it is pinned
//! CACHE/locks/TASK                    locked while a process performs a task on the whole cache
//! ```
//!
//! Looking up an entry takes no lock. That is safe because an entry's directory is complete when it is renamed into
//! place, and its files are not written to afterwards. The [manifest] detects any other change. Compiled code is loaded
//! from here into the process, so a file that differs from its recorded content is never returned: the entry is deleted
//! and created again. Entries are synced to disk in the background (`background_sync.rs`).
//!
//! A *bundle* is a directory of entries that were installed together with this program, such as those in a Python
//! wheel. It is read-only and searched first. Its files are as trustworthy as the program itself, which was installed
//! in the same way. Therefore only their sizes are compared, which detects an incomplete installation. Some entries of
//! a bundle are compressed together, and are unpacked into the cache when one of them is first looked up (`pack.rs`).
//!
//! Least recently used entries can be deleted to make room ([`Cache::evict`]). To open the files of an entry that may
//! be evicted, *pin* the entry first ([`Cache::get_pinned`]). Once its files are open or mapped, deleting them is
//! harmless.

mod background_sync;
mod bundle;
mod entry;
mod error;
mod evict;
mod key;
mod lock;
mod manifest;
mod new_entry;
mod os;
mod pack;
mod sparse;
mod statistics;
mod usage;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use belljar_core::Progress;
use belljar_core::os::create_private_directory;

pub use bundle::{BundleContents, open_file};
pub use entry::Entry;
pub use error::CacheError;
pub use evict::Eviction;
pub use key::EntryKey;

pub use new_entry::NewEntry;
pub use usage::EntryUsage;

use background_sync::BackgroundSync;
use bundle::Bundle;
use lock::EntryLock;
use manifest::{DamagedFile, IntegrityCheck, MANIFEST, Manifest};
use statistics::UseCounts;

/// The resolution of the recorded last use (see [`EntryUsage::last_used`]). Recording every use would cost more than
/// looking up the entry.
const LAST_USE_RESOLUTION: Duration = Duration::from_secs(10 * 60);

/// The number of times that an entry is found without a pin until it counts as missing.
const MAX_PINNING: usize = 10;

/// A handle to a cache directory. The directory does not have to exist yet. Clones count their uses together.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    uses: UseCounts,
    bundle: Option<Arc<Bundle>>,
    recorder: Option<bundle::Recorder>,
    sync: BackgroundSync,
}

/// The lock of a task, released when it is dropped or when its process ends for any reason.
#[derive(Debug)]
pub struct TaskLock(#[expect(dead_code, reason = "held for its drop")] EntryLock);

impl Cache {
    /// Opens the cache in `directory`, or in the platform's cache directory if `directory` is `None`. Directories are
    /// created when the first entry is stored.
    pub fn open(directory: Option<PathBuf>) -> Result<Self, CacheError> {
        let root = directory
            .or_else(|| {
                directories::ProjectDirs::from("", "", "belljar").map(|project| project.cache_dir().to_path_buf())
            })
            .ok_or(CacheError::NoDirectory)?;
        Ok(Cache { root, uses: UseCounts::default(), bundle: None, recorder: None, sync: BackgroundSync::default() })
    }

    /// Returns the cache's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the entry for a key if it exists and is intact. Deletes a damaged entry.
    pub fn get(&self, key: &EntryKey) -> Result<Option<Entry>, CacheError> {
        let found = self.find(key)?;
        self.uses.count_lookup(key, found.is_some());
        self.record(key);
        Ok(found)
    }

    fn find(&self, key: &EntryKey) -> Result<Option<Entry>, CacheError> {
        if let Some(entry) = self.find_bundled(key) {
            return Ok(Some(entry));
        }
        let stored = self.find_stored(key);
        if matches!(stored, Ok(Some(_))) {
            return stored;
        }
        self.unpack(key).map_or(stored, |entry| Ok(Some(entry)))
    }

    /// Returns the entry for a key if it is in the cache and intact.
    fn find_stored(&self, key: &EntryKey) -> Result<Option<Entry>, CacheError> {
        let name = key.directory_name();
        match self.lookup(&name)? {
            LookupResult::Intact(entry) => Ok(Some(entry)),
            LookupResult::Missing => Ok(None),
            LookupResult::Unverified => {
                // A cache that cannot be locked cannot be repaired either, but its files can still be compared.
                let lock = EntryLock::lock_exclusive(&self.root, &name, None).ok();
                Ok(self.verify(&name, lock.as_ref()))
            }
        }
    }

    /// Returns the entry for a key as [`Cache::get`] does. No process evicts the entry until it is dropped.
    pub fn get_pinned(&self, key: &EntryKey) -> Result<Option<Entry>, CacheError> {
        let found = self.find_pinned(key)?;
        self.uses.count_lookup(key, found.is_some());
        self.record(key);
        Ok(found)
    }

    fn find_pinned(&self, key: &EntryKey) -> Result<Option<Entry>, CacheError> {
        if let Some(entry) = self.find_bundled(key) {
            return Ok(Some(entry));
        }
        let stored = self.find_stored_pinned(key);
        if matches!(stored, Ok(Some(_))) {
            return stored;
        }
        match self.unpack(key) {
            Some(entry) if entry.is_in_memory() => Ok(Some(entry)),
            // As a new entry in `get_or_create_pinned`, it is not evicted before it is pinned.
            Some(entry) => Ok(self.find_stored_pinned(key)?.or(Some(entry))),
            None => stored,
        }
    }

    fn find_stored_pinned(&self, key: &EntryKey) -> Result<Option<Entry>, CacheError> {
        let name = key.directory_name();
        let mut pin = EntryLock::try_lock_shared(&self.root, &name);
        for _ in 0..MAX_PINNING {
            let found = match (self.lookup(&name)?, pin.take()) {
                (LookupResult::Intact(entry), Some(pin)) => return Ok(Some(entry.with_pin(pin))),
                (LookupResult::Intact(entry), None) => Some(entry),
                (LookupResult::Missing, _) => None,
                (LookupResult::Unverified, shared) => {
                    // Repairing the entry requires the exclusive lock.
                    drop(shared);
                    self.find_stored(key)?
                }
            };
            let Some(unpinned) = found else { return Ok(None) };
            // Another process may be deleting the entry, which takes a moment. If locking is impossible, the entry is
            // used without a pin.
            pin = EntryLock::lock_shared_blocking(&self.root, &name);
            if pin.is_none() {
                return Ok(Some(unpinned));
            }
        }
        Ok(None)
    }

    /// Returns or creates the entry for a key as [`Cache::get_or_create`] does. No process evicts the entry until it is
    /// dropped.
    pub fn get_or_create_pinned<E: From<CacheError>>(
        &self,
        key: &EntryKey,
        progress: &dyn Progress,
        create: impl FnOnce(&NewEntry) -> Result<(), E>,
    ) -> Result<Entry, E> {
        if let Some(entry) = self.get_pinned(key)? {
            return Ok(entry);
        }
        let entry = self.create_or_wait(key, progress, create)?;
        // The entry is the most recently used one, so it is not evicted before it is pinned, unless it alone exceeds
        // the cache's limit. In that case its files are about to be deleted anyway, and opening them returns an error.
        Ok(self.find_pinned(key)?.unwrap_or(entry))
    }

    /// Returns the entry for a key, calling `create` if it does not exist. If another process or thread is creating the
    /// same entry, waits for it (which is reported to `progress`) and returns the entry that it created.
    ///
    /// `create` writes the entry's files into the directory of the [`NewEntry`]. If it fails, nothing is stored.
    pub fn get_or_create<E: From<CacheError>>(
        &self,
        key: &EntryKey,
        progress: &dyn Progress,
        create: impl FnOnce(&NewEntry) -> Result<(), E>,
    ) -> Result<Entry, E> {
        self.record(key);
        if let Some(entry) = self.find_bundled(key) {
            self.uses.count_lookup(key, true);
            return Ok(entry);
        }
        if self.is_packed(key)
            && let Some(entry) = self.find(key)?
        {
            self.uses.count_lookup(key, true);
            return Ok(entry);
        }
        let found = self.lookup(&key.directory_name())?;
        self.uses.count_lookup(key, matches!(found, LookupResult::Intact(_)));
        match found {
            LookupResult::Intact(entry) => Ok(entry),
            LookupResult::Missing | LookupResult::Unverified => self.create_or_wait(key, progress, create),
        }
    }

    /// Creates the entry for a key that was not found, unless another process or thread does so in the meantime.
    fn create_or_wait<E: From<CacheError>>(
        &self,
        key: &EntryKey,
        progress: &dyn Progress,
        create: impl FnOnce(&NewEntry) -> Result<(), E>,
    ) -> Result<Entry, E> {
        let name = key.directory_name();
        let lock = EntryLock::lock_exclusive(&self.root, &name, Some(progress))?;
        if let Some(entry) = self.verify(&name, Some(&lock)) {
            return Ok(entry);
        }
        if lock.is_exclusive() {
            self.remove_leftovers(&name);
        }
        let new = NewEntry::create(&self.entries(), &name)?;
        create(&new)?;
        let manifest = new.finalize()?;
        self.uses.count_build(key);
        let directory = self.entries().join(&name);
        match new.publish(&directory) {
            Ok(()) => {
                self.sync.add(&directory, manifest.clone());
                Ok(Entry::new(directory, manifest))
            }
            // Without locks, another process may have created the entry first. That entry is just as good.
            Err(error) => self.verify(&name, None).ok_or_else(|| error.into()),
        }
    }

    /// Waits until the entries that this process has created are on disk. Other processes trust them without reading
    /// them from then on. Dropping the last clone of the handle waits, too.
    pub fn wait_for_sync(&self) {
        self.sync.wait();
    }

    /// Returns the lock of a task that one process at a time performs on the cache. Returns `None` while another
    /// process has it, and if this user lacks permission to lock it. `task` names a file.
    pub fn try_lock_task(&self, task: &'static str) -> Option<TaskLock> {
        create_private_directory(&self.root.join("locks")).ok()?;
        EntryLock::try_lock_exclusive(&self.root, task).map(TaskLock)
    }

    /// Waits for the lock of a task (see [`Cache::try_lock_task`]), which is reported to `progress`.
    ///
    /// # Errors
    /// Returns an error if the lock's file cannot be created or locked.
    pub fn lock_task(&self, task: &'static str, progress: &dyn Progress) -> Result<TaskLock, CacheError> {
        EntryLock::lock_exclusive(&self.root, task, Some(progress)).map(TaskLock)
    }

    /// Deletes the entry for a key, if it exists.
    pub fn remove(&self, key: &EntryKey) -> Result<(), CacheError> {
        self.remove_entry(&key.directory_name())
    }

    /// Deletes the entry named `name` (see [`EntryUsage::name`]), if it exists.
    pub fn remove_entry(&self, name: &str) -> Result<(), CacheError> {
        let directory = self.entries().join(name);
        // Callers pass names from a listing. The check keeps any other text from leading out of the directory.
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_plain || name.is_empty() || !directory.exists() {
            return Ok(());
        }
        let _lock = EntryLock::lock_exclusive(&self.root, name, None)?;
        self.discard(name).map_err(CacheError::io("delete", &directory))
    }

    fn entries(&self) -> PathBuf {
        self.root.join("entries")
    }

    /// Looks an entry up with one small read and one `stat` per file.
    fn lookup(&self, name: &str) -> Result<LookupResult, CacheError> {
        let directory = self.entries().join(name);
        if let Some(manifest) = self.sync.manifest(&directory)
            && manifest.check_integrity(&directory) == IntegrityCheck::Unchanged
        {
            return Ok(LookupResult::Intact(Entry::new(directory, manifest)));
        }
        let path = directory.join(MANIFEST);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                // A directory without a manifest is not an entry, but occupies the entry's path.
                let occupied = directory.symlink_metadata().is_ok();
                return Ok(if occupied { LookupResult::Unverified } else { LookupResult::Missing });
            }
            Err(error) => return Err(CacheError::io("read", &path)(error)),
        };
        // A manifest that cannot be read (it is a directory, the disk is faulty) counts as damaged.
        let manifest = Manifest::read(&file).ok().flatten();
        Ok(match manifest {
            Some(manifest) if manifest.check_integrity(&directory) == IntegrityCheck::Unchanged => {
                touch(&file);
                LookupResult::Intact(Entry::new(directory, manifest))
            }
            _ => LookupResult::Unverified,
        })
    }

    /// Verifies an entry by reading all its files if their stamps differ. With a lock, updates the manifest of an
    /// intact entry and deletes a damaged one; without a lock, changes nothing.
    fn verify(&self, name: &str, lock: Option<&EntryLock>) -> Option<Entry> {
        let directory = self.entries().join(name);
        let damage = match self.lookup(name) {
            Ok(LookupResult::Intact(entry)) => return Some(entry),
            Ok(LookupResult::Missing) => return None,
            Ok(LookupResult::Unverified) => {
                match File::open(directory.join(MANIFEST)).and_then(|file| Manifest::read(&file)) {
                    Ok(Some(manifest)) => match manifest.with_current_stamps(&directory) {
                        Ok(manifest) => {
                            let write = || {
                                manifest.sync_files(&directory)?;
                                new_entry::write_manifest(&directory, &manifest)
                            };
                            if lock.is_some()
                                && let Err(error) = write()
                            {
                                tracing::debug!(%error, "failed to update the manifest");
                            }
                            return Some(Entry::new(directory, manifest));
                        }
                        Err(DamagedFile(file)) => format!("`{file}` differs from its recorded content"),
                    },
                    _ => "its manifest is missing or damaged".to_owned(),
                }
            }
            Err(error) => error.to_string(),
        };
        tracing::warn!(entry = %directory.display(), "deleting a damaged cache entry: {damage}");
        if lock.is_some()
            && let Err(error) = self.discard(name)
        {
            tracing::warn!(entry = %directory.display(), %error, "failed to delete the damaged cache entry");
        }
        None
    }

    /// Moves an entry away in one step, then deletes it. Processes that have its files open can still read them.
    fn discard(&self, name: &str) -> io::Result<()> {
        let trash = tempfile::Builder::new().prefix(&format!(".old-{name}-")).tempdir_in(self.entries())?;
        fs::rename(self.entries().join(name), trash.path().join(name))?;
        match trash.path().join(name).symlink_metadata()?.is_dir() {
            true => trash.close(),
            false => fs::remove_file(trash.path().join(name)),
        }
    }

    /// Deletes temporary directories of interrupted processes. A process that creates or deletes an entry has the
    /// entry's lock, so a temporary directory whose lock is free is not in use. The caller has the lock of the entry
    /// `locked`.
    fn remove_leftovers(&self, locked: &str) {
        let Ok(entries) = self.entries().read_dir() else { return };
        for entry in entries.flatten() {
            let file_name = entry.file_name();
            let Some(owner) = file_name.to_str().and_then(new_entry::owner_of_temporary) else { continue };
            let _lock = if owner == locked {
                None
            } else {
                match EntryLock::try_lock_exclusive(&self.root, owner) {
                    Some(lock) => Some(lock),
                    None => continue,
                }
            };
            if let Err(error) = fs::remove_dir_all(entry.path()) {
                tracing::debug!(path = %entry.path().display(), %error, "failed to delete a leftover directory");
            }
        }
    }
}

/// The result of [`Cache::lookup`].
enum LookupResult {
    Intact(Entry),
    Missing,
    /// The entry's path exists, but the files have to be read to verify the entry.
    Unverified,
}

/// Records the current time as the entry's last use, in the manifest's modification time. Errors are ignored, since the
/// user may have only read access to the cache.
fn touch(manifest: &File) {
    let now = SystemTime::now();
    let last = manifest.metadata().and_then(|metadata| metadata.modified());
    let stale = last.is_ok_and(|last| now.duration_since(last).is_ok_and(|age| age > LAST_USE_RESOLUTION));
    if stale && let Err(error) = manifest.set_modified(now) {
        tracing::debug!(%error, "failed to record the last use of a cache entry");
    }
}

#[cfg(test)]
mod tests;
