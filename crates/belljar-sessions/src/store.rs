//! The store of snapshots on disk: a directory with one subdirectory for each session.
//!
//! ```text
//! DIR/SESSION/state        the snapshot of the kernel
//! DIR/SESSION/state.old    the previous snapshot, until the new one is synced to the disk
//! DIR/SESSION/cells.jsonl  the cells that were run, one per line (persistent stores only)
//! DIR/SESSION/lease        the file locked by the process in which the session is active
//! ```
//!
//! A snapshot whose checksum does not match is refused. The lease is a file lock, so the system releases it when the
//! process ends, even if it crashes.
//!
//! A snapshot is written to a temporary file, which then replaces the previous snapshot by a rename: if the process
//! ends at any time, one of the two is complete. Syncing to the disk takes milliseconds, for which calls do not wait.
//! Until then the previous snapshot is kept, and used if a power failure damages the new one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::id::SessionId;
use crate::session::milliseconds;
use crate::sessions::Owner;
use belljar_core::kernel::KernelSnapshot;

const MAGIC: [u8; 8] = *b"BELLSESS";
/// The version of the file format.
const VERSION: u32 = 1;
const STATE: &str = "state";
const NEW_STATE: &str = "state.new";
const OLD_STATE: &str = "state.old";
const LEASE: &str = "lease";
const CELLS: &str = "cells.jsonl";
/// The maximum size of a snapshot's header, in bytes. Belljar does not write longer ones.
const MAX_HEADER: usize = 16 << 20;
/// The maximum size of a snapshot's data, in bytes. Memory is at most 4 GiB.
const MAX_DATA: u64 = 6 << 30;
/// The size of a session's cell file, in bytes, from which on no more cells are appended.
const MAX_CELLS: u64 = 64 << 20;
/// The zstd level. Level 1 is faster than the disk, and compresses memory pages within a few percent of slower levels.
const COMPRESSION_LEVEL: i32 = 1;

/// The error of reading or writing a stored session.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The session is active in another process.
    #[error("another server is using the session; it can be used here once it is idle there")]
    InUse,
    /// The session is not in the store.
    #[error("the session does not exist")]
    Missing,
    /// The snapshot is incomplete or corrupt.
    #[error("the session's saved state is damaged: {0}")]
    Damaged(&'static str),
    /// A file operation failed.
    #[error("failed to {operation} the session's saved state: {error}")]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The cause.
        error: io::Error,
    },
}

impl StoreError {
    /// Returns a function that turns the error of a file operation into [`StoreError::Io`].
    fn io(operation: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |error| Self::Io { operation, error }
    }

    /// Returns a function that does the same, but turns the error of a missing file into [`StoreError::Missing`].
    fn missing_or_io(operation: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |error| match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Io { operation, error },
        }
    }
}

/// A snapshot with the time at which its session was last used.
#[derive(Debug)]
pub struct StoredSession {
    /// The snapshot of the kernel.
    pub snapshot: KernelSnapshot,
    /// The time of the last use, since 1970.
    pub last_used: Duration,
}

/// The header of a snapshot, which can be read without its data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotHeader {
    /// The metadata of the snapshot, which the backend defines.
    #[serde(rename = "about")]
    pub metadata: serde_json::Value,
    /// The time of the session's last use, in milliseconds since 1970.
    #[serde(rename = "used")]
    last_used: u64,
    /// The length of the uncompressed data, in bytes.
    length: u64,
    /// The only client that may use the session, if it was created with authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
}

impl SnapshotHeader {
    /// Returns the time of the session's last use, since 1970.
    pub fn last_used(&self) -> Duration {
        Duration::from_millis(self.last_used)
    }

    /// Returns the only client that may use the session, if it was created with authentication.
    pub fn owner(&self) -> Option<Owner> {
        self.owner.as_deref().map(Owner::from)
    }
}

/// A directory of stored sessions.
pub struct Store {
    root: PathBuf,
    /// True if the sessions survive this process.
    persistent: bool,
    /// The temporary directory, which is deleted when the store is dropped.
    _temporary: Option<tempfile::TempDir>,
}

/// A snapshot that was written, but may not have been synced to the disk.
#[derive(Debug)]
pub struct PendingSync {
    directory: PathBuf,
}

impl PendingSync {
    /// Syncs the snapshot to the disk, then deletes the previous one.
    ///
    /// # Errors
    /// When the sync fails. The previous snapshot is then kept.
    pub fn sync(&self) -> Result<(), StoreError> {
        sync_directory(&self.directory).map_err(StoreError::io("write"))
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory.join(STATE))?.sync_data()?;
    File::open(directory)?.sync_all()?;
    match fs::remove_file(directory.join(OLD_STATE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The exclusive right of this process to use a session. Dropping it releases the session.
#[derive(Debug)]
pub struct Lease {
    _file: File,
}

impl Store {
    /// Opens the store in a directory. Creates the directory, accessible to its owner only, if it does not exist.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn open(root: &Path) -> io::Result<Self> {
        create_private(root)?;
        Ok(Self { root: root.to_owned(), persistent: true, _temporary: None })
    }

    /// Deletes all sessions if the store is temporary. A job that still runs then fails to write its snapshot.
    pub(crate) fn delete_all(&self) {
        if !self.persistent
            && let Err(error) = fs::remove_dir_all(&self.root)
        {
            tracing::debug!(%error, "failed to delete the temporary store");
        }
    }

    /// Creates a store in a temporary directory, which is deleted when the store is dropped.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn temporary() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("belljar-sessions-").tempdir()?;
        Ok(Self { root: directory.path().to_owned(), persistent: false, _temporary: Some(directory) })
    }

    /// Returns whether the sessions survive the process.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Takes the lease of a session. Creates the session's directory first if `create` is set.
    ///
    /// # Errors
    /// When another process has the lease, or the session does not exist.
    pub fn lease(&self, id: &SessionId, create: bool) -> Result<Lease, StoreError> {
        let directory = self.directory(id);
        if create {
            create_private(&directory).map_err(StoreError::io("write"))?;
        }
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(directory.join(LEASE));
        let file = file.map_err(StoreError::missing_or_io("read"))?;
        match file.try_lock() {
            Ok(()) => Ok(Lease { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse),
            Err(TryLockError::Error(error)) => Err(StoreError::io("lock")(error)),
        }
    }

    /// Replaces the snapshot of a session. If the process ends at any time, the new or the previous snapshot is
    /// complete. A persistent store returns a pending sync, which the caller must finish before the next write.
    ///
    /// # Errors
    /// When the snapshot cannot be written.
    pub fn write(
        &self,
        id: &SessionId,
        owner: Option<&str>,
        snapshot: &KernelSnapshot,
        last_used: Duration,
    ) -> Result<Option<PendingSync>, StoreError> {
        let failed = StoreError::io("write");
        let header = SnapshotHeader {
            metadata: snapshot.metadata.clone(),
            last_used: milliseconds(last_used),
            length: snapshot.data.len() as u64,
            owner: owner.map(str::to_owned),
        };
        let bytes = encode(&header, &snapshot.data).map_err(failed)?;
        let directory = self.directory(id);
        create_private(&directory).map_err(failed)?;
        self.replace(&directory, &bytes).map_err(failed)?;
        Ok(self.persistent.then_some(PendingSync { directory }))
    }

    fn replace(&self, directory: &Path, bytes: &[u8]) -> io::Result<()> {
        let (state, new, old) = (directory.join(STATE), directory.join(NEW_STATE), directory.join(OLD_STATE));
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        if self.persistent {
            if old.exists() {
                // The previous process ended before it synced its last snapshot.
                sync_directory(directory)?;
            }
            match fs::hard_link(&state, &old) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // The file system does not support hard links, so the rename removes the previous snapshot: the new one
                // must be on the disk before.
                Err(_) => file.sync_data()?,
            }
        }
        fs::rename(&new, &state)
    }

    /// Reads a stored session. The caller must have the session's lease.
    ///
    /// # Errors
    /// When the session does not exist, or its snapshot is damaged.
    pub fn read(&self, id: &SessionId) -> Result<StoredSession, StoreError> {
        let (name, _, stored) = self.read_valid(id)?;
        if name == OLD_STATE {
            tracing::warn!("a session's last snapshot is damaged; the session continues from the previous one");
            let directory = self.directory(id);
            fs::rename(directory.join(name), directory.join(STATE)).map_err(StoreError::io("restore"))?;
        }
        Ok(stored)
    }

    /// Reads the newest complete snapshot: the last, or the previous one if the last is damaged. Returns the name, the
    /// bytes and the decoded content of its file.
    fn read_valid(&self, id: &SessionId) -> Result<(&'static str, Vec<u8>, StoredSession), StoreError> {
        let read = |name| {
            let bytes = fs::read(self.directory(id).join(name)).map_err(StoreError::missing_or_io("read"))?;
            decode(&bytes).map(|stored| (name, bytes, stored))
        };
        read(STATE).or_else(|error| match error {
            StoreError::Damaged(_) => read(OLD_STATE).map_err(|_| error),
            _ => Err(error),
        })
    }

    /// Reads the header of a session's snapshot.
    ///
    /// # Errors
    /// When the session does not exist, or the header is damaged.
    pub fn header(&self, id: &SessionId) -> Result<SnapshotHeader, StoreError> {
        let directory = self.directory(id);
        read_header(&directory.join(STATE)).or_else(|error| match error {
            StoreError::Damaged(_) => read_header(&directory.join(OLD_STATE)).map_err(|_| error),
            _ => Err(error),
        })
    }

    /// Returns the IDs of the stored sessions, sorted.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn list(&self) -> io::Result<Vec<SessionId>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let id = entry.file_name().to_str().and_then(SessionId::parse);
            if let Some(id) = id
                && entry.path().join(STATE).is_file()
            {
                found.push(id);
            }
        }
        found.sort();
        Ok(found)
    }

    /// Deletes the directory of a session, if it exists.
    ///
    /// # Errors
    /// When the directory cannot be deleted.
    pub fn remove(&self, id: &SessionId) -> Result<(), StoreError> {
        match fs::remove_dir_all(self.directory(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("delete")(error)),
            _ => Ok(()),
        }
    }

    /// Appends a cell to the cells that were run, unless their file has reached its maximum size.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append_cell(&self, id: &SessionId, cell: &serde_json::Value) -> Result<(), StoreError> {
        let failed = StoreError::io("write");
        let path = self.directory(id).join(CELLS);
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() < MAX_CELLS {
            file.write_all(format!("{cell}\n").as_bytes()).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns the cells that were run, in order. Skips an incomplete line, which a crash leaves.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn cells(&self, id: &SessionId) -> Result<Vec<serde_json::Value>, StoreError> {
        match fs::read_to_string(self.directory(id).join(CELLS)) {
            Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(StoreError::io("read")(error)),
        }
    }

    /// Returns the unchanged bytes of the snapshot's file and of the cell file, for another store.
    ///
    /// # Errors
    /// When the session does not exist, or its snapshot is damaged.
    pub fn export(&self, id: &SessionId) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
        let (_, state, _) = self.read_valid(id)?;
        let cells = fs::read(self.directory(id).join(CELLS)).unwrap_or_default();
        Ok((state, cells))
    }

    /// Adds a session that [`Store::export`] returned.
    ///
    /// # Errors
    /// When the snapshot is damaged, or cannot be written.
    pub fn import(&self, id: &SessionId, state: &[u8], cells: &[u8]) -> Result<(), StoreError> {
        decode(state)?;
        let _lease = self.lease(id, true)?;
        let failed = StoreError::io("write");
        let directory = self.directory(id);
        fs::write(directory.join(CELLS), cells).map_err(failed)?;
        let new = directory.join(NEW_STATE);
        fs::write(&new, state).and_then(|()| File::open(&new)?.sync_data()).map_err(failed)?;
        fs::rename(new, directory.join(STATE)).map_err(failed)?;
        sync_directory(&directory).map_err(failed)
    }

    fn directory(&self, id: &SessionId) -> PathBuf {
        self.root.join(id.as_str())
    }
}

fn read_header(path: &Path) -> Result<SnapshotHeader, StoreError> {
    let mut file = File::open(path).map_err(StoreError::missing_or_io("read"))?;
    let mut start = [0; 16];
    file.read_exact(&mut start).map_err(|_| StoreError::Damaged("it is too short"))?;
    let length = header_length(&start)?;
    let mut header = vec![0; length];
    file.read_exact(&mut header).map_err(|_| StoreError::Damaged("it is too short"))?;
    serde_json::from_slice(&header).map_err(|_| StoreError::Damaged("its header is invalid"))
}

/// Creates a directory that only its owner can access.
fn create_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Returns the content of a snapshot's file: magic, version, header length, header, compressed data, SHA-256.
fn encode(header: &SnapshotHeader, data: &[u8]) -> io::Result<Vec<u8>> {
    let header = serde_json::to_vec(header)?;
    let mut bytes = Vec::with_capacity(data.len() / 3 + header.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(header.len()).map_err(io::Error::other)?.to_le_bytes());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(&zstd::bulk::compress(data, COMPRESSION_LEVEL)?);
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    Ok(bytes)
}

/// Checks the first 16 bytes of a snapshot's file. Returns the length of the header, which follows them.
fn header_length(start: &[u8; 16]) -> Result<usize, StoreError> {
    let word = |at: usize| u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    if start[..8] != MAGIC {
        return Err(StoreError::Damaged("it is not a saved session"));
    }
    if word(8) != VERSION {
        return Err(StoreError::Damaged("its format belongs to another version of Belljar"));
    }
    let length = word(12) as usize;
    if length > MAX_HEADER { Err(StoreError::Damaged("its header is too long")) } else { Ok(length) }
}

fn decode(bytes: &[u8]) -> Result<StoredSession, StoreError> {
    let short = StoreError::Damaged("it is too short");
    let Some((content, digest)) = bytes.split_last_chunk::<32>() else { return Err(short) };
    let Some(start) = content.first_chunk::<16>() else { return Err(short) };
    let length = header_length(start)?;
    if Sha256::digest(content).as_slice() != digest {
        return Err(StoreError::Damaged("it does not match its checksum"));
    }
    let (Some(header), Some(compressed)) = (content.get(16..16 + length), content.get(16 + length..)) else {
        return Err(short);
    };
    let header: SnapshotHeader =
        serde_json::from_slice(header).map_err(|_| StoreError::Damaged("its header is invalid"))?;
    if header.length > MAX_DATA {
        return Err(StoreError::Damaged("it is too long"));
    }
    let invalid = || StoreError::Damaged("its compressed data is invalid");
    let mut data = Vec::with_capacity(usize::try_from(header.length.min(64 << 20)).unwrap_or(0));
    let decoder = zstd::stream::read::Decoder::new(compressed).map_err(|_| invalid())?;
    decoder.take(header.length + 1).read_to_end(&mut data).map_err(|_| invalid())?;
    if data.len() as u64 != header.length {
        return Err(StoreError::Damaged("its length does not match its header"));
    }
    let last_used = header.last_used();
    Ok(StoredSession { snapshot: KernelSnapshot { metadata: header.metadata, data }, last_used })
}

#[cfg(test)]
mod tests;
