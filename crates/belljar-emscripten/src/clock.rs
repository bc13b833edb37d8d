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
}

impl Clock {
    /// A monotonic clock that starts at `before`.
    pub fn starting_at(before: Duration) -> Self {
        Self { origin: Instant::now(), before }
    }

    /// Monotonic time since the first boot of the program that this instance is a copy of.
    pub fn monotonic(&self) -> Duration {
        coarse(self.before + self.origin.elapsed())
    }

    /// Time since 1970-01-01 UTC; zero when the host's clock stands before that.
    pub fn realtime(&self) -> Duration {
        coarse(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

fn coarse(time: Duration) -> Duration {
    Duration::new(time.as_secs(), time.subsec_micros() * 1000)
}
