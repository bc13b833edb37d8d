//! Wheels made for a test.

use std::path::Path;

use serde_json::json;

use crate::harness::{Belljar, Run};

/// Writes a wheel into `directory` by running Python's `zipfile` in the sandbox. `requires` are its dependencies.
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

/// A directory of wheels.
pub(crate) struct Wheels(tempfile::TempDir);

impl Wheels {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn with(self, name: &str, version: &str, modules: &[(&str, &str)]) -> Self {
        make_wheel(self.0.path(), name, version, &[], modules);
        self
    }

    /// Adds a wheel with dependencies.
    pub(crate) fn with_requirements(self, name: &str, requires: &[&str], modules: &[(&str, &str)]) -> Self {
        make_wheel(self.0.path(), name, "1.0", requires, modules);
        self
    }

    /// Returns the wheel `beta`, and `gamma`, which depends on it.
    pub(crate) fn with_dependency() -> Self {
        let wheels = Self::new().with("beta", "1.0", &[("beta.py", "name = 'beta'")]);
        wheels.with_requirements("gamma", &["beta"], &[("gamma.py", "import beta")])
    }

    pub(crate) fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// Runs code that can install these wheels only.
    pub(crate) fn run(&self, options: &[&str], code: &str) -> Run {
        self.belljar().args(options).args(["-c", code]).run()
    }

    pub(crate) fn belljar(&self) -> Belljar {
        Belljar::new().env("UV_NO_INDEX", "1").args(["run", "--find-links", self.path()])
    }
}
