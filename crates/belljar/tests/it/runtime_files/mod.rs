//! Sources of CPython's files, and damage to them or to the cache entries built from them.

mod cache;
mod sources;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::harness::{Belljar, Run};

/// Returns a warm cache to copy from. In the shared cache other tests add and remove packages meanwhile.
fn whole() -> &'static Path {
    static WHOLE: OnceLock<PathBuf> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let whole = Path::new(env!("CARGO_TARGET_TMPDIR")).join("belljar-cache-of-python");
        let run = Belljar::with_cache(&whole).args(["warmup", "--quiet"]).run();
        assert_eq!(run.status, Some(0), "{run:?}");
        whole
    })
}

/// Returns a copy of a warm cache that a test may damage. Only the files' inode times differ.
fn copy() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("cache");
    assert!(Command::new("cp").arg("-a").arg(whole()).arg(&path).status().unwrap().success());
    (directory, path)
}

/// Runs a small program with a cache, without downloads.
fn answer(cache: &Path) -> Run {
    Belljar::with_cache(cache)
        .args(["run", "--offline", "-q", "-p", "-c", "import wave, json; json.dumps([6 * 7])"])
        .run()
}

fn assert_answers(cache: &Path, what: &str) {
    let run = answer(cache);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "[42]\n"), "{what}: {run:?}");
}
