//! One process (and one thread of it) at a time works on an entry.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use belljar_core::progress::{Progress, Step};

use super::CacheError;

/// An advisory lock on one entry, given up when dropped or when the process ends, however it ends.
///
/// Lock files stay: deleting one while another process waits on it would let two processes in.
#[derive(Debug)]
pub(crate) struct EntryLock {
    _file: File,
    exclusive: bool,
}

impl EntryLock {
    /// Waits for the lock, telling `progress` when there is something to wait for.
    pub(crate) fn take(root: &Path, entry: &str, progress: Option<&dyn Progress>) -> Result<Self, CacheError> {
        let directory = root.join("locks");
        create_private_directory(&directory).map_err(|error| CacheError::writing(&directory, None, error))?;
        let path = directory.join(entry);
        let file = open(&path).map_err(|error| CacheError::writing(&path, None, error))?;
        let mut exclusive = true;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let step =
                    progress.map(|progress| progress.start(Step::unmeasured("waiting for another belljar process")));
                file.lock().map_err(CacheError::io("lock", &path))?;
                if let Some(step) = step {
                    step.finish();
                }
            }
            // Some network file systems have no locks. Two processes may then do the same work twice, but each
            // publishes a whole entry with one rename.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                tracing::debug!(path = %path.display(), "the cache's file system has no locks");
                exclusive = false;
            }
            Err(TryLockError::Error(error)) => return Err(CacheError::io("lock", &path)(error)),
        }
        Ok(EntryLock { _file: file, exclusive })
    }

    /// The lock, if nobody holds it.
    pub(crate) fn try_take(root: &Path, entry: &str) -> Option<Self> {
        let file = open(&root.join("locks").join(entry)).ok()?;
        file.try_lock().ok()?;
        Some(EntryLock { _file: file, exclusive: true })
    }

    /// A part of the lock, which others may have a part of too, but nobody the whole. `None` when somebody has that, and
    /// when this user may not lock anything here.
    pub(crate) fn share(root: &Path, entry: &str) -> Option<Self> {
        let directory = root.join("locks");
        let file = open(&directory.join(entry)).ok()?;
        file.try_lock_shared().ok()?;
        Some(EntryLock { _file: file, exclusive: false })
    }

    /// As [`EntryLock::share`], once nobody has the whole. `None` when this user may not lock anything here.
    pub(crate) fn share_after_others(root: &Path, entry: &str) -> Option<Self> {
        let file = open(&root.join("locks").join(entry)).ok()?;
        file.lock_shared().ok()?;
        Some(EntryLock { _file: file, exclusive: false })
    }

    /// Whether nobody else can hold it at the same time: false where the file system has no locks.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.exclusive
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}

/// Makes a directory and its parents for this user alone: code is loaded from the cache.
pub(crate) fn create_private_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
