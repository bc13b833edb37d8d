//! The table of a server's sessions: which exist, and whether they are active or in the store.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use belljar_audit::{Details, Event};
use parking_lot::Mutex;

use super::durable::StoredRuns;
use super::{Owner, SessionOptions};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::error::SessionError;
use crate::history::{AbsenceReason, History};
use crate::id::SessionId;
use crate::pool::GuestThreadPool;
use crate::runs::RunRegistry;
use crate::session::{JobStep, Session};
use crate::state::{SessionServices, SessionState};
use crate::store::{Store, StoreError};
use crate::tenants::{Tenant, TenantKey, Tenants};
use belljar_core::kernel::KernelError;

/// The parts that all clones of [`Sessions`](super::Sessions) share.
pub(super) struct Shared {
    pub(super) options: SessionOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) pool: Arc<GuestThreadPool>,
    pub(super) services: SessionServices,
    pub(super) table: Mutex<HashMap<SessionId, SessionEntry>>,
    pub(super) runs: Arc<RunRegistry>,
    /// Runs of other replicas that go on here, until the server asks for them.
    pub(super) adopted: Mutex<StoredRuns>,
    /// The last cells of the sessions, if operators see them.
    pub(super) history: OnceLock<Arc<History>>,
    /// Set once the process is about to end: cells that wait on the disk go on in another one.
    pub(super) is_ending: AtomicBool,
}

/// A session in the table.
pub(super) enum SessionEntry {
    Active(Arc<Session>),
    Hibernated(HibernatedSession),
    /// The session was cleared, and its last calls are running. It cannot be used any more.
    Ending,
}

/// A session that was cleared. Dropping it removes the session from the table.
pub(super) struct EndingSession {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SessionId,
}

impl Drop for EndingSession {
    fn drop(&mut self) {
        self.shared.table.lock().remove(&self.id);
        if let Some(history) = self.shared.history.get() {
            history.set_absent(&self.id, AbsenceReason::Completed);
        }
    }
}

/// A session that is in the store.
pub(super) struct HibernatedSession {
    pub(super) last_used: Duration,
    pub(super) owner: Option<Owner>,
    pub(super) tenant: Tenant,
}

impl HibernatedSession {
    /// Returns the sessions in a store.
    pub(super) fn all_in(store: &Store, tenants: &Tenants, now: Duration) -> HashMap<SessionId, SessionEntry> {
        let entry = |id: SessionId| {
            // The error of a session that cannot be read is reported when the session is used.
            let (last_used, owner) = match store.header(&id) {
                Ok(header) => (header.last_used(), header.owner()),
                Err(_) => (now, None),
            };
            let tenant = tenant_of(tenants, owner.as_ref());
            tenant.set_stored(&id, Some(store.size_of(&id)));
            let hibernated = Self { last_used, owner, tenant };
            (id, SessionEntry::Hibernated(hibernated))
        };
        store.list().unwrap_or_default().into_iter().map(entry).collect()
    }
}

impl Shared {
    pub(super) fn add(&self, session: Arc<Session>) -> Result<(), SessionError> {
        let mut table = self.table.lock();
        if table.len() >= self.options.max_sessions {
            return Err(SessionError::TooMany(table.len()));
        }
        if !session.is_program {
            session.tenant.check_sessions(self.count_of(&table, &session.tenant))?;
        }
        if let Some(history) = self.history.get() {
            history.session(&session.id, session.owner.as_ref());
        }
        table.insert(session.id.clone(), SessionEntry::Active(session));
        Ok(())
    }

    /// Returns the number of sessions that count for the quotas of `tenant`.
    pub(super) fn count_of(&self, table: &HashMap<SessionId, SessionEntry>, tenant: &Tenant) -> usize {
        let counts = |entry: &&SessionEntry| match entry {
            SessionEntry::Active(session) => !session.is_program && session.tenant == *tenant,
            SessionEntry::Hibernated(hibernated) => hibernated.tenant == *tenant,
            SessionEntry::Ending => false,
        };
        table.values().filter(counts).count()
    }

    /// Checks that `tenant` may have another session.
    pub(super) fn check_quota(&self, tenant: &Tenant) -> Result<(), SessionError> {
        let count = self.count_of(&self.table.lock(), tenant);
        Ok(tenant.check_sessions(count)?)
    }

    /// Looks up a session for the client `caller` and marks it as used now. A hibernated session becomes active; its
    /// next job restores the kernel. A session of another client is reported as one that does not exist.
    pub(super) fn open(self: &Arc<Self>, id: &SessionId, caller: Option<&Owner>) -> Result<Arc<Session>, SessionError> {
        let now = self.clock.now();
        let mut table = self.table.lock();
        let mut tenant = None;
        let (last_used, owner) = match table.get(id) {
            Some(SessionEntry::Active(session)) if session.is_idle() => (session.last_used(), session.owner.clone()),
            Some(SessionEntry::Active(session)) => (now, session.owner.clone()),
            Some(SessionEntry::Hibernated(hibernated)) => {
                tenant = Some(hibernated.tenant.clone());
                (hibernated.last_used, hibernated.owner.clone())
            }
            Some(SessionEntry::Ending) => return Err(self.expired(id.as_str())),
            // Another process may have created the session in the same store.
            None => {
                match self.services.store.as_ref().filter(|store| store.is_persistent()).map(|store| store.header(id)) {
                    Some(Ok(header)) => (header.last_used().max(self.last_used_elsewhere(id)), header.owner()),
                    Some(Err(StoreError::Missing)) | None => return Err(self.expired(id.as_str())),
                    Some(Err(error)) => return Err(error.into()),
                }
            }
        };
        if owner.as_ref().is_some_and(|owner| Some(owner) != caller) {
            return Err(self.expired(id.as_str()));
        }
        if is_expired(last_used, self.options.timeout, now) {
            drop(table);
            self.expire_apart(id);
            return Err(self.expired(id.as_str()));
        }
        if let Some(SessionEntry::Active(session)) = table.get(id) {
            session.touch(now);
            return Ok(session.clone());
        }
        let tenant = tenant.unwrap_or_else(|| tenant_of(self.pool.tenants(), owner.as_ref()));
        let session = Arc::new(Session::new(id.clone(), owner, tenant, true, now));
        table.insert(id.clone(), SessionEntry::Active(session.clone()));
        self.note_presence(id);
        Ok(session)
    }

    /// Notes that a session is in the table, which it may have left before. The table must be locked.
    pub(super) fn note_presence(&self, id: &SessionId) {
        if let Some(history) = self.history.get() {
            history.set_present(id);
        }
    }

    /// Returns the last use of a session in other replicas, which its files may not have.
    fn last_used_elsewhere(&self, id: &SessionId) -> Duration {
        self.cluster().and_then(|cluster| cluster.last_used(id)).unwrap_or_default()
    }

    /// Ends an expired session. In a cluster this is done on another thread: the store may take long to answer, and the
    /// caller may be a task.
    fn expire_apart(self: &Arc<Self>, id: &SessionId) {
        let Some(cluster) = self.cluster() else { return self.expire(id) };
        let (shared, id) = (self.clone(), id.clone());
        cluster.run_blocking(move || shared.expire(&id));
    }

    /// Ends an expired session, unless another process has used it in the meantime.
    pub(super) fn expire(&self, id: &SessionId) {
        let entry = self.table.lock().remove(id);
        let client = match &entry {
            Some(SessionEntry::Active(session)) => Some((session.owner.clone(), session.tenant.clone())),
            Some(SessionEntry::Hibernated(hibernated)) => Some((hibernated.owner.clone(), hibernated.tenant.clone())),
            Some(SessionEntry::Ending) | None => None,
        };
        let (owner, tenant) = client.unzip();
        if let (Some(owner), Some(activity)) = (owner, self.services.activity.get()) {
            let expired = || Details { outcome: Some("expired".into()), ..Details::default() };
            activity.record_session(Event::SessionEnd, id.as_str(), owner.as_deref(), expired);
        }
        if let Some(history) = self.history.get() {
            history.set_absent(id, AbsenceReason::Completed);
        }
        if let (Some(SessionEntry::Hibernated(HibernatedSession { owner, .. })), Some(folders)) =
            (&entry, &self.services.folders)
        {
            folders.remove_if_empty(id, owner.as_deref());
        }
        if let Some(SessionEntry::Active(session)) = entry {
            // The job only frees memory, so its services have no store. The stored files are deleted below.
            let SessionServices { backend, folders, answers, activity, .. } = &self.services;
            let (backend, folders, answers) = (backend.clone(), folders.clone(), *answers);
            let activity = activity.clone();
            let services = SessionServices { backend, store: None, folders, answers, activity };
            if session.close(Box::new(move |state: &mut SessionState| {
                drop(state.destroy(&services));
                JobStep::Completed(Box::new(|| ()))
            })) {
                session.work(None);
            }
        }
        let Some(store) = &self.services.store else { return };
        if let Some(cluster) = store.cluster()
            && cluster.owns(id)
            && let Err(error) = cluster.delete(id)
        {
            tracing::debug!(%error, "failed to delete an expired session in the cluster's store");
        }
        let Ok(header) = store.header(id) else { return };
        if !is_expired(header.last_used(), self.options.timeout, self.clock.now()) {
            return;
        }
        let removed = store.lease(id, false).and_then(|_lease| store.remove(id));
        if let Err(error) = removed {
            tracing::debug!(%error, "failed to delete an expired session");
        } else if let Some(tenant) = tenant {
            tenant.set_stored(id, None);
        }
    }

    /// Notes that a session is asleep: from now on, lookups find it in the store.
    pub(super) fn put_to_sleep(&self, session: &Session, last_used: Duration) {
        let mut table = self.table.lock();
        if self.cluster().is_some() {
            // Another replica may use it next.
            table.remove(&session.id);
            if let Some(history) = self.history.get() {
                history.set_absent(&session.id, AbsenceReason::Away);
            }
        } else {
            let (owner, tenant) = (session.owner.clone(), session.tenant.clone());
            let hibernated = HibernatedSession { last_used, owner, tenant };
            table.insert(session.id.clone(), SessionEntry::Hibernated(hibernated));
        }
    }

    /// Returns the cluster of which this server is a replica.
    pub(super) fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.services.store.as_ref()?.cluster()
    }

    /// Deletes the folders of all sessions that contain no files.
    pub(super) fn remove_empty_folders(&self) {
        let Some(folders) = &self.services.folders else { return };
        for (id, entry) in self.table.lock().iter() {
            let owner = match entry {
                SessionEntry::Active(session) => session.owner.as_deref(),
                SessionEntry::Hibernated(hibernated) => hibernated.owner.as_deref(),
                SessionEntry::Ending => continue,
            };
            folders.remove_if_empty(id, owner);
        }
    }

    pub(super) fn expired(&self, name: &str) -> SessionError {
        let minutes = self.options.timeout.as_secs() / 60;
        let after = match self.options.timeout.as_secs() % 60 {
            0 if minutes == 1 => "1 minute".into(),
            0 => format!("{minutes} minutes"),
            _ => format!("{} seconds", self.options.timeout.as_secs_f64()),
        };
        let id = name.chars().filter(|c| !c.is_control()).take(64).collect();
        SessionError::Expired { id, after }
    }
}

/// Returns the owner whose quotas a session from the store counts for: that of the client who created it, if it had
/// one.
pub(super) fn tenant_of(tenants: &Tenants, owner: Option<&Owner>) -> Tenant {
    owner.map_or_else(|| tenants.system().clone(), |owner| tenants.find(TenantKey::Owner(owner)))
}

/// Returns whether the time since the last use exceeds `timeout`.
pub(super) fn is_expired(last_used: Duration, timeout: Duration, now: Duration) -> bool {
    now.saturating_sub(last_used) > timeout
}

/// Returns a new session ID.
pub(super) fn new_id() -> Result<SessionId, SessionError> {
    SessionId::random().map_err(|error| SessionError::Kernel(KernelError::Failed(error.to_string().into())))
}
