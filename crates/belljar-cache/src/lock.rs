//! Locks that serialise work on an entry between threads and processes.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use belljar_core::Progress;
use belljar_core::os::create_private_directory;
use belljar_core::progress::ProgressStep;

use super::CacheError;

/// An advisory lock on one entry, released when it is dropped or when its process ends for any reason.
///
/// Lock files are never deleted: deleting one while another process waits for it would let two processes lock the
/// entry.
#[derive(Debug)]
pub(crate) struct EntryLock {
    _file: File,
    exclusive: bool,
}

impl EntryLock {
    /// Waits for the exclusive lock. Reports a step to `progress` if it has to wait.
    pub(crate) fn lock_exclusive(
        root: &Path,
        entry: &str,
        progress: Option<&dyn Progress>,
    ) -> Result<Self, CacheError> {
        let directory = root.join("locks");
        create_private_directory(&directory).map_err(|error| CacheError::writing(&directory, None, error))?;
        let path = directory.join(entry);
        let file = open(&path).map_err(|error| CacheError::writing(&path, None, error))?;
        let mut exclusive = true;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let step = progress
                    .map(|progress| progress.start(ProgressStep::indeterminate("waiting for another belljar process")));
                file.lock().map_err(CacheError::io("lock", &path))?;
                if let Some(step) = step {
                    step.finish();
                }
            }
            // Some network file systems do not support locks. Two processes may then do the same work twice, but each
            // publishes a complete entry with one rename.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                tracing::debug!(path = %path.display(), "the cache's file system does not support locks");
                exclusive = false;
            }
            Err(TryLockError::Error(error)) => return Err(CacheError::io("lock", &path)(error)),
        }
        Ok(EntryLock { _file: file, exclusive })
    }

    /// Returns the exclusive lock, or `None` if another process or thread has a lock on the entry.
    pub(crate) fn try_lock_exclusive(root: &Path, entry: &str) -> Option<Self> {
        let file = open(&root.join("locks").join(entry)).ok()?;
        file.try_lock().ok()?;
        Some(EntryLock { _file: file, exclusive: true })
    }

    /// Returns a shared lock, which excludes exclusive locks only. Returns `None` if the entry is locked exclusively or
    /// if this user lacks permission to lock it.
    pub(crate) fn try_lock_shared(root: &Path, entry: &str) -> Option<Self> {
        let directory = root.join("locks");
        let file = open(&directory.join(entry)).ok()?;
        file.try_lock_shared().ok()?;
        Some(EntryLock { _file: file, exclusive: false })
    }

    /// Waits for a shared lock. Returns `None` if this user lacks permission to lock the entry.
    pub(crate) fn lock_shared_blocking(root: &Path, entry: &str) -> Option<Self> {
        let file = open(&root.join("locks").join(entry)).ok()?;
        file.lock_shared().ok()?;
        Some(EntryLock { _file: file, exclusive: false })
    }

    /// Returns whether the lock excludes all other locks. It does not on file systems without locks.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.exclusive
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}
