//! Tests of the cache's guarantees: entries are intact or absent and are created once, whatever happens to the files
//! and the processes.

mod concurrency;
mod damage;
mod eviction;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use belljar_core::{CacheStatistics, CacheUses, NoProgress};
use tempfile::TempDir;

use super::manifest::{IntegrityCheck, MANIFEST, Manifest};
use super::{Cache, CacheError, Entry, EntryKey};

const CODE: &[u8] = b"pretend that this is native code";

/// A cache in a temporary directory, with a counter of how often its entry was created.
struct Fixture {
    directory: TempDir,
    cache: Cache,
    created: AtomicUsize,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(directory.path().join("cache"))).unwrap();
        Fixture { directory, cache, created: AtomicUsize::new(0) }
    }

    fn get_or_create(&self) -> Entry {
        let create = |new: &super::NewEntry| {
            self.created.fetch_add(1, Ordering::SeqCst);
            new.write("code", CODE)?;
            new.write("names.json", b"{}")
        };
        let entry = self.cache.get_or_create::<CacheError>(&key(), &NoProgress, create).unwrap();
        self.cache.wait_for_sync();
        entry
    }

    fn created(&self) -> usize {
        self.created.load(Ordering::SeqCst)
    }

    fn entry_directory(&self) -> PathBuf {
        self.cache.entries().join(key().directory_name())
    }

    /// Returns the names of leftover temporary directories.
    fn leftovers(&self) -> Vec<String> {
        let names = self.cache.entries().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).filter(|name| name.starts_with('.')).collect()
    }
}

fn key() -> EntryKey {
    EntryKey::new("program").part("for", "tests")
}

#[test]
fn uses_are_counted_by_kind() {
    let fixture = Fixture::new();
    assert_eq!(fixture.cache.statistics().unwrap(), CacheStatistics::default());
    assert!(fixture.cache.get(&key()).unwrap().is_none());
    fixture.get_or_create();
    fixture.get_or_create();
    let clone = fixture.cache.clone();
    assert!(clone.get_pinned(&key()).unwrap().is_some());
    let create = |new: &super::NewEntry| new.write("code", CODE);
    let other = EntryKey::new("other");
    clone.get_or_create_pinned::<CacheError>(&other, &NoProgress, create).unwrap();
    clone
        .get_or_create::<CacheError>(&EntryKey::new("failed"), &NoProgress, |_| Err(CacheError::NoDirectory))
        .unwrap_err();
    let CacheStatistics { uses, entries, bytes } = fixture.cache.statistics().unwrap();
    assert_eq!((entries, bytes), (2, 2 * CODE.len() as u64 + 2));
    let expected = [
        ("failed", CacheUses { hits: 0, misses: 1, builds: 0 }),
        (key().kind(), CacheUses { hits: 2, misses: 2, builds: 1 }),
        ("other", CacheUses { hits: 0, misses: 1, builds: 1 }),
    ];
    assert_eq!(uses, expected.into());
}

#[test]
fn entry_is_created_once_and_found_again() {
    let fixture = Fixture::new();
    assert!(fixture.cache.get(&key()).unwrap().is_none());
    fixture.get_or_create();
    let entry = fixture.get_or_create();
    assert_eq!(fixture.created(), 1);
    assert_eq!(entry.names().collect::<Vec<_>>(), ["code", "names.json"]);
    assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
    assert!(matches!(entry.file("other"), Err(CacheError::NoSuchFile { .. })));
    assert_eq!(fixture.leftovers(), [""; 0]);
}

#[test]
fn opening_and_querying_a_cache_writes_nothing() {
    let fixture = Fixture::new();
    assert!(fixture.cache.get(&key()).unwrap().is_none());
    assert!(!fixture.cache.root().exists());
    fixture.get_or_create();
    fs::remove_dir_all(fixture.cache.root().join("locks")).unwrap();
    fixture.get_or_create();
    assert!(!fixture.cache.root().join("locks").exists(), "looking up an intact entry took a lock");
}

#[test]
fn entry_is_used_before_and_after_it_has_been_synced() {
    let fixture = Fixture::new();
    // Another handle does not know that this one has created the entry: it reads the files, or finds their stamps.
    fixture.cache.get_or_create::<CacheError>(&key(), &NoProgress, |new| new.write("code", CODE)).unwrap();
    let other = Cache::open(Some(fixture.cache.root().to_owned())).unwrap();
    for cache in [&fixture.cache, &other] {
        let entry = cache.get(&key()).unwrap().unwrap();
        assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
    }
    fixture.cache.wait_for_sync();
    let manifest = Manifest::read(&File::open(fixture.entry_directory().join(MANIFEST)).unwrap()).unwrap().unwrap();
    assert_eq!(manifest.check_integrity(&fixture.entry_directory()), IntegrityCheck::Unchanged, "it has no stamps");
}

#[test]
fn failed_creation_returns_its_error_and_stores_nothing() {
    let fixture = Fixture::new();
    let failed = fixture.cache.get_or_create(&key(), &NoProgress, |new| {
        new.write("code", b"half")?;
        Err(CacheError::NoDirectory)
    });
    assert!(matches!(failed, Err(CacheError::NoDirectory)));
    assert_eq!(fixture.leftovers(), [""; 0]);
    assert!(fixture.cache.get(&key()).unwrap().is_none());
}

#[test]
fn removed_entry_is_not_found() {
    let fixture = Fixture::new();
    fixture.get_or_create();
    fixture.cache.remove(&key()).unwrap();
    assert!(fixture.cache.get(&key()).unwrap().is_none());
    assert_eq!(fixture.leftovers(), [""; 0]);
    fixture.cache.remove(&key()).unwrap();
}

#[test]
fn usage_lists_entries_with_their_sizes() {
    let fixture = Fixture::new();
    assert_eq!(fixture.cache.usage().unwrap(), []);
    fixture.get_or_create();
    let usage = fixture.cache.usage().unwrap();
    assert_eq!(usage.len(), 1);
    assert_eq!(usage[0].name, key().directory_name());
    assert_eq!(usage[0].bytes, CODE.len() as u64 + 2);
}

#[test]
fn last_use_is_recorded_every_ten_minutes() {
    let fixture = Fixture::new();
    fixture.get_or_create();
    let manifest = File::options().write(true).open(fixture.entry_directory().join(MANIFEST)).unwrap();
    let a_minute_ago = SystemTime::now() - Duration::from_secs(60);
    manifest.set_modified(a_minute_ago).unwrap();
    fixture.get_or_create();
    assert_eq!(fixture.cache.usage().unwrap()[0].last_used, a_minute_ago);
    manifest.set_modified(a_minute_ago - Duration::from_secs(48 * 3600)).unwrap();
    fixture.get_or_create();
    assert!(fixture.cache.usage().unwrap()[0].last_used > a_minute_ago);
    assert_eq!(fixture.created(), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_error_names_the_directory_and_size() {
    let fixture = Fixture::new();
    let create = |new: &super::NewEntry| {
        // Writing to this device fails like writing to a full disk.
        std::os::unix::fs::symlink("/dev/full", new.path().join("code")).unwrap();
        new.write("code", &[0; 4096])
    };
    let error = fixture.cache.get_or_create::<CacheError>(&key(), &NoProgress, create).unwrap_err();
    assert!(matches!(error, CacheError::Full { needed: Some(4096), .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("4 KiB") && text.contains(&*fixture.cache.root().to_string_lossy()), "{text}");
    assert_eq!(fixture.leftovers(), [""; 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn unwritable_directory_is_named_in_the_error() {
    // Not even root can create directories there.
    let cache = Cache::open(Some(PathBuf::from("/sys/belljar"))).unwrap();
    assert!(cache.get(&key()).unwrap().is_none());
    let create = |_: &super::NewEntry| panic!("called without a directory");
    let error = cache.get_or_create::<CacheError>(&key(), &NoProgress, create).unwrap_err();
    assert!(matches!(error, CacheError::NotWritable { .. }), "{error:?}");
    assert!(error.to_string().contains("/sys/belljar"), "{error}");
}

#[test]
fn other_io_errors_keep_the_systems_message() {
    let error = CacheError::writing(Path::new("dir/file"), None, io::Error::other("the disk is on fire"));
    assert_eq!(error.to_string(), "failed to write dir/file: the disk is on fire");
}
