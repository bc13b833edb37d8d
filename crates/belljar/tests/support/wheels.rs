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

    /// Returns the wheel `tables`, and `sheets`, which its function `export` imports as pandas imports openpyxl.
    pub(crate) fn with_optional_dependency() -> Self {
        let tables = "\
import importlib

def _require(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f'{__name__} needs {name}') from error

def export():
    return _require('sheets').write()

def convert():
    return _require('no_such_package_at_all')
";
        let sheets = "def write():\n    return 'exported'\n";
        Self::new().with("tables", "1.0", &[("tables.py", tables)]).with("sheets", "1.0", &[("sheets.py", sheets)])
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
