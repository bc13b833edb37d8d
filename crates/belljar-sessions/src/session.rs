//! One session. Its calls are queued and run one after the other, on any free guest thread.

mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belljar_audit::{Details, Event};
use parking_lot::Mutex;

use crate::id::SessionId;
use crate::parking::ParkedWork;
use crate::pool::{GuestThreadPool, Permit};
use crate::sessions::Owner;
use crate::state::{SessionServices, SessionState};
use crate::tenants::Tenant;
use belljar_core::MeterScope;
use belljar_core::kernel::{InterruptHandle, Kernel};
use queue::Queue;
pub(crate) use queue::{JobKind, QueueLimits};

/// An operation on a session, which runs on a guest thread.
pub(crate) type Job = Box<dyn FnOnce(&mut SessionState) -> JobStep + Send>;

/// A step of a job.
pub(crate) enum JobStep {
    /// The job has ended. The completion is called when the session is free for the next call.
    Completed(Completion),
    /// The job waits without a thread. The session is not free until the job has ended.
    Waiting(JobWait),
}

/// A job that waits.
pub(crate) struct JobWait {
    pub(crate) work: Arc<ParkedWork>,
    /// The time after which the job goes on.
    pub(crate) timer: Option<Duration>,
    /// The rest of the job.
    pub(crate) next: Job,
}

/// A function that delivers the result of a job to its caller.
pub(crate) type Completion = Box<dyn FnOnce() + Send>;

/// One session.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// The only client that may use the session, if it was created with authentication.
    pub(crate) owner: Option<Owner>,
    /// The owner whose quotas the session counts for.
    pub(crate) tenant: Tenant,
    /// True if the session is that of a program, which no client sees.
    pub(crate) is_program: bool,
    queue: Mutex<Queue>,
    state: Mutex<SessionState>,
    /// The time of the last use, in milliseconds since 1970.
    last_used: AtomicU64,
}

/// The turn of a session on a thread of a pool.
pub(crate) struct PoolTurn {
    pub(crate) pool: Arc<GuestThreadPool>,
    pub(crate) permit: Permit,
}

impl PoolTurn {
    /// Returns whether the next job of the session is to wait for another turn.
    fn is_over(&self) -> bool {
        self.permit.is_control() || self.pool.has_waiting()
    }
}

/// The result of [`Session::submit`].
pub(crate) enum SubmitResult {
    /// The job is the first: the caller must have a guest thread call [`Session::work`].
    First,
    /// The job runs after the jobs before it.
    Waiting,
    /// The session is closed: the caller must look it up again, and submit the returned job to what it finds.
    Closed(Job),
    /// The queue is full: it has this many jobs.
    Full(usize),
}

impl Session {
    pub(crate) fn new(id: SessionId, owner: Option<Owner>, tenant: Tenant, stored: bool, now: Duration) -> Self {
        Self::from_state(SessionState::new(id.clone(), owner.clone(), stored), id, owner, tenant, now)
    }

    /// Creates a session with a running kernel.
    pub(crate) fn with_kernel(
        id: SessionId,
        owner: Option<Owner>,
        tenant: Tenant,
        kernel: Box<dyn Kernel>,
        now: Duration,
    ) -> Self {
        Self::from_state(SessionState::with_kernel(id.clone(), owner.clone(), kernel), id, owner, tenant, now)
    }

    /// Makes the session that of a program.
    #[must_use]
    pub(crate) fn with_program(self, is_program: bool) -> Self {
        Self { is_program, ..self }
    }

    fn from_state(mut state: SessionState, id: SessionId, owner: Option<Owner>, tenant: Tenant, now: Duration) -> Self {
        state.set_tenant(tenant.clone());
        Self {
            id,
            owner,
            tenant,
            is_program: false,
            queue: Mutex::default(),
            state: Mutex::new(state),
            last_used: AtomicU64::new(milliseconds(now)),
        }
    }

    /// Creates a session whose job waits, and is interrupted by `handle`: see [`Session::park`].
    pub(crate) fn with_running_job(
        state: SessionState,
        id: SessionId,
        owner: Option<Owner>,
        tenant: Tenant,
        now: Duration,
        handle: Arc<dyn InterruptHandle>,
    ) -> Self {
        let session = Self::from_state(state, id, owner, tenant, now);
        let mut queue = session.queue.lock();
        (queue.busy, queue.submitted, queue.current, queue.running) = (true, 1, 1, Some(handle));
        drop(queue);
        session
    }

    /// Puts the cell that waits on the disk, if it is saved and has waited for at least `idle`.
    pub(crate) fn sleep_waiting(&self, services: &SessionServices, idle: Duration) {
        // A locked state belongs to a cell that goes on.
        let asleep = self.state.try_lock().is_some_and(|mut state| {
            let asleep = state.sleep_waiting(idle);
            if asleep {
                state.record(services, Event::SessionSleep, Details::default);
            }
            asleep
        });
        if asleep {
            tracing::debug!("a waiting cell is asleep");
        }
    }

    /// Saves the cell that waits.
    pub(crate) fn save_waiting(&self, services: &SessionServices, now: Duration) {
        let Some(mut state) = self.state.try_lock() else { return };
        if state.durable().is_some_and(|durable| !durable.is_saved)
            && let Err(error) = state.save_waiting(services, Some(Duration::ZERO), now)
        {
            tracing::warn!(%error, "failed to save a waiting cell");
        }
        state.sync();
    }

    pub(crate) fn touch(&self, now: Duration) {
        self.last_used.fetch_max(milliseconds(now), Ordering::Relaxed);
    }

    pub(crate) fn last_used(&self) -> Duration {
        Duration::from_millis(self.last_used.load(Ordering::Relaxed))
    }

    /// Returns whether no job runs or waits.
    pub(crate) fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        !queue.busy && queue.jobs.is_empty()
    }

    /// Returns the number of calls that wait: for the calls before them, or for a thread.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.lock().jobs.len()
    }

    /// Queues a job, unless the queue is full.
    pub(crate) fn submit(&self, kind: JobKind, job: Job, limits: QueueLimits) -> SubmitResult {
        let mut queue = self.queue.lock();
        if queue.closed {
            return SubmitResult::Closed(job);
        }
        let is_too_long = !queue.jobs.is_empty() && queue.bytes.saturating_add(kind.bytes()) > limits.bytes;
        if queue.jobs.len() >= limits.jobs || is_too_long {
            return SubmitResult::Full(queue.jobs.len());
        }
        queue.push(kind, job);
        if std::mem::replace(&mut queue.busy, true) { SubmitResult::Waiting } else { SubmitResult::First }
    }

    /// Drops the queued jobs, for which no thread is available.
    pub(crate) fn clear_queue(&self) {
        let mut queue = self.queue.lock();
        let jobs = queue.take_jobs();
        queue.busy = false;
        // Dropping a job may take other locks.
        drop(queue);
        drop(jobs);
    }

    /// Runs the queued jobs until the queue is empty, until a job waits, or until others wait for the thread. Without
    /// a turn, the thread is not one of a pool.
    pub(crate) fn work(self: &Arc<Self>, turn: Option<PoolTurn>) {
        let next = self.queue.lock().pop();
        self.work_from(next, turn);
    }

    /// Runs `next` and the queued jobs, as [`Session::work`] does.
    fn work_from(self: &Arc<Self>, mut next: Option<Job>, mut turn: Option<PoolTurn>) {
        let _recovery = ResetOnPanic(self);
        let _meter = MeterScope::enter(self.tenant.meter());
        while let Some(job) = next {
            let mut state = self.state.lock();
            let completion = match job(&mut state) {
                JobStep::Completed(completion) => completion,
                JobStep::Waiting(wait) => {
                    // What the cell asks has been put to the client; only its next step waits for the disk.
                    state.sync();
                    drop(state);
                    self.park(wait);
                    return;
                }
            };
            let mut queue = self.queue.lock();
            queue.running = None;
            queue.cell_is_starting = false;
            next = queue.pop();
            queue.busy = next.is_some();
            drop(queue);
            if next.is_none() {
                // A client that has its result may call again: it must find the thread's permit free.
                turn = None;
            }
            completion();
            // The caller has its result before the state is synced; only the next job waits for the disk, because it
            // needs the state.
            state.sync();
            drop(state);
            if next.is_some()
                && let Some(PoolTurn { pool, permit }) = turn.take_if(|turn| turn.is_over())
            {
                // Other calls have their turn before the next call to this session.
                let (session, again) = (self.clone(), pool.clone());
                pool.submit_again(&self.tenant, move |permit| {
                    session.work_from(next, Some(PoolTurn { pool: again, permit }));
                });
                drop(permit);
                return;
            }
        }
    }

    /// Has the current job go on when its wait is over.
    pub(crate) fn park(self: &Arc<Self>, JobWait { work, timer, next }: JobWait) {
        let (session, waiting) = (self.clone(), work.clone());
        work.park(timer, move |permit| {
            let pool = waiting.pool().clone();
            // The work lives as long as its wait.
            drop(waiting);
            session.work_from(Some(next), Some(PoolTurn { pool, permit }));
        });
    }

    /// Closes the queue: `last` runs after the queued jobs, and further jobs are refused. Returns whether the caller
    /// must have a guest thread call [`Session::work`].
    pub(crate) fn close(&self, last: Job) -> bool {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.push(JobKind::Other(0), last);
        !std::mem::replace(&mut queue.busy, true)
    }

    /// Closes the queue if it is empty, and returns whether it was. Must be called by a job of this session, which then
    /// is its last.
    pub(crate) fn close_if_last(&self) -> bool {
        let mut queue = self.queue.lock();
        let is_last = queue.jobs.is_empty();
        queue.closed |= is_last;
        is_last
    }

    /// Records that the code of the current cell begins, with the handle that interrupts it. Returns `false` if the
    /// code must not begin, because an interrupt arrived after the cell.
    #[must_use]
    pub(crate) fn begin_running(&self, handle: Arc<dyn InterruptHandle>) -> bool {
        let mut queue = self.queue.lock();
        queue.cell_is_starting = false;
        let is_interrupted = queue.interrupt_next.take().is_some_and(|last| queue.current <= last);
        if !is_interrupted {
            queue.running = Some(handle);
        }
        !is_interrupted
    }

    /// Records that the code of the current cell has ended.
    pub(crate) fn end_running(&self) {
        self.queue.lock().running = None;
    }

    /// Interrupts the running cell, or the next cell that was submitted and has not begun. Returns `false` if there is
    /// none.
    pub(crate) fn interrupt(&self) -> bool {
        let mut queue = self.queue.lock();
        if let Some(running) = &queue.running {
            running.interrupt();
            return true;
        }
        let is_pending = queue.has_pending_cell();
        if is_pending {
            queue.interrupt_next = Some(queue.submitted);
        }
        is_pending
    }
}

/// Resets a session when a job panics: drops the queued jobs, whose callers then get an error, and leaves the session
/// usable.
struct ResetOnPanic<'a>(&'a Session);

impl Drop for ResetOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut queue = self.0.queue.lock();
            queue.running = None;
            queue.cell_is_starting = false;
            drop(queue);
            self.0.clear_queue();
        }
    }
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const LIMITS: QueueLimits = QueueLimits { jobs: 9, bytes: 100 };

    /// Creates a session that has not been used.
    fn session() -> Arc<Session> {
        let tenant = crate::tenants::Tenants::default().system().clone();
        Arc::new(Session::new(SessionId::random().unwrap(), None, tenant, false, Duration::ZERO))
    }

    fn nothing() -> Job {
        Box::new(|_: &mut SessionState| JobStep::Completed(Box::new(|| ())))
    }

    /// An interrupt handle without an effect.
    struct Ignored;

    impl InterruptHandle for Ignored {
        fn interrupt(&self) {}

        fn kill(&self) {}
    }

    #[test]
    fn session_is_usable_after_a_panic() {
        let session = session();
        let submit = |job: Job| session.submit(JobKind::Other(0), job, LIMITS);
        assert!(matches!(submit(Box::new(|_| panic!("on purpose"))), SubmitResult::First));
        assert!(matches!(submit(nothing()), SubmitResult::Waiting));
        assert!(catch_unwind(AssertUnwindSafe(|| session.work(None))).is_err());
        assert!(session.is_idle());
        assert!(matches!(submit(nothing()), SubmitResult::First));
        session.work(None);
        assert!(session.close(nothing()));
    }

    #[test]
    fn queue_is_bounded_by_jobs_and_by_bytes() {
        let session = session();
        let submit = |kind| session.submit(kind, nothing(), LIMITS);
        assert!(matches!(submit(JobKind::Cell(1000)), SubmitResult::First));
        assert!(matches!(submit(JobKind::Cell(1)), SubmitResult::Full(1)));
        session.work(None);
        for _ in 0..9 {
            assert!(!matches!(submit(JobKind::Cell(1)), SubmitResult::Full(_)));
        }
        assert!(matches!(submit(JobKind::Other(0)), SubmitResult::Full(9)));
        session.work(None);
        assert!(matches!(submit(JobKind::Other(0)), SubmitResult::First));
    }

    #[test]
    fn interrupt_applies_to_the_cells_before_it() {
        let session = session();
        let cell = |begins: bool| {
            let same = session.clone();
            let job: Job = Box::new(move |_| {
                assert_eq!(same.begin_running(Arc::new(Ignored)), begins);
                assert_eq!(same.interrupt(), begins, "a cell that runs can be interrupted");
                same.end_running();
                JobStep::Completed(Box::new(|| ()))
            });
            assert!(!matches!(session.submit(JobKind::Cell(1), job, LIMITS), SubmitResult::Full(_)));
        };
        assert!(!session.interrupt(), "no cell");
        cell(false);
        assert!(session.interrupt());
        session.work(None);
        cell(true);
        session.work(None);
        assert!(!session.interrupt(), "all cells have ended");
        cell(false);
        assert!(session.interrupt());
        session.submit(JobKind::Other(0), nothing(), LIMITS);
        session.work(None);
        cell(true);
        session.work(None);
    }
}
