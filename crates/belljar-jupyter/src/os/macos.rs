//! macOS: Jupyter's data directory.

use std::path::PathBuf;

pub(crate) use super::unix::is_socket;

/// Returns the data directory of a user, where `variable` returns the value of a variable of the environment.
pub(crate) fn default_data(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    Some(variable("HOME")?.join("Library/Jupyter"))
}
