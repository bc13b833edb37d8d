//! Enforces time limits: one thread for all instances of the process.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::os::ThreadClock;
use crate::stop::{StopHandle, StopReason};

/// SIGINT, as the guest numbers it.
const SIGINT: i32 = 2;

/// The time limits of one run of a program. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeLimits {
    /// Elapsed time.
    pub wall: Option<Duration>,
    /// Processor time of the thread that runs the program.
    pub cpu: Option<Duration>,
    /// The time between the soft interrupt, sent when a limit is reached, and the hard stop. Zero stops at once.
    pub grace: Duration,
}

/// A guard that enforces the time limits of one run until it is dropped. Must be dropped on the thread that created it.
#[must_use = "the limits are enforced only until this is dropped"]
pub struct DeadlineGuard {
    timers: Vec<TimerKey>,
    /// The guard reads the clock of the thread that created it, so it must not leave that thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

type TimerKey = (Instant, u64);

impl DeadlineGuard {
    /// Starts enforcing the limits for the calling thread's run of the program that `stop` belongs to.
    pub fn start(stop: &Arc<StopHandle>, limits: TimeLimits) -> Self {
        let mut timers = Vec::new();
        if let Some(wall) = limits.wall {
            let kind = TimerKind::Wall;
            timers.extend(Watchdog::get().add(wall, Timer { stop: stop.clone(), kind, grace: limits.grace }));
        }
        if let Some(budget) = limits.cpu {
            let clock = ThreadClock::current();
            let kind = TimerKind::Cpu { until: clock.read().saturating_add(budget), clock };
            timers.extend(Watchdog::get().add(budget, Timer { stop: stop.clone(), kind, grace: limits.grace }));
        }
        Self { timers, _not_send: std::marker::PhantomData }
    }
}

impl Drop for DeadlineGuard {
    fn drop(&mut self) {
        for key in &self.timers {
            Watchdog::get().remove(*key);
        }
    }
}

/// A guard that suspends the limit on elapsed time of one program until it is dropped.
#[must_use = "the limit is suspended only until this is dropped"]
pub struct Pause {
    /// The timers that were removed from the queue: their number, and the time each had left.
    waiting: Vec<(u64, Duration, Timer)>,
}

impl Pause {
    /// Suspends the limit on elapsed time of the program that `stop` belongs to. Its processor time still counts: work
    /// that the host does for the program is expected to run on another thread. Must be dropped before the run's
    /// [`DeadlineGuard`].
    pub fn start(stop: &Arc<StopHandle>) -> Self {
        Self { waiting: Watchdog::get().suspend(stop) }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        Watchdog::get().resume(std::mem::take(&mut self.waiting));
    }
}

struct Timer {
    stop: Arc<StopHandle>,
    kind: TimerKind,
    grace: Duration,
}

#[derive(Clone, Copy)]
enum TimerKind {
    Wall,
    Cpu {
        clock: ThreadClock,
        /// The reading of `clock` at which the limit is reached.
        until: Duration,
    },
    /// A soft interrupt was sent; the hard stop follows.
    Hard(StopReason),
}

/// All timers, ordered by the time of their next check. A timer keeps the number of its key when it moves.
#[derive(Default)]
struct Queue {
    timers: BTreeMap<TimerKey, Timer>,
    next: u64,
    /// The time at which the watchdog's thread wakes without being notified; `None` if it does not.
    wakes_at: Option<Instant>,
}

impl Queue {
    /// Returns whether the thread would wake after `at`. It keeps the time of a timer that was removed, so that in a
    /// server, whose calls begin one after the other with equal limits, hardly any call wakes it.
    fn wakes_after(&self, at: Instant) -> bool {
        self.wakes_at.is_none_or(|wakes_at| at < wakes_at)
    }
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
            let started = std::thread::Builder::new().name("watchdog".into()).spawn(|| watchdog.run());
            if let Err(error) = started {
                tracing::error!(%error, "failed to start the thread that enforces time limits");
            }
        });
        watchdog
    }

    /// Adds a timer. Returns `None` if the time lies beyond the clock's range and so can never be reached.
    fn add(&self, after: Duration, timer: Timer) -> Option<TimerKey> {
        let at = Instant::now().checked_add(after)?;
        let mut queue = self.queue.lock();
        queue.next += 1;
        let key = (at, queue.next);
        queue.timers.insert(key, timer);
        let is_first = queue.wakes_after(at);
        // The thread would otherwise wait for the lock that this one holds.
        drop(queue);
        if is_first {
            self.changed.notify_one();
        }
        Some(key)
    }

    /// Removes a timer by its number, which may have moved to another time.
    fn remove(&self, (at, number): TimerKey) {
        let mut queue = self.queue.lock();
        if queue.timers.remove(&(at, number)).is_none() {
            queue.timers.retain(|key, _| key.1 != number);
        }
    }

    /// Removes a program's timers for elapsed time from the queue.
    fn suspend(&self, stop: &Arc<StopHandle>) -> Vec<(u64, Duration, Timer)> {
        let now = Instant::now();
        let paused = |_: &TimerKey, timer: &mut Timer| {
            Arc::ptr_eq(&timer.stop, stop) && !matches!(timer.kind, TimerKind::Cpu { .. })
        };
        let mut queue = self.queue.lock();
        let suspended = queue.timers.extract_if(.., paused);
        suspended.map(|((at, number), timer)| (number, at.saturating_duration_since(now), timer)).collect()
    }

    fn resume(&self, waiting: Vec<(u64, Duration, Timer)>) {
        let now = Instant::now();
        let mut queue = self.queue.lock();
        let mut is_first = false;
        for (number, left, timer) in waiting {
            // The deadline was within the clock's range before, and still is unless the host was suspended for
            // centuries.
            if let Some(at) = now.checked_add(left) {
                queue.timers.insert((at, number), timer);
                is_first |= queue.wakes_after(at);
            }
        }
        drop(queue);
        if is_first {
            self.changed.notify_one();
        }
    }

    fn run(&self) {
        let mut queue = self.queue.lock();
        loop {
            let now = Instant::now();
            let first = queue.timers.first_key_value().map(|(key, _)| key.0);
            queue.wakes_at = first;
            match first {
                None => self.changed.wait(&mut queue),
                Some(at) if at > now => {
                    self.changed.wait_for(&mut queue, at - now);
                }
                Some(_) => {
                    if let Some(((_, number), timer)) = queue.timers.pop_first()
                        && let Some((after, timer)) = check(timer)
                        && let Some(at) = now.checked_add(after)
                    {
                        queue.timers.insert((at, number), timer);
                    }
                }
            }
        }
    }
}

/// Handles a timer whose time has come. Returns the timer and the delay until its next check, if it needs one.
fn check(timer: Timer) -> Option<(Duration, Timer)> {
    let reason = match timer.kind {
        TimerKind::Cpu { clock, until } => {
            let left = until.saturating_sub(clock.read());
            if !left.is_zero() {
                return Some((left, timer));
            }
            StopReason::CpuTime
        }
        TimerKind::Wall => StopReason::WallTime,
        TimerKind::Hard(reason) => {
            timer.stop.stop(reason);
            return None;
        }
    };
    if timer.grace.is_zero() {
        timer.stop.stop(reason);
        return None;
    }
    timer.stop.interrupt(SIGINT);
    let grace = timer.grace;
    Some((grace, Timer { kind: TimerKind::Hard(reason), ..timer }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::SleepResult;

    /// A limit that is not reached between two statements, also on a busy machine.
    const LONG_ENOUGH: Duration = Duration::from_secs(2);

    #[test]
    fn wall_limit_without_grace_stops_hard() {
        let stop = Arc::new(StopHandle::default());
        let limits = TimeLimits { wall: Some(Duration::from_millis(5)), ..TimeLimits::default() };
        let _watch = DeadlineGuard::start(&stop, limits);
        assert!(stop.sleep(Duration::from_secs(60)).is_err());
        assert_eq!(stop.reason(), Some(StopReason::WallTime));
    }

    #[test]
    fn earlier_deadline_wakes_the_thread() {
        let limits = |wall| TimeLimits { wall: Some(wall), ..TimeLimits::default() };
        let slow = Arc::new(StopHandle::default());
        let later = DeadlineGuard::start(&slow, limits(Duration::from_secs(600)));
        for _ in 0..20 {
            let fast = Arc::new(StopHandle::default());
            let _earlier = DeadlineGuard::start(&fast, limits(Duration::from_millis(2)));
            assert!(fast.sleep(Duration::from_secs(60)).is_err());
        }
        drop(later);
        // The thread still waits for the time of the removed timer.
        let paused = Arc::new(StopHandle::default());
        let _watch = DeadlineGuard::start(&paused, limits(Duration::from_millis(20)));
        drop(Pause::start(&paused));
        assert!(paused.sleep(Duration::from_secs(60)).is_err());
        assert_eq!((slow.reason(), paused.reason()), (None, Some(StopReason::WallTime)));
    }

    #[test]
    fn grace_sends_a_signal_before_the_stop() {
        let stop = Arc::new(StopHandle::default());
        // The stop must not come before the wait for the signal begins.
        let grace = LONG_ENOUGH;
        let _watch = DeadlineGuard::start(&stop, TimeLimits { wall: Some(Duration::ZERO), cpu: None, grace });
        assert_eq!(stop.sleep(Duration::from_secs(60)), Ok(SleepResult::Signal));
        assert_eq!(stop.take_signal(), SIGINT);
        assert!(stop.sleep(Duration::from_secs(60)).is_err());
    }

    #[test]
    fn dropped_deadline_guard_stops_nothing() {
        let stop = Arc::new(StopHandle::default());
        drop(DeadlineGuard::start(&stop, TimeLimits { wall: Some(LONG_ENOUGH), ..TimeLimits::default() }));
        assert_eq!(stop.sleep(LONG_ENOUGH * 5 / 4), Ok(SleepResult::Elapsed));
    }

    #[test]
    fn resumed_wall_limit_keeps_the_time_left() {
        let stop = Arc::new(StopHandle::default());
        let _watch = DeadlineGuard::start(&stop, TimeLimits { wall: Some(LONG_ENOUGH), ..TimeLimits::default() });
        let pause = Pause::start(&stop);
        assert_eq!(stop.sleep(LONG_ENOUGH * 5 / 4), Ok(SleepResult::Elapsed));
        drop(pause);
        assert!(!stop.stopped());
        assert!(stop.sleep(Duration::from_secs(60)).is_err());
        assert_eq!(stop.reason(), Some(StopReason::WallTime));
    }

    #[test]
    fn deadline_guard_dropped_after_a_pause_stops_nothing() {
        let stop = Arc::new(StopHandle::default());
        let watch = DeadlineGuard::start(&stop, TimeLimits { wall: Some(LONG_ENOUGH), ..TimeLimits::default() });
        drop(Pause::start(&stop));
        drop(watch);
        assert_eq!(stop.sleep(LONG_ENOUGH * 5 / 4), Ok(SleepResult::Elapsed));
    }

    #[test]
    fn processor_time_counts_work_and_not_sleep() {
        let stop = Arc::new(StopHandle::default());
        let _watch =
            DeadlineGuard::start(&stop, TimeLimits { cpu: Some(Duration::from_millis(20)), ..TimeLimits::default() });
        assert_eq!(stop.sleep(Duration::from_millis(60)), Ok(SleepResult::Elapsed));
        while !stop.stopped() {
            std::hint::spin_loop();
        }
        assert_eq!(stop.reason(), Some(StopReason::CpuTime));
    }
}
