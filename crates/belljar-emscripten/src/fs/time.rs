//! Times of files.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Seconds and nanoseconds since 1970-01-01 UTC (`struct timespec`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// The whole seconds; negative before 1970.
    pub seconds: i64,
    /// The remainder, less than 1,000,000,000.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Returns the host's time, rounded to the resolution of the guest's clocks ([`crate::clock::RESOLUTION`]).
    pub fn now() -> Self {
        Self::since_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Returns the time since 1970, rounded to the resolution of the guest's clocks.
    pub(crate) fn since_epoch(time: Duration) -> Self {
        let step = crate::clock::RESOLUTION.subsec_nanos().max(1);
        Self {
            seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: time.subsec_nanos() / step * step,
        }
    }

    /// Converts to the host's type; `None` if the host cannot represent the time.
    pub(super) fn to_system(self) -> Option<SystemTime> {
        let rest = Duration::from_nanos(u64::from(self.nanoseconds));
        let whole = Duration::from_secs(self.seconds.unsigned_abs());
        let start = if self.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        start?.checked_add(rest)
    }
}

/// The times of the last access, modification and status change of an inode (`st_atim`, `st_mtim`, `st_ctim`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
}

impl Times {
    pub(super) fn all(at: Timestamp) -> Self {
        Self { accessed: at, modified: at, changed: at }
    }
}

/// The change of one of the two times by `utimensat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// Keep the time (`UTIME_OMIT`).
    Keep,
    /// Set the current time (`UTIME_NOW`).
    Now,
    /// Set the given time.
    To(Timestamp),
}

impl SetTime {
    /// Returns the new value, given the old one and the current time.
    pub(super) fn apply(self, old: Timestamp, now: Timestamp) -> Timestamp {
        match self {
            SetTime::Keep => old,
            SetTime::Now => now,
            SetTime::To(time) => time,
        }
    }
}
