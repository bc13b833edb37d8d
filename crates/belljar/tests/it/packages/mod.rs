//! Packages as users meet them: wheels of the real index, and wheels made for a test.

mod images;
mod import_readings;
mod installing;
mod needs;
mod offline;
mod optimization;
mod optional_dependencies;
mod programs;
mod refusals;
mod reproducible;

use std::path::Path;

/// Copies the entries that every interpreter needs.
pub(crate) fn copy_warm_cache(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.join("entries")).unwrap();
    for entry in from.join("entries").read_dir().unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if ["base-", "program-", "runtime-", "stdlib-"].iter().any(|kind| name.starts_with(kind)) {
            let target = to.join("entries").join(name);
            std::fs::create_dir(&target).unwrap();
            for file in entry.path().read_dir().unwrap() {
                let file = file.unwrap();
                std::fs::copy(file.path(), target.join(file.file_name())).unwrap();
            }
        }
    }
}

/// Copies the entries that images are built from into a new cache.
pub(crate) fn copy_parts(to: &Path) {
    copy_warm_cache(crate::harness::cache(), to);
    for base in crate::harness::cache_entries(to, "base-") {
        std::fs::remove_dir_all(base).unwrap();
    }
}
