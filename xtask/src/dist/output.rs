//! The directory of a release, and the checksums of its files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The files that are written so far, each with its SHA-256.
#[derive(Debug)]
pub(super) struct Output {
    directory: PathBuf,
    files: BTreeMap<String, String>,
}

impl Output {
    /// Creates the directory.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be created, or has files: `SHA256SUMS` would not list them.
    pub(super) fn create(directory: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("failed to create {}: {error}", directory.display());
        std::fs::create_dir_all(directory).map_err(failed)?;
        if directory.read_dir().map_err(failed)?.next().is_some() {
            return Err(format!("{} is not empty", directory.display()));
        }
        Ok(Self { directory: directory.to_owned(), files: BTreeMap::new() })
    }

    /// Writes a file, and prints its path and size.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> Result<(), String> {
        let path = self.directory.join(name);
        if self.files.insert(name.to_owned(), hex::encode(Sha256::digest(content))).is_some() {
            return Err(format!("there are two files {name}"));
        }
        std::fs::write(&path, content).map_err(|error| format!("failed to write {}: {error}", path.display()))?;
        println!("{} ({:.1} MB)", path.display(), content.len() as f64 / f64::from(1 << 20));
        Ok(())
    }

    /// Returns the checksum of a file, in hexadecimal.
    pub(super) fn sha256(&self, name: &str) -> Result<String, String> {
        self.files.get(name).cloned().ok_or_else(|| format!("{name} is not written"))
    }

    /// Returns the checksums of all files, as `sha256sum --check` reads them.
    pub(super) fn sums(&self) -> String {
        let mut sums = String::new();
        for (name, sum) in &self.files {
            // Writing to a string does not fail.
            let _ = writeln!(sums, "{sum}  {name}");
        }
        sums
    }
}
