//! Tests of the cache's guarantees: entries are intact or absent and are created once, whatever happens to the files
//! and the processes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime};

use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{CacheStatistics, CacheUses, NoProgress, Progress};
use sha2::{Digest, Sha256};
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

    /// Creates the entry, calls `damage` with its directory, and expects a new entry with the right content.
    #[track_caller]
    fn is_recreated_after(damage: impl FnOnce(&Path)) {
        let fixture = Fixture::new();
        fixture.get_or_create();
        damage(&fixture.entry_directory());
        assert!(fixture.cache.get(&key()).unwrap().is_none(), "a damaged entry was returned");
        let entry = fixture.get_or_create();
        assert_eq!(fixture.created(), 2);
        assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
        assert_eq!(fixture.leftovers(), [""; 0]);
    }
}

fn key() -> EntryKey {
    EntryKey::new("program").part("for", "tests")
}

/// Waits until the file system's clock has advanced past the last change of `path`. Two changes within one tick of that
/// clock (4 ms on many kernels) have the same time.
fn wait_for_the_next_tick(path: &Path) {
    let before = fs::metadata(path).unwrap();
    let probe = tempfile::NamedTempFile::new_in(path.parent().unwrap().parent().unwrap()).unwrap();
    loop {
        probe.as_file().write_all(b"x").unwrap();
        if probe.as_file().metadata().unwrap().modified().unwrap() > before.modified().unwrap() {
            return;
        }
    }
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
fn truncated_file_invalidates_its_entry() {
    Fixture::is_recreated_after(|entry| {
        File::options().write(true).open(entry.join("code")).unwrap().set_len(5).unwrap();
    });
}

#[test]
fn flipped_bit_is_detected_despite_a_restored_mtime() {
    Fixture::is_recreated_after(|entry| {
        let path = entry.join("code");
        wait_for_the_next_tick(&path);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let mut bytes = CODE.to_vec();
        bytes[7] ^= 0x10;
        let mut file = File::options().write(true).open(&path).unwrap();
        file.write_all(&bytes).unwrap();
        file.set_modified(modified).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), modified);
    });
}

#[test]
fn replaced_file_invalidates_its_entry() {
    Fixture::is_recreated_after(|entry| {
        let path = entry.join("code");
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let other = entry.join("other");
        fs::write(&other, vec![b'!'; CODE.len()]).unwrap();
        File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
        fs::rename(other, path).unwrap();
    });
}

#[cfg(unix)]
#[test]
fn file_replaced_by_a_symbolic_link_invalidates_its_entry() {
    Fixture::is_recreated_after(|entry| {
        let elsewhere = entry.parent().unwrap().parent().unwrap().join("elsewhere");
        fs::rename(entry.join("code"), &elsewhere).unwrap();
        std::os::unix::fs::symlink(elsewhere, entry.join("code")).unwrap();
    });
}

#[test]
fn missing_file_invalidates_its_entry() {
    Fixture::is_recreated_after(|entry| fs::remove_file(entry.join("names.json")).unwrap());
}

#[test]
fn missing_manifest_invalidates_its_entry() {
    Fixture::is_recreated_after(|entry| fs::remove_file(entry.join(MANIFEST)).unwrap());
}

#[test]
fn malformed_manifest_invalidates_its_entry() {
    for garbage in [&b""[..], b"{}", b"\xff\0garbage", b"{\"sha256\": \"\", \"manifest\": null}"] {
        Fixture::is_recreated_after(|entry| fs::write(entry.join(MANIFEST), garbage).unwrap());
    }
}

#[test]
fn manifest_with_a_changed_digit_is_rejected() {
    Fixture::is_recreated_after(|entry| {
        let text = fs::read_to_string(entry.join(MANIFEST)).unwrap();
        // The stamps stay correct, so that only the checksum detects the change.
        let hash = hex::encode(Sha256::digest(CODE));
        let changed = text.replacen(&hash, &hash.replace(['0', '1', '2', '3'], "4"), 1);
        assert_ne!(text, changed);
        fs::write(entry.join(MANIFEST), changed).unwrap();
    });
}

#[test]
fn manifest_with_paths_outside_its_entry_is_rejected() {
    Fixture::is_recreated_after(|entry| {
        let mut manifest = Manifest::read(&File::open(entry.join(MANIFEST)).unwrap()).unwrap().unwrap();
        let record = manifest.files.remove("names.json").unwrap();
        fs::rename(entry.join("names.json"), entry.join("../names.json")).unwrap();
        manifest.files.insert("../names.json".to_owned(), record);
        fs::write(entry.join(MANIFEST), manifest.to_bytes().unwrap()).unwrap();
    });
}

#[test]
fn file_at_the_path_of_an_entry_is_replaced() {
    Fixture::is_recreated_after(|entry| {
        fs::remove_dir_all(entry).unwrap();
        fs::write(entry, "not a directory").unwrap();
    });
}

#[test]
fn unchanged_file_with_a_new_mtime_keeps_its_entry() {
    let fixture = Fixture::new();
    let path = fixture.get_or_create().file("code").unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    let before = fs::read(fixture.entry_directory().join(MANIFEST)).unwrap();
    fixture.get_or_create();
    assert_eq!(fixture.created(), 1);
    assert_ne!(fs::read(fixture.entry_directory().join(MANIFEST)).unwrap(), before);
    fs::remove_dir_all(fixture.cache.root().join("locks")).unwrap();
    fixture.get_or_create();
    assert!(!fixture.cache.root().join("locks").exists(), "the new stamps were not trusted");
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
fn entry_whose_process_ended_before_it_was_synced_is_compared_with_its_hashes() {
    let unsynced = |damage: &dyn Fn(&Path)| {
        let fixture = Fixture::new();
        let path = fixture.get_or_create().file("code").unwrap();
        let manifest = fixture.entry_directory().join(MANIFEST);
        let stamped = Manifest::read(&File::open(&manifest).unwrap()).unwrap().unwrap();
        fs::write(&manifest, stamped.without_stamps().to_bytes().unwrap()).unwrap();
        damage(&path);
        let entry = Cache::open(Some(fixture.cache.root().to_owned())).unwrap().get(&key()).unwrap();
        entry.is_some()
    };
    assert!(unsynced(&|_| ()));
    assert!(!unsynced(&|code| fs::write(code, vec![0; CODE.len()]).unwrap()), "damage was not noticed");
}

#[test]
fn copied_cache_keeps_its_entries() {
    let fixture = Fixture::new();
    fixture.get_or_create();
    let copy = Cache::open(Some(fixture.directory.path().join("copy"))).unwrap();
    let target = copy.entries().join(key().directory_name());
    fs::create_dir_all(&target).unwrap();
    for file in fixture.entry_directory().read_dir().unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), target.join(file.file_name())).unwrap();
    }
    let entry = copy.get(&key()).unwrap().unwrap();
    assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
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

/// A [`Progress`] that sends the name of every step.
struct StepNames(Mutex<mpsc::Sender<String>>);

impl Progress for StepNames {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        self.0.lock().unwrap().send(step.name).unwrap();
        Box::new(NoProgress)
    }
}

#[test]
fn second_thread_reports_its_wait_and_gets_the_first_ones_entry() {
    let fixture = Fixture::new();
    let (step_sender, steps) = mpsc::channel();
    let (started_sender, started) = mpsc::channel();
    std::thread::scope(|scope| {
        let cache = &fixture.cache;
        scope.spawn(move || {
            let create = |new: &super::NewEntry| {
                started_sender.send(()).unwrap();
                // Continue only once the second thread waits.
                assert_eq!(steps.recv().unwrap(), "waiting for another belljar process");
                new.write("code", CODE)
            };
            cache.get_or_create::<CacheError>(&key(), &NoProgress, create).unwrap();
        });
        started.recv().unwrap();
        let create = |_: &super::NewEntry| panic!("created twice");
        let entry = cache.get_or_create::<CacheError>(&key(), &StepNames(Mutex::new(step_sender)), create).unwrap();
        assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
    });
}

/// The environment variable with the cache directory of a child process.
const CHILD_CACHE: &str = "BELLJAR_TEST_CHILD_CACHE";
/// The environment variable that makes a child process abort while it creates the entry.
const CHILD_ABORTS: &str = "BELLJAR_TEST_CHILD_ABORTS";
/// The environment variable with the number of child processes that have to be running before the entry is complete.
const CHILD_COUNT: &str = "BELLJAR_TEST_CHILD_COUNT";
/// The deadline for conditions that depend on other processes.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a command that runs this test binary as a child process, which creates the entry in `cache`.
fn child(cache: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::child_creates_entry", "--ignored"]);
    command.env(CHILD_CACHE, cache).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn append_line(path: &Path, line: &str) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[test]
#[ignore = "runs as a child process of other tests"]
fn child_creates_entry() {
    let Some(root) = std::env::var_os(CHILD_CACHE).map(PathBuf::from) else { return };
    let cache = Cache::open(Some(root.clone())).unwrap();
    let started = root.with_extension("started");
    append_line(&started, "started");
    let create = |new: &super::NewEntry| {
        append_line(&root.with_extension("log"), "created");
        new.write("code", CODE)?;
        if std::env::var_os(CHILD_ABORTS).is_some() {
            std::process::abort();
        }
        // Keep the entry incomplete until all child processes are running.
        let count: usize = std::env::var(CHILD_COUNT).map_or(1, |count| count.parse().unwrap());
        let deadline = Instant::now() + PROCESS_TIMEOUT;
        while fs::read_to_string(&started).unwrap().lines().count() < count {
            assert!(Instant::now() < deadline, "the other child processes did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    };
    let entry = cache.get_or_create::<CacheError>(&key(), &NoProgress, create).unwrap();
    assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
}

#[test]
fn one_of_several_processes_creates_the_entry() {
    let fixture = Fixture::new();
    let spawn = |_| child(fixture.cache.root()).env(CHILD_COUNT, "4").spawn().unwrap();
    let children: Vec<_> = (0..4).map(spawn).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(fs::read_to_string(fixture.cache.root().with_extension("log")).unwrap(), "created\n");
    assert_eq!(fixture.leftovers(), [""; 0]);
}

#[test]
fn leftovers_of_an_aborted_process_are_deleted_and_unused() {
    let fixture = Fixture::new();
    assert!(!child(fixture.cache.root()).env(CHILD_ABORTS, "1").status().unwrap().success());
    assert_eq!(fixture.leftovers().len(), 1);
    assert!(fixture.cache.get(&key()).unwrap().is_none());
    // Creating any entry deletes leftovers, not only creating the entry that was interrupted.
    let other = EntryKey::new("image");
    fixture.cache.get_or_create::<CacheError>(&other, &NoProgress, |new| new.write("base", b"")).unwrap();
    assert_eq!(fixture.leftovers(), [""; 0]);
    fixture.get_or_create();
    assert_eq!(fixture.created(), 1);
}

#[test]
fn cleanup_spares_an_entry_that_is_being_created() {
    let fixture = Fixture::new();
    let create = |new: &super::NewEntry| {
        new.write("code", CODE)?;
        let other = EntryKey::new("image");
        fixture.cache.get_or_create::<CacheError>(&other, &NoProgress, |new| new.write("base", b""))?;
        Ok(())
    };
    let entry = fixture.cache.get_or_create::<CacheError>(&key(), &NoProgress, create).unwrap();
    assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
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

/// Returns a cache with entries of the kind `image` of a hundred bytes each, used in this order, and an older
/// `program`.
fn populated_cache(numbers: &[u8]) -> Fixture {
    let fixture = Fixture::new();
    fixture.get_or_create();
    set_last_use(&fixture.entry_directory(), 100);
    for (age, number) in numbers.iter().rev().enumerate() {
        let create = |new: &super::NewEntry| new.write("bytes", &[*number; 100]);
        let entry = fixture.cache.get_or_create::<CacheError>(&image(*number), &NoProgress, create).unwrap();
        fixture.cache.wait_for_sync();
        set_last_use(entry.directory(), 1 + age as u64);
    }
    fixture
}

fn image(number: u8) -> EntryKey {
    EntryKey::new("image").part("number", [number])
}

/// Sets the last use of the entry in `directory` to `hours` ago.
fn set_last_use(directory: &Path, hours: u64) {
    let manifest = File::open(directory.join(MANIFEST)).unwrap();
    manifest.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
}

fn remaining_images(cache: &Cache, numbers: &[u8]) -> Vec<u8> {
    numbers.iter().copied().filter(|number| cache.entries().join(image(*number).directory_name()).exists()).collect()
}

#[test]
fn least_recently_used_entries_of_a_kind_are_evicted() {
    let fixture = populated_cache(&[1, 2, 3, 4]);
    let evicted = fixture.cache.evict(&["image"], 250).unwrap();
    assert_eq!((evicted.entries, evicted.bytes), (2, 200));
    assert_eq!(remaining_images(&fixture.cache, &[1, 2, 3, 4]), [3, 4]);
    assert!(fixture.entry_directory().exists(), "an entry of another kind was evicted");
    assert_eq!(fixture.leftovers(), [""; 0]);
}

#[test]
fn using_an_entry_protects_it_from_eviction() {
    let fixture = populated_cache(&[1, 2, 3]);
    fixture.cache.get(&image(1)).unwrap().unwrap();
    fixture.cache.evict(&["image"], 100).unwrap();
    assert_eq!(remaining_images(&fixture.cache, &[1, 2, 3]), [1]);
}

#[test]
fn pinned_entry_is_never_evicted() {
    let fixture = populated_cache(&[1, 2]);
    let (one, two) =
        (fixture.cache.get_pinned(&image(1)).unwrap().unwrap(), fixture.cache.get_pinned(&image(1)).unwrap().unwrap());
    set_last_use(one.directory(), 50);
    fixture.cache.evict(&["image"], 0).unwrap();
    assert_eq!(remaining_images(&fixture.cache, &[1, 2]), [1]);
    drop(one);
    fixture.cache.evict(&["image"], 0).unwrap();
    assert_eq!(fs::read(two.file("bytes").unwrap()).unwrap(), [1; 100]);
    drop(two);
    // A process that another test is just starting inherits the lock's descriptor for a moment.
    let deadline = Instant::now() + PROCESS_TIMEOUT;
    while !remaining_images(&fixture.cache, &[1, 2]).is_empty() {
        assert!(Instant::now() < deadline, "the entry is still pinned");
        fixture.cache.evict(&["image"], 0).unwrap();
    }
}

#[test]
fn entry_that_is_being_created_is_not_evicted() {
    let fixture = populated_cache(&[1]);
    let create = |new: &super::NewEntry| {
        new.write("bytes", &[2; 100])?;
        fixture.cache.evict(&["image"], 0)?;
        Ok(())
    };
    let entry = fixture.cache.get_or_create_pinned::<CacheError>(&image(2), &NoProgress, create).unwrap();
    assert_eq!(fs::read(entry.file("bytes").unwrap()).unwrap(), [2; 100]);
    assert_eq!(remaining_images(&fixture.cache, &[1, 2]), [2]);
}

#[test]
#[ignore = "runs as a child process of another test"]
fn child_evicts_entries() {
    let Some(root) = std::env::var_os(CHILD_CACHE).map(PathBuf::from) else { return };
    let cache = Cache::open(Some(root)).unwrap();
    for _ in 0..200 {
        cache.evict(&["image"], 0).unwrap();
        // Another process may be recreating or evicting the entry. An entry that is found is intact.
        if let Some(entry) = cache.get_pinned(&image(7)).unwrap() {
            assert_eq!(fs::read(entry.file("bytes").unwrap()).unwrap(), [7; 100]);
        }
    }
}

#[test]
fn no_process_sees_a_partly_evicted_entry() {
    let fixture = populated_cache(&[1, 2, 3]);
    let children: Vec<_> = (0..3)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "tests::child_evicts_entries", "--ignored"]);
            command.env(CHILD_CACHE, fixture.cache.root()).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for _ in 0..100 {
        let create = |new: &super::NewEntry| new.write("bytes", &[7; 100]);
        fixture.cache.get_or_create_pinned::<CacheError>(&image(7), &NoProgress, create).unwrap();
    }
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    fixture.cache.evict(&["image"], 0).unwrap();
    assert_eq!(remaining_images(&fixture.cache, &[1, 2, 3, 7]), [0; 0]);
    assert_eq!(fixture.leftovers(), [""; 0]);
}
