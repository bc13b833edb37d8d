//! Python files have no undefined names and no unused imports, as far as ruff finds them without running the code.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_testing::install;

const RUFF: [&str; 1] = ["ruff==0.17.6"];
/// The rules, for folders with a configuration of their own, too: syntax errors, and those of Pyflakes.
const RULES: [&str; 4] = ["--no-cache", "--output-format=concise", "--select", "E9,F"];
/// Files that must be among the checked ones: the guest, native kernels, the Python package and tests.
const CHECKED: [&str; 4] = [
    "crates/belljar-python/guest/host.py",
    "crates/belljar-native/src/linux/guest/belljar_kernel/__init__.py",
    "python/belljar/_sandbox.py",
    "crates/belljar/tests/serve/sdk_client.py",
];

#[test]
fn python_files_have_no_undefined_names_and_no_unused_imports() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let listed = ruff(workspace, &["--show-files"]).1;
    for file in CHECKED {
        assert!(listed.lines().any(|line| Path::new(line) == workspace.join(file)), "{file}: {listed}");
    }
    let (passes, findings) = ruff(workspace, &[]);
    assert!(passes, "ruff finds errors in Python files:\n{findings}");
}

#[test]
fn undefined_name_and_unused_import_are_found() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("wrong.py"), "import json\n\n\ndef f():\n    return absent\n").unwrap();
    let (passes, findings) = ruff(folder.path(), &[]);
    assert!(!passes, "{findings}");
    for expected in ["wrong.py:1:8: F401", "wrong.py:5:12: F821 Undefined name `absent`"] {
        assert!(findings.contains(expected), "{expected}: {findings}");
    }
}

/// Checks the Python files below `folder`. Returns whether they pass, and the findings.
fn ruff(folder: &Path, options: &[&str]) -> (bool, String) {
    let program: PathBuf = install::pip(Path::new(env!("CARGO_TARGET_TMPDIR")), "ruff", &RUFF).join("ruff");
    let output = Command::new(program).arg("check").args(RULES).args(options).current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), text)
}
