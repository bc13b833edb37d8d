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
use crate::report::{AnswerOptions, CellReport};
use crate::session::{Completion, JobKind, QueueLimits, Session, SubmitResult};
use crate::state::{CellStart, SessionServices, SessionState};
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
    /// The maximum number of bytes of code and files in the queued calls of one session.
    pub max_queued_bytes: usize,
    /// The parts of a cell's result that its report contains.
    pub answers: AnswerOptions,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30 * 60),
            sleep_after: Duration::from_secs(5 * 60),
            max_sessions: 1000,
            max_queued: 1 << 14,
            max_queued_bytes: 64 << 20,
            answers: AnswerOptions::default(),
        }
    }
}

/// All sessions of a server, as one client sees them. Cheap to clone.
///
/// A session belongs to the client that created it: to other clients it does not exist. A session that was created
/// without authentication belongs to no client, and its ID is all that using it takes.
///
/// Methods that return a future queue their work when they are called, not when the future is polled: calls to one
/// session run in the order in which these methods were called.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
    /// The authenticated client, if authentication is enabled.
    owner: Option<Owner>,
}

/// The identifier of an authenticated client.
pub type Owner = Arc<str>;

struct Shared {
    options: SessionOptions,
    clock: Arc<dyn Clock>,
    pool: Arc<GuestThreadPool>,
    services: SessionServices,
    table: Mutex<HashMap<SessionId, SessionEntry>>,
}

enum SessionEntry {
    Active(Arc<Session>),
    Hibernated(HibernatedSession),
    /// The session was cleared, and its last calls are running. It cannot be used any more.
    Ending,
}

/// A session that was cleared. Dropping it removes the session from the table.
struct EndingSession {
    shared: Arc<Shared>,
    id: SessionId,
}

impl Drop for EndingSession {
    fn drop(&mut self) {
        self.shared.table.lock().remove(&self.id);
    }
}

/// A session that is in the store.
struct HibernatedSession {
    last_used: Duration,
    owner: Option<Owner>,
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
                let hibernated = match store.header(&id) {
                    Ok(header) => HibernatedSession { last_used: header.last_used(), owner: header.owner() },
                    Err(_) => HibernatedSession { last_used: clock.now(), owner: None },
                };
                table.insert(id, SessionEntry::Hibernated(hibernated));
            }
        }
        let services = SessionServices { backend, store, answers: options.answers };
        let shared = Shared { options, clock, pool, services, table: Mutex::new(table) };
        Self { shared: Arc::new(shared), owner: None }
    }

    /// Returns the same sessions as the authenticated client `owner` sees them.
    #[must_use]
    pub fn for_owner(&self, owner: Option<Owner>) -> Self {
        Self { shared: self.shared.clone(), owner }
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
        let session = Session::new(id.clone(), self.owner.clone(), false, self.shared.clock.now());
        self.shared.add(Arc::new(session))?;
        Ok(id)
    }

    /// Parses the ID of an existing session. The session may still prove unusable when it is used.
    ///
    /// # Errors
    /// When the session does not exist or has expired.
    pub fn find(&self, id: &str) -> Result<SessionId, SessionError> {
        let id = SessionId::parse(id).ok_or_else(|| self.shared.expired(id))?;
        self.open(&id).map(|_| id)
    }

    fn open(&self, id: &SessionId) -> Result<Arc<Session>, SessionError> {
        self.shared.open(id, self.owner.as_ref())
    }

    /// Runs a cell. When the future is dropped, the cell is interrupted.
    ///
    /// # Errors
    /// When the cell was not run. The report contains the errors of the cell itself.
    pub fn execute(
        &self,
        id: &SessionId,
        cell: CellRequest,
        observer: Arc<dyn CellObserver>,
    ) -> impl Future<Output = Result<CellReport, SessionError>> + Send + use<> {
        let cancellation = CallCancellation::default();
        let guard = cancellation.interrupt_on_drop(CANCEL_GRACE);
        let kind = JobKind::Cell(cell.code.len());
        let shared = self.shared.clone();
        let work = move |state: &mut SessionState, session: &Session| {
            let begin_running = |interrupt: Arc<dyn InterruptHandle>| {
                if !cancellation.begin_running(interrupt.clone()) {
                    CellStart::Cancelled
                } else if session.begin_running(interrupt) {
                    CellStart::Started
                } else {
                    CellStart::Interrupted
                }
            };
            let report = state.execute(&shared.services, &cell, observer, shared.clock.now(), begin_running);
            session.end_running();
            cancellation.finish();
            session.touch(shared.clock.now());
            report
        };
        let queued = self.open(id).and_then(|session| self.queue(session, kind, work));
        async move {
            let report = result(queued).await;
            drop(guard);
            report
        }
    }

    /// Returns the session's files.
    ///
    /// # Errors
    /// When the session does not exist, or its kernel cannot be started or restored.
    pub fn list(&self, id: &SessionId) -> impl Future<Output = Result<Vec<FileInfo>, SessionError>> + Send + use<> {
        result(self.on(id, 0, |state, services, _| state.list(services)))
    }

    /// Reads a file of a session, or a part of the file.
    ///
    /// # Errors
    /// When the session or the file does not exist.
    pub fn read(&self, address: FileAddress) -> impl Future<Output = Result<Vec<u8>, SessionError>> + Send + use<> {
        let id = address.session.clone();
        result(self.on(&id, 0, move |state, services, _| state.read(services, &address.path, address.range)))
    }

    /// Writes a file into a session.
    ///
    /// # Errors
    /// When the name is not a plain file name, or the file is too large.
    pub fn upload(
        &self,
        id: &SessionId,
        name: String,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<FileInfo, SessionError>> + Send + use<> {
        result(self.on(id, bytes.len(), move |state, services, now| state.upload(services, &name, &bytes, now)))
    }

    /// Interrupts the running cell, or the cell that is about to run; the variables stay. Returns `false` if there is
    /// neither.
    ///
    /// # Errors
    /// When the session does not exist.
    pub fn interrupt(&self, id: &SessionId) -> Result<bool, SessionError> {
        Ok(self.open(id)?.interrupt())
    }

    /// Interrupts the running cell and replaces the session's interpreter by a new one. The files stay.
    ///
    /// # Errors
    /// When the session does not exist, or a new interpreter cannot be started.
    pub fn restart(&self, id: &SessionId) -> impl Future<Output = Result<(), SessionError>> + Send + use<> {
        let queued = self.open(id).and_then(|session| {
            session.interrupt();
            self.on(id, 0, |state, services, now| state.restart(services, now))
        });
        result(queued)
    }

    /// Creates a session with the same variables and files, and with the same owner.
    ///
    /// # Errors
    /// When the session does not exist, or the maximum number of sessions is open.
    pub fn fork(&self, id: &SessionId) -> impl Future<Output = Result<SessionId, SessionError>> + Send + use<> {
        let sessions = self.clone();
        let queued = self.open(id).and_then(|session| {
            let owner = session.owner.clone();
            Ok((self.on(id, 0, |state, services, _| state.fork(services))?, owner))
        });
        async move {
            let (kernel, owner) = queued?;
            let kernel = result(Ok(kernel)).await?;
            let (id, now) = (new_id()?, sessions.shared.clock.now());
            sessions.shared.add(Arc::new(Session::with_kernel(id.clone(), owner, kernel, now)))?;
            if sessions.shared.services.store.as_ref().is_some_and(Store::is_persistent) {
                result(sessions.on(&id, 0, |state, services, now| state.persist_initial(services, now))).await?;
            }
            Ok(id)
        }
    }

    /// Ends a session after the calls that are queued, and deletes its files. Further calls do not find the session.
    ///
    /// # Errors
    /// When the session does not exist, or its files cannot be deleted.
    pub fn clear(&self, id: &SessionId) -> impl Future<Output = Result<(), SessionError>> + Send + use<> {
        let queued = self.open(id).map(|session| {
            self.shared.table.lock().insert(id.clone(), SessionEntry::Ending);
            let ending = EndingSession { shared: self.shared.clone(), id: id.clone() };
            let (done, answer) = oneshot::channel();
            let last = Box::new(move |state: &mut SessionState| {
                let destroyed = state.destroy(&ending.shared.services);
                drop(ending);
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
            answer
        });
        result(queued)
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
                SessionEntry::Hibernated(hibernated) if is_expired(hibernated.last_used, timeout, now) => {
                    expired.push(id.clone())
                }
                SessionEntry::Active(_) | SessionEntry::Hibernated(_) | SessionEntry::Ending => {}
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
                SessionEntry::Hibernated(_) | SessionEntry::Ending => None,
            });
            active.filter(|session| session.is_idle()).collect()
        };
        for session in sessions {
            self.hibernate(session).await;
        }
    }

    async fn hibernate(&self, session: Arc<Session>) {
        let shared = self.shared.clone();
        let work = move |state: &mut SessionState, session: &Session| {
            let last_used = session.last_used();
            if state.hibernate(&shared.services, last_used)? && session.close_if_last() {
                // From now on, lookups find the session in the store.
                let hibernated = HibernatedSession { last_used, owner: session.owner.clone() };
                shared.table.lock().insert(session.id.clone(), SessionEntry::Hibernated(hibernated));
            }
            Ok(())
        };
        if let Err(error) = result(self.queue(session, JobKind::Other(0), work)).await {
            tracing::warn!(%error, "failed to hibernate a session");
        }
    }

    /// Queues `work` on the state of the session `id`. `bytes` is the size of the file that it brings.
    fn on<T: Send + 'static>(
        &self,
        id: &SessionId,
        bytes: usize,
        work: impl FnOnce(&mut SessionState, &SessionServices, Duration) -> Result<T, SessionError> + Send + 'static,
    ) -> QueuedResult<T> {
        let (shared, session) = (self.shared.clone(), self.open(id)?);
        let work = move |state: &mut SessionState, _: &Session| work(state, &shared.services, shared.clock.now());
        self.queue(session, JobKind::Other(bytes), work)
    }

    /// Queues `work`, which a guest thread will run.
    fn queue<T: Send + 'static>(
        &self,
        mut session: Arc<Session>,
        kind: JobKind,
        work: impl FnOnce(&mut SessionState, &Session) -> Result<T, SessionError> + Send + 'static,
    ) -> QueuedResult<T> {
        let (done, answer) = oneshot::channel();
        // If the session is hibernated before the job runs, the job runs on another `Session` object.
        let current: Arc<Mutex<Arc<Session>>> = Arc::new(Mutex::new(session.clone()));
        let shared_current = current.clone();
        let mut job: crate::session::Job = Box::new(move |state| {
            let session = shared_current.lock().clone();
            let result = work(state, &session);
            Box::new(move || drop(done.send(result)))
        });
        let SessionOptions { max_queued, max_queued_bytes, .. } = self.shared.options;
        let limits = QueueLimits { jobs: max_queued, bytes: max_queued_bytes };
        loop {
            *current.lock() = session.clone();
            match session.submit(kind, job, limits) {
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
                    session = self.shared.open(&session.id, session.owner.as_ref())?;
                }
            }
        }
        Ok(answer)
    }
}

/// The receiver of a queued job's result, or the reason why the job was not queued.
type QueuedResult<T> = Result<oneshot::Receiver<Result<T, SessionError>>, SessionError>;

/// Waits for the result of a queued job.
async fn result<T>(queued: QueuedResult<T>) -> Result<T, SessionError> {
    queued?.await.unwrap_or(Err(SessionError::Gone))
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

    /// Looks up a session for the client `caller` and marks it as used now. A hibernated session becomes active; its
    /// next job restores the kernel. A session of another client is reported as one that does not exist.
    fn open(&self, id: &SessionId, caller: Option<&Owner>) -> Result<Arc<Session>, SessionError> {
        let now = self.clock.now();
        let mut table = self.table.lock();
        let (last_used, owner) = match table.get(id) {
            Some(SessionEntry::Active(session)) if session.is_idle() => (session.last_used(), session.owner.clone()),
            Some(SessionEntry::Active(session)) => (now, session.owner.clone()),
            Some(SessionEntry::Hibernated(hibernated)) => (hibernated.last_used, hibernated.owner.clone()),
            Some(SessionEntry::Ending) => return Err(self.expired(id.as_str())),
            // Another process may have created the session in the same store.
            None => {
                match self.services.store.as_ref().filter(|store| store.is_persistent()).map(|store| store.header(id)) {
                    Some(Ok(header)) => (header.last_used(), header.owner()),
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
            self.expire(id);
            return Err(self.expired(id.as_str()));
        }
        if let Some(SessionEntry::Active(session)) = table.get(id) {
            session.touch(now);
            return Ok(session.clone());
        }
        let session = Arc::new(Session::new(id.clone(), owner, true, now));
        table.insert(id.clone(), SessionEntry::Active(session.clone()));
        Ok(session)
    }

    /// Ends an expired session, unless another process has used it in the meantime.
    fn expire(&self, id: &SessionId) {
        let entry = self.table.lock().remove(id);
        if let Some(SessionEntry::Active(session)) = entry {
            let SessionServices { backend, answers, .. } = &self.services;
            let services = SessionServices { backend: backend.clone(), store: None, answers: *answers };
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
