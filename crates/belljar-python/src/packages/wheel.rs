//! The identity of a wheel, and its unpacked files.

use belljar_emscripten::fs::FileBytes;
use serde::{Deserialize, Serialize};

/// The identity of one wheel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WheelId {
    /// The package's normalised name.
    pub name: String,
    /// The version.
    pub version: String,
    /// SHA-256 of the wheel's file, in lower-case hexadecimal. It identifies the installed content.
    pub sha256: String,
}

impl WheelId {
    /// Returns the name and version: `rich 15.0.0`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

/// A wheel's files, unpacked and verified by the supplier.
#[derive(Debug, Clone)]
pub struct UnpackedWheel {
    /// The identity of the wheel.
    pub id: WheelId,
    /// The files.
    pub files: Vec<WheelFile>,
    /// The modules that the wheel provides: `pydantic`, `google.protobuf`.
    pub modules: Vec<String>,
}

/// One file of an unpacked wheel.
#[derive(Debug, Clone)]
pub struct WheelFile {
    /// The path from the guest's root, without a leading slash: `lib/python3.14/site-packages/rich/__init__.py`.
    pub path: String,
    /// The content.
    pub bytes: FileBytes,
    /// True for a side module, which has to be compiled.
    pub is_library: bool,
}

/// Returns whether a path is that of a module which should be compiled to bytecode. Tests are not: there are many, and
/// they are rarely imported.
pub(crate) fn is_module(path: &str) -> bool {
    let is_test = |part: &str| part == "tests" || part == "test";
    path.ends_with(".py") && path.contains("/site-packages/") && !path.split('/').any(is_test)
}

#[cfg(test)]
mod tests {
    use super::is_module;

    #[test]
    fn modules_get_bytecode_but_tests_do_not() {
        let is_module = |path: &str| is_module(&format!("lib/python3.14/site-packages/{path}"));
        assert!(is_module("sympy/core/add.py"));
        assert!(!is_module("sympy/core/tests/test_add.py"));
        assert!(!is_module("sympy/data.txt"));
    }
}
