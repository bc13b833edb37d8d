//! A cache that is damaged, absent, read-only or shared.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::{answer, assert_answers, copy};
use crate::harness::{Belljar, cache_entries as entries};
use crate::wheels::Wheels;

/// Cuts a file to half its length.
fn cut(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

/// Changes one bit in the middle of a file. Its length and its modification time stay the same.
fn flip(path: &Path) {
    let times = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(times).unwrap();
}

/// Returns the files of all entries of a kind.
fn files(cache: &Path, kind: &str) -> Vec<std::path::PathBuf> {
    let entries = entries(cache, kind);
    entries.iter().flat_map(|entry| fs::read_dir(entry).unwrap().map(|file| file.unwrap().path())).collect()
}

#[test]
fn copied_cache_is_used_without_rebuilding() {
    let (_directory, cache) = copy();
    let before = files(&cache, "program");
    assert_answers(&cache, "a copy");
    assert_eq!(files(&cache, "program"), before);
}

#[test]
fn damaged_images_are_rebuilt() {
    // The image and the standard library are built quickly, so each of their files is damaged in each way.
    for kind in ["base", "stdlib"] {
        for (what, damage) in
            [("cut", cut as fn(&Path)), ("changed", flip), ("deleted", |path| fs::remove_file(path).unwrap())]
        {
            let (_directory, cache) = copy();
            let count = files(&cache, kind).len() / entries(&cache, kind).len();
            for index in 0..count {
                for entry in entries(&cache, kind) {
                    let mut files: Vec<_> = fs::read_dir(entry).unwrap().map(|file| file.unwrap().path()).collect();
                    files.sort();
                    // Entries of other builds are not rebuilt, and may lack a file by now.
                    if let Some(file) = files.get(index) {
                        damage(file);
                    }
                }
                assert_answers(&cache, &format!("file {index} of {kind}, {what}"));
            }
        }
    }
}

#[test]
fn damaged_code_is_never_loaded() {
    // Compilation takes long, so all files are damaged at once, in one way each.
    let (_directory, cache) = copy();
    for (number, file) in files(&cache, "program").iter().enumerate() {
        if number % 2 == 0 { cut(file) } else { flip(file) }
    }
    for file in files(&cache, "base") {
        flip(&file);
    }
    assert_answers(&cache, "all of the program");
}

#[test]
fn damaged_downloads_are_not_used() {
    let (_directory, cache) = copy();
    for file in files(&cache, "runtime") {
        flip(&file);
    }
    // The entries built from the downloads are intact.
    assert_answers(&cache, "whole images");
    for kind in ["base", "stdlib"] {
        for entry in entries(&cache, kind) {
            fs::remove_dir_all(entry).unwrap();
        }
    }
    let run = answer(&cache);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(run.stderr.contains("is not in the cache") && run.stderr.contains("\nhint: "), "{run:?}");
}

#[test]
fn foreign_and_temporary_files_are_not_entries() {
    let (_directory, cache) = copy();
    for entry in entries(&cache, "base") {
        let name = entry.file_name().unwrap().to_str().unwrap().to_owned();
        fs::remove_dir_all(&entry).unwrap();
        // A foreign file in the entry's place, and a temporary directory of an interrupted process.
        fs::write(&entry, "not a directory").unwrap();
        fs::create_dir(cache.join(format!("entries/.new-{name}-1"))).unwrap();
    }
    fs::write(cache.join("entries/foreign"), "x").unwrap();
    assert_answers(&cache, "foreign files");
}

#[test]
fn empty_cache_without_network_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let run = answer(&directory.path().join("cache"));
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(run.stderr.contains("is not in the cache") && run.stderr.contains("\nhint: "), "{run:?}");
}

#[test]
fn unusable_cache_path_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    for cache in [file.clone(), file.join("below"), "/proc/none".into()] {
        let run = answer(&cache);
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.starts_with("belljar: "), "{run:?}");
    }
}

#[cfg(unix)]
#[test]
fn read_only_cache_serves_its_entries() {
    use std::os::unix::fs::PermissionsExt as _;

    let (_directory, cache) = copy();
    assert_answers(&cache, "to learn the copy's stamps");
    let mode = |mode: u32| {
        for path in [&cache, &cache.join("entries"), &cache.join("locks")] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    mode(0o500);
    let run = answer(&cache);
    mode(0o700);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "[42]\n"), "{run:?}");
}

#[test]
fn two_processes_can_fill_an_empty_cache() {
    let (_directory, cache) = copy();
    for kind in ["base", "stdlib", "program"] {
        for entry in entries(&cache, kind) {
            fs::remove_dir_all(entry).unwrap();
        }
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_answers(&cache, "two at once"));
        }
    });
    let left: Vec<_> = fs::read_dir(cache.join("entries")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with('.')), "{left:?}");
}

#[test]
fn killed_build_leaves_a_usable_cache() {
    let (_directory, cache) = copy();
    for kind in ["base", "stdlib"] {
        for entry in entries(&cache, kind) {
            fs::remove_dir_all(entry).unwrap();
        }
    }
    for milliseconds in [50, 300, 1000] {
        let running = Belljar::with_cache(&cache).args(["warmup", "--offline", "-q"]).start();
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        drop(running);
    }
    assert_answers(&cache, "after being killed");
}

#[test]
fn cache_command_shows_sizes_and_deletes() {
    let (_directory, cache) = copy();
    let belljar = || Belljar::with_cache(&cache).env("UV_NO_INDEX", "1");
    let wheels = Wheels::with_dependency();
    let run = belljar().args(["run", "-q", "--find-links", wheels.path(), "-c", "import gamma"]).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    let report = || belljar().args(["cache", "--json", "--cache-size", "123MB"]).json().0;
    let kind = |report: &serde_json::Value, name: &str| {
        report["kinds"].as_array().unwrap().iter().find(|kind| kind["name"] == name).cloned()
    };
    let before = report();
    assert_eq!((&before["directory"], &before["max_packages"]), (&json!(cache), &json!(123 << 20)), "{before}");
    assert_eq!(kind(&before, "wheel").unwrap()["entries"], 2, "{before}");
    assert!(kind(&before, "program").unwrap()["size"].as_u64().unwrap() > 10 << 20, "{before}");
    let kinds = before["kinds"].as_array().unwrap();
    let total: u64 = kinds.iter().map(|kind| kind["size"].as_u64().unwrap()).sum();
    assert_eq!(total + before["other"].as_u64().unwrap(), before["size"].as_u64().unwrap(), "{before}");
    let bounded = kinds.iter().filter(|kind| kind["is_bounded"] == true).map(|kind| kind["size"].as_u64().unwrap());
    assert_eq!(bounded.sum::<u64>(), before["packages"].as_u64().unwrap(), "{before}");

    let text = belljar().env("BELLJAR_CACHE_SIZE", "123MB").arg("cache").run().stdout;
    for part in [cache.to_str().unwrap(), "native code of CPython", "just now", "of at most 123.00 MiB", "cache clean"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let cleaned = belljar().args(["cache", "clean"]).run();
    assert!(cleaned.status == Some(0) && cleaned.stderr.contains(" entries deleted, "), "{cleaned:?}");
    let after = report();
    assert_eq!((kind(&after, "wheel"), &after["packages"]), (None, &json!(0)), "{after}");
    assert_eq!(kind(&after, "program"), kind(&before, "program"));
    assert_answers(&cache, "cleaned");
    assert_eq!(belljar().args(["cache", "clean", "--all"]).run().status, Some(0));
    assert_eq!(report()["kinds"], json!([]));
}
