//! What is known of a wheel before its files are looked at, and the files.

use belljar_emscripten::fs::FileBytes;
use serde::{Deserialize, Serialize};

/// One wheel of a set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    /// The package's normalised name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of the wheel's file, in lower-case hexadecimal. It alone decides what is installed.
    pub sha256: String,
}

impl Member {
    /// `rich 15.0.0`
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

/// A wheel's files, unpacked and checked by whoever supplies them.
#[derive(Debug, Clone)]
pub struct Contents {
    /// Which wheel it is.
    pub member: Member,
    /// Its files.
    pub files: Vec<WheelFile>,
    /// The modules that it provides: `pydantic`, `google.protobuf`.
    pub modules: Vec<String>,
}

/// One file of an unpacked wheel.
#[derive(Debug, Clone)]
pub struct WheelFile {
    /// Where it goes, from the guest's root and without a leading slash:
    /// `lib/python3.14/site-packages/rich/__init__.py`.
    pub path: String,
    /// Its bytes.
    pub bytes: FileBytes,
    /// Whether it is a side module, to be compiled.
    pub is_library: bool,
}

impl WheelFile {
    /// Whether bytecode of it is worth having. Tests are left out: they are many, and hardly ever imported.
    pub(crate) fn is_module(&self) -> bool {
        let is_test = |part: &str| part == "tests" || part == "test";
        self.path.ends_with(".py") && self.path.contains("/site-packages/") && !self.path.split('/').any(is_test)
    }
}

#[cfg(test)]
mod tests {
    use super::WheelFile;

    #[test]
    fn modules_get_bytecode_and_tests_get_none() {
        let is_module = |path: &str| {
            let path = format!("lib/python3.14/site-packages/{path}");
            WheelFile { path, bytes: Vec::new().into(), is_library: false }.is_module()
        };
        assert!(is_module("sympy/core/add.py"));
        assert!(!is_module("sympy/core/tests/test_add.py"));
        assert!(!is_module("sympy/data.txt"));
    }
}
