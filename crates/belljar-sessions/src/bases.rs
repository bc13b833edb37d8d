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
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use belljar_core::kernel::Backend;
use parking_lot::Mutex;

use crate::cluster::Cluster;
use crate::store::private_directory::{DirectoryError, PrivateDirectory};
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
    /// The cluster whose store keeps the bases.
    pub(crate) cluster: Option<Arc<Cluster>>,
}

impl PendingBase {
    /// Keeps the base if that has to be done before its snapshot is stored: in a cluster, another replica may need it
    /// next. Otherwise returns the base, which is to be kept later.
    ///
    /// # Errors
    /// Fails if the base has to be kept first, and is not kept: its snapshot is of no use to other replicas.
    pub(crate) fn keep_first(self) -> Result<Option<Self>, StoreError> {
        if self.cluster.is_none() {
            return Ok(Some(self));
        }
        self.try_keep().map_err(StoreError::io("keep the image of"))?;
        Ok(None)
    }

    /// Keeps the base, unless it is kept already.
    pub(crate) fn keep(&self) {
        if let Err(error) = self.try_keep() {
            tracing::warn!(%error, "failed to keep a session's image: an update of Belljar may lose its variables");
        }
    }

    fn try_keep(&self) -> io::Result<()> {
        let Some(cluster) = &self.cluster else { return self.bases.keep(&*self.backend, &self.name) };
        if !is_name(&self.name) || cluster.has_image(&self.name).map_err(io::Error::other)? {
            return Ok(());
        }
        self.bases.keep(&*self.backend, &self.name)?;
        match self.bases.find(&self.name) {
            Some(directory) => cluster.put_image(&self.name, &directory),
            None => Ok(()),
        }
    }
}

/// The bases in the directory of a store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bases {
    store: PathBuf,
    /// The directory of the bases, once it exists. All clones keep it open, so that the paths of bases stay valid.
    directory: Arc<OnceLock<PrivateDirectory>>,
    /// The bases that this process uses. They are not deleted: its next session would need them again.
    in_use: Arc<Mutex<BTreeSet<String>>>,
}

impl Bases {
    /// Returns the bases in the directory of a store, which may not exist.
    pub(crate) fn new(store: &Path) -> Self {
        Self { store: store.to_owned(), directory: Arc::default(), in_use: Arc::default() }
    }

    /// Returns the directory of a base, if it is kept. `name` comes from a snapshot's header and is not trusted.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        find(self.directory(false).ok()?, name)
    }

    /// Returns the directory of a base. One that is not kept is read from the store of `cluster`.
    pub(crate) fn find_or_fetch(&self, name: &str, cluster: Option<&Cluster>) -> Option<PathBuf> {
        if let (None, Some(cluster)) = (self.find(name), cluster.filter(|_| is_name(name)))
            && let Err(error) = self.create(name, |directory| cluster.get_image(name, directory))
        {
            tracing::warn!(%error, "failed to read a session's image from the store of the cluster");
        }
        self.find(name)
    }

    /// Keeps a base that a snapshot of `backend` refers to, unless it is kept already.
    pub(crate) fn keep(&self, backend: &dyn Backend, name: &str) -> io::Result<()> {
        if !is_name(name) {
            return Ok(());
        }
        self.create(name, |directory| {
            backend.write_base(name, directory).map_err(io::Error::other)?;
            Ok(true)
        })
    }

    /// Has `write` write a base, unless it is kept already. It returns false if there is no such base.
    fn create(&self, name: &str, write: impl FnOnce(&Path) -> io::Result<bool>) -> io::Result<()> {
        self.in_use.lock().insert(name.to_owned());
        let directory = self.directory(true)?;
        let lock = open_lock(directory)?;
        lock.lock_shared()?;
        if find(directory, name).is_some() {
            return Ok(());
        }
        let new = tempfile::Builder::new().prefix(NEW).tempdir_in(directory.path())?;
        if !write(new.path())? {
            return Ok(());
        }
        match fs::rename(new.path(), directory.path().join(name)) {
            // Another server has kept it meanwhile.
            Err(_) if find(directory, name).is_some() => Ok(()),
            renamed => {
                // The directory has another name now.
                let _ = new.keep();
                renamed
            }
        }
    }

    /// Deletes the bases that neither a session in `store` nor this process needs, and what crashed processes left.
    pub(crate) fn collect(&self, store: &Store) -> Result<(), StoreError> {
        let directory = match self.directory(false) {
            Ok(directory) => directory,
            Err(error) if error.is_missing() => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let kept = directory.names().map_err(failed)?;
        if !kept.iter().any(|name| is_name(name) || name.starts_with(NEW)) {
            return Ok(());
        }
        let lock = open_lock(directory).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut used = self.in_use.lock().clone();
        used.extend(store.bases_in_use()?);
        for name in kept {
            if (is_name(&name) || name.starts_with(NEW)) && !used.contains(&name) {
                fs::remove_dir_all(directory.path().join(name)).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Opens the directory of the bases, which must not be a link. Creates it first if `create` is set.
    fn directory(&self, create: bool) -> Result<&PrivateDirectory, DirectoryError> {
        match self.directory.get() {
            Some(directory) => Ok(directory),
            None => {
                let opened = PrivateDirectory::open_root(&self.store)?.subdirectory(BASES, create)?;
                Ok(self.directory.get_or_init(|| opened))
            }
        }
    }
}

/// Returns the path of a base, if it is kept.
fn find(directory: &PrivateDirectory, name: &str) -> Option<PathBuf> {
    (is_name(name) && directory.has_subdirectory(name)).then(|| directory.path().join(name))
}

fn failed(error: impl Into<DirectoryError>) -> StoreError {
    StoreError::io("clean up")(error)
}

fn open_lock(directory: &PrivateDirectory) -> Result<File, DirectoryError> {
    directory.open_to_append(LOCK)
}

/// Returns whether `name` can be that of a base: it is used as the name of a directory.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}
