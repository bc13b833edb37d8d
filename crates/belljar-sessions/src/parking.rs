//! Waits of code that holds no thread: timers, and the wake-ups that continue the code on a thread of the pool.
//!
//! ```text
//!  a step of the code ──▶ waits ──▶ ParkedWork::park ──▶ the timer, or a wake-up ──▶ GuestThreadPool::resume ──▶ next step
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use belljar_core::Waker;
use parking_lot::{Condvar, Mutex};

use crate::pool::{GuestThreadPool, Permit};
use crate::tenants::Tenant;

/// Continues waiting code on a thread of the pool.
type Resumption = Box<dyn FnOnce(Permit) + Send>;

/// The waits of one run or cell, one after the other.
pub struct ParkedWork {
    pool: Arc<GuestThreadPool>,
    tenant: Tenant,
    state: Mutex<State>,
}

enum State {
    /// The code runs.
    Running,
    /// The code runs, and may have read the state of what it waits for before the wake-up: its next wait ends at once.
    Woken,
    /// The code waits.
    Parked(Resumption),
}

impl ParkedWork {
    /// Creates the waits of code of `tenant` that runs on threads of `pool`.
    pub fn new(pool: Arc<GuestThreadPool>, tenant: Tenant) -> Arc<Self> {
        Arc::new(Self { pool, tenant, state: Mutex::new(State::Running) })
    }

    /// Returns the pool whose threads run the code.
    pub(crate) fn pool(&self) -> &Arc<GuestThreadPool> {
        &self.pool
    }

    /// Returns the owner of the code.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Returns the waker of the code.
    pub fn waker(self: &Arc<Self>) -> Waker {
        // Weak: what calls the waker may outlive the code, whose state the resumption owns.
        let work = Arc::downgrade(self);
        Waker::new(move || {
            if let Some(work) = work.upgrade() {
                work.wake();
            }
        })
    }

    /// Calls `resume` on a thread of the pool when `timer` has elapsed or the waker is called, or was called since the
    /// last wait.
    pub fn park(self: &Arc<Self>, timer: Option<Duration>, resume: impl FnOnce(Permit) + Send + 'static) {
        {
            let mut state = self.state.lock();
            if matches!(*state, State::Woken) {
                *state = State::Running;
                drop(state);
                self.pool.resume_for(&self.tenant, resume);
                return;
            }
            *state = State::Parked(Box::new(resume));
        }
        if let Some(deadline) = timer.and_then(|time| Instant::now().checked_add(time)) {
            self.pool.timers().schedule(deadline, Arc::downgrade(self));
        }
    }

    /// Continues the code, or keeps its next wait from beginning.
    fn wake(&self) {
        let mut state = self.state.lock();
        let parked = match std::mem::replace(&mut *state, State::Woken) {
            State::Running | State::Woken => return,
            State::Parked(resume) => resume,
        };
        *state = State::Running;
        drop(state);
        self.pool.resume_for(&self.tenant, parked);
    }
}

/// The timers of waiting code, on one thread that runs while there are any.
#[derive(Default)]
pub(crate) struct Timers {
    shared: Arc<TimersShared>,
}

#[derive(Default)]
struct TimersShared {
    state: Mutex<TimersState>,
    changed: Condvar,
}

#[derive(Default)]
struct TimersState {
    /// The earliest first.
    entries: BinaryHeap<Reverse<Timer>>,
    is_running: bool,
}

/// A timer. Its order is that of the times.
struct Timer {
    deadline: Instant,
    work: Weak<ParkedWork>,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.deadline == other.deadline
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.deadline.cmp(&other.deadline)
    }
}

impl Timers {
    /// Wakes `work` at `deadline`. A timer whose work has gone on meanwhile wakes it once too often, which is harmless.
    fn schedule(&self, deadline: Instant, work: Weak<ParkedWork>) {
        let mut state = self.shared.state.lock();
        state.entries.push(Reverse(Timer { deadline, work }));
        if state.is_running {
            if state.entries.peek().is_some_and(|Reverse(first)| first.deadline == deadline) {
                self.shared.changed.notify_one();
            }
            return;
        }
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("timers".into()).stack_size(128 << 10);
        match thread.spawn(move || shared.run()) {
            Ok(_) => state.is_running = true,
            Err(error) => {
                // Without the thread, the code goes on at once and waits again, as often as it takes.
                tracing::error!(%error, "failed to start the thread for timers of waiting code");
                let entries = std::mem::take(&mut state.entries);
                drop(state);
                entries.into_iter().filter_map(|Reverse(timer)| timer.work.upgrade()).for_each(|work| work.wake());
            }
        }
    }
}

impl TimersShared {
    /// Wakes work at its time, until no timer is left.
    fn run(&self) {
        let mut state = self.state.lock();
        while let Some(Reverse(first)) = state.entries.peek() {
            let deadline = first.deadline;
            if Instant::now() < deadline {
                self.changed.wait_until(&mut state, deadline);
                continue;
            }
            let Some(Reverse(timer)) = state.entries.pop() else { break };
            parking_lot::MutexGuard::unlocked(&mut state, || {
                if let Some(work) = timer.work.upgrade() {
                    work.wake();
                }
            });
        }
        state.is_running = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::pool::PoolLimits;

    const LONG: Duration = Duration::from_secs(60);

    fn work() -> Arc<ParkedWork> {
        let pool = GuestThreadPool::new(PoolLimits { max_running: 1, max_queued: 0 }, |work| {
            work();
            Ok(())
        });
        let tenant = pool.tenants().system().clone();
        ParkedWork::new(Arc::new(pool), tenant)
    }

    #[test]
    fn work_goes_on_after_its_timer_or_a_wake_up() {
        let work = work();
        let (sender, resumed) = mpsc::channel();
        let park = |timer| {
            let sender = sender.clone();
            work.park(timer, move |_permit| sender.send(()).unwrap());
        };
        let start = Instant::now();
        park(Some(Duration::from_millis(30)));
        resumed.recv_timeout(LONG).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(30));
        park(Some(LONG));
        work.waker().wake();
        resumed.recv_timeout(LONG).unwrap();
        park(None);
        assert!(resumed.recv_timeout(Duration::from_millis(20)).is_err());
        work.waker().wake();
        resumed.recv_timeout(LONG).unwrap();
    }

    #[test]
    fn wake_up_before_the_wait_ends_it_at_once() {
        let work = work();
        let (sender, resumed) = mpsc::channel();
        work.waker().wake();
        work.waker().wake();
        work.park(None, move |_permit| sender.send(()).unwrap());
        resumed.recv_timeout(LONG).unwrap();
    }

    #[test]
    fn earlier_timer_is_not_delayed_by_a_later_one() {
        let (late, early) = (work(), work());
        let (sender, resumed) = mpsc::channel();
        let (first, second) = (sender.clone(), sender);
        late.park(Some(LONG), move |_permit| first.send("late").unwrap());
        early.park(Some(Duration::from_millis(10)), move |_permit| second.send("early").unwrap());
        assert_eq!(resumed.recv_timeout(LONG), Ok("early"));
        late.waker().wake();
        assert_eq!(resumed.recv_timeout(LONG), Ok("late"));
    }

    #[test]
    fn resumed_work_is_not_refused_by_a_full_pool() {
        let work = work();
        let (release, gate) = mpsc::channel::<()>();
        work.pool.submit(move |_permit| gate.recv().unwrap()).unwrap();
        assert!(work.pool.submit(|_permit| ()).is_err());
        let (sender, resumed) = mpsc::channel();
        work.waker().wake();
        work.park(None, move |_permit| sender.send(()).unwrap());
        release.send(()).unwrap();
        resumed.recv_timeout(LONG).unwrap();
    }
}
