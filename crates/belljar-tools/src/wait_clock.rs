//! The time during which a run waits for tools.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Measures the time during which at least one operation of a run is in progress.
#[derive(Debug)]
pub(crate) struct WaitClock {
    limit: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_progress: usize,
    since: Option<Instant>,
    used: Duration,
}

impl WaitClock {
    /// Creates the clock of a run that has waited for the time `used` elsewhere.
    pub(crate) fn restored(limit: Duration, used: Duration) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::new(State { used, ..State::default() }) })
    }

    /// Returns the time that the run has waited.
    pub(crate) fn used(&self) -> Duration {
        let state = self.state.lock();
        state.used + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Begins an operation. Also returns the time that is left for it.
    pub(crate) fn begin(self: &Arc<Self>) -> (WaitGuard, Duration) {
        let mut state = self.state.lock();
        let now = Instant::now();
        let running = state.since.map_or(Duration::ZERO, |since| now.duration_since(since));
        let left = self.limit.saturating_sub(state.used + running);
        state.in_progress += 1;
        state.since.get_or_insert(now);
        (WaitGuard(self.clone()), left)
    }
}

impl WaitClock {
    /// Begins a time that does not count: an operation waits for a person.
    pub(crate) fn pause(self: &Arc<Self>) -> WaitPause {
        let mut state = self.state.lock();
        state.in_progress -= 1;
        if state.in_progress == 0
            && let Some(since) = state.since.take()
        {
            state.used += since.elapsed();
        }
        drop(state);
        WaitPause(self.clone())
    }
}

/// A time that does not count, within an operation.
#[derive(Debug)]
pub(crate) struct WaitPause(Arc<WaitClock>);

impl Drop for WaitPause {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.in_progress += 1;
        state.since.get_or_insert_with(Instant::now);
    }
}

/// An operation in progress.
#[derive(Debug)]
pub(crate) struct WaitGuard(Arc<WaitClock>);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.in_progress -= 1;
        if state.in_progress == 0
            && let Some(since) = state.since.take()
        {
            state.used += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_operations_count_once() {
        let clock = WaitClock::restored(Duration::from_secs(3600), Duration::ZERO);
        let (first, all) = clock.begin();
        assert_eq!(all, Duration::from_secs(3600));
        let (second, left) = clock.begin();
        assert!(left <= all);
        drop((first, second));
        let used = clock.state.lock().used;
        assert!(used > Duration::ZERO && clock.state.lock().since.is_none());
        assert_eq!(clock.begin().1, Duration::from_secs(3600) - used);
    }
}
