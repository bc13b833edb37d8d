//! The directory in which Belljar keeps what takes long to get or to make: runtime files, compiled modules, images.
//!
//! ```text
//! CACHE/entries/KIND-DIGEST/          one entry: its files and manifest.json, all appearing at once
//! CACHE/entries/.new-KIND-DIGEST-…    an entry being made
//! CACHE/entries/.old-KIND-DIGEST-…    an entry being deleted
//! CACHE/locks/KIND-DIGEST             locked while the entry is made, examined or deleted; shared while it is held
//! ```
//!
//! Finding an entry takes no lock. That is safe because an entry's directory is renamed into its place complete, and
//! its files are not written to afterwards; what else may have happened to them, the [manifest] tells.
//! Compiled code is loaded from here into the process, so a file that is not exactly what was written is never handed
//! out: the entry is thrown away and made again.
//!
//! What was used least recently can be deleted to make room ([`Cache::evict`]). An entry that may be must be *held* while
//! its files are being opened ([`Cache::hold`]); once they are open, or mapped, deleting them does no harm.

mod error;
mod evict;
mod key;
mod lock;
mod manifest;
mod new_entry;
mod usage;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use belljar_core::progress::Progress;

pub use error::CacheError;
pub use evict::Evicted;
pub use key::EntryKey;
pub use manifest::hex;
pub use new_entry::NewEntry;
pub use usage::EntryUsage;

use lock::EntryLock;
use manifest::{Condition, MANIFEST, Manifest};

/// How exactly the last use of an entry is known (see [`EntryUsage::last_used`]): each use writing to the disk would
/// cost more than finding the entry.
const LAST_USE_RESOLUTION: Duration = Duration::from_secs(10 * 60);

/// A handle to a cache directory, which need not exist yet.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// An entry that was found whole.
#[derive(Debug)]
pub struct Entry {
    directory: PathBuf,
    manifest: Manifest,
    /// Keeps the entry from being evicted, if it is held.
    _hold: Option<EntryLock>,
}

impl Cache {
    /// The cache in `directory`, else in the directory that the environment variable `BELLJAR_CACHE` names, else in
    /// the platform's directory for caches. Nothing is created until something is stored.
    pub fn open(directory: Option<PathBuf>) -> Result<Self, CacheError> {
        let root = directory
            .or_else(|| std::env::var_os("BELLJAR_CACHE").filter(|value| !value.is_empty()).map(PathBuf::from))
            .or_else(|| {
                directories::ProjectDirs::from("", "", "belljar").map(|project| project.cache_dir().to_path_buf())
            })
            .ok_or(CacheError::NoDirectory)?;
        Ok(Cache { root })
    }

    /// The cache's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The entry for a key, if it is there and whole. A damaged entry is thrown away.
    pub fn get(&self, key: &EntryKey) -> Result<Option<Entry>, CacheError> {
        let name = key.directory_name();
        match self.look(&name)? {
            Looked::Whole(entry) => Ok(Some(entry)),
            Looked::Absent => Ok(None),
            Looked::Doubtful => {
                // A cache that cannot be locked cannot be mended either, but its files can still be compared.
                let lock = EntryLock::take(&self.root, &name, None).ok();
                Ok(self.examine(&name, lock.as_ref()))
            }
        }
    }

    /// As [`Cache::get`]; until the entry is dropped, no process evicts it.
    pub fn hold(&self, key: &EntryKey) -> Result<Option<Entry>, CacheError> {
        let name = key.directory_name();
        let mut hold = EntryLock::share(&self.root, &name);
        let mut looked = self.look(&name)?;
        if hold.is_none() && matches!(looked, Looked::Whole(_)) {
            // Somebody may be deleting it, and is soon through. Where nothing can be locked, it is used as it is.
            hold = EntryLock::share_after_others(&self.root, &name);
            if hold.is_some() {
                looked = self.look(&name)?;
            }
        }
        match looked {
            Looked::Whole(entry) => Ok(Some(Entry { _hold: hold, ..entry })),
            Looked::Absent => Ok(None),
            Looked::Doubtful => {
                // Whoever mends it must be the only one to hold it.
                drop(hold);
                self.get(key)
            }
        }
    }

    /// As [`Cache::get_or_make`]; until the entry is dropped, no process evicts it.
    pub fn hold_or_make<E: From<CacheError>>(
        &self,
        key: &EntryKey,
        progress: &dyn Progress,
        make: impl FnOnce(&NewEntry) -> Result<(), E>,
    ) -> Result<Entry, E> {
        if let Some(entry) = self.hold(key)? {
            return Ok(entry);
        }
        let entry = self.get_or_make(key, progress, make)?;
        // It is the latest there is, so that nobody evicts it in between, unless it alone is more than the cache may
        // hold: then its files are gone in a moment anyway, and whoever opens them is told so.
        Ok(self.hold(key)?.unwrap_or(entry))
    }

    /// The entry for a key, made by `make` when it is not there. When another process or thread is making the same
    /// entry, this waits for it (and says so through `progress`) and then uses what the other made.
    ///
    /// `make` writes the entry's files into the directory of the [`NewEntry`]. When it fails, nothing is kept.
    pub fn get_or_make<E: From<CacheError>>(
        &self,
        key: &EntryKey,
        progress: &dyn Progress,
        make: impl FnOnce(&NewEntry) -> Result<(), E>,
    ) -> Result<Entry, E> {
        let name = key.directory_name();
        if let Looked::Whole(entry) = self.look(&name)? {
            return Ok(entry);
        }
        let lock = EntryLock::take(&self.root, &name, Some(progress))?;
        if let Some(entry) = self.examine(&name, Some(&lock)) {
            return Ok(entry);
        }
        if lock.is_exclusive() {
            self.sweep(&name);
        }
        let new = NewEntry::create(&self.entries(), &name)?;
        make(&new)?;
        let manifest = new.seal()?;
        let directory = self.entries().join(&name);
        match new.publish(&directory) {
            Ok(()) => Ok(Entry { directory, manifest, _hold: None }),
            // Without locks another process may have come first. Its entry serves as well.
            Err(error) => self.examine(&name, None).ok_or_else(|| error.into()),
        }
    }

    /// Deletes the entry for a key, if there is one.
    pub fn remove(&self, key: &EntryKey) -> Result<(), CacheError> {
        self.remove_entry(&key.directory_name())
    }

    /// Deletes the entry that [`EntryUsage::name`] names, if there is one.
    pub fn remove_entry(&self, name: &str) -> Result<(), CacheError> {
        let place = self.entries().join(name);
        // Whoever lists the entries gives their names back; any other text is not a way out of the directory.
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_plain || name.is_empty() || !place.exists() {
            return Ok(());
        }
        let _lock = EntryLock::take(&self.root, name, None)?;
        self.discard(name).map_err(CacheError::io("delete", &place))
    }

    fn entries(&self) -> PathBuf {
        self.root.join("entries")
    }

    /// The quick way to an entry: one small read, and one `stat` per file.
    fn look(&self, name: &str) -> Result<Looked, CacheError> {
        let directory = self.entries().join(name);
        let path = directory.join(MANIFEST);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                // A directory without a manifest is not an entry of ours, and stands where one should.
                let occupied = directory.symlink_metadata().is_ok();
                return Ok(if occupied { Looked::Doubtful } else { Looked::Absent });
            }
            Err(error) => return Err(CacheError::io("read", &path)(error)),
        };
        // A manifest that cannot be read (it is a directory, the disk is bad) is as good as a damaged one.
        let manifest = Manifest::read(&file).ok().flatten();
        Ok(match manifest {
            Some(manifest) if manifest.condition(&directory) == Condition::Untouched => {
                note_use(&file);
                Looked::Whole(Entry { directory, manifest, _hold: None })
            }
            _ => Looked::Doubtful,
        })
    }

    /// The slow way: reads every file of an entry whose stamps differ. With a lock the manifest is brought up to date,
    /// or the entry thrown away; without one nothing is changed.
    fn examine(&self, name: &str, lock: Option<&EntryLock>) -> Option<Entry> {
        let directory = self.entries().join(name);
        let damage = match self.look(name) {
            Ok(Looked::Whole(entry)) => return Some(entry),
            Ok(Looked::Absent) => return None,
            Ok(Looked::Doubtful) => match File::open(directory.join(MANIFEST)).and_then(|file| Manifest::read(&file)) {
                Ok(Some(manifest)) => match manifest.restamped(&directory) {
                    Ok(manifest) => {
                        if lock.is_some()
                            && let Err(error) = new_entry::write_manifest(&directory, &manifest)
                        {
                            tracing::debug!(%error, "the manifest could not be brought up to date");
                        }
                        return Some(Entry { directory, manifest, _hold: None });
                    }
                    Err(file) => format!("`{file}` is not what was written"),
                },
                _ => "its manifest is missing or damaged".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!(entry = %directory.display(), "throwing away a damaged cache entry: {damage}");
        if lock.is_some()
            && let Err(error) = self.discard(name)
        {
            tracing::warn!(entry = %directory.display(), %error, "the damaged cache entry cannot be deleted");
        }
        None
    }

    /// Takes an entry out of its place in one step, then deletes it. A process that has its files open keeps them.
    fn discard(&self, name: &str) -> io::Result<()> {
        let grave = tempfile::Builder::new().prefix(&format!(".old-{name}-")).tempdir_in(self.entries())?;
        fs::rename(self.entries().join(name), grave.path().join(name))?;
        match grave.path().join(name).symlink_metadata()?.is_dir() {
            true => grave.close(),
            false => fs::remove_file(grave.path().join(name)),
        }
    }

    /// Deletes what interrupted processes left behind. Whoever makes or deletes an entry holds its lock, so a
    /// directory whose lock can be had belongs to nobody. The caller holds the lock of `held`.
    fn sweep(&self, held: &str) {
        let Ok(entries) = self.entries().read_dir() else { return };
        for entry in entries.flatten() {
            let file_name = entry.file_name();
            let Some(owner) = file_name.to_str().and_then(new_entry::owner_of_temporary) else { continue };
            let _lock = if owner == held {
                None
            } else {
                match EntryLock::try_take(&self.root, owner) {
                    Some(lock) => Some(lock),
                    None => continue,
                }
            };
            if let Err(error) = fs::remove_dir_all(entry.path()) {
                tracing::debug!(path = %entry.path().display(), %error, "a left-over directory cannot be deleted");
            }
        }
    }
}

/// What a quick look at an entry found.
enum Looked {
    Whole(Entry),
    Absent,
    /// Something is there, and needs a closer look.
    Doubtful,
}

impl Entry {
    /// The path of one of the entry's files.
    pub fn file(&self, name: &str) -> Result<PathBuf, CacheError> {
        if self.manifest.files.contains_key(name) {
            Ok(self.directory.join(name))
        } else {
            Err(CacheError::NoSuchFile { directory: self.directory.clone(), name: name.to_owned() })
        }
    }

    /// The directory that holds the files. What else may lie there is not part of the entry.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The names of the entry's files, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.manifest.files.keys().map(String::as_str)
    }
}

/// Remembers, in the manifest's modification time, that the entry is in use. Failing is fine: the cache may be one
/// that this user only reads.
fn note_use(manifest: &File) {
    let now = SystemTime::now();
    let last = manifest.metadata().and_then(|metadata| metadata.modified());
    let stale = last.is_ok_and(|last| now.duration_since(last).is_ok_and(|age| age > LAST_USE_RESOLUTION));
    if stale && let Err(error) = manifest.set_modified(now) {
        tracing::debug!(%error, "the last use of a cache entry cannot be noted");
    }
}

#[cfg(test)]
mod tests;
