//! Linux and macOS.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The name of the Python on the path.
pub(crate) const PYTHON: &str = "python3";

/// The directory of a virtual environment of Python that has its programs.
pub(crate) const ENVIRONMENT_PROGRAMS: &str = "bin";

/// The option with which GCC and Clang write another beginning of paths.
pub(crate) const C_PREFIX_MAP: Option<&str> = Some("-ffile-prefix-map");

/// Writes a shell script that can be started as a program.
pub(crate) fn write_script(path: &Path, script: &str) -> std::io::Result<()> {
    std::fs::write(path, script)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o755))
}
