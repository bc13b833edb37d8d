//! All sessions of a server: creation, lookup, the limit on their number, hibernation and expiry of idle sessions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::{Clock, SystemClock};
use crate::error::SessionError;
use crate::files::FileAddress;
use crate::id::SessionId;
use crate::pool::GuestThreadPool;
use crate::report::CellReport;
use crate::session::{Completion, Session, SubmitResult};
use crate::state::{SessionServices, SessionState};
use crate::store::{Store, StoreError};
use belljar_core::files::FileInfo;
use belljar_core::kernel::{Backend, CellObserver, CellRequest, InterruptHandle, KernelError};
use belljar_core::{CallCancellation, Limits};

/// The time between the interrupt of a cell whose call was cancelled and the kill of its interpreter.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// The limits and timeouts of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// The idle time after which a session expires.
    pub timeout: Duration,
    /// The idle time after which a session is hibernated.
    pub sleep_after: Duration,
    /// The maximum number of sessions, active or hibernated.
    pub max_sessions: usize,
    /// The maximum number of queued calls of one session.
    pub max_queued: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30 * 60),
            sleep_after: Duration::from_secs(5 * 60),
            max_sessions: 1000,
            max_queued: 32,
        }
    }
}

/// All sessions of a server. Cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
}

struct Shared {
    options: SessionOptions,
    clock: Arc<dyn Clock>,
    pool: Arc<GuestThreadPool>,
    services: SessionServices,
    table: Mutex<HashMap<SessionId, SessionEntry>>,
}

enum SessionEntry {
    Active(Arc<Session>),
    /// The session is in the store, and was last used at this time.
    Hibernated(Duration),
}

impl Sessions {
    /// Creates the sessions of a backend, including those in `store`. Without a store, sessions are not hibernated.
    pub fn new(
        backend: Arc<dyn Backend>,
        store: Option<Store>,
        pool: Arc<GuestThreadPool>,
        options: SessionOptions,
    ) -> Self {
        Self::with_clock(backend, store, pool, options, Arc::new(SystemClock))
    }

    /// Does the same as [`Sessions::new`], with another clock.
    pub fn with_clock(
        backend: Arc<dyn Backend>,
        store: Option<Store>,
        pool: Arc<GuestThreadPool>,
        options: SessionOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mut table = HashMap::new();
        if let Some(store) = &store {
            for id in store.list().unwrap_or_default() {
                // The error of a session that cannot be read is reported when the session is used.
                let last_used = store.header(&id).map_or(clock.now(), |header| header.last_used());
                table.insert(id, SessionEntry::Hibernated(last_used));
            }
        }
        let services = SessionServices { backend, store };
        Self { shared: Arc::new(Shared { options, clock, pool, services, table: Mutex::new(table) }) }
    }

    /// Returns the limits and timeouts of sessions.
    pub fn options(&self) -> &SessionOptions {
        &self.shared.options
    }

    /// Returns the limits of each session.
    pub fn limits(&self) -> &Limits {
        self.shared.services.backend.limits()
    }

    /// Returns whether sessions can be forked.
    pub fn supports_fork(&self) -> bool {
        self.shared.services.backend.supports_fork()
    }

    /// Returns the number of active sessions, and of all sessions.
    pub fn count(&self) -> (usize, usize) {
        let table = self.shared.table.lock();
        (table.values().filter(|entry| matches!(entry, SessionEntry::Active(_))).count(), table.len())
    }

    /// Creates a session. Its first call starts the interpreter.
    ///
    /// # Errors
    /// When the maximum number of sessions is open.
    pub fn create(&self) -> Result<SessionId, SessionError> {
        let id = new_id()?;
        let session = Session::new(id.clone(), false, self.shared.clock.now());
        self.shared.add(Arc::new(session))?;
        Ok(id)
    }

    /// Parses the ID of an existing session. The session may still prove unusable when it is used.
    ///
    /// # Errors
    /// When the session does not exist or has expired.
    pub fn find(&self, id: &str) -> Result<SessionId, SessionError> {
        let id = SessionId::parse(id).ok_or_else(|| self.shared.expired(id))?;
        self.shared.open(&id).map(|_| id)
    }

    /// Runs a cell. When the future is dropped, the cell is interrupted.
    ///
    /// # Errors
    /// When the cell was not run. The report contains the errors of the cell itself.
    pub async fn execute(
        &self,
        id: &SessionId,
        cell: CellRequest,
        observer: Arc<dyn CellObserver>,
    ) -> Result<CellReport, SessionError> {
        let cancellation = CallCancellation::default();
        let guard = cancellation.interrupt_on_drop(CANCEL_GRACE);
        let (shared, session) = (self.shared.clone(), self.shared.open(id)?);
        let report = self.with(session, move |state, session| {
            let begin_running = |interrupt: Arc<dyn InterruptHandle>| {
                session.set_running(Some(interrupt.clone()));
                cancellation.begin_running(interrupt)
            };
            let report = state.execute(&shared.services, &cell, observer, shared.clock.now(), begin_running);
            session.set_running(None);
            cancellation.finish();
            session.touch(shared.clock.now());
            report
        });
        let report = report.await;
        drop(guard);
        report
    }

    /// Returns the session's files.
    ///
    /// # Errors
    /// When the session does not exist, or its kernel cannot be started or restored.
    pub async fn list(&self, id: &SessionId) -> Result<Vec<FileInfo>, SessionError> {
        self.on(id, |state, services, _| state.list(services)).await
    }

    /// Reads a file of a session, or a part of the file.
    ///
    /// # Errors
    /// When the session or the file does not exist.
    pub async fn read(&self, address: FileAddress) -> Result<Vec<u8>, SessionError> {
        let id = address.session.clone();
        self.on(&id, move |state, services, _| state.read(services, &address.path, address.range)).await
    }

    /// Writes a file into a session.
    ///
    /// # Errors
    /// When the name is not a plain file name, or the file is too large.
    pub async fn upload(&self, id: &SessionId, name: String, bytes: Vec<u8>) -> Result<FileInfo, SessionError> {
        self.on(id, move |state, services, now| state.upload(services, &name, &bytes, now)).await
    }

    /// Interrupts the running cell; the variables stay. Returns `false` if no cell runs.
    ///
    /// # Errors
    /// When the session does not exist.
    pub fn interrupt(&self, id: &SessionId) -> Result<bool, SessionError> {
        Ok(self.shared.open(id)?.interrupt())
    }

    /// Interrupts the running cell and replaces the session's interpreter by a new one. The files stay.
    ///
    /// # Errors
    /// When the session does not exist, or a new interpreter cannot be started.
    pub async fn restart(&self, id: &SessionId) -> Result<(), SessionError> {
        self.shared.open(id)?.interrupt();
        self.on(id, |state, services, now| state.restart(services, now)).await
    }

    /// Creates a session with the same variables and files.
    ///
    /// # Errors
    /// When the session does not exist, or the maximum number of sessions is open.
    pub async fn fork(&self, id: &SessionId) -> Result<SessionId, SessionError> {
        let kernel = self.on(id, |state, services, _| state.fork(services)).await?;
        let id = new_id()?;
        self.shared.add(Arc::new(Session::with_kernel(id.clone(), kernel, self.shared.clock.now())))?;
        if self.shared.services.store.as_ref().is_some_and(Store::is_persistent) {
            self.on(&id, |state, services, now| state.persist_initial(services, now)).await?;
        }
        Ok(id)
    }

    /// Ends a session and deletes its files.
    ///
    /// # Errors
    /// When the session does not exist, or its files cannot be deleted.
    pub async fn clear(&self, id: &SessionId) -> Result<(), SessionError> {
        let session = self.shared.open(id)?;
        self.shared.table.lock().remove(id);
        let (shared, (done, answer)) = (self.shared.clone(), oneshot::channel());
        let last = Box::new(move |state: &mut SessionState| {
            let destroyed = state.destroy(&shared.services);
            // Ignore send errors: the receiver may have been dropped.
            Box::new(move || drop(done.send(destroyed))) as Completion
        });
        if session.close(last) {
            let worker = session.clone();
            if self.shared.pool.submit(move |_permit| worker.work()).is_err() {
                // The pool is too busy to run code. This job runs no code, and the caller cannot retry, because the
                // session is already removed from the table.
                finish_on_own_thread(session);
            }
        }
        answer.await.unwrap_or(Err(SessionError::Gone))
    }

    /// Ends expired sessions and hibernates idle ones. Must be called every few minutes.
    pub async fn evict_idle(&self) {
        let now = self.shared.clock.now();
        let SessionOptions { timeout, sleep_after, .. } = self.shared.options;
        let mut expired = Vec::new();
        let mut idle = Vec::new();
        for (id, entry) in self.shared.table.lock().iter() {
            match entry {
                SessionEntry::Active(session) if !session.is_idle() => {}
                SessionEntry::Active(session) if is_expired(session.last_used(), timeout, now) => {
                    expired.push(id.clone())
                }
                SessionEntry::Active(session) if is_expired(session.last_used(), sleep_after, now) => {
                    idle.push(session.clone())
                }
                SessionEntry::Hibernated(last_used) if is_expired(*last_used, timeout, now) => expired.push(id.clone()),
                SessionEntry::Active(_) | SessionEntry::Hibernated(_) => {}
            }
        }
        for id in expired {
            let shared = self.shared.clone();
            // Freeing an interpreter's memory and deleting files take a while.
            let ended = tokio::task::spawn_blocking(move || shared.expire(&id)).await;
            if let Err(error) = ended {
                tracing::error!(%error, "failed to end an expired session");
            }
        }
        if self.shared.services.store.is_some() {
            for session in idle {
                self.hibernate(session).await;
            }
        }
    }

    /// Hibernates all idle sessions if the store is persistent; otherwise deletes the store. Must be called when the
    /// process is about to end.
    pub async fn hibernate_all(&self) {
        let Some(store) = &self.shared.services.store else { return };
        if !store.is_persistent() {
            store.delete_all();
            return;
        }
        let sessions: Vec<Arc<Session>> = {
            let table = self.shared.table.lock();
            let active = table.values().filter_map(|entry| match entry {
                SessionEntry::Active(session) => Some(session.clone()),
                SessionEntry::Hibernated(_) => None,
            });
            active.filter(|session| session.is_idle()).collect()
        };
        for session in sessions {
            self.hibernate(session).await;
        }
    }

    async fn hibernate(&self, session: Arc<Session>) {
        let shared = self.shared.clone();
        let hibernated = self.with(session, move |state, session| {
            let last_used = session.last_used();
            if state.hibernate(&shared.services, last_used)? && session.close_if_last() {
                // From now on, lookups find the session in the store.
                shared.table.lock().insert(session.id.clone(), SessionEntry::Hibernated(last_used));
            }
            Ok(())
        });
        if let Err(error) = hibernated.await {
            tracing::warn!(%error, "failed to hibernate a session");
        }
    }

    /// Runs `work` on the state of the session `id` when it is the session's turn.
    async fn on<T: Send + 'static>(
        &self,
        id: &SessionId,
        work: impl FnOnce(&mut SessionState, &SessionServices, Duration) -> Result<T, SessionError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let (shared, session) = (self.shared.clone(), self.shared.open(id)?);
        self.with(session, move |state, _| work(state, &shared.services, shared.clock.now())).await
    }

    /// Queues `work` and waits until it has run on a guest thread.
    async fn with<T: Send + 'static>(
        &self,
        mut session: Arc<Session>,
        work: impl FnOnce(&mut SessionState, &Session) -> Result<T, SessionError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let (done, answer) = oneshot::channel();
        // If the session is hibernated before the job runs, the job runs on another `Session` object.
        let current: Arc<Mutex<Arc<Session>>> = Arc::new(Mutex::new(session.clone()));
        let shared_current = current.clone();
        let mut job: crate::session::Job = Box::new(move |state| {
            let session = shared_current.lock().clone();
            let result = work(state, &session);
            Box::new(move || drop(done.send(result)))
        });
        loop {
            *current.lock() = session.clone();
            match session.submit(job, self.shared.options.max_queued) {
                SubmitResult::Waiting => break,
                SubmitResult::First => {
                    let worker = session.clone();
                    if let Err(busy) = self.shared.pool.submit(move |_permit| worker.work()) {
                        session.clear_queue();
                        return Err(busy.into());
                    }
                    break;
                }
                SubmitResult::Full(waiting) => return Err(SessionError::Queue { waiting }),
                SubmitResult::Closed(back) => {
                    job = back;
                    session = self.shared.open(&session.id)?;
                }
            }
        }
        answer.await.unwrap_or(Err(SessionError::Gone))
    }
}

impl Shared {
    fn add(&self, session: Arc<Session>) -> Result<(), SessionError> {
        let mut table = self.table.lock();
        if table.len() >= self.options.max_sessions {
            return Err(SessionError::TooMany(table.len()));
        }
        table.insert(session.id.clone(), SessionEntry::Active(session));
        Ok(())
    }

    /// Looks up a session and marks it as used now. A hibernated session becomes active; its next job restores the
    /// kernel.
    fn open(&self, id: &SessionId) -> Result<Arc<Session>, SessionError> {
        let now = self.clock.now();
        let mut table = self.table.lock();
        let last_used = match table.get(id) {
            Some(SessionEntry::Active(session)) if session.is_idle() => session.last_used(),
            Some(SessionEntry::Active(_)) => now,
            Some(SessionEntry::Hibernated(last_used)) => *last_used,
            // Another process may have created the session in the same store.
            None => {
                match self.services.store.as_ref().filter(|store| store.is_persistent()).map(|store| store.header(id)) {
                    Some(Ok(header)) => header.last_used(),
                    Some(Err(StoreError::Missing)) | None => return Err(self.expired(id.as_str())),
                    Some(Err(error)) => return Err(error.into()),
                }
            }
        };
        if is_expired(last_used, self.options.timeout, now) {
            drop(table);
            self.expire(id);
            return Err(self.expired(id.as_str()));
        }
        if let Some(SessionEntry::Active(session)) = table.get(id) {
            session.touch(now);
            return Ok(session.clone());
        }
        let session = Arc::new(Session::new(id.clone(), true, now));
        table.insert(id.clone(), SessionEntry::Active(session.clone()));
        Ok(session)
    }

    /// Ends an expired session, unless another process has used it in the meantime.
    fn expire(&self, id: &SessionId) {
        let entry = self.table.lock().remove(id);
        if let Some(SessionEntry::Active(session)) = entry {
            let services = SessionServices { backend: self.services.backend.clone(), store: None };
            // The job only frees memory, so its services have no store. The stored files are deleted below.
            if session.close(Box::new(move |state: &mut SessionState| {
                drop(state.destroy(&services));
                Box::new(|| ()) as Completion
            })) {
                session.work();
            }
        }
        let Some(store) = &self.services.store else { return };
        let Ok(header) = store.header(id) else { return };
        if !is_expired(header.last_used(), self.options.timeout, self.clock.now()) {
            return;
        }
        let removed = store.lease(id, false).and_then(|_lease| store.remove(id));
        if let Err(error) = removed {
            tracing::debug!(%error, "failed to delete an expired session");
        }
    }

    fn expired(&self, name: &str) -> SessionError {
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

/// Runs the last job of a closed session on a separate thread, because freeing an interpreter takes a while.
fn finish_on_own_thread(session: Arc<Session>) {
    let worker = session.clone();
    let spawned = std::thread::Builder::new().name("ending".into()).spawn(move || worker.work());
    if spawned.is_err() {
        session.work();
    }
}

fn is_expired(last_used: Duration, timeout: Duration, now: Duration) -> bool {
    now.saturating_sub(last_used) > timeout
}

fn new_id() -> Result<SessionId, SessionError> {
    SessionId::random().map_err(|error| SessionError::Kernel(KernelError::Failed(error.to_string().into())))
}
