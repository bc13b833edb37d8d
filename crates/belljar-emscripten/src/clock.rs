//! The guest's clocks: real time with microsecond resolution, and a monotonic clock that continues from a snapshot's.

use std::time::{Duration, Instant};

use crate::sources::Sources;

/// The resolution of the guest's clocks. A finer one would mostly help timing attacks.
pub const RESOLUTION: Duration = Duration::from_micros(1);

/// The clocks of one instance.
#[derive(Debug, Clone)]
pub struct Clock {
    origin: Instant,
    /// The monotonic time at `origin`, accumulated in the instances that this one was copied from.
    before: Duration,
    busy_wait: BusyWaitDetector,
    sources: Sources,
}

impl Clock {
    /// Creates a clock whose monotonic time starts at `before`.
    pub fn starting_at(before: Duration) -> Self {
        Self { origin: Instant::now(), before, busy_wait: BusyWaitDetector::default(), sources: Sources::Host }
    }

    /// Sets the source of the time.
    pub(crate) fn set_sources(&mut self, sources: Sources) {
        self.sources = sources;
    }

    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Lets time pass: that in which the program was in no instance, although it waited for a time.
    pub fn advance(&mut self, time: Duration) {
        self.before = self.before.saturating_add(time);
    }

    /// Returns the time that had passed in earlier instances when this one was restored.
    pub(crate) fn before(&self) -> Duration {
        self.before
    }

    /// Returns the monotonic time since the first boot of the program that this instance is a copy of.
    pub fn monotonic(&self) -> Duration {
        match &self.sources {
            Sources::Host => round_down(self.own_monotonic()),
            Sources::Reproducible(sources) => sources.monotonic(),
            Sources::Recorded(recording) => recording.monotonic(|| self.own_monotonic()),
        }
    }

    /// Returns the monotonic time for the host's own use, which is not a reading of the program.
    pub fn monotonic_of_host(&self) -> Duration {
        match &self.sources {
            Sources::Recorded(recording) => round_down(recording.monotonic_now(|| self.own_monotonic())),
            Sources::Host | Sources::Reproducible(_) => self.monotonic(),
        }
    }

    fn own_monotonic(&self) -> Duration {
        // The time in a saved session is not trusted: it can be the largest one.
        self.before.saturating_add(self.origin.elapsed())
    }

    /// Returns the time since 1970-01-01 UTC; zero if the host's clock is set before that.
    pub fn realtime(&self) -> Duration {
        round_down(self.sources.real_time())
    }

    /// Records that the guest read the clock. Returns the time to sleep if the guest seems to be waiting in a busy
    /// loop, and for how long it has been.
    pub(crate) fn on_read(&mut self) -> Option<(Duration, Duration)> {
        if let Some(sources) = self.sources.as_reproducible() {
            sources.step_of_sleep();
            return None;
        }
        self.busy_wait.on_read(Instant::now())
    }

    /// Records that the sleep is over, so that it does not count as time that the guest spent working.
    pub(crate) fn on_sleep(&mut self) {
        self.busy_wait.last = Some(Instant::now());
    }

    /// Ends the detection of the present busy loop.
    pub(crate) fn reset_busy_wait(&mut self) {
        self.busy_wait = BusyWaitDetector::default();
    }
}

fn round_down(time: Duration) -> Duration {
    Duration::new(time.as_secs(), time.subsec_micros() * 1000)
}

/// Detects a guest that waits by reading the clock in a loop, which is how Emscripten's libc sleeps
/// (`emscripten_thread_sleep`).
#[derive(Debug, Clone, Default)]
struct BusyWaitDetector {
    /// The time of the last reading, or of the end of the sleep after it.
    last: Option<Instant>,
    /// The time of the first of the present run of readings.
    started: Option<Instant>,
    readings: u32,
}

impl BusyWaitDetector {
    /// Readings further apart than this are not a busy loop: the guest did some work between them.
    const MAX_POLL_INTERVAL: Duration = Duration::from_micros(400);
    /// The number of consecutive readings before the first sleep.
    const MIN_READINGS: u32 = 8;
    /// Sleeps are this fraction of the time already waited, which bounds by how much the guest's wait is overshot.
    const WAIT_FRACTION: u32 = 64;
    const MIN_SLEEP: Duration = Duration::from_micros(50);
    const MAX_SLEEP: Duration = Duration::from_millis(5);

    fn on_read(&mut self, now: Instant) -> Option<(Duration, Duration)> {
        let near = self.last.is_some_and(|last| now.saturating_duration_since(last) < Self::MAX_POLL_INTERVAL);
        self.last = Some(now);
        let Some(started) = self.started.filter(|_| near) else {
            *self = Self { last: Some(now), started: Some(now), readings: 1 };
            return None;
        };
        self.readings = self.readings.saturating_add(1);
        let waited = now.saturating_duration_since(started);
        (self.readings > Self::MIN_READINGS)
            .then(|| ((waited / Self::WAIT_FRACTION).clamp(Self::MIN_SLEEP, Self::MAX_SLEEP), waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_waiting_on_the_clock_sleeps_longer_and_longer() {
        let mut detector = BusyWaitDetector::default();
        let start = Instant::now();
        for _ in 0..BusyWaitDetector::MIN_READINGS {
            assert_eq!(detector.on_read(start), None);
        }
        assert_eq!(detector.on_read(start), Some((BusyWaitDetector::MIN_SLEEP, Duration::ZERO)));
        let later = start + Duration::from_millis(64);
        detector.last = Some(later);
        assert_eq!(detector.on_read(later), Some((Duration::from_millis(1), Duration::from_millis(64))));
        let much_later = start + Duration::from_secs(60);
        detector.last = Some(much_later);
        assert_eq!(detector.on_read(much_later), Some((BusyWaitDetector::MAX_SLEEP, Duration::from_secs(60))));
    }

    #[test]
    fn guest_that_works_between_clock_readings_never_sleeps() {
        let mut detector = BusyWaitDetector::default();
        let mut now = Instant::now();
        for _ in 0..100 {
            assert_eq!(detector.on_read(now), None);
            now += BusyWaitDetector::MAX_POLL_INTERVAL;
        }
    }

    #[test]
    fn clocks_have_microseconds_and_continue_from_a_snapshot() {
        let clock = Clock::starting_at(Duration::from_secs(1000));
        assert!(clock.monotonic() >= Duration::from_secs(1000));
        assert_eq!(clock.monotonic().subsec_nanos() % 1000, 0);
        assert_eq!(clock.realtime().subsec_nanos() % 1000, 0);
    }

    #[test]
    fn largest_time_of_a_snapshot_does_not_overflow() {
        let mut clock = Clock::starting_at(Duration::MAX);
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.monotonic().as_secs(), u64::MAX);
        assert_eq!(clock.monotonic_of_host().as_secs(), u64::MAX);
    }
}
