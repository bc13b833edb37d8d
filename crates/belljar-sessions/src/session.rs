//! One session. Its calls are queued and run one after the other, on any free guest thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::id::SessionId;
use crate::state::SessionState;
use belljar_core::kernel::{InterruptHandle, Kernel};

/// An operation on a session, which runs on a guest thread.
/// The returned completion is called when the session is free for the next call.
pub(crate) type Job = Box<dyn FnOnce(&mut SessionState) -> Completion + Send>;

/// A function that delivers the result of a job to its caller.
pub(crate) type Completion = Box<dyn FnOnce() + Send>;

/// One session.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    queue: Mutex<Queue>,
    state: Mutex<SessionState>,
    /// The time of the last use, in milliseconds since 1970.
    last_used: AtomicU64,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    busy: bool,
    closed: bool,
    running: Option<Arc<dyn InterruptHandle>>,
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
    pub(crate) fn new(id: SessionId, stored: bool, now: Duration) -> Self {
        Self::from_state(SessionState::new(id.clone(), stored), id, now)
    }

    /// Creates a session with a running kernel.
    pub(crate) fn with_kernel(id: SessionId, kernel: Box<dyn Kernel>, now: Duration) -> Self {
        Self::from_state(SessionState::with_kernel(id.clone(), kernel), id, now)
    }

    fn from_state(state: SessionState, id: SessionId, now: Duration) -> Self {
        Self { id, queue: Mutex::default(), state: Mutex::new(state), last_used: AtomicU64::new(milliseconds(now)) }
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

    /// Queues a job, unless `max_queued` jobs already wait.
    pub(crate) fn submit(&self, job: Job, max_queued: usize) -> SubmitResult {
        let mut queue = self.queue.lock();
        if queue.closed {
            return SubmitResult::Closed(job);
        }
        if queue.jobs.len() >= max_queued {
            return SubmitResult::Full(queue.jobs.len());
        }
        queue.jobs.push_back(job);
        if std::mem::replace(&mut queue.busy, true) { SubmitResult::Waiting } else { SubmitResult::First }
    }

    /// Drops the queued jobs, for which no thread is available.
    pub(crate) fn clear_queue(&self) {
        let mut queue = self.queue.lock();
        queue.jobs.clear();
        queue.busy = false;
    }

    /// Runs the queued jobs until the queue is empty.
    pub(crate) fn work(&self) {
        let _recovery = ResetOnPanic(self);
        let mut next = self.queue.lock().jobs.pop_front();
        while let Some(job) = next {
            let mut state = self.state.lock();
            let completion = job(&mut state);
            let mut queue = self.queue.lock();
            queue.running = None;
            next = queue.jobs.pop_front();
            queue.busy = next.is_some();
            drop(queue);
            completion();
            // The caller has its result before the state is synced; only the next job waits for the disk, because it
            // needs the state.
            state.sync();
        }
    }

    /// Closes the queue: drops the queued jobs, queues `last`, and kills the running cell. Returns whether the caller
    /// must have a guest thread call [`Session::work`].
    pub(crate) fn close(&self, last: Job) -> bool {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.jobs.clear();
        queue.jobs.push_back(last);
        if let Some(running) = queue.running.take() {
            running.kill();
        }
        !std::mem::replace(&mut queue.busy, true)
    }

    /// Closes the queue if it is empty, and returns whether it was. Must be called by a job of this session, which then
    /// is its last.
    pub(crate) fn close_if_last(&self) -> bool {
        let mut queue = self.queue.lock();
        queue.closed = queue.jobs.is_empty();
        queue.closed
    }

    /// Sets or clears the handle that interrupts the running cell.
    pub(crate) fn set_running(&self, interrupt: Option<Arc<dyn InterruptHandle>>) {
        self.queue.lock().running = interrupt;
    }

    /// Interrupts the running cell. Returns `false` if no cell runs.
    pub(crate) fn interrupt(&self) -> bool {
        let queue = self.queue.lock();
        queue.running.iter().for_each(|running| running.interrupt());
        queue.running.is_some()
    }
}

/// Resets a session when a job panics: drops the queued jobs, whose callers then get an error, and leaves the session
/// usable.
struct ResetOnPanic<'a>(&'a Session);

impl Drop for ResetOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.lock().running = None;
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

    #[test]
    fn session_is_usable_after_a_panic() {
        let session = Session::new(SessionId::random().unwrap(), false, Duration::ZERO);
        let nothing = || Box::new(|_: &mut SessionState| Box::new(|| ()) as Completion) as Job;
        assert!(matches!(session.submit(Box::new(|_| panic!("on purpose")), 9), SubmitResult::First));
        assert!(matches!(session.submit(nothing(), 9), SubmitResult::Waiting));
        assert!(catch_unwind(AssertUnwindSafe(|| session.work())).is_err());
        assert!(session.is_idle());
        assert!(matches!(session.submit(nothing(), 9), SubmitResult::First));
        session.work();
        assert!(session.close(nothing()));
    }
}
