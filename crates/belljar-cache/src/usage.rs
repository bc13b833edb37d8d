//! What lies in the cache, for people who want to know or to clean up.

use std::fs::File;
use std::io;
use std::time::SystemTime;

use super::manifest::{MANIFEST, Manifest};
use super::{Cache, CacheError};

/// One entry as a person sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryUsage {
    /// Its directory's name: kind and digest.
    pub name: String,
    /// The names of its files, sorted.
    pub files: Vec<String>,
    /// Bytes of its files.
    pub bytes: u64,
    /// When it was last used, to ten minutes.
    pub last_used: SystemTime,
}

impl Cache {
    /// The whole entries of the cache by name. Files are not read: a damaged one is noticed when it is used.
    pub fn usage(&self) -> Result<Vec<EntryUsage>, CacheError> {
        let directory = self.entries();
        let failed = |error| CacheError::io("read", &directory)(error);
        let listing = match directory.read_dir() {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut entries = Vec::new();
        for entry in listing {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue;
            }
            let Ok(file) = File::open(entry.path().join(MANIFEST)) else { continue };
            let (Ok(Some(manifest)), Ok(metadata)) = (Manifest::read(&file), file.metadata()) else { continue };
            entries.push(EntryUsage {
                name,
                files: manifest.files.keys().cloned().collect(),
                bytes: manifest.files.values().map(|record| record.size).sum(),
                last_used: metadata.modified().map_err(failed)?,
            });
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }
}
