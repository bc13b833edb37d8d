//! Files and directories to which only the user of this process has access.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Creates a directory that only its owner can enter, and its parents, unless it exists.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Gives a file that `options` creates to its owner alone.
pub(crate) fn restrict(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}
