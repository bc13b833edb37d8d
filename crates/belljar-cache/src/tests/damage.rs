//! Changes of an entry's files: damaged entries are created again, and intact ones are kept.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use super::{CODE, Fixture, key};
use crate::Cache;
use crate::manifest::{MANIFEST, Manifest};

impl Fixture {
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
