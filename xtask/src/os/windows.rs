//! Windows.

use std::io::{Error, ErrorKind};
use std::path::Path;

/// Fails: shell scripts are not programs here.
pub(crate) fn write_script(_: &Path, _: &str) -> std::io::Result<()> {
    Err(Error::new(ErrorKind::Unsupported, "shell scripts as programs need Linux or macOS"))
}
