//! The time since 1970, which goes on while code is in no process.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time since 1970.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns a time in whole microseconds.
pub(super) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
