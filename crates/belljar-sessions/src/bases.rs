//! The bases of saved sessions: what a backend needs, besides a session's snapshot, to restore it.
//!
//! ```text
//! DIR/bases/BASE/    one base; the backend defines its files
//! DIR/bases/.new-…   a base that is being written
//! DIR/bases/lock     locked shared while a base is written, and exclusively while unused bases are deleted
//! ```
//!
//! A snapshot of the WebAssembly backend is a difference from the image of sessions in the cache, which an update of
//! Belljar replaces. The store keeps a copy of each base as long as one of its sessions needs it.
//!
//! A base is written after the first snapshot that refers to it, outside of calls. Deletion reads the snapshots'
//! headers while it has the lock, so that it sees each snapshot whose base has been found or written.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_core::kernel::Backend;
use parking_lot::Mutex;

use crate::store::{Store, StoreError};

const BASES: &str = "bases";
const LOCK: &str = "lock";
const NEW: &str = ".new-";
/// The maximum length of the name of a base.
const MAX_NAME: usize = 64;

/// A base to which a snapshot refers, and which may not be kept yet.
pub(crate) struct PendingBase {
    pub(crate) bases: Bases,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) name: String,
}

impl PendingBase {
    /// Keeps the base, unless it is kept already.
    pub(crate) fn keep(&self) -> io::Result<()> {
        self.bases.keep(&*self.backend, &self.name)
    }
}

/// The bases in the directory of a store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bases {
    directory: PathBuf,
    /// The bases that this process uses. They are not deleted: its next session would need them again.
    in_use: Arc<Mutex<BTreeSet<String>>>,
}

impl Bases {
    /// Returns the bases in the directory of a store, which may not exist.
    pub(crate) fn new(store: &Path) -> Self {
        Self { directory: store.join(BASES), in_use: Arc::default() }
    }

    /// Returns the directory of a base, if it is kept. `name` comes from a snapshot's header and is not trusted.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        let directory = self.directory.join(name);
        (is_name(name) && directory.is_dir()).then_some(directory)
    }

    /// Keeps a base that a snapshot of `backend` refers to, unless it is kept already.
    pub(crate) fn keep(&self, backend: &dyn Backend, name: &str) -> io::Result<()> {
        if !is_name(name) {
            return Ok(());
        }
        self.in_use.lock().insert(name.to_owned());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let lock = self.lock()?;
        lock.lock_shared()?;
        if self.find(name).is_some() {
            return Ok(());
        }
        let new = tempfile::Builder::new().prefix(NEW).tempdir_in(&self.directory)?;
        backend.write_base(name, new.path()).map_err(io::Error::other)?;
        match fs::rename(new.path(), self.directory.join(name)) {
            // Another server has kept it meanwhile.
            Err(_) if self.find(name).is_some() => Ok(()),
            renamed => {
                // The directory has another name now.
                let _ = new.keep();
                renamed
            }
        }
    }

    /// Deletes the bases that neither a session in `store` nor this process needs, and what crashed processes left.
    pub(crate) fn collect(&self, store: &Store) -> Result<(), StoreError> {
        let failed = |error| StoreError::Io { operation: "clean up", error };
        let kept: Vec<String> = match fs::read_dir(&self.directory) {
            Ok(entries) => entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect(),
            Err(_) => return Ok(()),
        };
        if kept.iter().all(|name| name == LOCK) {
            return Ok(());
        }
        let lock = self.lock().map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut used = self.in_use.lock().clone();
        for id in store.list().map_err(failed)? {
            // Without the header, the base is unknown: nothing is deleted.
            used.extend(store.header(&id)?.base().map(str::to_owned));
        }
        for name in kept {
            if (is_name(&name) || name.starts_with(NEW)) && !used.contains(&name) {
                fs::remove_dir_all(self.directory.join(name)).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> io::Result<File> {
        OpenOptions::new().create(true).write(true).truncate(false).open(self.directory.join(LOCK))
    }
}

/// Returns whether `name` can be that of a base: it is used as the name of a directory.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}
