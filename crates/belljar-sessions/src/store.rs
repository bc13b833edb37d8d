//! The store of snapshots on disk: a directory with one subdirectory for each session.
//!
//! ```text
//! DIR/SESSION/state        the snapshot of the kernel
//! DIR/SESSION/state.old    the previous snapshot, until the new one is synced to the disk
//! DIR/SESSION/cells.jsonl  the cells that were run, one per line (persistent stores only)
//! DIR/SESSION/lease        the file locked by the process in which the session is active
//! ```
//!
//! A snapshot whose checksum does not match is refused, and so is that of another session. The lease is a file lock, so
//! the system releases it when the process ends, even if it crashes.
//!
//! A snapshot is written to a temporary file, which then replaces the previous snapshot by a rename: if the process
//! ends at any time, one of the two is complete. Syncing to the disk takes milliseconds, for which calls do not wait.
//! Until then the previous snapshot is kept, and used if a power failure damages the new one.
//!
//! | file | subject |
//! | --- | --- |
//! | `private_directory` | directories and files, opened without following links |
//! | `state_file` | the format of a snapshot's file |
//! | `waiting`, `start`, `results` | runs: cells that wait, and their results |
//! | `journal` | the calls that a run sends while it is on the disk |
//! | `run_commands` | answers to runs from outside of the server |
//! | `error` | the errors of the store |
//! | `signer` | the key of the directory, and the files that it signs |

mod error;
mod journal;
pub(crate) mod private_directory;
mod results;
mod run_commands;
mod signer;
mod start;
mod state_file;
mod waiting;

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::bases::{Bases, PendingBase};
use crate::cluster::{Cluster, Durability};
use crate::id::SessionId;
use belljar_core::kernel::{Backend, KernelSnapshot};
use private_directory::{DirectoryError, PrivateDirectory};

use signer::Signer;
pub(crate) use waiting::{RESUMED, SENT, START, WAITING};

pub use error::StoreError;
pub(crate) use journal::RunJournal;
pub use results::StoredResult;
pub use run_commands::RunCommand;
pub(crate) use start::StartFile;
pub use state_file::{SnapshotHeader, StoredSession};
pub use waiting::{ListedRun, StoredRun};

pub(crate) const STATE: &str = "state";
const NEW_STATE: &str = "state.new";
const OLD_STATE: &str = "state.old";
const LEASE: &str = "lease";
pub(crate) const CELLS: &str = "cells.jsonl";
/// The size of a session's cell file, in bytes, from which on no more cells are appended.
const MAX_CELLS: u64 = 64 << 20;
/// The size of a cell file, in bytes, from which on it is not read. The last cell may have exceeded [`MAX_CELLS`].
const MAX_READ_CELLS: u64 = 1 << 30;

/// A directory of stored sessions.
pub struct Store {
    root: PrivateDirectory,
    /// The path of `root`, for deleting directories.
    path: PathBuf,
    /// True if the sessions survive this process.
    persistent: bool,
    /// The temporary directory, which is deleted when the store is dropped.
    _temporary: Option<tempfile::TempDir>,
    bases: Bases,
    /// The signer of runs, once the key was read.
    signer: OnceLock<Signer>,
    /// The cluster whose store has the sessions. This directory belongs to this process alone then.
    cluster: Option<Arc<Cluster>>,
}

/// A snapshot that was written, but may not have been synced to the disk.
#[derive(Debug)]
pub struct PendingSync {
    directory: PrivateDirectory,
    /// The file of a cell that waits; `None` for the snapshot after a cell.
    waiting: Option<File>,
}

impl PendingSync {
    /// Syncs the snapshot to the disk, then deletes the previous one.
    ///
    /// # Errors
    /// Fails if the sync fails. The previous snapshot is then kept.
    pub fn sync(&self) -> Result<(), StoreError> {
        let failed = StoreError::io("write");
        match &self.waiting {
            None => sync(&self.directory).map_err(failed),
            Some(file) => {
                file.sync_data().map_err(|error| failed(error.into()))?;
                self.directory.sync().map_err(failed)
            }
        }
    }
}

fn sync(directory: &PrivateDirectory) -> Result<(), DirectoryError> {
    directory.open(STATE)?.sync_data()?;
    directory.sync()?;
    directory.remove(OLD_STATE)
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
    /// Fails if the directory cannot be created or opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = PrivateDirectory::open_root(path)?;
        // The working directory may change.
        let path = std::path::absolute(path)?;
        let bases = Bases::new(&path);
        let (signer, cluster) = (OnceLock::new(), None);
        Ok(Self { root, path, persistent: true, _temporary: None, bases, signer, cluster })
    }

    /// Deletes all sessions if the store is temporary. A job that still runs then fails to write its snapshot.
    pub(crate) fn delete_all(&self) {
        if !self.persistent
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::debug!(%error, "failed to delete the temporary store");
        }
    }

    /// Creates a store in a temporary directory, which is deleted when the store is dropped.
    ///
    /// # Errors
    /// Fails if the directory cannot be created.
    pub fn temporary() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("belljar-sessions-").tempdir()?;
        let (root, path) = (PrivateDirectory::open_root(directory.path())?, directory.path().to_owned());
        let bases = Bases::new(&path);
        let (signer, cluster) = (OnceLock::new(), None);
        Ok(Self { root, path, persistent: false, _temporary: Some(directory), bases, signer, cluster })
    }

    /// Creates the store of a replica: a temporary directory, since the store of the cluster has the sessions.
    ///
    /// # Errors
    /// Fails if the directory cannot be created.
    pub fn in_cluster(cluster: Arc<Cluster>) -> io::Result<Self> {
        let signer = Signer::new(cluster.key()).into();
        Ok(Self { persistent: true, signer, cluster: Some(cluster), ..Self::temporary()? })
    }

    /// Returns the cluster whose store has the sessions.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.as_ref()
    }

    /// Has the store of the cluster have a session as it is now, if there is a cluster, and calls are not answered
    /// before.
    ///
    /// # Errors
    /// Fails if the state may not be stored: see [`StoreError::has_lost_session`].
    pub(crate) fn commit(&self, id: &SessionId) -> Result<(), StoreError> {
        match &self.cluster {
            Some(cluster) if cluster.durability() == Durability::Store => cluster.commit(self, id),
            _ => Ok(()),
        }
    }

    /// Has the store of the cluster have a session whose cell waits as a run, and where the run is.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub(crate) fn commit_run(&self, id: &SessionId, owner: Option<&str>, run: &StoredRun) -> Result<(), StoreError> {
        match &self.cluster {
            Some(cluster) => cluster.commit_run(self, id, owner, run),
            None => Ok(()),
        }
    }

    /// Writes a file of a session that the store of the cluster has.
    pub(crate) fn write_part(&self, id: &SessionId, name: &'static str, bytes: &[u8]) -> Result<(), StoreError> {
        let directory = self.root.subdirectory(id.as_str(), true).map_err(StoreError::io("write"))?;
        let write = || Ok(directory.create(name)?.write_all(bytes)?);
        write().map_err(StoreError::io::<DirectoryError>("write"))
    }

    /// Returns whether the sessions survive the process.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Returns the bases of the stored snapshots. A temporary store has none: its process does not lose them.
    pub(crate) fn bases(&self) -> Option<Bases> {
        self.persistent.then(|| self.bases.clone())
    }

    /// Finds the directory of a base, also in the store of the cluster. Blocks while it is read from there.
    pub(crate) fn find_base(&self, name: Option<&str>) -> Option<PathBuf> {
        self.bases()?.find_or_fetch(name?, self.cluster.as_deref())
    }

    /// Returns the base of a new snapshot of `backend`, which is to be kept.
    pub(crate) fn pending_base(&self, backend: &Arc<dyn Backend>, name: Option<String>) -> Option<PendingBase> {
        let (bases, backend, cluster) = (self.bases()?, backend.clone(), self.cluster.clone());
        Some(PendingBase { bases, backend, name: name?, cluster })
    }

    /// Deletes the bases that no stored session needs.
    ///
    /// # Errors
    /// Fails if a session's header cannot be read, or a file cannot be deleted.
    pub fn clean_up(&self) -> Result<(), StoreError> {
        self.bases().map_or(Ok(()), |bases| bases.collect(self))
    }

    /// Takes the lease of a session. Creates the session's directory first if `create` is set.
    ///
    /// # Errors
    /// Fails if another process has the lease, or the session does not exist.
    pub fn lease(&self, id: &SessionId, create: bool) -> Result<Lease, StoreError> {
        let directory = self.root.subdirectory(id.as_str(), create);
        let directory = directory.map_err(StoreError::missing_or_io(if create { "write" } else { "read" }))?;
        let file = directory.open_to_append(LEASE).map_err(StoreError::missing_or_io("read"))?;
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
    /// Fails if the snapshot cannot be written.
    pub fn write(
        &self,
        id: &SessionId,
        owner: Option<&str>,
        snapshot: &KernelSnapshot,
        last_used: Duration,
    ) -> Result<Option<PendingSync>, StoreError> {
        let bytes = state_file::encode(id, owner, snapshot, last_used).map_err(StoreError::io("write"))?;
        let failed = StoreError::io("write");
        let directory = self.root.subdirectory(id.as_str(), true).map_err(failed)?;
        self.replace(&directory, &bytes).map_err(failed)?;
        Ok(self.persistent.then_some(PendingSync { directory, waiting: None }))
    }

    fn replace(&self, directory: &PrivateDirectory, bytes: &[u8]) -> Result<(), DirectoryError> {
        let mut file = directory.create(NEW_STATE)?;
        file.write_all(bytes)?;
        if self.persistent {
            if directory.contains(OLD_STATE) {
                // The previous process ended before it synced its last snapshot.
                sync(directory)?;
            }
            match directory.link(STATE, OLD_STATE) {
                Ok(()) => {}
                Err(error) if error.is_missing() => {}
                // The file system does not support hard links, so the rename removes the previous snapshot: the new one
                // must be on the disk before.
                Err(_) => file.sync_data()?,
            }
        }
        directory.rename(NEW_STATE, STATE)
    }

    /// Reads a stored session. The caller must have the session's lease.
    ///
    /// # Errors
    /// Fails if the session does not exist, or its snapshot is damaged.
    pub fn read(&self, id: &SessionId) -> Result<StoredSession, StoreError> {
        let (name, _, mut stored) = self.read_valid(id)?;
        if name == OLD_STATE {
            // The session has continued from it before.
            stored.snapshot.is_copy = true;
            tracing::warn!("a session's last snapshot is damaged; the session continues from the previous one");
            self.directory(id)?.rename(name, STATE).map_err(StoreError::io("restore"))?;
        }
        Ok(stored)
    }

    /// Reads the newest complete snapshot: the last, or the previous one if the last is damaged. Returns the name, the
    /// bytes and the decoded content of its file.
    fn read_valid(&self, id: &SessionId) -> Result<(&'static str, Vec<u8>, StoredSession), StoreError> {
        let directory = self.directory(id)?;
        let read = |name| {
            let bytes = directory.read(name, state_file::MAX_FILE).map_err(StoreError::missing_or_io("read"))?;
            state_file::decode(&bytes, id).map(|stored| (name, bytes, stored))
        };
        read(STATE).or_else(|error| match error {
            StoreError::Damaged(_) => read(OLD_STATE).map_err(|_| error),
            _ => Err(error),
        })
    }

    /// Reads the header of a session's snapshot.
    ///
    /// # Errors
    /// Fails if the session does not exist, or the header is damaged.
    pub fn header(&self, id: &SessionId) -> Result<SnapshotHeader, StoreError> {
        let directory = self.directory(id)?;
        let read = |name| {
            let file = directory.open(name).map_err(StoreError::missing_or_io("read"))?;
            state_file::read_header(file, id)
        };
        read(STATE).or_else(|error| match error {
            StoreError::Damaged(_) => read(OLD_STATE).map_err(|_| error),
            _ => Err(error),
        })
    }

    /// Returns what is known of a session whose first cell waits.
    pub(crate) fn waiting_header(&self, id: &SessionId) -> Option<SnapshotHeader> {
        state_file::read_header(self.directory(id).ok()?.open(WAITING).ok()?, id).ok()
    }

    /// Returns the IDs of the stored sessions, sorted, including those whose state cannot be read.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn list(&self) -> io::Result<Vec<SessionId>> {
        let mut found: Vec<SessionId> = self.root.names()?.iter().filter_map(|name| SessionId::parse(name)).collect();
        found.retain(|id| self.directory(id).is_ok_and(|directory| directory.contains(STATE)));
        found.sort();
        Ok(found)
    }

    /// Returns the bases of all snapshots. The base of a snapshot whose header cannot be read is unknown, which is an
    /// error.
    pub(crate) fn bases_in_use(&self) -> Result<BTreeSet<String>, StoreError> {
        let mut used = BTreeSet::new();
        for id in self.list().map_err(StoreError::io("read"))? {
            used.extend(self.header(&id)?.base().map(str::to_owned));
        }
        used.extend(self.waiting_bases().map_err(StoreError::io("read"))?);
        Ok(used)
    }

    /// Returns the size of the files of a session, in bytes; zero if it has none.
    pub(crate) fn size_of(&self, id: &SessionId) -> u64 {
        let Ok(entries) = fs::read_dir(self.path.join(id.as_str())) else { return 0 };
        // Links are not followed, and count as themselves.
        let size = |entry: io::Result<fs::DirEntry>| entry.ok()?.metadata().ok().map(|metadata| metadata.len());
        entries.filter_map(size).sum()
    }

    /// Deletes the directory of a session, if it exists.
    ///
    /// # Errors
    /// Fails if the directory cannot be deleted.
    pub fn remove(&self, id: &SessionId) -> Result<(), StoreError> {
        // A link in place of the directory is removed, and not its target.
        match fs::remove_dir_all(self.path.join(id.as_str())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("delete")(error)),
            _ => Ok(()),
        }
    }

    /// Appends a cell to the cells that were run, unless their file has reached its maximum size.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn append_cell(&self, id: &SessionId, cell: &serde_json::Value) -> Result<(), StoreError> {
        let append = |directory: PrivateDirectory| {
            let mut file = directory.open_to_append(CELLS)?;
            if file.metadata()?.len() < MAX_CELLS {
                file.write_all(format!("{cell}\n").as_bytes())?;
            }
            Ok(())
        };
        self.root.subdirectory(id.as_str(), false).and_then(append).map_err(StoreError::io("write"))
    }

    /// Returns the cells that were run, in order. Skips an incomplete line, which a crash leaves.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn cells(&self, id: &SessionId) -> Result<Vec<serde_json::Value>, StoreError> {
        let bytes = self.cell_file(id)?;
        Ok(bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    /// Returns the content of the cell file, which is empty if no cell was run.
    fn cell_file(&self, id: &SessionId) -> Result<Vec<u8>, StoreError> {
        let read = |directory: PrivateDirectory| directory.read(CELLS, MAX_READ_CELLS);
        match self.root.subdirectory(id.as_str(), false).and_then(read) {
            Err(error) if error.is_missing() => Ok(Vec::new()),
            read => read.map_err(StoreError::io("read")),
        }
    }

    /// Returns the unchanged bytes of the snapshot's file and of the cell file, for another store.
    ///
    /// # Errors
    /// Fails if the session does not exist, or its snapshot is damaged.
    pub fn export(&self, id: &SessionId) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
        let (_, state, _) = self.read_valid(id)?;
        Ok((state, self.cell_file(id)?))
    }

    /// Adds a session that [`Store::export`] returned, as the session `id`, which is a copy of it.
    ///
    /// # Errors
    /// Fails if the snapshot is damaged, or cannot be written.
    pub fn import(&self, id: &SessionId, state: &[u8], cells: &[u8]) -> Result<(), StoreError> {
        let state = state_file::rebind(state, id)?;
        let _lease = self.lease(id, true)?;
        let write = |directory: PrivateDirectory| {
            directory.create(CELLS)?.write_all(cells)?;
            let mut new = directory.create(NEW_STATE)?;
            new.write_all(&state)?;
            new.sync_data()?;
            directory.rename(NEW_STATE, STATE)?;
            sync(&directory)
        };
        self.root.subdirectory(id.as_str(), true).and_then(write).map_err(StoreError::io("write"))
    }

    pub(crate) fn directory(&self, id: &SessionId) -> Result<PrivateDirectory, StoreError> {
        self.root.subdirectory(id.as_str(), false).map_err(StoreError::missing_or_io("read"))
    }
}

#[cfg(test)]
mod tests;
