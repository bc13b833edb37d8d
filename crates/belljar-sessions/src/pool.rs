//! A bounded pool of guest threads with a bounded queue, which is fair between owners.

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belljar_core::os::thread_time;
use belljar_core::{HeldThreads, MeterScope, give_way, note_giving_way};
use parking_lot::{Condvar, Mutex, MutexGuard};
use prometheus_client::metrics::histogram::Histogram;

use crate::parking::Timers;
use crate::tenants::fair_queue::{Capacity, Dispatched, FairQueue, LaneId, Slot, Urgency};
use crate::tenants::{CallTicket, JobTicket, Tenant, Tenants, WorkRefusal};

/// The upper bounds of the times for which calls wait, in seconds.
const WAIT_BUCKETS: [f64; 10] = [0.0005, 0.0025, 0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0];

/// The bounds of a [`GuestThreadPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    /// The number of jobs that run at the same time.
    pub max_running: usize,
    /// The number of jobs that wait for a thread; one more is refused.
    pub max_queued: usize,
}

impl Default for PoolLimits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        // A job that sleeps or waits for packages uses no core.
        Self { max_running: (cores * 4).max(16), max_queued: 256 }
    }
}

/// The error of a pool whose threads are all busy and whose queue is full.
#[derive(Debug)]
pub struct PoolFull {
    limits: PoolLimits,
    /// The number of threads that code holds while it waits.
    held: usize,
    hint: Option<&'static str>,
}

impl fmt::Display for PoolFull {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limits: PoolLimits { max_running, max_queued }, held, hint } = self;
        write!(formatter, "the server is busy: {max_running} pieces of code run")?;
        if *held > 0 {
            write!(formatter, ", {held} of which hold their thread while they wait in synchronous code,")?;
        }
        write!(formatter, " and {max_queued} wait for a thread; try again in a moment")?;
        match hint {
            Some(hint) if *held > 0 => write!(formatter, "\nhint: {hint}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for PoolFull {}

/// A unit of work for a pool's thread.
type Job = Box<dyn FnOnce(Permit) + Send>;

/// Runs its argument to the end on a new thread that has the stack a guest needs.
type RunOnThread = dyn Fn(Box<dyn FnOnce() + Send>) -> std::io::Result<()> + Send + Sync;

/// A job's place among those that run. Dropping it admits the next job: at the latest when the job is done, or
/// earlier, when the job has only to free its memory.
pub struct Permit {
    shared: Arc<Shared>,
    slot: Slot,
    tenant: Tenant,
}

impl Permit {
    /// Returns whether the job runs no code of its owner.
    pub(crate) fn is_control(&self) -> bool {
        self.slot.is_control()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.queue.release(self.slot);
        if !self.slot.is_control() {
            self.tenant.end_running();
        }
        self.shared.dispatch(state);
    }
}

/// A pool of guest threads, which start on demand and end when the pool is dropped.
pub struct GuestThreadPool {
    shared: Arc<Shared>,
    waits: Histogram,
    timers: Timers,
    held_hint: Option<&'static str>,
}

/// The number of a pool's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLoad {
    /// The number of jobs that run.
    pub running: usize,
    /// The number of jobs that wait for a thread.
    pub queued: usize,
    /// The number of jobs that run whose code holds its thread while it waits.
    pub held: usize,
}

struct Shared {
    limits: PoolLimits,
    processors: usize,
    tenants: Tenants,
    state: Mutex<State>,
    /// Notified when a job is assigned to a class.
    work: [Condvar; 2],
    run_on_thread: Box<RunOnThread>,
    held: HeldThreads,
    /// True if other processes run the code.
    runs_elsewhere: AtomicBool,
}

#[derive(Default)]
struct State {
    queue: FairQueue<(Tenant, Job)>,
    classes: [PriorityClass; 2],
    closed: bool,
}

/// The threads of one priority, and their jobs.
#[derive(Default)]
struct PriorityClass {
    /// The jobs that run as soon as a thread takes them.
    assigned: VecDeque<(Permit, Job)>,
    threads: usize,
    idle: usize,
}

/// The class with the usual priority.
const USUAL: usize = 0;
/// The class of jobs that give way to those of other owners.
const GIVES_WAY: usize = 1;

impl GuestThreadPool {
    /// Creates a pool without threads, which `run_on_thread` will provide.
    pub fn new(
        limits: PoolLimits,
        run_on_thread: impl Fn(Box<dyn FnOnce() + Send>) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::with_tenants(limits, Tenants::default(), run_on_thread)
    }

    /// Creates a pool that works for the owners of `tenants`.
    pub fn with_tenants(
        limits: PoolLimits,
        tenants: Tenants,
        run_on_thread: impl Fn(Box<dyn FnOnce() + Send>) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared {
            limits,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            tenants,
            state: Mutex::default(),
            work: [Condvar::new(), Condvar::new()],
            run_on_thread: Box::new(run_on_thread),
            held: HeldThreads::default(),
            runs_elsewhere: AtomicBool::new(false),
        };
        let timers = Timers::default();
        Self { shared: Arc::new(shared), waits: Histogram::new(WAIT_BUCKETS), timers, held_hint: None }
    }

    /// Sets the advice that follows the error of a full pool some of whose threads are held by code that waits.
    #[must_use]
    pub fn with_held_hint(mut self, hint: &'static str) -> Self {
        self.held_hint = Some(hint);
        self
    }

    /// Keeps the priority of all threads, since other processes run the code, and lower their own.
    #[must_use]
    pub fn with_code_elsewhere(self) -> Self {
        self.shared.runs_elsewhere.store(true, Ordering::Relaxed);
        self
    }

    /// Returns the number of jobs that run and wait now.
    pub fn load(&self) -> PoolLoad {
        let state = self.shared.state.lock();
        PoolLoad { running: state.queue.running(), queued: state.queue.waiting(), held: self.shared.held.count() }
    }

    /// Returns the owners whose jobs the pool runs.
    pub fn tenants(&self) -> &Tenants {
        &self.shared.tenants
    }

    /// Returns the timers of code that waits without a thread.
    pub(crate) fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Returns the times for which calls waited, in seconds.
    pub fn waits(&self) -> &Histogram {
        &self.waits
    }

    /// Records that a call waited for this time until its work began: for a thread, and in a session for the calls
    /// before it.
    pub fn record_wait(&self, time: Duration) {
        self.waits.observe(time.as_secs_f64());
    }

    /// Admits a call of an owner, as far as its quotas and the memory of the machine allow. It counts as waiting until
    /// its work begins.
    ///
    /// # Errors
    /// Fails if the call is refused.
    pub fn admit(&self, tenant: &Tenant) -> Result<(CallTicket, JobTicket), WorkRefusal> {
        self.shared.tenants.admit(tenant, self.shared.limits.max_running)
    }

    /// Submits a job of the server itself for the next free thread.
    ///
    /// # Errors
    /// Fails if all threads are busy and the queue is full.
    pub fn submit(&self, job: impl FnOnce(Permit) + Send + 'static) -> Result<(), PoolFull> {
        self.submit_for(self.shared.tenants.system(), job)
    }

    /// Submits a job of an owner for a free thread, in its turn.
    ///
    /// # Errors
    /// Fails if all threads are busy and the queue is full.
    pub fn submit_for(&self, tenant: &Tenant, job: impl FnOnce(Permit) + Send + 'static) -> Result<(), PoolFull> {
        let state = self.shared.state.lock();
        self.check_room(&state, tenant.id())?;
        self.shared.push(state, tenant, Urgency::Fresh, Box::new(job));
        Ok(())
    }

    /// Submits a job that runs no code of the owner, whose limit on running code does not delay it.
    ///
    /// # Errors
    /// Fails if all threads are busy and the queue is full.
    pub(crate) fn submit_control(
        &self,
        tenant: &Tenant,
        job: impl FnOnce(Permit) + Send + 'static,
    ) -> Result<(), PoolFull> {
        let state = self.shared.state.lock();
        self.check_room(&state, tenant.id())?;
        self.shared.push(state, tenant, Urgency::Control, Box::new(job));
        Ok(())
    }

    /// Submits a job that continues work which was submitted before: it is not refused when the queue is full, and runs
    /// before other jobs of its owner.
    pub fn resume_for(&self, tenant: &Tenant, job: impl FnOnce(Permit) + Send + 'static) {
        self.shared.push(self.shared.state.lock(), tenant, Urgency::Resumed, Box::new(job));
    }

    /// Submits a job that was submitted before, and has let others run: it is not refused when the queue is full, and
    /// runs after other jobs of its owner.
    pub(crate) fn submit_again(&self, tenant: &Tenant, job: impl FnOnce(Permit) + Send + 'static) {
        self.shared.push(self.shared.state.lock(), tenant, Urgency::Fresh, Box::new(job));
    }

    /// Returns whether a job waits for a thread.
    pub(crate) fn has_waiting(&self) -> bool {
        self.shared.state.lock().queue.waiting() > 0
    }

    /// Checks that the queue has room for a job of this lane. An owner with less than its part of the queue has room in
    /// a queue that others have filled.
    fn check_room(&self, state: &State, lane: LaneId) -> Result<(), PoolFull> {
        let limits @ PoolLimits { max_running, max_queued } = self.shared.limits;
        if state.queue.running() + state.queue.waiting() < max_running + max_queued {
            return Ok(());
        }
        let owners = self.shared.tenants.present();
        if owners > 1 && state.queue.waiting_in(lane) < max_queued / owners {
            return Ok(());
        }
        Err(PoolFull { limits, held: self.shared.held.count(), hint: self.held_hint })
    }
}

impl Drop for GuestThreadPool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        for work in &self.shared.work {
            work.notify_all();
        }
    }
}

impl Shared {
    fn push(self: &Arc<Self>, mut state: MutexGuard<'_, State>, tenant: &Tenant, urgency: Urgency, job: Job) {
        state.queue.push(tenant.id(), tenant.lane_limits(), urgency, (tenant.clone(), job));
        self.dispatch(state);
    }

    /// Assigns the jobs that can run now to threads.
    fn dispatch(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let capacity = Capacity {
            max_running: self.limits.max_running,
            owners: self.tenants.present(),
            processors: self.processors,
        };
        let mut started = [0; 2];
        while let Some(Dispatched { job: (tenant, job), slot }) = state.queue.pop(capacity) {
            if !slot.is_control() {
                tenant.begin_running();
            }
            let permit = Permit { shared: self.clone(), slot, tenant };
            let index = if slot.gives_way { GIVES_WAY } else { USUAL };
            let class = &mut state.classes[index];
            class.assigned.push_back((permit, job));
            // Idle threads have not yet taken the jobs that are already assigned.
            if class.assigned.len() > class.idle && class.threads < self.limits.max_running {
                class.threads += 1;
                started[index] += 1;
            } else {
                self.work[index].notify_one();
            }
        }
        drop(state);
        for (index, count) in started.into_iter().enumerate() {
            (0..count).for_each(|_| self.start_thread(index));
        }
    }

    fn start_thread(self: &Arc<Self>, class: usize) {
        let shared = self.clone();
        // `run_on_thread` returns when the guest thread ends, so a small thread waits for each.
        let waiter = std::thread::Builder::new().name("pool".into()).stack_size(64 << 10);
        let started = waiter.spawn(move || {
            let worker = shared.clone();
            if let Err(error) = (shared.run_on_thread)(Box::new(move || worker.work(class))) {
                tracing::error!(%error, "failed to start a guest thread");
                shared.state.lock().classes[class].threads -= 1;
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "failed to start a guest thread");
            self.state.lock().classes[class].threads -= 1;
        }
    }

    /// Runs jobs of a class until the pool is closed.
    fn work(&self, class: usize) {
        self.held.add_current_thread();
        // A thread cannot take this back, so that such threads have jobs of their own.
        match class {
            GIVES_WAY if self.runs_elsewhere.load(Ordering::Relaxed) => note_giving_way(),
            GIVES_WAY => give_way(),
            _ => {}
        }
        let mut state = self.state.lock();
        loop {
            if let Some((permit, job)) = state.classes[class].assigned.pop_front() {
                drop(state);
                run(permit, job);
                state = self.state.lock();
                continue;
            }
            if state.closed {
                return;
            }
            state.classes[class].idle += 1;
            self.work[class].wait(&mut state);
            state.classes[class].idle -= 1;
        }
    }
}

/// Runs a job, and charges its owner with what it uses.
fn run(permit: Permit, job: Job) {
    let tenant = permit.tenant.clone();
    let _meter = MeterScope::enter(tenant.meter());
    let begin = tenant.has_processor_quota().then(thread_time);
    // A panic in one job must not end the thread. The job's caller sees that its channel closed without a result.
    if std::panic::catch_unwind(AssertUnwindSafe(move || job(permit))).is_err() {
        tracing::error!("internal error: a call panicked");
    }
    if let Some(begin) = begin {
        tenant.add_processor_time(thread_time().saturating_sub(begin));
    }
}

#[cfg(test)]
mod tests;
