//! Ends programs whose time is up: one thread for all instances of the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::stop::{Stop, StopReason};

/// SIGINT, as the guest numbers it.
const SIGINT: i32 = 2;

/// How much time one run of a program has. `None` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeLimits {
    /// Elapsed time.
    pub wall: Option<Duration>,
    /// Processor time of the thread that runs the program.
    pub cpu: Option<Duration>,
    /// Time between a soft interrupt, sent when a limit is reached, and the hard stop. Zero stops at once.
    pub grace: Duration,
}

/// Watches one run; dropping it ends the watch. Must be dropped on the thread that made it.
#[must_use = "the run is watched only as long as this lives"]
pub struct Watch {
    tickets: Vec<Ticket>,
    /// Reads the clock of the thread it was made on, so it must not leave that thread.
    _stays: std::marker::PhantomData<*const ()>,
}

type Ticket = (Instant, u64);

impl Watch {
    /// Starts watching the calling thread's run of the program behind `stop`.
    pub fn start(stop: &Arc<Stop>, limits: TimeLimits) -> Self {
        let mut tickets = Vec::new();
        if let Some(wall) = limits.wall {
            let kind = Kind::Wall;
            tickets.extend(Watchdog::get().add(wall, Entry { stop: stop.clone(), kind, grace: limits.grace }));
        }
        if let Some(budget) = limits.cpu {
            let clock = ThreadClock::current();
            let kind = Kind::Cpu { until: clock.read().saturating_add(budget), clock };
            tickets.extend(Watchdog::get().add(budget, Entry { stop: stop.clone(), kind, grace: limits.grace }));
        }
        Self { tickets, _stays: std::marker::PhantomData }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for ticket in &self.tickets {
            Watchdog::get().remove(*ticket);
        }
    }
}

/// A time in which the clock stands still for one program: no limit on its elapsed time comes nearer.
#[must_use = "the clock stands still only as long as this lives"]
pub struct Pause {
    /// Runs of the program that were taken off the queue, and how long each had left.
    waiting: Vec<(u64, Duration, Entry)>,
}

impl Pause {
    /// Stops the clock of the program behind `stop`. Its processor time goes on counting: the host's work for it is
    /// meant to be done on another thread. Must be dropped before the run's [`Watch`] is.
    pub fn start(stop: &Arc<Stop>) -> Self {
        Self { waiting: Watchdog::get().set_aside(stop) }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        Watchdog::get().put_back(std::mem::take(&mut self.waiting));
    }
}

struct Entry {
    stop: Arc<Stop>,
    kind: Kind,
    grace: Duration,
}

#[derive(Clone, Copy)]
enum Kind {
    Wall,
    Cpu {
        clock: ThreadClock,
        /// Reading of `clock` at which the time is up.
        until: Duration,
    },
    /// A soft interrupt was sent; the hard stop follows.
    Hard(StopReason),
}

/// All runs being watched, by when to look at them next. An entry keeps its ticket's number when it moves.
#[derive(Default)]
struct Queue {
    entries: BTreeMap<Ticket, Entry>,
    next: u64,
}

struct Watchdog {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Watchdog {
    fn get() -> &'static Self {
        static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();
        static THREAD: OnceLock<()> = OnceLock::new();
        let watchdog = WATCHDOG.get_or_init(|| Watchdog { queue: Mutex::default(), changed: Condvar::new() });
        THREAD.get_or_init(|| {
            let started = std::thread::Builder::new().name("watchdog".into()).spawn(|| watchdog.keep_watch());
            if let Err(error) = started {
                tracing::error!(%error, "no thread for time limits: programs can only be stopped by hand");
            }
        });
        watchdog
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when the time lies beyond what the clock can show: nothing to watch.
    fn add(&self, after: Duration, entry: Entry) -> Option<Ticket> {
        let at = Instant::now().checked_add(after)?;
        let mut queue = self.lock();
        queue.next += 1;
        let ticket = (at, queue.next);
        queue.entries.insert(ticket, entry);
        self.changed.notify_one();
        Some(ticket)
    }

    /// Removes a run by its number, wherever it stands in the queue by now.
    fn remove(&self, (at, number): Ticket) {
        let mut queue = self.lock();
        if queue.entries.remove(&(at, number)).is_none() {
            queue.entries.retain(|ticket, _| ticket.1 != number);
        }
    }

    /// Takes the entries of a program that watch elapsed time off the queue.
    fn set_aside(&self, stop: &Arc<Stop>) -> Vec<(u64, Duration, Entry)> {
        let now = Instant::now();
        let paused =
            |_: &Ticket, entry: &mut Entry| Arc::ptr_eq(&entry.stop, stop) && !matches!(entry.kind, Kind::Cpu { .. });
        let mut queue = self.lock();
        let taken = queue.entries.extract_if(.., paused);
        taken.map(|((at, number), entry)| (number, at.saturating_duration_since(now), entry)).collect()
    }

    fn put_back(&self, waiting: Vec<(u64, Duration, Entry)>) {
        let now = Instant::now();
        let mut queue = self.lock();
        for (number, left, entry) in waiting {
            // Each had a time that the clock could show, and so has it now, unless the host slept for centuries.
            if let Some(at) = now.checked_add(left) {
                queue.entries.insert((at, number), entry);
            }
        }
        self.changed.notify_one();
    }

    fn keep_watch(&self) {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            match queue.entries.first_key_value().map(|(ticket, _)| ticket.0) {
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(at) if at > now => {
                    queue = self.changed.wait_timeout(queue, at - now).unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(_) => {
                    if let Some(((_, number), entry)) = queue.entries.pop_first()
                        && let Some((after, entry)) = look(entry)
                        && let Some(at) = now.checked_add(after)
                    {
                        queue.entries.insert((at, number), entry);
                    }
                }
            }
        }
    }
}

/// Acts on a run whose moment has come; says when to look again, if at all.
fn look(entry: Entry) -> Option<(Duration, Entry)> {
    let reason = match entry.kind {
        Kind::Cpu { clock, until } => {
            let left = until.saturating_sub(clock.read());
            if !left.is_zero() {
                return Some((left, entry));
            }
            StopReason::CpuTime
        }
        Kind::Wall => StopReason::WallTime,
        Kind::Hard(reason) => {
            entry.stop.stop(reason);
            return None;
        }
    };
    if entry.grace.is_zero() {
        entry.stop.stop(reason);
        return None;
    }
    entry.stop.interrupt(SIGINT);
    let grace = entry.grace;
    Some((grace, Entry { kind: Kind::Hard(reason), ..entry }))
}

/// The processor-time clock of one thread.
#[derive(Clone, Copy)]
struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// The calling thread's clock. It stays readable from other threads until the thread ends.
    fn current() -> Self {
        let mut id = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: writes one clock id to a local; the calling thread exists.
        let result = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut id) };
        // On failure the id stays the watchdog's own clock, which hardly moves: no CPU limit rather than a wrong one.
        if result != 0 {
            tracing::error!(error = result, "this system cannot tell a thread's processor time: no CPU limit");
        }
        Self(id)
    }

    fn read(self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes one timespec to a local; an id whose thread has ended is answered by an error.
        let result = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        if result != 0 {
            return Duration::ZERO;
        }
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs().try_into().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Wake;

    #[test]
    fn a_wall_limit_stops_hard_when_there_is_no_grace() {
        let stop = Arc::new(Stop::default());
        let limits = TimeLimits { wall: Some(Duration::from_millis(5)), ..TimeLimits::default() };
        let _watch = Watch::start(&stop, limits);
        assert!(stop.sleep(Duration::from_secs(60)).is_err());
        assert_eq!(stop.reason(), Some(StopReason::WallTime));
    }

    #[test]
    fn grace_sends_a_signal_before_the_stop() {
        let stop = Arc::new(Stop::default());
        let grace = Duration::from_millis(5);
        let _watch = Watch::start(&stop, TimeLimits { wall: Some(Duration::ZERO), cpu: None, grace });
        assert_eq!(stop.sleep(Duration::from_secs(60)), Ok(Wake::Signal));
        assert_eq!(stop.take_signal(), SIGINT);
        assert!(stop.sleep(Duration::from_secs(60)).is_err());
    }

    #[test]
    fn a_finished_watch_stops_nothing() {
        let stop = Arc::new(Stop::default());
        drop(Watch::start(&stop, TimeLimits { wall: Some(Duration::from_millis(1)), ..TimeLimits::default() }));
        assert_eq!(stop.sleep(Duration::from_millis(20)), Ok(Wake::Elapsed));
    }

    #[test]
    fn a_paused_clock_goes_on_where_it_stood() {
        let stop = Arc::new(Stop::default());
        let _watch = Watch::start(&stop, TimeLimits { wall: Some(Duration::from_millis(40)), ..TimeLimits::default() });
        let pause = Pause::start(&stop);
        assert_eq!(stop.sleep(Duration::from_millis(80)), Ok(Wake::Elapsed));
        drop(pause);
        assert!(!stop.stopped());
        assert!(stop.sleep(Duration::from_secs(60)).is_err());
        assert_eq!(stop.reason(), Some(StopReason::WallTime));
    }

    #[test]
    fn a_watch_that_ends_after_a_pause_stops_nothing() {
        let stop = Arc::new(Stop::default());
        let watch = Watch::start(&stop, TimeLimits { wall: Some(Duration::from_millis(5)), ..TimeLimits::default() });
        drop(Pause::start(&stop));
        drop(watch);
        assert_eq!(stop.sleep(Duration::from_millis(20)), Ok(Wake::Elapsed));
    }

    #[test]
    fn processor_time_counts_work_and_not_sleep() {
        let stop = Arc::new(Stop::default());
        let _watch = Watch::start(&stop, TimeLimits { cpu: Some(Duration::from_millis(20)), ..TimeLimits::default() });
        assert_eq!(stop.sleep(Duration::from_millis(60)), Ok(Wake::Elapsed));
        while !stop.stopped() {
            std::hint::spin_loop();
        }
        assert_eq!(stop.reason(), Some(StopReason::CpuTime));
    }
}
