//! Syncing of new entries to disk by a thread, in parallel with the work that uses them.
//!
//! Syncing a file takes milliseconds, and an installation creates dozens of files. A new entry is therefore published
//! with a manifest without stamps, which makes another process compare its files with their hashes. This process
//! remembers the stamps. Once the files are on disk, the manifest gets them, too. A process that ends before costs the
//! next one a comparison, and a machine that loses power loses at most entries.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::manifest::{IntegrityCheck, Manifest};
use super::new_entry::write_manifest;

/// The entries that a process has created and not yet synced. Clones share them. Dropping the last clone waits until
/// all have been synced.
#[derive(Debug, Clone, Default)]
pub(crate) struct BackgroundSync(Arc<Waiter>);

#[derive(Debug, Default)]
struct Waiter(Arc<Queue>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.wait();
    }
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    is_empty: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The manifests with stamps, by the directories of their entries.
    waiting: BTreeMap<PathBuf, Manifest>,
    is_running: bool,
}

impl BackgroundSync {
    /// Adds the entry in `directory`. `manifest` has the stamps of its files.
    pub(crate) fn add(&self, directory: &Path, manifest: Manifest) {
        let Waiter(queue) = &*self.0;
        let mut state = queue.state.lock();
        state.waiting.insert(directory.to_owned(), manifest);
        if state.is_running {
            return;
        }
        let shared = queue.clone();
        match std::thread::Builder::new().name("cache-sync".into()).spawn(move || shared.run()) {
            Ok(_) => state.is_running = true,
            Err(error) => {
                tracing::debug!(%error, "failed to start a thread that syncs cache entries");
                state.waiting.clear();
            }
        }
    }

    /// Returns the manifest with stamps of an entry that has not been synced yet.
    pub(crate) fn manifest(&self, directory: &Path) -> Option<Manifest> {
        self.0.0.state.lock().waiting.get(directory).cloned()
    }

    /// Waits until all entries have been synced.
    pub(crate) fn wait(&self) {
        self.0.0.wait();
    }
}

impl Queue {
    fn wait(&self) {
        let mut state = self.state.lock();
        while state.is_running {
            self.is_empty.wait(&mut state);
        }
    }

    /// Syncs entries until none is left.
    fn run(&self) {
        loop {
            let next = self.state.lock().waiting.iter().next().map(|(at, manifest)| (at.clone(), manifest.clone()));
            if let Some((directory, manifest)) = &next
                && let Err(error) = sync(directory, manifest)
            {
                // The entry was deleted, or its files are compared with their hashes when it is used next.
                tracing::debug!(entry = %directory.display(), %error, "failed to sync a cache entry");
            }
            let mut state = self.state.lock();
            if let Some((directory, manifest)) = next {
                // Another one may have been created in the meantime.
                if state.waiting.get(&directory) == Some(&manifest) {
                    state.waiting.remove(&directory);
                }
            }
            if state.waiting.is_empty() {
                state.is_running = false;
                self.is_empty.notify_all();
                return;
            }
        }
    }
}

/// Syncs the files of an entry, and writes the manifest with their stamps if they are unchanged.
fn sync(directory: &Path, manifest: &Manifest) -> std::io::Result<()> {
    manifest.sync_files(directory)?;
    if manifest.check_integrity(directory) == IntegrityCheck::Unchanged {
        write_manifest(directory, manifest)?;
    }
    Ok(())
}
