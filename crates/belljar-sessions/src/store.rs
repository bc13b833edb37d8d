//! Saved states on disk: a directory with one directory a session.
//!
//! ```text
//! DIR/SESSION/state        what its kernel saved
//! DIR/SESSION/state.old    what it saved before, until the disk has the one above
//! DIR/SESSION/cells.jsonl  what was run, a line a cell (only where sessions are to survive)
//! DIR/SESSION/lease        locked by the process that has the session awake
//! ```
//!
//! A state is refused unless it is whole, by its checksum. The lock is the system's, so that it ends with its process,
//! however that ends.
//!
//! A state is written under another name and takes the place of the one before when it is whole, so that nothing is lost
//! when the process ends, at whatever time. That it is on the disk as well takes milliseconds, for which nobody waits: the
//! one before is kept until then, and is used when the machine lost its power in between.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::id::SessionId;
use belljar_core::kernel::Saved;

const MAGIC: [u8; 8] = *b"BELLSESS";
/// Version of the form.
const VERSION: u32 = 1;
const STATE: &str = "state";
const NEW_STATE: &str = "state.new";
const OLD_STATE: &str = "state.old";
const LEASE: &str = "lease";
const CELLS: &str = "cells.jsonl";
/// Bytes of a state's head; a longer one is not ours.
const MAX_HEAD: usize = 16 << 20;
/// Bytes of a state: memory is at most 4 GiB.
const MAX_BODY: u64 = 6 << 30;
/// Bytes of what was run that are kept of one session.
const MAX_CELLS: u64 = 64 << 20;
/// Faster than the disk, and within a few percent of what slower levels come to on memory pages.
const LEVEL: i32 = 1;

/// Why a state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the session awake.
    #[error("another server is using the session; it can be used here once it is idle there")]
    InUse,
    /// It is not there.
    #[error("the session is not there")]
    Missing,
    /// It is not whole.
    #[error("the session's saved state is damaged: {0}")]
    Damaged(&'static str),
    /// The disk does not do it.
    #[error("the session's saved state cannot be {0}: {1}")]
    Io(&'static str, io::Error),
}

/// A state, and when the session was used.
#[derive(Debug)]
pub struct Stored {
    /// The kernel's state.
    pub saved: Saved,
    /// When it was used last, since 1970.
    pub used: Duration,
}

/// What is known of a state without reading all of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Head {
    /// What the backend says about it.
    pub about: serde_json::Value,
    /// When the session was used last, in milliseconds since 1970.
    pub used: u64,
    /// Bytes of the body, as it was before it was compressed.
    length: u64,
}

/// A directory of saved states.
pub struct Store {
    root: PathBuf,
    /// Whether states are to survive this process.
    lasting: bool,
    /// Deleted with this value.
    _temporary: Option<tempfile::TempDir>,
}

/// A state that the process has written, and that the disk may not have yet.
#[derive(Debug)]
pub struct Unsettled {
    directory: PathBuf,
}

impl Unsettled {
    /// Waits until the disk has it.
    ///
    /// # Errors
    /// When the disk does not do it. The state before is kept then.
    pub fn settle(&self) -> Result<(), StoreError> {
        settle(&self.directory).map_err(|error| StoreError::Io("written", error))
    }
}

fn settle(directory: &Path) -> io::Result<()> {
    File::open(directory.join(STATE))?.sync_data()?;
    File::open(directory)?.sync_all()?;
    match fs::remove_file(directory.join(OLD_STATE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The right to use a session; given back when it is dropped.
#[derive(Debug)]
pub struct Lease {
    _file: File,
}

impl Store {
    /// The states in a directory, which is made if it is not there, for its owner alone.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn open(root: &Path) -> io::Result<Self> {
        create_private(root)?;
        Ok(Self { root: root.to_owned(), lasting: true, _temporary: None })
    }

    /// Deletes all states, if they are not to survive this process. A thread that still works on one fails to write it.
    pub(crate) fn discard(&self) {
        if !self.lasting
            && let Err(error) = fs::remove_dir_all(&self.root)
        {
            tracing::debug!(%error, "temporary states stay on the disk");
        }
    }

    /// States in a directory that is deleted at the end.
    ///
    /// # Errors
    /// When there can be none.
    pub fn temporary() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("belljar-sessions-").tempdir()?;
        Ok(Self { root: directory.path().to_owned(), lasting: false, _temporary: Some(directory) })
    }

    /// Whether states outlive the process.
    pub fn is_lasting(&self) -> bool {
        self.lasting
    }

    /// Takes the right to use a session, whose directory is made if `create` says so.
    ///
    /// # Errors
    /// When another process has it, or there is no such session.
    pub fn lease(&self, id: &SessionId, create: bool) -> Result<Lease, StoreError> {
        let directory = self.directory(id);
        if create {
            create_private(&directory).map_err(|error| StoreError::Io("written", error))?;
        }
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(directory.join(LEASE));
        let file = file.map_err(|error| missing_or("read", error))?;
        match file.try_lock() {
            Ok(()) => Ok(Lease { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse),
            Err(TryLockError::Error(error)) => Err(StoreError::Io("locked", error)),
        }
    }

    /// Writes a state in place of the one before. Whenever the process ends, one of the two is there. What it answers, of
    /// states that are to survive, has to be settled before the next one is written.
    ///
    /// # Errors
    /// When the disk does not do it.
    pub fn write(&self, id: &SessionId, saved: &Saved, used: Duration) -> Result<Option<Unsettled>, StoreError> {
        let failed = |error| StoreError::Io("written", error);
        let head = Head { about: saved.about.clone(), used: milliseconds(used), length: saved.body.len() as u64 };
        let bytes = encode(&head, &saved.body).map_err(failed)?;
        let directory = self.directory(id);
        create_private(&directory).map_err(failed)?;
        self.replace(&directory, &bytes).map_err(failed)?;
        Ok(self.lasting.then_some(Unsettled { directory }))
    }

    fn replace(&self, directory: &Path, bytes: &[u8]) -> io::Result<()> {
        let (state, new, old) = (directory.join(STATE), directory.join(NEW_STATE), directory.join(OLD_STATE));
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        if self.lasting {
            if old.exists() {
                // The process before this one did not come to it.
                settle(directory)?;
            }
            match fs::hard_link(&state, &old) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // There are no links here: the old one goes, so that the new one must be on the disk.
                Err(_) => file.sync_data()?,
            }
        }
        fs::rename(&new, &state)
    }

    /// Reads a state. Whoever does so has the session's lease.
    ///
    /// # Errors
    /// When it is not there, or not whole.
    pub fn read(&self, id: &SessionId) -> Result<Stored, StoreError> {
        let (name, _, stored) = self.whole(id)?;
        if name == OLD_STATE {
            tracing::warn!("a session's last state did not reach the disk; it goes on from the one before");
            let directory = self.directory(id);
            fs::rename(directory.join(name), directory.join(STATE)).map_err(|error| StoreError::Io("mended", error))?;
        }
        Ok(stored)
    }

    /// The state, or the one before where that one is not whole: its file's name, its bytes, and what they say.
    fn whole(&self, id: &SessionId) -> Result<(&'static str, Vec<u8>, Stored), StoreError> {
        let read = |name| {
            let bytes = fs::read(self.directory(id).join(name)).map_err(|error| missing_or("read", error))?;
            decode(&bytes).map(|stored| (name, bytes, stored))
        };
        read(STATE).or_else(|error| match error {
            StoreError::Damaged(_) => read(OLD_STATE).map_err(|_| error),
            _ => Err(error),
        })
    }

    /// What is known of a state without reading all of it.
    ///
    /// # Errors
    /// When it is not there, or is no state.
    pub fn head(&self, id: &SessionId) -> Result<Head, StoreError> {
        let directory = self.directory(id);
        head(&directory.join(STATE)).or_else(|error| match error {
            StoreError::Damaged(_) => head(&directory.join(OLD_STATE)).map_err(|_| error),
            _ => Err(error),
        })
    }

    /// The sessions that there are.
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

    /// Deletes all that there is of a session.
    ///
    /// # Errors
    /// When the disk does not do it. That nothing is there is no error.
    pub fn remove(&self, id: &SessionId) -> Result<(), StoreError> {
        match fs::remove_dir_all(self.directory(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::Io("deleted", error)),
            _ => Ok(()),
        }
    }

    /// Adds a cell to what was run; not any more when that is very long.
    ///
    /// # Errors
    /// When the disk does not do it.
    pub fn record(&self, id: &SessionId, cell: &serde_json::Value) -> Result<(), StoreError> {
        let failed = |error| StoreError::Io("written", error);
        let path = self.directory(id).join(CELLS);
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() < MAX_CELLS {
            file.write_all(format!("{cell}\n").as_bytes()).map_err(failed)?;
        }
        Ok(())
    }

    /// What was run, in order. A line that was cut off by the end of a process is left out.
    ///
    /// # Errors
    /// When the disk does not do it.
    pub fn records(&self, id: &SessionId) -> Result<Vec<serde_json::Value>, StoreError> {
        match fs::read_to_string(self.directory(id).join(CELLS)) {
            Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(StoreError::Io("read", error)),
        }
    }

    /// The state's file and what was run, as they are, for another directory.
    ///
    /// # Errors
    /// When they are not there.
    pub fn export(&self, id: &SessionId) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
        let (_, state, _) = self.whole(id)?;
        let cells = fs::read(self.directory(id).join(CELLS)).unwrap_or_default();
        Ok((state, cells))
    }

    /// Takes in what [`Store::export`] gave.
    ///
    /// # Errors
    /// When it is not whole, or the disk does not do it.
    pub fn import(&self, id: &SessionId, state: &[u8], cells: &[u8]) -> Result<(), StoreError> {
        decode(state)?;
        let _lease = self.lease(id, true)?;
        let failed = |error| StoreError::Io("written", error);
        let directory = self.directory(id);
        fs::write(directory.join(CELLS), cells).map_err(failed)?;
        let new = directory.join(NEW_STATE);
        fs::write(&new, state).and_then(|()| File::open(&new)?.sync_data()).map_err(failed)?;
        fs::rename(new, directory.join(STATE)).map_err(failed)?;
        settle(&directory).map_err(failed)
    }

    fn directory(&self, id: &SessionId) -> PathBuf {
        self.root.join(id.as_str())
    }
}

fn head(path: &Path) -> Result<Head, StoreError> {
    let failed = |error| missing_or("read", error);
    let mut file = File::open(path).map_err(failed)?;
    let mut start = [0; 16];
    file.read_exact(&mut start).map_err(|_| StoreError::Damaged("it is too short"))?;
    let length = head_length(&start)?;
    let mut head = vec![0; length];
    file.read_exact(&mut head).map_err(|_| StoreError::Damaged("it is too short"))?;
    serde_json::from_slice(&head).map_err(|_| StoreError::Damaged("its head cannot be read"))
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn missing_or(what: &'static str, error: io::Error) -> StoreError {
    if error.kind() == io::ErrorKind::NotFound { StoreError::Missing } else { StoreError::Io(what, error) }
}

fn create_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

fn encode(head: &Head, body: &[u8]) -> io::Result<Vec<u8>> {
    let head = serde_json::to_vec(head)?;
    let mut bytes = Vec::with_capacity(body.len() / 3 + head.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(head.len()).map_err(io::Error::other)?.to_le_bytes());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&zstd::bulk::compress(body, LEVEL)?);
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    Ok(bytes)
}

fn head_length(start: &[u8; 16]) -> Result<usize, StoreError> {
    let word = |at: usize| u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    if start[..8] != MAGIC {
        return Err(StoreError::Damaged("it is no saved session"));
    }
    if word(8) != VERSION {
        return Err(StoreError::Damaged("its format is that of another version of Belljar"));
    }
    let length = word(12) as usize;
    if length > MAX_HEAD { Err(StoreError::Damaged("its head is too long")) } else { Ok(length) }
}

fn decode(bytes: &[u8]) -> Result<Stored, StoreError> {
    let short = StoreError::Damaged("it is too short");
    let Some((content, digest)) = bytes.split_last_chunk::<32>() else { return Err(short) };
    let Some(start) = content.first_chunk::<16>() else { return Err(short) };
    let length = head_length(start)?;
    if Sha256::digest(content).as_slice() != digest {
        return Err(StoreError::Damaged("it does not match its checksum"));
    }
    let (Some(head), Some(packed)) = (content.get(16..16 + length), content.get(16 + length..)) else {
        return Err(short);
    };
    let head: Head = serde_json::from_slice(head).map_err(|_| StoreError::Damaged("its head cannot be read"))?;
    if head.length > MAX_BODY {
        return Err(StoreError::Damaged("it is too long"));
    }
    let unpacked = || StoreError::Damaged("it cannot be unpacked");
    let mut body = Vec::with_capacity(usize::try_from(head.length.min(64 << 20)).unwrap_or(0));
    let decoder = zstd::stream::read::Decoder::new(packed).map_err(|_| unpacked())?;
    decoder.take(head.length + 1).read_to_end(&mut body).map_err(|_| unpacked())?;
    if body.len() as u64 != head.length {
        return Err(StoreError::Damaged("its length is not what its head says"));
    }
    Ok(Stored { saved: Saved { about: head.about, body }, used: Duration::from_millis(head.used) })
}

#[cfg(test)]
mod tests;
