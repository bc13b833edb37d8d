//! All sessions: made, found, limited in number, expired when they are idle for long, asleep when they are idle for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::{Clock, SystemClock};
use crate::error::SessionError;
use crate::files::FileAddress;
use crate::id::SessionId;
use crate::pool::Pool;
use crate::report::Report;
use crate::session::{Answered, Queued, Session};
use crate::state::{Shop, State};
use crate::store::{Store, StoreError};
use crate::ticket::{CancelOnDrop, Ticket};
use belljar_core::files::FileInfo;
use belljar_core::kernel::{Audience, Backend, CellRequest, Interrupt};

/// How sessions are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// A session that is idle for so long expires.
    pub timeout: Duration,
    /// A session that is idle for so long is put to sleep.
    pub sleep_after: Duration,
    /// Sessions that may be open, awake or asleep.
    pub most: usize,
    /// Calls to one session that may wait.
    pub queue: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30 * 60), sleep_after: Duration::from_secs(5 * 60), most: 1000, queue: 32 }
    }
}

/// All sessions of a server. Cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    clock: Arc<dyn Clock>,
    pool: Arc<Pool>,
    shop: Shop,
    table: Mutex<HashMap<SessionId, Slot>>,
}

enum Slot {
    Open(Arc<Session>),
    /// In the store; used last at that time.
    Asleep(Duration),
}

impl Sessions {
    /// Sessions of this backend. What is in `store` belongs to them; without one no session ever sleeps.
    pub fn new(backend: Arc<dyn Backend>, store: Option<Store>, pool: Arc<Pool>, options: Options) -> Self {
        Self::with_clock(backend, store, pool, options, Arc::new(SystemClock))
    }

    /// The same with another clock.
    pub fn with_clock(
        backend: Arc<dyn Backend>,
        store: Option<Store>,
        pool: Arc<Pool>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mut table = HashMap::new();
        if let Some(store) = &store {
            for id in store.list().unwrap_or_default() {
                // One that cannot be read is met again, with words, when it is used.
                let used = store.head(&id).map_or(clock.now(), |head| Duration::from_millis(head.used));
                table.insert(id, Slot::Asleep(used));
            }
        }
        let shop = Shop { backend, store };
        Self { shared: Arc::new(Shared { options, clock, pool, shop, table: Mutex::new(table) }) }
    }

    /// How sessions are kept.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Sessions that are awake, and all.
    pub fn count(&self) -> (usize, usize) {
        let table = self.shared.table();
        (table.values().filter(|slot| matches!(slot, Slot::Open(_))).count(), table.len())
    }

    /// Makes a session. Its interpreter is made by its first call.
    ///
    /// # Errors
    /// When there are too many.
    pub fn create(&self) -> Result<SessionId, SessionError> {
        let id = new_id()?;
        let session = Session::new(id.clone(), false, self.shared.clock.now());
        self.shared.add(Arc::new(session))?;
        Ok(id)
    }

    /// Reads the name of a session that exists, as far as can be told without using it.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn find(&self, name: &str) -> Result<SessionId, SessionError> {
        let id = SessionId::parse(name).ok_or_else(|| self.expired(name))?;
        self.shared.open(&id).map(|_| id)
    }

    /// Runs a cell. When the future is dropped, the cell is interrupted.
    ///
    /// # Errors
    /// When it was not run. What the cell itself does wrong is in the report.
    pub async fn execute(
        &self,
        id: &SessionId,
        cell: CellRequest,
        audience: Arc<dyn Audience>,
    ) -> Result<Report, SessionError> {
        let ticket = Arc::new(Ticket::default());
        let guard = CancelOnDrop::new(ticket.clone());
        let (shared, session) = (self.shared.clone(), self.shared.open(id)?);
        let report = self.with(session, move |state, session| {
            let runs = |interrupt: Arc<dyn Interrupt>| {
                session.runs(Some(interrupt.clone()));
                ticket.starts(interrupt)
            };
            let report = state.execute(&shared.shop, &cell, audience, shared.clock.now(), runs);
            session.runs(None);
            ticket.ends();
            session.touch(shared.clock.now());
            report
        });
        let report = report.await;
        drop(guard);
        report
    }

    /// The session's files.
    ///
    /// # Errors
    /// When there is no such session, or it cannot be woken.
    pub async fn list(&self, id: &SessionId) -> Result<Vec<FileInfo>, SessionError> {
        self.on(id, |state, shop, _| state.list(shop)).await
    }

    /// A file of a session, or a part of it.
    ///
    /// # Errors
    /// When there is none.
    pub async fn read(&self, address: FileAddress) -> Result<Vec<u8>, SessionError> {
        let id = address.session.clone();
        self.on(&id, move |state, shop, _| state.read(shop, &address.path, address.range)).await
    }

    /// Writes a file into a session.
    ///
    /// # Errors
    /// When its name is none, or it is too large.
    pub async fn upload(&self, id: &SessionId, name: String, bytes: Vec<u8>) -> Result<FileInfo, SessionError> {
        self.on(id, move |state, shop, now| state.upload(shop, &name, &bytes, now)).await
    }

    /// Stops what runs, keeping all variables; `false` when nothing runs.
    ///
    /// # Errors
    /// When there is no such session.
    pub fn interrupt(&self, id: &SessionId) -> Result<bool, SessionError> {
        Ok(self.shared.open(id)?.interrupt())
    }

    /// Gives a session a fresh interpreter; its files stay. What runs is interrupted first.
    ///
    /// # Errors
    /// When there is no such session, or no memory.
    pub async fn restart(&self, id: &SessionId) -> Result<(), SessionError> {
        self.shared.open(id)?.interrupt();
        self.on(id, |state, shop, now| state.restart(shop, now)).await
    }

    /// Makes a session with the same variables and files.
    ///
    /// # Errors
    /// When there is no such session, or there are too many.
    pub async fn fork(&self, id: &SessionId) -> Result<SessionId, SessionError> {
        let kernel = self.on(id, |state, shop, _| state.fork(shop)).await?;
        let id = new_id()?;
        self.shared.add(Arc::new(Session::with_kernel(id.clone(), kernel, self.shared.clock.now())))?;
        if self.shared.shop.store.as_ref().is_some_and(Store::is_lasting) {
            self.on(&id, |state, shop, now| state.begin(shop, now)).await?;
        }
        Ok(id)
    }

    /// Ends a session and deletes its files.
    ///
    /// # Errors
    /// When there is no such session, or its files cannot be deleted.
    pub async fn clear(&self, id: &SessionId) -> Result<(), SessionError> {
        let session = self.shared.open(id)?;
        self.shared.table().remove(id);
        let (shared, (done, answer)) = (self.shared.clone(), oneshot::channel());
        let last = Box::new(move |state: &mut State| {
            let destroyed = state.destroy(&shared.shop);
            // Nobody waits any more, perhaps.
            Box::new(move || drop(done.send(destroyed))) as Answered
        });
        if session.close(last) {
            let worker = session.clone();
            if self.shared.pool.submit(move |_place| worker.work()).is_err() {
                // Too busy for code, but this runs none, and trying again would not find the session.
                aside(session);
            }
        }
        answer.await.unwrap_or(Err(SessionError::Gone))
    }

    /// Ends what expired, and has what is idle put to sleep. To be called every few minutes.
    pub async fn sweep(&self) {
        let now = self.shared.clock.now();
        let Options { timeout, sleep_after, .. } = self.shared.options;
        let mut expired = Vec::new();
        let mut idle = Vec::new();
        for (id, slot) in self.shared.table().iter() {
            match slot {
                Slot::Open(session) if !session.is_idle() => {}
                Slot::Open(session) if is_past(session.used(), timeout, now) => expired.push(id.clone()),
                Slot::Open(session) if is_past(session.used(), sleep_after, now) => idle.push(session.clone()),
                Slot::Asleep(used) if is_past(*used, timeout, now) => expired.push(id.clone()),
                Slot::Open(_) | Slot::Asleep(_) => {}
            }
        }
        for id in expired {
            let shared = self.shared.clone();
            // Interpreters take a while to end, and so do files.
            let ended = tokio::task::spawn_blocking(move || shared.expire(&id)).await;
            if let Err(error) = ended {
                tracing::error!(%error, "an expired session does not end");
            }
        }
        if self.shared.shop.store.is_some() {
            for session in idle {
                self.sleep(session).await;
            }
        }
    }

    /// Puts every session to sleep that does nothing, where sessions survive the process; else deletes what there is of them
    /// on the disk: the process is about to end.
    pub async fn sleep_all(&self) {
        let Some(store) = &self.shared.shop.store else { return };
        if !store.is_lasting() {
            store.discard();
            return;
        }
        let sessions: Vec<Arc<Session>> = {
            let table = self.shared.table();
            let open = table.values().filter_map(|slot| match slot {
                Slot::Open(session) => Some(session.clone()),
                Slot::Asleep(_) => None,
            });
            open.filter(|session| session.is_idle()).collect()
        };
        for session in sessions {
            self.sleep(session).await;
        }
    }

    async fn sleep(&self, session: Arc<Session>) {
        let shared = self.shared.clone();
        let slept = self.with(session, move |state, session| {
            let used = session.used();
            if state.sleep(&shared.shop, used)? && session.close_if_last() {
                // From here on the session is found in the store.
                shared.table().insert(session.id.clone(), Slot::Asleep(used));
            }
            Ok(())
        });
        if let Err(error) = slept.await {
            tracing::warn!(%error, "a session is not put to sleep");
        }
    }

    async fn on<T: Send + 'static>(
        &self,
        id: &SessionId,
        work: impl FnOnce(&mut State, &Shop, Duration) -> Result<T, SessionError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let (shared, session) = (self.shared.clone(), self.shared.open(id)?);
        self.with(session, move |state, _| work(state, &shared.shop, shared.clock.now())).await
    }

    /// Has `work` done when it is the session's turn.
    async fn with<T: Send + 'static>(
        &self,
        mut session: Arc<Session>,
        work: impl FnOnce(&mut State, &Session) -> Result<T, SessionError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let (done, answer) = oneshot::channel();
        // The session may be another object by the time the work is done, if it fell asleep in between.
        let place: Arc<Mutex<Arc<Session>>> = Arc::new(Mutex::new(session.clone()));
        let here = place.clone();
        let mut job: crate::session::Job = Box::new(move |state| {
            let session = here.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let result = work(state, &session);
            Box::new(move || drop(done.send(result)))
        });
        loop {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = session.clone();
            match session.submit(job, self.shared.options.queue) {
                Queued::Waiting => break,
                Queued::First => {
                    let worker = session.clone();
                    if let Err(busy) = self.shared.pool.submit(move |_place| worker.work()) {
                        session.give_up();
                        return Err(busy.into());
                    }
                    break;
                }
                Queued::Full(waiting) => return Err(SessionError::Queue { waiting }),
                Queued::Closed(back) => {
                    job = back;
                    session = self.shared.open(&session.id)?;
                }
            }
        }
        answer.await.unwrap_or(Err(SessionError::Gone))
    }

    fn expired(&self, name: &str) -> SessionError {
        self.shared.expired(name)
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, HashMap<SessionId, Slot>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, session: Arc<Session>) -> Result<(), SessionError> {
        let mut table = self.table();
        if table.len() >= self.options.most {
            return Err(SessionError::TooMany(table.len()));
        }
        table.insert(session.id.clone(), Slot::Open(session));
        Ok(())
    }

    /// The session of this name, which is used now.
    fn open(&self, id: &SessionId) -> Result<Arc<Session>, SessionError> {
        let now = self.clock.now();
        let mut table = self.table();
        let used = match table.get(id) {
            Some(Slot::Open(session)) if session.is_idle() => session.used(),
            Some(Slot::Open(_)) => now,
            Some(Slot::Asleep(used)) => *used,
            // Another process may have made it.
            None => match self.shop.store.as_ref().filter(|store| store.is_lasting()).map(|store| store.head(id)) {
                Some(Ok(head)) => Duration::from_millis(head.used),
                Some(Err(StoreError::Missing)) | None => return Err(self.expired(id.as_str())),
                Some(Err(error)) => return Err(error.into()),
            },
        };
        if is_past(used, self.options.timeout, now) {
            drop(table);
            self.expire(id);
            return Err(self.expired(id.as_str()));
        }
        if let Some(Slot::Open(session)) = table.get(id) {
            session.touch(now);
            return Ok(session.clone());
        }
        let session = Arc::new(Session::new(id.clone(), true, now));
        table.insert(id.clone(), Slot::Open(session.clone()));
        Ok(session)
    }

    /// Ends a session whose time is up, unless another process has used it meanwhile.
    fn expire(&self, id: &SessionId) {
        let slot = self.table().remove(id);
        if let Some(Slot::Open(session)) = slot {
            let shop = Shop { backend: self.shop.backend.clone(), store: None };
            // Only memory is given back here; the disk's part follows.
            if session.close(Box::new(move |state: &mut State| {
                drop(state.destroy(&shop));
                Box::new(|| ()) as Answered
            })) {
                session.work();
            }
        }
        let Some(store) = &self.shop.store else { return };
        let Ok(head) = store.head(id) else { return };
        if !is_past(Duration::from_millis(head.used), self.options.timeout, self.clock.now()) {
            return;
        }
        let removed = store.lease(id, false).and_then(|_lease| store.remove(id));
        if let Err(error) = removed {
            tracing::debug!(%error, "an expired session is left on disk");
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

/// Has a session that takes no more jobs do its last one, on a thread of its own: an interpreter takes a while to end.
fn aside(session: Arc<Session>) {
    let worker = session.clone();
    let spawned = std::thread::Builder::new().name("ending".into()).spawn(move || worker.work());
    if spawned.is_err() {
        session.work();
    }
}

fn is_past(used: Duration, timeout: Duration, now: Duration) -> bool {
    now.saturating_sub(used) > timeout
}

fn new_id() -> Result<SessionId, SessionError> {
    SessionId::random()
        .map_err(|error| SessionError::Kernel(belljar_core::kernel::KernelError::Failed(error.to_string())))
}
