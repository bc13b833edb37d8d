//! Windows.

use std::io::{Error, ErrorKind};
use std::path::Path;

/// The name of the Python on the path.
pub(crate) const PYTHON: &str = "python";

/// The directory of a virtual environment of Python that has its programs.
pub(crate) const ENVIRONMENT_PROGRAMS: &str = "Scripts";

/// The option with which compilers of C write another beginning of paths. Microsoft's has none that is documented.
pub(crate) const C_PREFIX_MAP: Option<&str> = None;

/// Fails: shell scripts are not programs here.
pub(crate) fn write_script(_: &Path, _: &str) -> std::io::Result<()> {
    Err(Error::new(ErrorKind::Unsupported, "shell scripts as programs need Linux or macOS"))
}
