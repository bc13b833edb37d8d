//! Guest threads that wait for work: a bounded number of them, and a bounded queue.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How much is done at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Pieces of code that run at the same time.
    pub running: usize,
    /// Pieces of code that wait for their turn; one more is refused.
    pub waiting: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        // Code that sleeps or waits for packages takes no core.
        Self { running: (cores * 4).max(16), waiting: 256 }
    }
}

/// Everybody is at work, and the queue is full.
#[derive(Debug, thiserror::Error)]
#[error("the server is busy: {running} pieces of code run and {waiting} wait; try again in a moment")]
pub struct Busy {
    running: usize,
    waiting: usize,
}

type Job = Box<dyn FnOnce() + Send>;

/// A job's place among those that run or wait. It is free for the next one when this is dropped: at the latest when the
/// job is done, or before, when it has only its own leavings to clear away.
pub struct Place(Arc<Shared>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.lock().taken -= 1;
    }
}

/// The threads. They start when they are first needed and end when the pool is dropped.
pub struct Pool {
    capacity: Capacity,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// Jobs that run or wait.
    taken: usize,
    closed: bool,
}

impl Pool {
    /// A pool that has no threads yet.
    pub fn new(capacity: Capacity) -> Self {
        Self { capacity, shared: Arc::new(Shared { state: Mutex::default(), work: Condvar::new() }) }
    }

    /// Has `job` done by the next thread that is free.
    ///
    /// # Errors
    /// When all threads are at work and the queue is full.
    pub fn submit(&self, job: impl FnOnce(Place) + Send + 'static) -> Result<(), Busy> {
        let mut state = self.shared.lock();
        let Capacity { running, waiting } = self.capacity;
        if state.taken >= running + waiting {
            return Err(Busy { running, waiting });
        }
        state.taken += 1;
        let place = Place(self.shared.clone());
        state.queue.push_back(Box::new(move || job(place)));
        // Idle threads have not yet taken what is in the queue already.
        if state.queue.len() > state.idle && state.threads < running {
            state.threads += 1;
            drop(state);
            self.start_thread();
        } else {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    fn start_thread(&self) {
        let shared = self.shared.clone();
        // A guest thread is one that somebody waits for, so each has a small one beside it.
        let waiter = std::thread::Builder::new().name("pool".into()).stack_size(64 << 10);
        let started = waiter.spawn(move || {
            if let Err(error) = belljar_python::on_guest_thread(|| shared.work()) {
                tracing::error!(%error, "a guest thread cannot be started");
                shared.lock().threads -= 1;
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "a guest thread cannot be started");
            self.shared.lock().threads -= 1;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                // A fault of ours in one call must not take the thread from all later ones. Whoever waits for the
                // job sees that it never answered.
                if std::panic::catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("a call failed by a fault of Belljar");
                }
                state = self.lock();
                continue;
            }
            if state.closed {
                return;
            }
            state.idle += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_neither_runs_nor_waits_is_refused() {
        let pool = Pool::new(Capacity { running: 2, waiting: 1 });
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (started, running) = mpsc::channel();
        let submit = || {
            let (gate, started) = (gate.clone(), started.clone());
            pool.submit(move |_place| {
                started.send(()).unwrap();
                gate.lock().unwrap().recv().unwrap();
            })
        };
        submit().unwrap();
        submit().unwrap();
        for _ in 0..2 {
            running.recv_timeout(Duration::from_secs(10)).unwrap();
        }
        submit().unwrap();
        assert!(submit().unwrap_err().to_string().contains("busy"));
        for _ in 0..3 {
            release.send(()).unwrap();
        }
        running.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn a_job_that_panics_leaves_its_thread_alive() {
        let pool = Pool::new(Capacity { running: 1, waiting: 8 });
        pool.submit(|_place| std::panic::resume_unwind(Box::new("on purpose"))).unwrap();
        let (done, answer) = mpsc::channel();
        pool.submit(move |_place| done.send(()).unwrap()).unwrap();
        answer.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn a_place_that_was_left_is_free_while_the_thread_clears_up() {
        let pool = Pool::new(Capacity { running: 1, waiting: 0 });
        let (left, seen) = mpsc::channel();
        let (release, gate) = mpsc::channel::<()>();
        pool.submit(move |place| {
            drop(place);
            left.send(()).unwrap();
            gate.recv().unwrap();
        })
        .unwrap();
        seen.recv_timeout(Duration::from_secs(10)).unwrap();
        let (done, answer) = mpsc::channel();
        pool.submit(move |_place| done.send(()).unwrap()).unwrap();
        assert!(pool.submit(|_place| ()).is_err());
        release.send(()).unwrap();
        answer.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
