//! A bounded pool of guest threads with a bounded queue.

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::HeldThreads;
use parking_lot::{Condvar, Mutex, MutexGuard};
use prometheus_client::metrics::histogram::Histogram;

use crate::parking::Timers;

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
type Job = Box<dyn FnOnce() + Send>;

/// Runs its argument to the end on a new thread that has the stack a guest needs.
type RunOnThread = dyn Fn(Job) -> std::io::Result<()> + Send + Sync;

/// A job's place among those that run or wait. Dropping it admits the next job: at the latest when the job is done, or
/// earlier, when the job has only to free its memory.
pub struct Permit(Arc<Shared>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.state.lock().permits -= 1;
    }
}

/// A pool of guest threads, which start on demand and end when the pool is dropped.
pub struct GuestThreadPool {
    limits: PoolLimits,
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
    state: Mutex<State>,
    work: Condvar,
    run_on_thread: Box<RunOnThread>,
    held: HeldThreads,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// The number of jobs that run or wait.
    permits: usize,
    closed: bool,
}

impl GuestThreadPool {
    /// Creates a pool without threads, which `run_on_thread` will provide.
    pub fn new(
        limits: PoolLimits,
        run_on_thread: impl Fn(Box<dyn FnOnce() + Send>) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            run_on_thread: Box::new(run_on_thread),
            held: HeldThreads::default(),
        };
        let timers = Timers::default();
        Self { limits, shared: Arc::new(shared), waits: Histogram::new(WAIT_BUCKETS), timers, held_hint: None }
    }

    /// Sets the advice that follows the error of a full pool some of whose threads are held by code that waits.
    #[must_use]
    pub fn with_held_hint(mut self, hint: &'static str) -> Self {
        self.held_hint = Some(hint);
        self
    }

    /// Returns the number of jobs that run and wait now.
    pub fn load(&self) -> PoolLoad {
        let state = self.shared.state.lock();
        let queued = state.queue.len();
        PoolLoad { running: state.permits.saturating_sub(queued), queued, held: self.shared.held.count() }
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

    /// Queues `job` for the next free thread.
    ///
    /// # Errors
    /// When all threads are busy and the queue is full.
    pub fn submit(&self, job: impl FnOnce(Permit) + Send + 'static) -> Result<(), PoolFull> {
        let state = self.shared.state.lock();
        let PoolLimits { max_running, max_queued } = self.limits;
        if state.permits >= max_running + max_queued {
            return Err(PoolFull { limits: self.limits, held: self.shared.held.count(), hint: self.held_hint });
        }
        self.queue(state, job);
        Ok(())
    }

    /// Queues `job`, which continues work that was submitted before: it is not refused when the queue is full.
    pub fn resume(&self, job: impl FnOnce(Permit) + Send + 'static) {
        self.queue(self.shared.state.lock(), job);
    }

    fn queue(&self, mut state: MutexGuard<'_, State>, job: impl FnOnce(Permit) + Send + 'static) {
        let max_running = self.limits.max_running;
        state.permits += 1;
        let permit = Permit(self.shared.clone());
        state.queue.push_back(Box::new(move || job(permit)));
        // Idle threads have not yet taken the jobs that are already queued.
        if state.queue.len() > state.idle && state.threads < max_running {
            state.threads += 1;
            drop(state);
            self.start_thread();
        } else {
            self.shared.work.notify_one();
        }
    }

    fn start_thread(&self) {
        let shared = self.shared.clone();
        // `run_on_thread` returns when the guest thread ends, so a small thread waits for each.
        let waiter = std::thread::Builder::new().name("pool".into()).stack_size(64 << 10);
        let started = waiter.spawn(move || {
            let worker = shared.clone();
            if let Err(error) = (shared.run_on_thread)(Box::new(move || worker.work())) {
                tracing::error!(%error, "failed to start a guest thread");
                shared.state.lock().threads -= 1;
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "failed to start a guest thread");
            self.shared.state.lock().threads -= 1;
        }
    }
}

impl Drop for GuestThreadPool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    /// Runs jobs until the pool is closed.
    fn work(&self) {
        self.held.add_current_thread();
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                // A panic in one job must not end the thread. The job's caller sees that its channel closed without a
                // result.
                if std::panic::catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("internal error: a call panicked");
                }
                state = self.state.lock();
                continue;
            }
            if state.closed {
                return;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use belljar_core::HoldingWait;

    use super::*;

    /// Creates a pool of ordinary threads.
    fn pool(max_running: usize, max_queued: usize) -> GuestThreadPool {
        GuestThreadPool::new(PoolLimits { max_running, max_queued }, |work| {
            work();
            Ok(())
        })
    }

    #[test]
    fn job_is_refused_when_threads_and_queue_are_full() {
        let pool = pool(2, 1);
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (started, running) = mpsc::channel();
        let submit = || {
            let (gate, started) = (gate.clone(), started.clone());
            pool.submit(move |_permit| {
                started.send(()).unwrap();
                gate.lock().recv().unwrap();
            })
        };
        submit().unwrap();
        submit().unwrap();
        for _ in 0..2 {
            running.recv_timeout(Duration::from_secs(10)).unwrap();
        }
        submit().unwrap();
        assert_eq!(pool.load(), PoolLoad { running: 2, queued: 1, held: 0 });
        assert!(submit().unwrap_err().to_string().contains("busy"));
        for _ in 0..3 {
            release.send(()).unwrap();
        }
        running.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn error_names_the_threads_that_are_held_by_waits() {
        let pool = pool(2, 0).with_held_hint("use await");
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (started, running) = mpsc::channel();
        for is_wait in [false, true] {
            let (gate, started) = (gate.clone(), started.clone());
            pool.submit(move |_permit| {
                let _wait = is_wait.then(HoldingWait::begin);
                started.send(()).unwrap();
                gate.lock().recv().unwrap();
            })
            .unwrap();
            if !is_wait {
                running.recv_timeout(Duration::from_secs(10)).unwrap();
                assert_eq!(pool.load().held, 0);
            }
        }
        running.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(pool.load().held, 1);
        let error = "the server is busy: 2 pieces of code run, 1 of which hold their thread while they wait in synchronous \
                     code, and 0 wait for a thread; try again in a moment\nhint: use await";
        assert_eq!(pool.submit(|_permit| ()).unwrap_err().to_string(), error);
        release.send(()).unwrap();
        release.send(()).unwrap();
    }

    #[test]
    fn panicking_job_leaves_its_thread_alive() {
        let pool = pool(1, 8);
        pool.submit(|_permit| std::panic::resume_unwind(Box::new("on purpose"))).unwrap();
        let (done, answer) = mpsc::channel();
        pool.submit(move |_permit| done.send(()).unwrap()).unwrap();
        answer.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn dropped_permit_admits_the_next_job() {
        let pool = pool(1, 0);
        let (left, seen) = mpsc::channel();
        let (release, gate) = mpsc::channel::<()>();
        pool.submit(move |permit| {
            drop(permit);
            left.send(()).unwrap();
            gate.recv().unwrap();
        })
        .unwrap();
        seen.recv_timeout(Duration::from_secs(10)).unwrap();
        let (done, answer) = mpsc::channel();
        pool.submit(move |_permit| done.send(()).unwrap()).unwrap();
        assert!(pool.submit(|_permit| ()).is_err());
        release.send(()).unwrap();
        answer.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
