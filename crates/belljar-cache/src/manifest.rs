//! What an entry holds, and how to tell quickly that it still does.
//!
//! An entry's `manifest.json` records each file's size, sha256 and [`Stamp`]. While the stamps are as recorded, nobody
//! has written to the files since their hashes were taken, and they are trusted without being read: that keeps the
//! start of a process at one small read and one `stat` per file.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The manifest's file name in an entry's directory.
pub(crate) const MANIFEST: &str = "manifest.json";

/// Raised when the manifest's meaning changes: entries of other versions count as absent.
const VERSION: u32 = 1;

/// No manifest that we write comes near this; a larger file is not one of ours.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// What changes whenever a file's content may have changed. `ctime` cannot be set back by any system call, so a file
/// that was edited and had its `mtime` restored is still noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    mtime_ns: i128,
    ctime_ns: i128,
    inode: u64,
    device: u64,
}

impl Stamp {
    #[cfg(unix)]
    pub(crate) fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let nanoseconds = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Stamp {
            mtime_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
            device: metadata.dev(),
        }
    }

    /// Where the standard library offers no more than times, they alone serve.
    #[cfg(not(unix))]
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let nanoseconds = |time: io::Result<std::time::SystemTime>| {
            time.ok()
                .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
                .and_then(|since| i128::try_from(since.as_nanos()).ok())
                .unwrap_or(-1)
        };
        Stamp {
            mtime_ns: nanoseconds(metadata.modified()),
            ctime_ns: nanoseconds(metadata.created()),
            inode: 0,
            device: 0,
        }
    }
}

/// One file of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) size: u64,
    pub(crate) sha256: String,
    pub(crate) stamp: Stamp,
}

/// The files of an entry by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    version: u32,
    pub(crate) files: BTreeMap<String, Record>,
}

/// A manifest as it lies on the disk: with a checksum over itself, so that a damaged one is not believed.
#[derive(Serialize, Deserialize)]
struct Sealed {
    sha256: String,
    manifest: Manifest,
}

/// How the files of an entry compare to its manifest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Every stamp is as recorded.
    Untouched,
    /// Some stamp differs, and no file was read yet.
    Touched,
    /// This file is missing, has another size, or is no plain file.
    Broken(String),
}

impl Manifest {
    /// Records the files of a directory as they are, reading each whole.
    pub(crate) fn of_directory(directory: &Path) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        for entry in directory.read_dir()? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|name| {
                io::Error::new(io::ErrorKind::InvalidFilename, format!("file name {name:?} is not UTF-8"))
            })?;
            if name != MANIFEST && !is_plain_name(&name) {
                return Err(io::Error::new(io::ErrorKind::InvalidFilename, format!("{name:?} is no plain name")));
            }
            if name != MANIFEST {
                files.insert(name, Record::of_file(&entry.path())?);
            }
        }
        Ok(Manifest { version: VERSION, files })
    }

    /// Reads an entry's manifest. `None` when it is damaged, of another version, or names files outside the entry.
    pub(crate) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut bytes = Vec::with_capacity(1024);
        file.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes)?;
        let Ok(sealed) = serde_json::from_slice::<Sealed>(&bytes) else { return Ok(None) };
        let whole = sealed.manifest.version == VERSION
            && sealed.manifest.files.keys().all(|name| is_plain_name(name))
            && sealed.manifest.checksum()? == sealed.sha256;
        Ok(whole.then_some(sealed.manifest))
    }

    /// The manifest's bytes on the disk.
    pub(crate) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(&Sealed { sha256: self.checksum()?, manifest: self.clone() })?)
    }

    fn checksum(&self) -> io::Result<String> {
        Ok(hex(&Sha256::digest(serde_json::to_vec(self)?)))
    }

    /// Compares sizes and stamps with the files', reading none of them.
    pub(crate) fn condition(&self, directory: &Path) -> Condition {
        let mut condition = Condition::Untouched;
        for (name, record) in &self.files {
            match directory.join(name).symlink_metadata() {
                Ok(metadata) if metadata.is_file() && metadata.len() == record.size => {
                    if Stamp::of(&metadata) != record.stamp {
                        condition = Condition::Touched;
                    }
                }
                _ => return Condition::Broken(name.clone()),
            }
        }
        condition
    }

    /// The manifest with the files' present stamps, if every file still has the recorded hash; else the name of the
    /// first that has not.
    pub(crate) fn restamped(&self, directory: &Path) -> Result<Self, String> {
        let mut files = BTreeMap::new();
        for (name, record) in &self.files {
            match Record::of_file(&directory.join(name)) {
                Ok(now) if now.size == record.size && now.sha256 == record.sha256 => {
                    files.insert(name.clone(), now);
                }
                _ => return Err(name.clone()),
            }
        }
        Ok(Manifest { version: VERSION, files })
    }
}

impl Record {
    fn of_file(path: &Path) -> io::Result<Self> {
        // A symbolic link would take us, and the compiler's output, out of the cache.
        if !path.symlink_metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
        }
        let file = File::open(path)?;
        // The stamp is taken first: a write during the hashing then shows as a stamp that differs.
        let stamp = Stamp::of(&file.metadata()?);
        let mut digest = Sha256::new();
        let size = io::copy(&mut &file, &mut digest)?;
        Ok(Record { size, sha256: hex(&digest.finalize()), stamp })
    }
}

/// Whether a name is one plain path component, and none of ours.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', ':', '\0']) && name != MANIFEST
}

/// Lower-case hexadecimal, as digests are written here.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
