//! Packages, as code and people meet them: real wheels of the real index, and wheels made for the purpose.

mod images;
mod installing;
mod needs;
mod offline;
mod programs;
mod refusals;

use std::path::Path;

use serde_json::json;

use crate::harness::{Belljar, Run};

/// Writes a wheel into `directory`, by running Python's own zipfile inside. `requires` are its dependencies.
fn make_wheel(directory: &Path, name: &str, version: &str, requires: &[&str], modules: &[(&str, &str)]) {
    let mut files: serde_json::Map<String, serde_json::Value> =
        modules.iter().map(|(path, source)| ((*path).to_owned(), json!(source))).collect();
    files.insert("requires".into(), json!(requires));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/packages/make_wheel.py");
    let run = Belljar::new()
        .args(["run", "--mount", &format!("{}:/out:rw", directory.display()), script, name, version, "/out"])
        .input(serde_json::to_vec(&files).unwrap())
        .run();
    assert_eq!(run.status, Some(0), "{run:?}");
}

/// A directory of wheels for the tests of one file.
struct Wheels(tempfile::TempDir);

impl Wheels {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(self, name: &str, version: &str, modules: &[(&str, &str)]) -> Self {
        make_wheel(self.0.path(), name, version, &[], modules);
        self
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// Runs code that finds nothing but these wheels.
    fn run(&self, options: &[&str], code: &str) -> Run {
        self.belljar().args(options).args(["-c", code]).run()
    }

    fn belljar(&self) -> Belljar {
        Belljar::new().env("UV_NO_INDEX", "1").args(["run", "--find-links", self.path()])
    }
}

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
