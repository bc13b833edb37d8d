//! Creation of an entry: a directory under a temporary name, moved into place by one rename.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use tempfile::TempDir;

use super::CacheError;
use super::lock::create_private_directory;
use super::manifest::{MANIFEST, Manifest};

/// The directory of an entry that is being created. The regular files in it when the creating function returns become
/// the entry's files. If that function fails, the directory is deleted; if the process ends, a later process deletes
/// it.
#[derive(Debug)]
pub struct NewEntry {
    directory: TempDir,
}

impl NewEntry {
    pub(crate) fn create(entries: &Path, name: &str) -> Result<Self, CacheError> {
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

    /// Syncs every file to disk and writes the manifest.
    pub(crate) fn finalize(&self) -> Result<Manifest, CacheError> {
        let directory = self.path();
        let failed = |error| CacheError::writing(&directory.join(MANIFEST), None, error);
        for entry in directory.read_dir().map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            File::open(&path)
                .and_then(|file| file.sync_all())
                .map_err(|error| CacheError::writing(&path, None, error))?;
        }
        let manifest = Manifest::from_directory(directory).map_err(failed)?;
        write_manifest(directory, &manifest).map_err(failed)?;
        Ok(manifest)
    }

    /// Moves the finalized entry to `target`.
    pub(crate) fn publish(self, target: &Path) -> Result<(), CacheError> {
        let failed = |error| CacheError::io("rename a new cache entry to", target)(error);
        fs::rename(self.path(), target).map_err(failed)?;
        // The temporary directory has been moved and must not be deleted.
        let _ = self.directory.keep();
        target.parent().map_or(Ok(()), sync_directory).map_err(failed)
    }
}

/// Writes a manifest atomically.
pub(crate) fn write_manifest(directory: &Path, manifest: &Manifest) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".manifest-").tempfile_in(directory)?;
    file.write_all(&manifest.to_bytes()?)?;
    file.as_file().sync_all()?;
    file.persist(directory.join(MANIFEST)).map_err(|error| error.error)?;
    sync_directory(directory)
}

/// Syncs a directory to disk. A rename is durable only after its directory has been synced.
fn sync_directory(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

/// Returns the name of the entry that a temporary directory (`.new-NAME-RANDOM`, `.old-NAME-RANDOM`) belongs to.
pub(crate) fn owner_of_temporary(file_name: &str) -> Option<&str> {
    let rest = file_name.strip_prefix(".new-").or_else(|| file_name.strip_prefix(".old-"))?;
    rest.rsplit_once('-').map(|(owner, _)| owner)
}
