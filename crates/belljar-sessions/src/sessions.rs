//! All sessions of a server, and what clients do with them.
//!
//! | file | subject |
//! | --- | --- |
//! | `table` | which sessions exist: lookup, the limit on their number, expiry |
//! | `cell_call` | the call of a cell, in steps |
//! | `clustered` | sessions of a cluster: where they are, and how they move |
//! | `durable` | cells as runs, which can wait on the disk |
//! | `queueing` | the work of calls, in the queues of their sessions |
//! | `results` | the number of results that wait for their clients |
//! | `held_run` | runs whose cells hold their threads while they wait |
//! | `options` | limits and timeouts |
//! | `idle` | expiry and hibernation of idle sessions |
//! | `files` | files of sessions: listed, read, uploaded, written and edited |
//! | `operator` | the view of operators on all sessions, and their operations |

mod cell_call;
mod clustered;
mod durable;
mod files;
mod held_run;
mod idle;
mod operator;
mod options;
mod queueing;
mod results;
mod table;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::{Clock, SystemClock};
use crate::error::SessionError;
use crate::folders::SessionFolders;
use crate::history::CellGuard;
use crate::id::SessionId;
use crate::parking::ParkedWork;
use crate::pool::GuestThreadPool;
use crate::report::CellReport;
use crate::session::{JobKind, JobStep, Session};
use crate::state::{SessionServices, SessionState};
use crate::store::Store;
use crate::tenants::{Tenant, TenantKey};
use belljar_audit::{Details, Event, digest};
use belljar_core::Activity;
use belljar_core::kernel::{Backend, CellObserver, CellRequest};
use belljar_core::{CallCancellation, Limits};
use cell_call::CellCall;
pub(crate) use durable::milliseconds_now;
pub use durable::{ResumedReport, ResumedRun, StoredRuns};
pub(crate) use held_run::HeldRun;
pub use options::SessionOptions;
use queueing::result;
use table::{EndingSession, HibernatedSession, SessionEntry, Shared, new_id};

/// The time between the interrupt of a cell whose call was cancelled and the kill of its interpreter.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

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
    /// The owner whose quotas calls count for.
    tenant: Tenant,
    /// True if an operator uses the sessions in place of that client.
    by_operator: bool,
}

/// The identifier of an authenticated client.
pub type Owner = Arc<str>;

impl Sessions {
    /// Creates the sessions of a backend, including those in `store`. Without a store, sessions are not hibernated. If
    /// `folders` is given, it has the sessions' files, which stay when a session ends.
    pub fn new(
        backend: Arc<dyn Backend>,
        store: Option<Store>,
        folders: Option<SessionFolders>,
        pool: Arc<GuestThreadPool>,
        options: SessionOptions,
    ) -> Self {
        Self::with_clock(backend, store, folders, pool, options, Arc::new(SystemClock))
    }

    /// Does the same as [`Sessions::new`], with another clock.
    pub fn with_clock(
        backend: Arc<dyn Backend>,
        store: Option<Store>,
        folders: Option<SessionFolders>,
        pool: Arc<GuestThreadPool>,
        options: SessionOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        if let Some(store) = &store
            && let Err(error) = store.clean_up()
        {
            tracing::warn!(%error, "failed to delete images that no session needs");
        }
        let table = store
            .as_ref()
            .map(|store| HibernatedSession::all_in(store, pool.tenants(), clock.now()))
            .unwrap_or_default();
        let (answers, activity) = (options.answers, Arc::default());
        let services =
            SessionServices { backend, store: store.map(Arc::new), folders: folders.map(Arc::new), answers, activity };
        let shared = Shared {
            options,
            clock,
            pool,
            services,
            table: Mutex::new(table),
            runs: Arc::default(),
            adopted: Mutex::default(),
            history: OnceLock::new(),
            is_ending: AtomicBool::new(false),
        };
        let tenant = shared.pool.tenants().find(TenantKey::Local);
        let shared = Arc::new(shared);
        let counted = Arc::downgrade(&shared);
        shared.pool.tenants().set_session_counter(move |tenant| {
            counted.upgrade().map_or(0, |shared| shared.count_of(&shared.table.lock(), tenant))
        });
        Self { shared, owner: None, tenant, by_operator: false }
    }

    /// Sets the audit log and the traces. Only the first call has an effect.
    pub fn set_activity(&self, activity: Activity) {
        let _ = self.shared.services.activity.set(activity);
    }

    /// Records an event of a session of this client.
    fn record(&self, event: Event, id: &SessionId, details: impl FnOnce() -> Details) {
        if let Some(activity) = self.shared.services.activity.get() {
            let details = || Details { by: self.actor(), ..details() };
            activity.record_session(event, id.as_str(), self.owner.as_deref(), details);
        }
    }

    /// Returns the party that acts, for records, if it is not the client.
    fn actor(&self) -> Option<&'static str> {
        self.by_operator.then_some("operator")
    }

    /// Returns the same sessions as the authenticated client `owner` sees them.
    #[must_use]
    pub fn for_owner(&self, owner: Option<Owner>) -> Self {
        let tenant = match &owner {
            Some(owner) => self.shared.pool.tenants().find(TenantKey::Owner(owner)),
            None => self.tenant.clone(),
        };
        Self { shared: self.shared.clone(), owner, tenant, by_operator: false }
    }

    /// Returns the same sessions for calls that count for the quotas of `tenant`.
    #[must_use]
    pub fn for_tenant(&self, tenant: Tenant) -> Self {
        Self { tenant, ..self.clone() }
    }

    /// Returns the authenticated client whose sessions these are.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Returns the limits and timeouts of sessions.
    pub fn options(&self) -> &SessionOptions {
        &self.shared.options
    }

    /// Returns the limits of each session.
    pub fn limits(&self) -> &Limits {
        self.shared.services.backend.limits()
    }

    /// Returns whether the sessions' files are in folders of the host, which stay when a session ends.
    pub fn have_folders(&self) -> bool {
        self.shared.services.folders.is_some()
    }

    /// Returns whether sessions can be forked.
    pub fn supports_fork(&self) -> bool {
        self.shared.services.backend.supports_fork()
    }

    /// Returns whether cells may have an [`Exchange`](belljar_core::Exchange).
    pub fn supports_exchange(&self) -> bool {
        self.shared.services.backend.supports_exchange()
    }

    /// Returns the number of active sessions, and of all sessions.
    pub fn count(&self) -> (usize, usize) {
        let table = self.shared.table.lock();
        (table.values().filter(|entry| matches!(entry, SessionEntry::Active(_))).count(), table.len())
    }

    /// Returns the number of calls that wait in the queues of their sessions.
    pub fn waiting(&self) -> usize {
        let active: Vec<Arc<Session>> = {
            let table = self.shared.table.lock();
            let sessions = table.values().filter_map(|entry| match entry {
                SessionEntry::Active(session) => Some(session.clone()),
                SessionEntry::Hibernated(_) | SessionEntry::Ending => None,
            });
            sessions.collect()
        };
        active.iter().map(|session| session.waiting()).sum()
    }

    /// Creates a session. Its first call starts the interpreter.
    ///
    /// # Errors
    /// Fails if the maximum number of sessions is open.
    pub fn create(&self) -> Result<SessionId, SessionError> {
        let id = new_id()?;
        let (owner, tenant) = (self.owner.clone(), self.tenant.clone());
        let session = Session::new(id.clone(), owner, tenant, false, self.shared.clock.now());
        self.shared.add(Arc::new(session))?;
        self.record(Event::SessionCreate, &id, Details::default);
        Ok(id)
    }

    /// Parses the ID of an existing session. The session may still prove unusable when it is used.
    ///
    /// # Errors
    /// Fails if the session does not exist or has expired.
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
    /// Fails if the cell was not run. The report contains the errors of the cell itself.
    pub fn execute(
        &self,
        id: &SessionId,
        cell: CellRequest,
        observer: Arc<dyn CellObserver>,
    ) -> impl Future<Output = Result<CellReport, SessionError>> + Send + use<> {
        self.execute_recorded(id, cell, observer).1
    }

    /// Does the same as [`Sessions::execute`]. Also returns the number of the cell in the session's history, if cells
    /// are recorded.
    ///
    /// # Errors
    /// As [`Sessions::execute`].
    pub fn execute_recorded(
        &self,
        id: &SessionId,
        cell: CellRequest,
        observer: Arc<dyn CellObserver>,
    ) -> (Option<u64>, impl Future<Output = Result<CellReport, SessionError>> + Send + use<>) {
        let cancellation = CallCancellation::default();
        let guard = cancellation.interrupt_on_drop(CANCEL_GRACE);
        let kind = JobKind::Cell(cell.code.len());
        let work = ParkedWork::new(self.shared.pool.clone(), self.tenant.clone());
        let (arrival, mut number) = (SystemTime::now(), None);
        let queued = self.open(id).and_then(|session| {
            let record = self.record_cell(&session, &cell.code);
            number = record.as_ref().map(CellGuard::number);
            let call = CellCall { shared: self.shared.clone(), cancellation, work, run: None, arrival, record };
            let work =
                move |state: &mut SessionState, session: &Session| call.begin(state, session, cell, observer, None);
            self.queue_code(session, kind, Box::new(work))
        });
        let timeout = self.shared.pool.tenants().queue_timeout();
        let report = async move {
            let (ticket, queued) = queued?;
            let report = tokio::select! {
                report = result(Ok(queued)) => report,
                refusal = ticket.expired(timeout) => Err(refusal.into()),
            };
            drop(guard);
            report
        };
        (number, report)
    }

    /// Interrupts the running cell, or the cell that is about to run; the variables stay. Returns `false` if there is
    /// neither.
    ///
    /// # Errors
    /// Fails if the session does not exist.
    pub fn interrupt(&self, id: &SessionId) -> Result<bool, SessionError> {
        let is_interrupted = self.open(id)?.interrupt();
        self.record(Event::SessionInterrupt, id, Details::default);
        Ok(is_interrupted)
    }

    /// Interrupts the running cell and replaces the session's interpreter by a new one. The files stay.
    ///
    /// # Errors
    /// Fails if the session does not exist, or a new interpreter cannot be started.
    pub fn restart(&self, id: &SessionId) -> impl Future<Output = Result<(), SessionError>> + Send + use<> {
        let queued = self.open(id).and_then(|session| {
            session.interrupt();
            self.record(Event::SessionRestart, id, Details::default);
            self.on(id, 0, |state, services, now| state.restart(services, now))
        });
        result(queued)
    }

    /// Creates a session with the same variables and files, and with the same owner.
    ///
    /// # Errors
    /// Fails if the session does not exist, or the maximum number of sessions is open.
    pub fn fork(&self, id: &SessionId) -> impl Future<Output = Result<SessionId, SessionError>> + Send + use<> {
        let (sessions, origin) = (self.clone(), id.clone());
        let queued = self.open(id).and_then(|session| {
            self.shared.check_quota(&self.tenant)?;
            let (owner, new) = (session.owner.clone(), new_id()?);
            let id_of_fork = new.clone();
            Ok((self.on(id, 0, move |state, services, _| state.fork(services, &id_of_fork))?, owner, new))
        });
        async move {
            let (kernel, owner, id) = queued?;
            let services = &sessions.shared.services;
            let forked = async {
                let kernel = result(Ok(kernel)).await?;
                let now = sessions.shared.clock.now();
                let tenant = sessions.tenant.clone();
                sessions.shared.add(Arc::new(Session::with_kernel(id.clone(), owner.clone(), tenant, kernel, now)))
            };
            if let Err(error) = forked.await {
                if let Some(folders) = &services.folders {
                    folders.remove(&id, owner.as_deref());
                }
                return Err(error);
            }
            sessions.record_fork(&origin, &id);
            if services.store.as_deref().is_some_and(Store::is_persistent) {
                result(sessions.on(&id, 0, |state, services, now| state.persist_initial(services, now))).await?;
            }
            Ok(id)
        }
    }

    pub(crate) fn record_fork(&self, origin: &SessionId, new: &SessionId) {
        let target = || Details { target: Some(digest(new.as_str())), ..Details::default() };
        self.record(Event::SessionFork, origin, target);
    }

    /// Ends a session after the calls that are queued, and deletes its files, except for those in a folder of the host.
    /// Further calls do not find the session.
    ///
    /// # Errors
    /// Fails if the session does not exist, or its files cannot be deleted.
    pub fn clear(&self, id: &SessionId) -> impl Future<Output = Result<(), SessionError>> + Send + use<> {
        if self.open(id).is_ok() {
            self.record(Event::SessionEnd, id, || Details { outcome: Some("cleared".into()), ..Details::default() });
        }
        self.end(id)
    }

    /// Ends a session as [`Sessions::clear`] does, without a record.
    fn end(&self, id: &SessionId) -> impl Future<Output = Result<(), SessionError>> + Send + use<> {
        let queued = self.open(id).map(|session| {
            self.shared.table.lock().insert(id.clone(), SessionEntry::Ending);
            let ending = EndingSession { shared: self.shared.clone(), id: id.clone() };
            let (done, answer) = oneshot::channel();
            let last = Box::new(move |state: &mut SessionState| {
                let destroyed = state.destroy(&ending.shared.services);
                drop(ending);
                // Ignore send errors: the receiver may have been dropped.
                JobStep::Completed(Box::new(move || drop(done.send(destroyed))))
            });
            self.close(session, last);
            answer
        });
        result(queued)
    }
}
