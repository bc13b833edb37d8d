//! A cache on a disk that is full.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Belljar, downloads};

belljar_testing::trials! {
    full_disk_is_reported_and_leaves_no_entries: [TmpfsMount],
}

/// A mounted tmpfs, unmounted when this is dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(at: &Path, size: &str) -> Self {
        let options = format!("size={size}");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(at).status().unwrap();
        assert!(status.success());
        Self(at.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn full_disk_is_reported_and_leaves_no_entries() {
    let directory = tempfile::tempdir().unwrap();
    let small = directory.path().join("small");
    fs::create_dir(&small).unwrap();
    let _mounted = Tmpfs::mount(&small, "8m");
    // The downloads in the warm cache serve as a directory of runtime files.
    let run = Belljar::with_cache(&small).args(["warmup", "-q", "--runtime"]).arg(downloads()).run();
    let left = fs::read_dir(small.join("entries")).map_or(0, Iterator::count);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(run.stderr.contains("No space left") || run.stderr.contains("full"), "{run:?}");
    assert_eq!(left, 0, "entries are left on the full disk");
}
