//! Files and directories with the permissions of the directory that they are in, which by default is the user's own.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

/// Creates a directory and its parents, unless it exists.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Changes nothing.
pub(crate) fn restrict(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}
