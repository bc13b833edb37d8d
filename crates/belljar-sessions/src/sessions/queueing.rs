//! Queues the work of calls on their sessions. A guest thread runs it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{SessionOptions, Sessions};
use crate::error::SessionError;
use crate::id::SessionId;
use crate::parking::ParkedWork;
use crate::session::{Job, JobKind, JobStep, JobWait, PoolTurn, QueueLimits, Session, SubmitResult};
use crate::state::{SessionServices, SessionState};
use crate::tenants::CallTicket;

/// The receiver of a queued job's result, or the reason why the job was not queued.
pub(super) type QueuedResult<T> = Result<oneshot::Receiver<Result<T, SessionError>>, SessionError>;

/// Work on a session, or the rest of it.
pub(super) type Work<T> = Box<dyn FnOnce(&mut SessionState, &Session) -> WorkStep<T> + Send>;

/// A step of work.
pub(super) enum WorkStep<T> {
    Completed(Result<T, SessionError>),
    /// The work waits without a thread: see [`JobWait`](crate::session::JobWait).
    Waiting {
        work: Arc<ParkedWork>,
        timer: Option<Duration>,
        next: Work<T>,
    },
}

/// Returns the job that does `work` on the session that is `current` then, and sends its result.
pub(super) fn job<T: Send + 'static>(
    work: Work<T>,
    current: Arc<Mutex<Arc<Session>>>,
    done: oneshot::Sender<Result<T, SessionError>>,
) -> Job {
    Box::new(move |state| {
        let session = current.lock().clone();
        match work(state, &session) {
            WorkStep::Completed(result) => JobStep::Completed(Box::new(move || drop(done.send(result)))),
            WorkStep::Waiting { work, timer, next } => {
                JobStep::Waiting(JobWait { work, timer, next: job(next, current, done) })
            }
        }
    })
}

/// Waits for the result of a queued job.
pub(super) async fn result<T>(queued: QueuedResult<T>) -> Result<T, SessionError> {
    queued?.await.unwrap_or(Err(SessionError::Gone))
}

impl Sessions {
    /// Queues `work` on the state of the session `id`. `bytes` is the size of the file that it brings.
    pub(super) fn on<T: Send + 'static>(
        &self,
        id: &SessionId,
        bytes: usize,
        work: impl FnOnce(&mut SessionState, &SessionServices, Duration) -> Result<T, SessionError> + Send + 'static,
    ) -> QueuedResult<T> {
        let (shared, session) = (self.shared.clone(), self.open(id)?);
        let work = move |state: &mut SessionState, _: &Session| {
            WorkStep::Completed(work(state, &shared.services, shared.clock.now()))
        };
        self.queue_call(session, JobKind::Other(bytes), Box::new(work))
    }

    /// Queues the work of a call that runs code, if the quotas allow it. If the returned ticket is dropped before the
    /// work begins, it does not begin.
    pub(super) fn queue_code<T: Send + 'static>(
        &self,
        session: Arc<Session>,
        kind: JobKind,
        work: Work<T>,
    ) -> Result<(CallTicket, oneshot::Receiver<Result<T, SessionError>>), SessionError> {
        let admit = || {
            self.check_audit()?;
            self.tenant.check_storage()?;
            Ok::<_, SessionError>(self.shared.pool.admit(&self.tenant)?)
        };
        let (call, ticket) = admit().inspect_err(|_| self.note_arrival(&session.id))?;
        let pool = self.shared.pool.clone();
        let admitted = move |state: &mut SessionState, session: &Session| {
            if !ticket.begin() {
                return WorkStep::Completed(Err(SessionError::Gone));
            }
            pool.record_wait(ticket.waited());
            drop(pool);
            work(state, session)
        };
        let id = session.id.clone();
        let queued = self.queue(session, kind, Box::new(admitted));
        self.note_arrival(&id);
        Ok((call, queued?))
    }

    /// Checks that what the call does can be recorded.
    fn check_audit(&self) -> Result<(), SessionError> {
        match self.shared.services.activity.get() {
            Some(activity) => Ok(activity.audit().admit()?),
            None => Ok(()),
        }
    }

    /// Queues the work of a call, and records how long it waits.
    pub(super) fn queue_call<T: Send + 'static>(
        &self,
        session: Arc<Session>,
        kind: JobKind,
        work: Work<T>,
    ) -> QueuedResult<T> {
        let id = session.id.clone();
        if let Err(refusal) = self.check_audit() {
            self.note_arrival(&id);
            return Err(refusal);
        }
        let (pool, arrival) = (self.shared.pool.clone(), Instant::now());
        let recorded = move |state: &mut SessionState, session: &Session| {
            pool.record_wait(arrival.elapsed());
            drop(pool);
            work(state, session)
        };
        let queued = self.queue(session, kind, Box::new(recorded));
        self.note_arrival(&id);
        queued
    }

    /// Queues `work`, which a guest thread will run and need not be that of a call.
    pub(super) fn queue<T: Send + 'static>(
        &self,
        mut session: Arc<Session>,
        kind: JobKind,
        work: Work<T>,
    ) -> QueuedResult<T> {
        let (done, answer) = oneshot::channel();
        // If the session is hibernated before the job runs, the job runs on another `Session` object.
        let current: Arc<Mutex<Arc<Session>>> = Arc::new(Mutex::new(session.clone()));
        let mut job = job(work, current.clone(), done);
        let SessionOptions { max_queued, max_queued_bytes, .. } = self.shared.options;
        let limits = QueueLimits { jobs: max_queued, bytes: max_queued_bytes };
        loop {
            *current.lock() = session.clone();
            match session.submit(kind, job, limits) {
                SubmitResult::Waiting => break,
                SubmitResult::First => {
                    let (worker, pool) = (session.clone(), self.shared.pool.clone());
                    let work = move |permit| worker.work(Some(PoolTurn { pool, permit }));
                    let submitted = match kind {
                        JobKind::Cell(_) => self.shared.pool.submit_for(&self.tenant, work),
                        JobKind::Other(_) => self.shared.pool.submit_control(&self.tenant, work),
                    };
                    if let Err(busy) = submitted {
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

    /// Notes that a call for a session is in its queue, or was refused: the session may be given up once it is idle.
    fn note_arrival(&self, id: &SessionId) {
        if let Some(cluster) = self.cluster() {
            cluster.note_arrival(id);
        }
    }

    /// Closes the queue of a session. `last` runs after the queued jobs.
    pub(super) fn close(&self, session: Arc<Session>, last: Job) {
        if session.close(last) {
            let (worker, pool) = (session.clone(), self.shared.pool.clone());
            let work = move |permit| worker.work(Some(PoolTurn { pool, permit }));
            if self.shared.pool.submit_control(&self.tenant, work).is_err() {
                // The pool is too busy to run code. This job runs no code, and the caller cannot retry, because the
                // session is already removed from the table.
                finish_on_own_thread(session);
            }
        }
    }
}

/// Runs the last job of a closed session on a separate thread, because freeing an interpreter takes a while.
fn finish_on_own_thread(session: Arc<Session>) {
    let worker = session.clone();
    let spawned = std::thread::Builder::new().name("ending".into()).spawn(move || worker.work(None));
    if spawned.is_err() {
        session.work(None);
    }
}
