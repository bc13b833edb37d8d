//! Windows: Jupyter's data directory.

use std::path::{Path, PathBuf};

/// Returns the data directory of a user, where `variable` returns the value of a variable of the environment.
pub(crate) fn default_data(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    Some(variable("APPDATA")?.join("jupyter"))
}

/// Returns `false`: kernels have no sockets with a path here.
pub(crate) fn is_socket(_: &Path) -> bool {
    false
}
