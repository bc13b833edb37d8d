//! Snapshots of a session in the store, and the end of a session.

use std::time::Duration;

use belljar_core::kernel::KernelError;

use super::{KernelState, SessionServices, SessionState};
use crate::bases::PendingBase;
use crate::error::SessionError;
use crate::store::{Store, StoreError};

impl SessionState {
    /// Writes a snapshot if the store is persistent.
    pub(super) fn persist(&mut self, services: &SessionServices, now: Duration) -> Result<(), SessionError> {
        match &services.store {
            Some(store) if store.is_persistent() => {
                self.matches_store = false;
                self.matches_store = self.write(services, store, now)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes a snapshot. Returns `false` if the backend has no snapshots: the session then ends with the process.
    fn write(&mut self, services: &SessionServices, store: &Store, now: Duration) -> Result<bool, SessionError> {
        let KernelState::Running(kernel) = &mut self.kernel else { return Ok(false) };
        match kernel.snapshot() {
            Ok(snapshot) => {
                self.pending_sync = store.write(&self.id, self.owner.as_deref(), &snapshot, now)?;
                self.pending_base = store.bases().zip(snapshot.base).map(|(bases, name)| PendingBase {
                    bases,
                    backend: services.backend.clone(),
                    name,
                });
            }
            Err(KernelError::Unsupported(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Waits until the last write is on the disk, and keeps the base of the last snapshot. Called after each job, when
    /// its result has been delivered, and when a job waits.
    pub(crate) fn sync(&mut self) {
        if let Some(base) = self.pending_base.take()
            && let Err(error) = base.keep()
        {
            tracing::warn!(%error, "failed to keep a session's image: an update of Belljar may lose its variables");
        }
        if let Some(written) = &self.pending_sync {
            match written.sync() {
                Ok(()) => self.pending_sync = None,
                // The next write tries again, and reports its error to the caller.
                Err(error) => tracing::warn!(%error, "failed to sync a session's state: a power failure may lose it"),
            }
        }
    }

    /// Writes a snapshot and drops the kernel. Returns whether the store has a snapshot now.
    pub(crate) fn hibernate(&mut self, services: &SessionServices, used: Duration) -> Result<bool, SessionError> {
        let Some(store) = &services.store else { return Ok(false) };
        if matches!(self.kernel, KernelState::Running(_)) {
            // A persistent store has a snapshot from after the last cell, unless no cell has been run.
            let unwritten = !store.is_persistent() || matches!(store.header(&self.id), Err(StoreError::Missing));
            if unwritten && !self.write(services, store, used)? {
                return Ok(false);
            }
            self.kernel = KernelState::Stored;
            self.files.clear();
        }
        self.sync();
        self.lease = None;
        Ok(matches!(self.kernel, KernelState::Stored | KernelState::Unrestorable { .. }))
    }

    /// Drops the kernel and deletes the session's files and snapshot. Files in the session's folder stay.
    pub(crate) fn destroy(&mut self, services: &SessionServices) -> Result<(), SessionError> {
        self.kernel = KernelState::NotStarted;
        self.running = None;
        self.pending_sync = None;
        if let Some(store) = &services.store {
            if self.lease.is_none() && !matches!(store.header(&self.id), Err(StoreError::Missing)) {
                self.lease = Some(store.lease(&self.id, false)?);
            }
            let base = store.header(&self.id).ok().and_then(|header| header.base().map(str::to_owned));
            store.remove(&self.id)?;
            if base.is_some()
                && let Err(error) = store.clean_up()
            {
                tracing::warn!(%error, "failed to delete images that no session needs");
            }
        }
        if let Some(folders) = &services.folders {
            folders.remove_if_empty(&self.id, self.owner.as_deref());
        }
        self.lease = None;
        Ok(())
    }
}
