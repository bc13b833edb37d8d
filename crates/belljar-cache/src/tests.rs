//! What the cache promises: whole entries or none, made once, however the files and the processes are treated.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, SystemTime};

use belljar_core::progress::{NoProgress, Progress, Step, StepProgress};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::manifest::{MANIFEST, Manifest, hex};
use super::{Cache, CacheError, Entry, EntryKey};

const CODE: &[u8] = b"pretend that this is native code";

/// A cache in a directory of its own, with a count of how often its entry was made.
struct Fixture {
    directory: TempDir,
    cache: Cache,
    made: AtomicUsize,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(directory.path().join("cache"))).unwrap();
        Fixture { directory, cache, made: AtomicUsize::new(0) }
    }

    fn get_or_make(&self) -> Entry {
        let make = |new: &super::NewEntry| {
            self.made.fetch_add(1, Ordering::SeqCst);
            new.write("code", CODE)?;
            new.write("names.json", b"{}")
        };
        self.cache.get_or_make::<CacheError>(&key(), &NoProgress, make).unwrap()
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    fn entry_directory(&self) -> PathBuf {
        self.cache.entries().join(key().directory_name())
    }

    /// Temporary directories that lie about.
    fn leftovers(&self) -> Vec<String> {
        let names = self.cache.entries().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).filter(|name| name.starts_with('.')).collect()
    }

    /// Makes the entry, lets `damage` at its directory, and expects a new entry with the right content.
    #[track_caller]
    fn is_remade_after(damage: impl FnOnce(&Path)) {
        let fixture = Fixture::new();
        fixture.get_or_make();
        damage(&fixture.entry_directory());
        assert!(fixture.cache.get(&key()).unwrap().is_none(), "a damaged entry was handed out");
        let entry = fixture.get_or_make();
        assert_eq!(fixture.made(), 2);
        assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
        assert_eq!(fixture.leftovers(), [""; 0]);
    }
}

fn key() -> EntryKey {
    EntryKey::new("program").part("for", "tests")
}

/// Waits until the file system's clock has moved on from when `path` was last changed: within one tick of it (4 ms on
/// many kernels) two changes have the same time.
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
fn an_entry_is_made_once_and_found_again() {
    let fixture = Fixture::new();
    assert!(fixture.cache.get(&key()).unwrap().is_none());
    fixture.get_or_make();
    let entry = fixture.get_or_make();
    assert_eq!(fixture.made(), 1);
    assert_eq!(entry.names().collect::<Vec<_>>(), ["code", "names.json"]);
    assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
    assert!(matches!(entry.file("other"), Err(CacheError::NoSuchFile { .. })));
    assert_eq!(fixture.leftovers(), [""; 0]);
}

#[test]
fn opening_a_cache_and_looking_into_it_writes_nothing() {
    let fixture = Fixture::new();
    assert!(fixture.cache.get(&key()).unwrap().is_none());
    assert!(!fixture.cache.root().exists());
    fixture.get_or_make();
    fs::remove_dir_all(fixture.cache.root().join("locks")).unwrap();
    fixture.get_or_make();
    assert!(!fixture.cache.root().join("locks").exists(), "finding a whole entry took a lock");
}

#[test]
fn a_truncated_file_has_its_entry_remade() {
    Fixture::is_remade_after(|entry| {
        File::options().write(true).open(entry.join("code")).unwrap().set_len(5).unwrap();
    });
}

#[test]
fn a_flipped_bit_has_its_entry_remade_even_when_the_modification_time_was_restored() {
    Fixture::is_remade_after(|entry| {
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
fn another_file_in_the_place_of_one_has_the_entry_remade() {
    Fixture::is_remade_after(|entry| {
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
fn a_symbolic_link_in_the_place_of_a_file_has_the_entry_remade() {
    Fixture::is_remade_after(|entry| {
        let elsewhere = entry.parent().unwrap().parent().unwrap().join("elsewhere");
        fs::rename(entry.join("code"), &elsewhere).unwrap();
        std::os::unix::fs::symlink(elsewhere, entry.join("code")).unwrap();
    });
}

#[test]
fn a_missing_file_has_its_entry_remade() {
    Fixture::is_remade_after(|entry| fs::remove_file(entry.join("names.json")).unwrap());
}

#[test]
fn a_missing_manifest_has_its_entry_remade() {
    Fixture::is_remade_after(|entry| fs::remove_file(entry.join(MANIFEST)).unwrap());
}

#[test]
fn a_garbled_manifest_has_its_entry_remade() {
    for garbage in [&b""[..], b"{}", b"\xff\0garbage", b"{\"sha256\": \"\", \"manifest\": null}"] {
        Fixture::is_remade_after(|entry| fs::write(entry.join(MANIFEST), garbage).unwrap());
    }
}

#[test]
fn a_manifest_with_a_changed_digit_is_not_believed() {
    Fixture::is_remade_after(|entry| {
        let text = fs::read_to_string(entry.join(MANIFEST)).unwrap();
        // The stamps stay right, so that nothing but the checksum tells.
        let hash = hex(&Sha256::digest(CODE));
        let changed = text.replacen(&hash, &hash.replace(['0', '1', '2', '3'], "4"), 1);
        assert_ne!(text, changed);
        fs::write(entry.join(MANIFEST), changed).unwrap();
    });
}

#[test]
fn a_manifest_that_names_files_outside_its_entry_is_not_believed() {
    Fixture::is_remade_after(|entry| {
        let mut manifest = Manifest::read(&File::open(entry.join(MANIFEST)).unwrap()).unwrap().unwrap();
        let record = manifest.files.remove("names.json").unwrap();
        fs::rename(entry.join("names.json"), entry.join("../names.json")).unwrap();
        manifest.files.insert("../names.json".to_owned(), record);
        fs::write(entry.join(MANIFEST), manifest.to_bytes().unwrap()).unwrap();
    });
}

#[test]
fn a_file_in_the_place_of_an_entry_is_replaced_by_it() {
    Fixture::is_remade_after(|entry| {
        fs::remove_dir_all(entry).unwrap();
        fs::write(entry, "not a directory").unwrap();
    });
}

#[test]
fn a_touched_file_keeps_its_entry_and_gets_a_new_stamp() {
    let fixture = Fixture::new();
    let path = fixture.get_or_make().file("code").unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    let before = fs::read(fixture.entry_directory().join(MANIFEST)).unwrap();
    fixture.get_or_make();
    assert_eq!(fixture.made(), 1);
    assert_ne!(fs::read(fixture.entry_directory().join(MANIFEST)).unwrap(), before);
    fs::remove_dir_all(fixture.cache.root().join("locks")).unwrap();
    fixture.get_or_make();
    assert!(!fixture.cache.root().join("locks").exists(), "the new stamps were not trusted");
}

#[test]
fn a_copied_cache_keeps_its_entries() {
    let fixture = Fixture::new();
    fixture.get_or_make();
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
fn a_failed_making_leaves_nothing_and_its_error_comes_through() {
    let fixture = Fixture::new();
    let failed = fixture.cache.get_or_make(&key(), &NoProgress, |new| {
        new.write("code", b"half")?;
        Err(CacheError::NoDirectory)
    });
    assert!(matches!(failed, Err(CacheError::NoDirectory)));
    assert_eq!(fixture.leftovers(), [""; 0]);
    assert!(fixture.cache.get(&key()).unwrap().is_none());
}

#[test]
fn a_removed_entry_is_gone() {
    let fixture = Fixture::new();
    fixture.get_or_make();
    fixture.cache.remove(&key()).unwrap();
    assert!(fixture.cache.get(&key()).unwrap().is_none());
    assert_eq!(fixture.leftovers(), [""; 0]);
    fixture.cache.remove(&key()).unwrap();
}

#[test]
fn usage_lists_entries_with_their_sizes() {
    let fixture = Fixture::new();
    assert_eq!(fixture.cache.usage().unwrap(), []);
    fixture.get_or_make();
    let usage = fixture.cache.usage().unwrap();
    assert_eq!(usage.len(), 1);
    assert_eq!(usage[0].name, key().directory_name());
    assert_eq!(usage[0].bytes, CODE.len() as u64 + 2);
}

#[test]
fn the_last_use_is_noted_every_ten_minutes() {
    let fixture = Fixture::new();
    fixture.get_or_make();
    let manifest = File::options().write(true).open(fixture.entry_directory().join(MANIFEST)).unwrap();
    let a_minute_ago = SystemTime::now() - Duration::from_secs(60);
    manifest.set_modified(a_minute_ago).unwrap();
    fixture.get_or_make();
    assert_eq!(fixture.cache.usage().unwrap()[0].last_used, a_minute_ago);
    manifest.set_modified(a_minute_ago - Duration::from_secs(48 * 3600)).unwrap();
    fixture.get_or_make();
    assert!(fixture.cache.usage().unwrap()[0].last_used > a_minute_ago);
    assert_eq!(fixture.made(), 1);
}

/// Sends the name of every step.
struct Told(Mutex<mpsc::Sender<String>>);

impl Progress for Told {
    fn start(&self, step: Step) -> Box<dyn StepProgress> {
        self.0.lock().unwrap().send(step.name).unwrap();
        Box::new(NoProgress)
    }
}

#[test]
fn a_second_thread_waits_says_so_and_uses_what_the_first_made() {
    let fixture = Fixture::new();
    let (tell, told) = mpsc::channel();
    let (begun, wait_for_begin) = mpsc::channel();
    std::thread::scope(|scope| {
        let cache = &fixture.cache;
        scope.spawn(move || {
            let make = |new: &super::NewEntry| {
                begun.send(()).unwrap();
                // The other one is known to wait before this one goes on.
                assert_eq!(told.recv().unwrap(), "waiting for another belljar process");
                new.write("code", CODE)
            };
            cache.get_or_make::<CacheError>(&key(), &NoProgress, make).unwrap();
        });
        wait_for_begin.recv().unwrap();
        let make = |_: &super::NewEntry| panic!("made twice");
        let entry = cache.get_or_make::<CacheError>(&key(), &Told(Mutex::new(tell)), make).unwrap();
        assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
    });
}

/// Names the cache directory to the test below when it is run as another process.
const CHILD_CACHE: &str = "BELLJAR_TEST_CHILD_CACHE";
/// Tells it to die in the middle of making the entry.
const CHILD_DIES: &str = "BELLJAR_TEST_CHILD_DIES";

/// This test binary as another process, about to make the entry in `cache`.
fn child(cache: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::makes_an_entry_as_another_process", "--ignored"]);
    command.env(CHILD_CACHE, cache).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
#[ignore = "the part of other tests that runs as another process"]
fn makes_an_entry_as_another_process() {
    let Some(root) = std::env::var_os(CHILD_CACHE).map(PathBuf::from) else { return };
    let cache = Cache::open(Some(root.clone())).unwrap();
    let make = |new: &super::NewEntry| {
        let log = root.with_extension("log");
        File::options().create(true).append(true).open(log).unwrap().write_all(b"made\n").unwrap();
        new.write("code", CODE)?;
        if std::env::var_os(CHILD_DIES).is_some() {
            std::process::abort();
        }
        // Time for the other processes to come across it.
        std::thread::sleep(Duration::from_millis(100));
        Ok(())
    };
    let entry = cache.get_or_make::<CacheError>(&key(), &NoProgress, make).unwrap();
    assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
}

#[test]
fn of_several_processes_one_makes_the_entry() {
    let fixture = Fixture::new();
    let children: Vec<_> = (0..4).map(|_| child(fixture.cache.root()).spawn().unwrap()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(fs::read_to_string(fixture.cache.root().with_extension("log")).unwrap(), "made\n");
    assert_eq!(fixture.leftovers(), [""; 0]);
}

#[test]
fn what_a_killed_process_left_behind_is_cleaned_up_and_not_used() {
    let fixture = Fixture::new();
    assert!(!child(fixture.cache.root()).env(CHILD_DIES, "1").status().unwrap().success());
    assert_eq!(fixture.leftovers().len(), 1);
    assert!(fixture.cache.get(&key()).unwrap().is_none());
    // Whoever makes any entry cleans up, not just the one that was interrupted.
    let other = EntryKey::new("image");
    fixture.cache.get_or_make::<CacheError>(&other, &NoProgress, |new| new.write("base", b"")).unwrap();
    assert_eq!(fixture.leftovers(), [""; 0]);
    fixture.get_or_make();
    assert_eq!(fixture.made(), 1);
}

#[test]
fn an_entry_that_is_being_made_is_not_cleaned_up() {
    let fixture = Fixture::new();
    let make = |new: &super::NewEntry| {
        new.write("code", CODE)?;
        let other = EntryKey::new("image");
        fixture.cache.get_or_make::<CacheError>(&other, &NoProgress, |new| new.write("base", b""))?;
        Ok(())
    };
    let entry = fixture.cache.get_or_make::<CacheError>(&key(), &NoProgress, make).unwrap();
    assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named_with_what_was_needed() {
    let fixture = Fixture::new();
    let make = |new: &super::NewEntry| {
        // Writing to this device fails as writing to a full disk does.
        std::os::unix::fs::symlink("/dev/full", new.path().join("code")).unwrap();
        new.write("code", &[0; 4096])
    };
    let error = fixture.cache.get_or_make::<CacheError>(&key(), &NoProgress, make).unwrap_err();
    assert!(matches!(error, CacheError::Full { needed: Some(4096), .. }), "{error:?}");
    let words = error.to_string();
    assert!(words.contains("4 KiB") && words.contains(&*fixture.cache.root().to_string_lossy()), "{words}");
    assert_eq!(fixture.leftovers(), [""; 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_written_to_is_named() {
    // Not even root may make directories there.
    let cache = Cache::open(Some(PathBuf::from("/sys/belljar"))).unwrap();
    assert!(cache.get(&key()).unwrap().is_none());
    let make = |_: &super::NewEntry| panic!("there is nowhere to make it");
    let error = cache.get_or_make::<CacheError>(&key(), &NoProgress, make).unwrap_err();
    assert!(matches!(error, CacheError::NotWritable { .. }), "{error:?}");
    assert!(error.to_string().contains("/sys/belljar"), "{error}");
    assert!(error.to_string().contains("BELLJAR_CACHE"), "{error}");
}

#[test]
fn other_failures_of_the_file_system_keep_their_words() {
    let error = CacheError::writing(Path::new("dir/file"), None, io::Error::other("the disk is on fire"));
    assert_eq!(error.to_string(), "cannot write dir/file: the disk is on fire");
}

/// A cache with entries of the kind `image` of a hundred bytes each, used in this order, and an older `program`.
fn crowded(numbers: &[u8]) -> Fixture {
    let fixture = Fixture::new();
    fixture.get_or_make();
    use_at(&fixture.entry_directory(), 100);
    for (age, number) in numbers.iter().rev().enumerate() {
        let make = |new: &super::NewEntry| new.write("bytes", &[*number; 100]);
        let entry = fixture.cache.get_or_make::<CacheError>(&image(*number), &NoProgress, make).unwrap();
        use_at(entry.directory(), 1 + age as u64);
    }
    fixture
}

fn image(number: u8) -> EntryKey {
    EntryKey::new("image").part("number", [number])
}

/// Lets the entry in `directory` have been used so many hours ago.
fn use_at(directory: &Path, hours: u64) {
    let manifest = File::open(directory.join(MANIFEST)).unwrap();
    manifest.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
}

fn images_left(cache: &Cache, numbers: &[u8]) -> Vec<u8> {
    numbers.iter().copied().filter(|number| cache.entries().join(image(*number).directory_name()).exists()).collect()
}

#[test]
fn the_least_recently_used_entries_of_a_kind_make_room() {
    let fixture = crowded(&[1, 2, 3, 4]);
    let evicted = fixture.cache.evict(&["image"], 250).unwrap();
    assert_eq!((evicted.entries, evicted.bytes), (2, 200));
    assert_eq!(images_left(&fixture.cache, &[1, 2, 3, 4]), [3, 4]);
    assert!(fixture.entry_directory().exists(), "an entry of another kind was evicted");
    assert_eq!(fixture.leftovers(), [""; 0]);
}

#[test]
fn a_use_saves_an_entry_from_eviction() {
    let fixture = crowded(&[1, 2, 3]);
    fixture.cache.get(&image(1)).unwrap().unwrap();
    fixture.cache.evict(&["image"], 100).unwrap();
    assert_eq!(images_left(&fixture.cache, &[1, 2, 3]), [1]);
}

#[test]
fn an_entry_that_is_held_is_never_evicted() {
    let fixture = crowded(&[1, 2]);
    let (one, two) = (fixture.cache.hold(&image(1)).unwrap().unwrap(), fixture.cache.hold(&image(1)).unwrap().unwrap());
    use_at(one.directory(), 50);
    fixture.cache.evict(&["image"], 0).unwrap();
    assert_eq!(images_left(&fixture.cache, &[1, 2]), [1]);
    drop(one);
    fixture.cache.evict(&["image"], 0).unwrap();
    assert_eq!(fs::read(two.file("bytes").unwrap()).unwrap(), [1; 100]);
    drop(two);
    // A process that another test is just starting holds it, too, for a moment.
    let begun = Instant::now();
    while !images_left(&fixture.cache, &[1, 2]).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it is still held");
        fixture.cache.evict(&["image"], 0).unwrap();
    }
}

#[test]
fn an_entry_that_is_being_made_is_not_evicted() {
    let fixture = crowded(&[1]);
    let make = |new: &super::NewEntry| {
        new.write("bytes", &[2; 100])?;
        fixture.cache.evict(&["image"], 0)?;
        Ok(())
    };
    let entry = fixture.cache.hold_or_make::<CacheError>(&image(2), &NoProgress, make).unwrap();
    assert_eq!(fs::read(entry.file("bytes").unwrap()).unwrap(), [2; 100]);
    assert_eq!(images_left(&fixture.cache, &[1, 2]), [2]);
}

#[test]
#[ignore = "the part of another test that runs as another process"]
fn evicts_as_another_process() {
    let Some(root) = std::env::var_os(CHILD_CACHE).map(PathBuf::from) else { return };
    let cache = Cache::open(Some(root)).unwrap();
    for _ in 0..200 {
        cache.evict(&["image"], 0).unwrap();
        // Another process may be making it again, or evicting it. What is found is whole.
        if let Some(entry) = cache.hold(&image(7)).unwrap() {
            assert_eq!(fs::read(entry.file("bytes").unwrap()).unwrap(), [7; 100]);
        }
    }
}

#[test]
fn several_processes_evict_what_another_makes_and_none_sees_half_of_it() {
    let fixture = crowded(&[1, 2, 3]);
    let children: Vec<_> = (0..3)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "tests::evicts_as_another_process", "--ignored"]);
            command.env(CHILD_CACHE, fixture.cache.root()).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for _ in 0..100 {
        let make = |new: &super::NewEntry| new.write("bytes", &[7; 100]);
        fixture.cache.hold_or_make::<CacheError>(&image(7), &NoProgress, make).unwrap();
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    fixture.cache.evict(&["image"], 0).unwrap();
    assert_eq!(images_left(&fixture.cache, &[1, 2, 3, 7]), [0; 0]);
    assert_eq!(fixture.leftovers(), [""; 0]);
}
