//! The eviction of entries, and its concurrency with their use.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use belljar_core::NoProgress;

use super::Fixture;
use super::concurrency::{CHILD_CACHE, PROCESS_TIMEOUT};
use crate::manifest::MANIFEST;
use crate::{Cache, CacheError, EntryKey, NewEntry};

/// Returns a cache with entries of the kind `image` of a hundred bytes each, used in this order, and an older
/// `program`.
fn populated_cache(numbers: &[u8]) -> Fixture {
    let fixture = Fixture::new();
    fixture.get_or_create();
    set_last_use(&fixture.entry_directory(), 100);
    for (age, number) in numbers.iter().rev().enumerate() {
        let create = |new: &NewEntry| new.write("bytes", &[*number; 100]);
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
    let create = |new: &NewEntry| {
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
            command.args(["--exact", "tests::eviction::child_evicts_entries", "--ignored"]);
            command.env(CHILD_CACHE, fixture.cache.root()).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for _ in 0..100 {
        let create = |new: &NewEntry| new.write("bytes", &[7; 100]);
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
