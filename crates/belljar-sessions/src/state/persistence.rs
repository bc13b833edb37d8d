//! Snapshots of a session in the store, and the end of a session.

use std::time::Duration;

use belljar_core::kernel::KernelError;

use super::{KernelState, SessionServices, SessionState};
use crate::bases::PendingBase;
use crate::cluster::Durability;
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

    /// Has the cluster's store have the session, if there is a cluster: what was answered is not lost.
    ///
    /// # Errors
    /// Fails if the state is not stored. If another replica may have the session, it is not active here any more.
    pub(super) fn commit(&mut self, services: &SessionServices) -> Result<(), SessionError> {
        let Some(store) = &services.store else { return Ok(()) };
        let committed = match store.cluster() {
            Some(cluster) if cluster.durability() == Durability::Disk => {
                cluster.commit_later(store.clone(), self.id.clone());
                Ok(())
            }
            _ => store.commit(&self.id),
        };
        if committed.as_ref().is_err_and(StoreError::has_lost_session) {
            // Its newest state is not here. The next call begins with what the cluster's store has.
            (self.kernel, self.running) = (KernelState::Stored, None);
            (self.pending_sync, self.pending_base, self.lease) = (None, None, None);
            self.files.clear();
            self.is_lost = true;
        }
        self.was_stored |= committed.is_ok();
        Ok(committed?)
    }

    /// Writes a snapshot. Returns `false` if the backend has no snapshots: the session then ends with the process.
    fn write(&mut self, services: &SessionServices, store: &Store, now: Duration) -> Result<bool, SessionError> {
        let KernelState::Running(kernel) = &mut self.kernel else { return Ok(false) };
        match kernel.snapshot() {
            Ok(snapshot) => {
                self.pending_sync = store.write(&self.id, self.owner.as_deref(), &snapshot, now)?;
                if let Some(tenant) = &self.tenant {
                    tenant.set_stored(&self.id, Some(store.size_of(&self.id)));
                }
                let base = store.pending_base(&services.backend, snapshot.base);
                self.pending_base = base.map(PendingBase::keep_first).transpose()?.flatten();
            }
            Err(KernelError::Unsupported(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Waits until the last write is on the disk, and keeps the base of the last snapshot. Called after each job, when
    /// its result has been delivered, and when a job waits.
    pub(crate) fn sync(&mut self) {
        if let Some(base) = self.pending_base.take() {
            base.keep();
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
    pub(crate) fn hibernate(
        &mut self,
        services: &SessionServices,
        used: Duration,
        is_wanted: impl Fn() -> bool + Send + Sync,
    ) -> Result<bool, SessionError> {
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
        // What was lost is not given up.
        if let Some(cluster) = store.cluster().filter(|_| !self.is_lost) {
            let released = cluster.release(store, &self.id, Some(used), is_wanted);
            self.is_lost = released.as_ref().is_err_and(StoreError::has_lost_session);
            if !released? {
                return Ok(false);
            }
        }
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
            if let Some(cluster) = store.cluster().filter(|cluster| cluster.owns(&self.id)) {
                cluster.delete(&self.id)?;
            }
            store.remove(&self.id)?;
            if let Some(tenant) = &self.tenant {
                tenant.set_stored(&self.id, None);
            }
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
