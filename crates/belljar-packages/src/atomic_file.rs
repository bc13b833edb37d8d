//! Atomic file writes.

use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// Writes a file under a temporary name and renames it to `path`, so that readers never see a partial file. The file's
/// directory must exist. Temporary files are readable by their owner only, and so is the result unless `write` changes
/// its permissions.
pub(crate) fn write_atomically(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(Path::new("")))?;
    write(file.as_file_mut())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
