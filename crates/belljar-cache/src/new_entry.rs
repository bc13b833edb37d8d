//! Creation of an entry: a directory under a temporary name, moved into place by one rename.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use belljar_core::os::create_private_directory;
use tempfile::TempDir;

use super::CacheError;
use super::manifest::{MANIFEST, Manifest};
use super::sparse;

/// The directory of an entry that is being created. The regular files in it when the creating function returns become
/// the entry's files. If that function fails, the directory is deleted; if the process ends, a later process deletes
/// it.
#[derive(Debug)]
pub struct NewEntry {
    directory: TempDir,
}

impl NewEntry {
    pub(crate) fn create(entries: &Path, name: &str) -> Result<Self, CacheError> {
        // Code is loaded from the cache.
        create_private_directory(entries).map_err(|error| CacheError::writing(entries, None, error))?;
        let directory = tempfile::Builder::new()
            .prefix(&format!(".new-{name}-"))
            .tempdir_in(entries)
            .map_err(|error| CacheError::writing(&entries.join(name), None, error))?;
        Ok(NewEntry { directory })
    }

    /// Returns the directory to write into.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes one file. `name` is a plain file name.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), CacheError> {
        let path = self.path().join(name);
        fs::write(&path, bytes).map_err(|error| CacheError::writing(&path, Some(bytes.len() as u64), error))
    }

    /// Writes one file, with holes where it is zero.
    pub(crate) fn write_sparse(&self, name: &str, bytes: &[u8]) -> Result<(), CacheError> {
        let path = self.path().join(name);
        let written = fs::File::create_new(&path).and_then(|mut file| sparse::write(&mut file, bytes));
        written.map_err(|error| CacheError::writing(&path, Some(bytes.len() as u64), error))
    }

    /// Writes a manifest without stamps, since the files may not be on disk yet. Returns the manifest with stamps.
    pub(crate) fn finalize(&self) -> Result<Manifest, CacheError> {
        let directory = self.path();
        let failed = |error| CacheError::writing(&directory.join(MANIFEST), None, error);
        let manifest = Manifest::from_directory(directory).map_err(failed)?;
        write_manifest(directory, &manifest.without_stamps()).map_err(failed)?;
        Ok(manifest)
    }

    /// Moves the finalized entry to `target`.
    pub(crate) fn publish(self, target: &Path) -> Result<(), CacheError> {
        let failed = |error| CacheError::io("rename a new cache entry to", target)(error);
        fs::rename(self.path(), target).map_err(failed)?;
        // The temporary directory has been moved and must not be deleted.
        let _ = self.directory.keep();
        Ok(())
    }
}

/// Writes a manifest atomically. It is not synced: a manifest that is lost or incomplete after a loss of power costs
/// its entry, and one with stamps is only written after the entry's files have been synced.
pub(crate) fn write_manifest(directory: &Path, manifest: &Manifest) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".manifest-").tempfile_in(directory)?;
    file.write_all(&manifest.to_bytes()?)?;
    file.persist(directory.join(MANIFEST)).map_err(|error| error.error)?;
    Ok(())
}

/// Returns the name of the entry that a temporary directory (`.new-NAME-RANDOM`, `.old-NAME-RANDOM`) belongs to.
pub(crate) fn owner_of_temporary(file_name: &str) -> Option<&str> {
    let rest = file_name.strip_prefix(".new-").or_else(|| file_name.strip_prefix(".old-"))?;
    rest.rsplit_once('-').map(|(owner, _)| owner)
}
