//! Manifests: the list of an entry's files, and a cheap check that the files are unchanged.
//!
//! An entry's `manifest.json` records each file's size, SHA-256 and [`Stamp`]. While the stamps match, the files have
//! not been written to since they were hashed, and they are trusted without being read. Opening an entry therefore
//! costs one small read and one `stat` per file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::os;

/// The manifest's file name in an entry's directory.
pub(crate) const MANIFEST: &str = "manifest.json";

/// The format version, incremented when the manifest's meaning changes. Entries of other versions count as missing.
const VERSION: u32 = 1;

/// The maximum size of a manifest file. The manifests written here are far smaller.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// File metadata that changes whenever the file's content may have changed. System calls cannot set `ctime` back, so a
/// file that was edited and had its `mtime` restored is still detected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) mtime_ns: i128,
    pub(crate) ctime_ns: i128,
    pub(crate) inode: u64,
    pub(crate) device: u64,
}

/// The record of one file of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) size: u64,
    pub(crate) sha256: String,
    pub(crate) stamp: Stamp,
}

/// The records of an entry's files, by file name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    version: u32,
    pub(crate) files: BTreeMap<String, Record>,
}

/// The on-disk form of a manifest, with a checksum of the manifest that detects damage.
#[derive(Serialize, Deserialize)]
struct ChecksummedManifest {
    sha256: String,
    manifest: Manifest,
}

/// The result of comparing an entry's files with its manifest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IntegrityCheck {
    /// All stamps match.
    Unchanged,
    /// A stamp differs; the files have not been read yet.
    Stale,
    /// This file is missing, has a different size, or is not a regular file.
    Damaged(String),
}

/// The name of a file that differs from its record.
pub(crate) struct DamagedFile(pub(crate) String);

impl Manifest {
    /// Records the files of a directory, reading each of them completely.
    pub(crate) fn from_directory(directory: &Path) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        for entry in directory.read_dir()? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|name| {
                io::Error::new(io::ErrorKind::InvalidFilename, format!("file name {name:?} is not UTF-8"))
            })?;
            if name != MANIFEST && !is_plain_name(&name) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidFilename,
                    format!("{name:?} is not a plain file name"),
                ));
            }
            if name != MANIFEST {
                files.insert(name, Record::from_file(&entry.path())?);
            }
        }
        Ok(Manifest { version: VERSION, files })
    }

    /// Reads an entry's manifest. Returns `None` if it is damaged, has another version, or names files outside the
    /// entry.
    pub(crate) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut bytes = Vec::with_capacity(1024);
        file.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes)?;
        let Ok(checksummed) = serde_json::from_slice::<ChecksummedManifest>(&bytes) else { return Ok(None) };
        let is_intact = checksummed.manifest.is_valid() && checksummed.manifest.checksum()? == checksummed.sha256;
        Ok(is_intact.then_some(checksummed.manifest))
    }

    /// Returns whether the manifest has this version and names no files outside of the entry.
    pub(crate) fn is_valid(&self) -> bool {
        self.version == VERSION && self.files.keys().all(|name| is_plain_name(name))
    }

    /// Returns whether both manifests record the same files with the same contents.
    pub(crate) fn has_contents_of(&self, other: &Self) -> bool {
        self.without_stamps() == other.without_stamps()
    }

    /// Serialises the manifest with its checksum.
    pub(crate) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(&ChecksummedManifest { sha256: self.checksum()?, manifest: self.clone() })?)
    }

    fn checksum(&self) -> io::Result<String> {
        Ok(hex::encode(Sha256::digest(serde_json::to_vec(self)?)))
    }

    /// Compares the recorded sizes and stamps with those of the files, without reading the files.
    pub(crate) fn check_integrity(&self, directory: &Path) -> IntegrityCheck {
        let mut check = IntegrityCheck::Unchanged;
        for (name, record) in &self.files {
            match directory.join(name).symlink_metadata() {
                Ok(metadata) if metadata.is_file() && metadata.len() == record.size => {
                    if os::stamp(&metadata) != record.stamp {
                        check = IntegrityCheck::Stale;
                    }
                }
                _ => return IntegrityCheck::Damaged(name.clone()),
            }
        }
        check
    }

    /// Returns whether all files have their recorded sizes.
    pub(crate) fn has_sizes(&self, directory: &Path) -> bool {
        self.files.iter().all(|(name, record)| {
            let metadata = directory.join(name).symlink_metadata();
            metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() == record.size)
        })
    }

    /// Syncs the recorded files to disk.
    pub(crate) fn sync_files(&self, directory: &Path) -> io::Result<()> {
        self.files.keys().try_for_each(|name| File::open(directory.join(name))?.sync_all())
    }

    /// Returns the manifest without stamps: those of one machine, or of files that may not be on disk.
    pub(crate) fn without_stamps(&self) -> Self {
        let stamp = Stamp { mtime_ns: 0, ctime_ns: 0, inode: 0, device: 0 };
        let record = |record: &Record| Record { stamp: stamp.clone(), ..record.clone() };
        Manifest { version: VERSION, files: self.files.iter().map(|(name, at)| (name.clone(), record(at))).collect() }
    }

    /// Returns the manifest with the files' current stamps.
    ///
    /// # Errors
    /// Returns the first file whose hash or size differs from the record.
    pub(crate) fn with_current_stamps(&self, directory: &Path) -> Result<Self, DamagedFile> {
        let mut files = BTreeMap::new();
        for (name, record) in &self.files {
            match Record::from_file(&directory.join(name)) {
                Ok(current) if current.size == record.size && current.sha256 == record.sha256 => {
                    files.insert(name.clone(), current);
                }
                _ => return Err(DamagedFile(name.clone())),
            }
        }
        Ok(Manifest { version: VERSION, files })
    }
}

impl Record {
    pub(crate) fn from_file(path: &Path) -> io::Result<Self> {
        // A symbolic link could lead out of the cache, and compiled code is loaded from the file that it names.
        if !path.symlink_metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        // Take the stamp first, so that a write during hashing shows up as a differing stamp.
        let stamp = os::stamp(&file.metadata()?);
        let mut digest = Sha256::new();
        let size = io::copy(&mut &file, &mut digest)?;
        Ok(Record { size, sha256: hex::encode(digest.finalize()), stamp })
    }
}

/// Returns whether a name is a single path component that is not reserved for the cache's own files.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', ':', '\0']) && name != MANIFEST
}
