//! The `test` package, which Pyodide's standard library omits: Debian's, or a local one.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's packages of the tests: the suite, and the standard library, which holds `test.support`.
const PACKAGES: [&str; 2] = ["libpython3.11-testsuite", "libpython3.11-stdlib"];
/// The library's path in the packages.
const LIBRARY: &str = "usr/lib/python3.11";

/// A test suite that can be mounted.
pub(super) struct Suite {
    /// The directory of the packages `test`, `unittest` and `ctypes` with their tests. It also has the rest of a
    /// standard library, which the interpreter's own shadows.
    pub(super) directory: PathBuf,
    /// A human-readable description.
    pub(super) description: String,
}

/// Returns a local suite, such as the `Lib` directory of CPython's source.
pub(super) fn given(directory: &Path) -> Result<Suite, String> {
    if !directory.join("test/support").is_dir() {
        return Err(format!("{} does not contain the package test with test.support", directory.display()));
    }
    Ok(Suite { directory: directory.to_owned(), description: directory.display().to_string() })
}

/// Returns Debian's suite of CPython 3.11, the nearest version that a package registry offers. It is fetched once, into
/// `cache`.
///
/// `apt-get download` checks the packages against the hashes in the distribution's signed index. They are unpacked, not
/// installed, so that none of their scripts runs.
pub(super) fn from_debian(cache: &Path) -> Result<Suite, String> {
    let uris = output(Command::new("apt-get").args(["download", "--print-uris"]).args(PACKAGES)).map_err(|error| {
        format!("{error}\nhint: `apt-get update` may help; elsewhere than on Debian 12, name a suite with --tests DIR")
    })?;
    // Lines are `'URI' FILE SIZE HASH`. Updates have other names, so the name is the key.
    let names: Vec<&str> = uris.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let Some(suite) = names.iter().find(|name| name.starts_with(PACKAGES[0])) else {
        return Err(format!("apt-get printed no address of {}", PACKAGES[0]));
    };
    let description = suite.trim_end_matches("_all.deb").replace('_', " ");
    let unpacked = cache.join(suite);
    if !unpacked.is_dir() {
        let partial = cache.join(format!("{suite}.partial-{}", std::process::id()));
        create(&partial)?;
        output(Command::new("apt-get").arg("download").args(PACKAGES).current_dir(&partial))?;
        for name in &names {
            output(Command::new("dpkg-deb").arg("--extract").arg(partial.join(name)).arg(&partial))?;
        }
        std::fs::rename(&partial, &unpacked)
            .map_err(|error| format!("failed to rename {} to {}: {error}", partial.display(), unpacked.display()))?;
    }
    Ok(Suite { description, ..given(&unpacked.join(LIBRARY))? })
}

fn create(directory: &Path) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(|error| format!("failed to create {}: {error}", directory.display()))
}

/// Runs a command, which must succeed, and returns its standard output.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("failed to start {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
