//! One session: calls wait in its queue and run one after the other, on whichever guest thread is free.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::id::SessionId;
use crate::state::State;
use belljar_core::kernel::{Interrupt, Kernel};

/// What is done to a session, on a guest thread.
/// The answer is whoever waits for it: told when the session is free for the next call.
pub(crate) type Job = Box<dyn FnOnce(&mut State) -> Answered + Send>;

/// Tells whoever waits for a job.
pub(crate) type Answered = Box<dyn FnOnce() + Send>;

/// One session.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    queue: Mutex<Queue>,
    state: Mutex<State>,
    /// When it was used last, in milliseconds since 1970.
    used: AtomicU64,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    busy: bool,
    closed: bool,
    running: Option<Arc<dyn Interrupt>>,
}

/// What became of a job that was handed in.
pub(crate) enum Queued {
    /// The caller must have a guest thread call [`Session::work`].
    First,
    /// It runs after those before it.
    Waiting,
    /// The session is closed: look for it again.
    Closed(Job),
    /// Too many wait.
    Full(usize),
}

impl Session {
    pub(crate) fn new(id: SessionId, stored: bool, now: Duration) -> Self {
        Self::of(State::new(id.clone(), stored), id, now)
    }

    /// A session whose kernel is there already.
    pub(crate) fn with_kernel(id: SessionId, kernel: Box<dyn Kernel>, now: Duration) -> Self {
        Self::of(State::with_kernel(id.clone(), kernel), id, now)
    }

    fn of(state: State, id: SessionId, now: Duration) -> Self {
        Self { id, queue: Mutex::default(), state: Mutex::new(state), used: AtomicU64::new(milliseconds(now)) }
    }

    pub(crate) fn touch(&self, now: Duration) {
        self.used.fetch_max(milliseconds(now), Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> Duration {
        Duration::from_millis(self.used.load(Ordering::Relaxed))
    }

    /// Whether nothing runs and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        let queue = self.queue();
        !queue.busy && queue.jobs.is_empty()
    }

    /// Hands in a job; at most `most` may wait.
    pub(crate) fn submit(&self, job: Job, most: usize) -> Queued {
        let mut queue = self.queue();
        if queue.closed {
            return Queued::Closed(job);
        }
        if queue.jobs.len() >= most {
            return Queued::Full(queue.jobs.len());
        }
        queue.jobs.push_back(job);
        if std::mem::replace(&mut queue.busy, true) { Queued::Waiting } else { Queued::First }
    }

    /// Drops what waits: nobody can work.
    pub(crate) fn give_up(&self) {
        let mut queue = self.queue();
        queue.jobs.clear();
        queue.busy = false;
    }

    /// Does what waits, until nothing does.
    pub(crate) fn work(&self) {
        let _recovery = Recovery(self);
        let mut next = self.queue().jobs.pop_front();
        while let Some(job) = next {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let answered = job(&mut state);
            let mut queue = self.queue();
            queue.running = None;
            next = queue.jobs.pop_front();
            queue.busy = next.is_some();
            drop(queue);
            answered();
            // The answer does not wait for the disk, but the next call does: it needs the state.
            state.settle();
        }
    }

    /// Takes no more jobs; those that wait are dropped, but for `last`. What runs is ended. Answers whether the caller must
    /// have a guest thread call [`Session::work`].
    pub(crate) fn close(&self, last: Job) -> bool {
        let mut queue = self.queue();
        queue.closed = true;
        queue.jobs.clear();
        queue.jobs.push_back(last);
        if let Some(running) = queue.running.take() {
            running.stop();
        }
        !std::mem::replace(&mut queue.busy, true)
    }

    /// Takes no more jobs if none waits; to be called by the job that is the last.
    pub(crate) fn close_if_last(&self) -> bool {
        let mut queue = self.queue();
        queue.closed = queue.jobs.is_empty();
        queue.closed
    }

    /// What runs now can be stopped by this.
    pub(crate) fn runs(&self, interrupt: Option<Arc<dyn Interrupt>>) {
        self.queue().running = interrupt;
    }

    /// Interrupts what runs; `false` when nothing does.
    pub(crate) fn interrupt(&self) -> bool {
        let queue = self.queue();
        queue.running.iter().for_each(|running| running.interrupt());
        queue.running.is_some()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// After a fault of ours, whoever waits hears that there will be no answer, and the session can be used again or cleared.
struct Recovery<'a>(&'a Session);

impl Drop for Recovery<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue().running = None;
            self.0.give_up();
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
    fn after_a_fault_of_ours_a_session_can_be_used_and_cleared() {
        let session = Session::new(SessionId::random().unwrap(), false, Duration::ZERO);
        let nothing = || Box::new(|_: &mut State| Box::new(|| ()) as Answered) as Job;
        assert!(matches!(session.submit(Box::new(|_| panic!("a fault")), 9), Queued::First));
        assert!(matches!(session.submit(nothing(), 9), Queued::Waiting));
        assert!(catch_unwind(AssertUnwindSafe(|| session.work())).is_err());
        assert!(session.is_idle());
        assert!(matches!(session.submit(nothing(), 9), Queued::First));
        session.work();
        assert!(session.close(nothing()));
    }
}
