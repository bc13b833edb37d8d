//! Tests of packs: their entries are found as if they were in the bundle, in caches of every condition.

use std::fs;
use std::path::{Path, PathBuf};

use belljar_core::NoProgress;
use tempfile::TempDir;

use super::{compress, decompress};
use crate::{BundleContents, Cache, CacheError, Entry, EntryKey, NewEntry, open_file};

/// Files of this crate, which resemble nothing of each other but what they have in common.
const IMAGE: &[u8] = include_bytes!("../tests.rs");
const SOURCES: &[u8] = include_bytes!("../lib.rs");

/// A bundle with packed entries, and a cache that uses it.
struct Fixture {
    directory: TempDir,
    bundle: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(directory.path().join("built"))).unwrap().recording();
        create(&cache, &base(), &[("base.image", IMAGE), ("unused", b"")]);
        create(&cache, &session(), &[("session.image", &session_image()), ("wheels.json", b"[]")]);
        create(&cache, &layer(), &[("wheel.data", SOURCES)]);
        create(&cache, &runtime(), &[("lock", b"{}"), ("wasm", SOURCES)]);
        create(&cache, &EntryKey::new("wheel"), &[("wheel", SOURCES)]);
        let bundle = directory.path().join("bundle");
        let contents = BundleContents {
            kinds: &["base", "runtime"],
            left_out: &[("base", "unused")],
            compressed: &[("runtime", "wasm")],
            packed: &["layer", "session"],
            resembled: ("base", "base.image"),
        };
        cache.write_bundle(&contents, &bundle).unwrap();
        Fixture { directory, bundle }
    }

    /// Opens the cache, as another process does.
    fn open(&self) -> Cache {
        self.open_at(&self.directory.path().join("cache"))
    }

    fn open_at(&self, root: &Path) -> Cache {
        Cache::open(Some(root.to_owned())).unwrap().with_bundle(Some(self.bundle.clone()))
    }

    /// Expects that the cache builds the entry of sessions itself.
    #[track_caller]
    fn is_built_instead(&self) {
        let cache = self.open();
        assert!(cache.get(&session()).unwrap().is_none());
        let create = |new: &NewEntry| new.write("session.image", b"built");
        let entry = cache.get_or_create_pinned::<CacheError>(&session(), &NoProgress, create).unwrap();
        assert_eq!(read(&entry, "session.image"), b"built");
    }
}

fn create(cache: &Cache, key: &EntryKey, files: &[(&str, &[u8])]) {
    let created = cache.get_or_create::<CacheError>(key, &NoProgress, |new| {
        for (name, bytes) in files {
            new.write(name, bytes)?;
        }
        Ok(())
    });
    created.unwrap();
}

fn base() -> EntryKey {
    EntryKey::new("base")
}

fn session() -> EntryKey {
    EntryKey::new("session").part("for", "tests")
}

fn layer() -> EntryKey {
    EntryKey::new("layer").part("for", "tests")
}

fn runtime() -> EntryKey {
    EntryKey::new("runtime")
}

/// Returns an image that was made from [`IMAGE`], with a block that is zero.
fn session_image() -> Vec<u8> {
    let mut image = [&IMAGE[..1000], &[0u8; 10_000][..], &IMAGE[1000..]].concat();
    for at in (12_000..image.len()).step_by(700) {
        image[at] ^= 1;
    }
    image
}

fn read(entry: &Entry, name: &str) -> Vec<u8> {
    fs::read(entry.file(name).unwrap()).unwrap()
}

/// Expects that a cache has the packed entries, and that nothing has to be created.
#[track_caller]
fn has_all(cache: &Cache) {
    let create = |_: &NewEntry| -> Result<(), CacheError> { panic!("an entry of the bundle was created") };
    let entry = cache.get_or_create_pinned(&session(), &NoProgress, create).unwrap();
    assert_eq!(read(&entry, "session.image"), session_image());
    assert_eq!(read(&entry, "wheels.json"), b"[]");
    assert!(matches!(entry.file("other"), Err(CacheError::NoSuchFile { .. })));
    assert_eq!(read(&cache.get(&layer()).unwrap().unwrap(), "wheel.data"), SOURCES);
    assert_eq!(read(&cache.get_or_create(&layer(), &NoProgress, create).unwrap(), "wheel.data"), SOURCES);
    cache.wait_for_sync();
}

/// Returns the names of a directory's entries, without the digests.
fn kinds(directory: &Path) -> Vec<String> {
    let names = directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut kinds: Vec<String> = names.map(|name| name.split('-').next().unwrap_or_default().to_owned()).collect();
    kinds.sort();
    kinds
}

#[test]
fn content_is_compressed_as_its_difference() {
    let image = session_image();
    let difference = compress(&image, IMAGE).unwrap();
    assert!(difference.len() * 3 < compress(&image, &[]).unwrap().len(), "{}", difference.len());
    let size = image.len() as u64;
    assert_eq!(decompress(&difference, IMAGE, size).unwrap(), image);
    assert_ne!(decompress(&difference, SOURCES, size).ok(), Some(image));
    for wrong in [size - 1, size + 1, u64::MAX] {
        decompress(&difference, IMAGE, wrong).unwrap_err();
    }
    decompress(&difference[..difference.len() / 2], IMAGE, size).unwrap_err();
}

#[test]
fn packed_entries_are_unpacked_when_one_is_looked_up() {
    let fixture = Fixture::new();
    assert_eq!(kinds(&fixture.bundle), ["base", "packed", "runtime"]);
    let cache = fixture.open();
    let image = cache.get(&base()).unwrap().unwrap();
    assert_eq!(image.names().collect::<Vec<_>>(), ["base.image"]);
    assert!(image.directory().starts_with(&fixture.bundle));
    assert!(cache.is_bundled(&base()) && !cache.is_bundled(&session()));
    assert!(cache.get(&EntryKey::new("other")).unwrap().is_none());
    assert!(!cache.root().exists(), "something was unpacked without need");

    has_all(&cache);
    assert_eq!(kinds(&cache.root().join("entries")), ["layer", "session"]);
    // Another process finds them in the cache, and does not need the pack.
    fs::remove_dir_all(fixture.bundle.join("packed")).unwrap();
    has_all(&fixture.open());
}

#[cfg(unix)]
#[test]
fn zeroes_take_no_space_in_the_cache() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::new();
    let cache = fixture.open();
    let entry = cache.get(&session()).unwrap().unwrap();
    cache.wait_for_sync();
    let metadata = fs::metadata(entry.file("session.image").unwrap()).unwrap();
    assert_eq!(metadata.len(), session_image().len() as u64);
    assert!(metadata.blocks() * 512 <= metadata.len(), "{} blocks", metadata.blocks());
}

#[test]
fn evicted_and_damaged_entries_are_unpacked_again() {
    let fixture = Fixture::new();
    let cache = fixture.open();
    has_all(&cache);
    cache.remove(&layer()).unwrap();
    has_all(&cache);
    let entry = cache.get(&session()).unwrap().unwrap();
    fs::write(entry.file("session.image").unwrap(), b"cut short").unwrap();
    has_all(&cache);
    fs::remove_file(cache.get(&layer()).unwrap().unwrap().directory().join("manifest.json")).unwrap();
    has_all(&fixture.open());
}

#[test]
fn entries_are_unpacked_into_memory_if_the_cache_cannot_be_written() {
    let fixture = Fixture::new();
    let file = fixture.directory.path().join("file");
    fs::write(&file, b"").unwrap();
    let cache = fixture.open_at(&file.join("cache"));
    has_all(&cache);
    // Once for all lookups of the process.
    let (first, second) = (cache.get(&session()).unwrap().unwrap(), cache.clone().get(&session()).unwrap().unwrap());
    assert_eq!(first.file("session.image").unwrap(), second.file("session.image").unwrap());
}

#[test]
fn threads_get_one_copy_in_memory() {
    let fixture = Fixture::new();
    let file = fixture.directory.path().join("file");
    fs::write(&file, b"").unwrap();
    let cache = fixture.open_at(&file.join("cache"));
    let find = || cache.get_pinned(&session()).unwrap().unwrap().file("session.image").unwrap();
    let paths: Vec<PathBuf> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(find)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(paths.iter().all(|path| *path == paths[0]), "{paths:?}");
}

#[test]
fn damaged_packs_are_not_used() {
    let fixture = Fixture::new();
    let packed = fixture.bundle.join("packed/entries.zst");
    let mut bytes = fs::read(&packed).unwrap();
    bytes.truncate(bytes.len() - 1);
    fs::write(packed, bytes).unwrap();
    fixture.is_built_instead();
}

#[test]
fn packs_that_differ_from_another_file_are_not_used() {
    let fixture = Fixture::new();
    let image = fixture.open().get(&base()).unwrap().unwrap().file("base.image").unwrap();
    let mut bytes = fs::read(&image).unwrap();
    bytes[IMAGE.len() / 2] ^= 1;
    bytes[IMAGE.len() / 2 + 350] ^= 1;
    fs::write(&image, bytes).unwrap();
    fixture.is_built_instead();
}

#[test]
fn damaged_indexes_are_not_used() {
    let fixture = Fixture::new();
    fs::write(fixture.bundle.join("packed/index.json"), b"{").unwrap();
    fixture.is_built_instead();
}

#[test]
fn compressed_files_are_read_as_they_were() {
    let fixture = Fixture::new();
    let entry = fixture.open().get(&runtime()).unwrap().unwrap();
    assert_eq!(entry.names().collect::<Vec<_>>(), ["lock", "wasm.zst"]);
    let read = |name: &str| {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut open_file(&entry.directory().join(name))?, &mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    assert_eq!(read("wasm").unwrap(), SOURCES);
    assert_eq!(read("lock").unwrap(), b"{}");
    assert_eq!(read("other").unwrap_err().kind(), std::io::ErrorKind::NotFound);
}
