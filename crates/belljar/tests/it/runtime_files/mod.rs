//! Where CPython's files come from, and what happens when they, or what was built of them, are not as they should be.

mod cache;
mod sources;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::harness::{Belljar, Run, cache as warm_cache, python};

/// A warm cache to copy from. The one that all tests share does not serve: packages come and go in it meanwhile.
fn whole() -> &'static Path {
    static WHOLE: OnceLock<PathBuf> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let whole = Path::new(env!("CARGO_TARGET_TMPDIR")).join("belljar-cache-of-python");
        let run = Belljar::with_cache(&whole).args(["warmup", "--quiet"]).run();
        assert_eq!(run.status, Some(0), "{run:?}");
        whole
    })
}

/// A copy of a whole cache that a test may damage. Nothing but its files' stamps differs.
fn copy() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("cache");
    assert!(Command::new("cp").arg("-a").arg(whole()).arg(&path).status().unwrap().success());
    (directory, path)
}

/// The entries of a cache whose names begin with `kind`.
fn entries(cache: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(cache.join("entries")).unwrap();
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(kind));
    entries.sort();
    assert!(!entries.is_empty(), "no entry of kind {kind}");
    entries
}

/// The warm cache's downloads of the release that the tests run with: it may hold those of another besides.
fn downloads() -> PathBuf {
    let description = python().description();
    let version = description.split(' ').nth(1).unwrap();
    let is_of_release = |directory: &PathBuf| {
        let lock = std::fs::read(directory.join("pyodide-lock.json")).unwrap();
        let lock: serde_json::Value = serde_json::from_slice(&lock).unwrap();
        lock["info"]["python"].as_str().unwrap().starts_with(version)
    };
    entries(warm_cache(), "runtime").into_iter().find(is_of_release).unwrap()
}

/// Runs a small program with a cache; nothing may be fetched.
fn answer(cache: &Path) -> Run {
    Belljar::with_cache(cache)
        .args(["run", "--offline", "-q", "-p", "-c", "import wave, json; json.dumps([6 * 7])"])
        .run()
}

fn assert_answers(cache: &Path, what: &str) {
    let run = answer(cache);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "[42]\n"), "{what}: {run:?}");
}
