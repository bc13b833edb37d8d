//! A listing of the cache's entries, for display and cleanup.

use std::fs::File;
use std::io;
use std::time::SystemTime;

use super::manifest::{MANIFEST, Manifest};
use super::{Cache, CacheError};

/// The name, files, size and last use of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryUsage {
    /// The name of the entry's directory: kind and digest.
    pub name: String,
    /// The names of its files, sorted.
    pub files: Vec<String>,
    /// The size of its files in bytes.
    pub bytes: u64,
    /// The time of its last use, to within ten minutes.
    pub last_used: SystemTime,
}

impl Cache {
    /// Returns the cache's complete entries, sorted by name. Their files are not read; damage is detected on use.
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
