//! The guest's clocks: real time to the microsecond, and a monotonic one that goes on where a snapshot left it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The finest step the guest's clocks show. Finer ones serve little but timing attacks.
pub const RESOLUTION: Duration = Duration::from_micros(1);

/// The clocks of one instance.
#[derive(Debug, Clone)]
pub struct Clock {
    origin: Instant,
    /// How long the instance had lived before `origin`, in the interpreters it was copied from.
    before: Duration,
    spin: Spin,
}

impl Clock {
    /// A monotonic clock that starts at `before`.
    pub fn starting_at(before: Duration) -> Self {
        Self { origin: Instant::now(), before, spin: Spin::default() }
    }

    /// Monotonic time since the first boot of the program that this instance is a copy of.
    pub fn monotonic(&self) -> Duration {
        coarse(self.before + self.origin.elapsed())
    }

    /// Time since 1970-01-01 UTC; zero when the host's clock stands before that.
    pub fn realtime(&self) -> Duration {
        coarse(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Notes that the guest looked at the clock, and answers how long it should nap if it seems to wait by looking.
    pub(crate) fn looked(&mut self) -> Option<Duration> {
        self.spin.looked(Instant::now())
    }

    /// Notes that the nap is over, so that it does not count as time that the guest spent working.
    pub(crate) fn napped(&mut self) {
        self.spin.last = Some(Instant::now());
    }

    /// Forgets that the guest seemed to wait.
    pub(crate) fn stop_waiting(&mut self) {
        self.spin = Spin::default();
    }
}

fn coarse(time: Duration) -> Duration {
    Duration::new(time.as_secs(), time.subsec_micros() * 1000)
}

/// Recognises a guest that waits by reading the clock in a loop, which is how Emscripten's libc sleeps
/// (`emscripten_thread_sleep`).
#[derive(Debug, Clone, Default)]
struct Spin {
    /// When the clock was last read, or the nap after it ended.
    last: Option<Instant>,
    /// When the present run of readings began.
    began: Option<Instant>,
    readings: u32,
}

impl Spin {
    /// Readings further apart than this are no waiting: the guest did something between them.
    const GAP: Duration = Duration::from_micros(400);
    /// Readings in a row before the first nap.
    const READINGS: u32 = 8;
    /// Naps are this part of the time already waited: a sleep is overshot by no more than that.
    const PART: u32 = 64;
    const SHORTEST: Duration = Duration::from_micros(50);
    const LONGEST: Duration = Duration::from_millis(5);

    fn looked(&mut self, now: Instant) -> Option<Duration> {
        let near = self.last.is_some_and(|last| now.saturating_duration_since(last) < Self::GAP);
        self.last = Some(now);
        let Some(began) = self.began.filter(|_| near) else {
            *self = Self { last: Some(now), began: Some(now), readings: 1 };
            return None;
        };
        self.readings = self.readings.saturating_add(1);
        let waited = now.saturating_duration_since(began);
        (self.readings > Self::READINGS).then(|| (waited / Self::PART).clamp(Self::SHORTEST, Self::LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_the_clock_in_a_tight_loop_earns_longer_and_longer_naps() {
        let mut spin = Spin::default();
        let start = Instant::now();
        for _ in 0..Spin::READINGS {
            assert_eq!(spin.looked(start), None);
        }
        assert_eq!(spin.looked(start), Some(Spin::SHORTEST));
        let later = start + Duration::from_millis(64);
        spin.last = Some(later);
        assert_eq!(spin.looked(later), Some(Duration::from_millis(1)));
        let much_later = start + Duration::from_secs(60);
        spin.last = Some(much_later);
        assert_eq!(spin.looked(much_later), Some(Spin::LONGEST));
    }

    #[test]
    fn a_guest_that_works_between_readings_is_never_put_to_sleep() {
        let mut spin = Spin::default();
        let mut now = Instant::now();
        for _ in 0..100 {
            assert_eq!(spin.looked(now), None);
            now += Spin::GAP;
        }
    }

    #[test]
    fn clocks_show_whole_microseconds_and_go_on_from_a_snapshot() {
        let clock = Clock::starting_at(Duration::from_secs(1000));
        assert!(clock.monotonic() >= Duration::from_secs(1000));
        assert_eq!(clock.monotonic().subsec_nanos() % 1000, 0);
        assert_eq!(clock.realtime().subsec_nanos() % 1000, 0);
    }
}
