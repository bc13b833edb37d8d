//! Packages as users meet them: wheels of the real index, and wheels made for a test.

mod images;
mod installing;
mod needs;
mod offline;
mod optional_dependencies;
mod programs;
mod refusals;

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
