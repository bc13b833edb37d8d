//! The limits of time of code that waits without a thread.
//!
//! The limit of elapsed time counts the steps of the code (`steps.rs`). A timeout that the caller of one call has
//! chosen also counts waits for the code's own timers, since the caller expects an answer by then. All waits together
//! are bounded by [`Limits::wait_time`].

use std::time::{Duration, Instant};

use belljar_core::{Limits, Wait};
use belljar_emscripten::stop::StopReason;
use serde::{Deserialize, Serialize};

use crate::interpreter::Interpreter;

impl WaitEnd {
    /// Interrupts or ends the code that is about to go on.
    pub(super) fn apply(self, interpreter: &mut Interpreter) {
        match self {
            Self::WithinLimits => {}
            Self::Interrupt => interpreter.interrupt_with_grace(),
            Self::Kill(reason) => interpreter.interrupt_handle().end(reason),
        }
    }
}

/// The waits of one run or cell.
pub(super) struct WaitClock {
    start: Instant,
    /// The limit of elapsed time.
    timeout: Option<Duration>,
    /// The limit that the caller has chosen.
    own_timeout: Option<Duration>,
    max_wait: Option<Duration>,
    /// The beginning of the current wait, and whether it is for functions of the host.
    current: Option<(Instant, bool)>,
    waited: Duration,
    waited_for_host: Duration,
    /// The time that code has after it was interrupted.
    grace: Duration,
    /// The limit that a wait has exceeded.
    exceeded: Option<Exceeded>,
}

/// A limit that was exceeded.
#[derive(Debug, Clone, Copy)]
struct Exceeded {
    limit: Duration,
    /// The reason for ending code that does not end itself.
    reason: StopReason,
    since: Instant,
}

/// The clock of a cell that waits, for another process. Times are in microseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SavedClock {
    own_timeout: Option<u64>,
    /// The time since the start.
    elapsed: u64,
    waited: u64,
    waited_for_host: u64,
    /// True if the current wait is for functions of the host.
    for_host: bool,
}

impl SavedClock {
    /// Creates the clock of a cell that has run for the time `spent`, and holds its thread.
    pub(super) fn running(own_timeout: Option<u64>, spent: u64) -> Self {
        Self { own_timeout, elapsed: spent, waited: 0, waited_for_host: 0, for_host: true }
    }

    /// Returns the limit that the caller has chosen.
    pub(super) fn own_timeout(&self) -> Option<Duration> {
        self.own_timeout.map(Duration::from_micros)
    }
}

/// The decision about code whose wait has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitEnd {
    /// The code goes on.
    WithinLimits,
    /// The code has exceeded a limit, and is to be interrupted.
    Interrupt,
    /// The code is to be ended: it was interrupted, and went on waiting for too long, or it cannot be interrupted.
    Kill(StopReason),
}

impl WaitClock {
    /// Creates the clock of code that is about to begin. `limits` include the timeout that the caller has chosen, which
    /// is `own_timeout`.
    pub(super) fn new(limits: &Limits, own_timeout: Option<Duration>) -> Self {
        Self {
            start: Instant::now(),
            timeout: limits.wall_time,
            own_timeout,
            max_wait: limits.wait_time,
            grace: limits.grace,
            current: None,
            waited: Duration::ZERO,
            waited_for_host: Duration::ZERO,
            exceeded: None,
        }
    }

    /// Returns the state of the clock in a wait.
    pub(super) fn save(&self) -> SavedClock {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (current, for_host) = self.current.map_or((Duration::ZERO, false), |(begin, host)| (begin.elapsed(), host));
        SavedClock {
            own_timeout: self.own_timeout.map(micros),
            elapsed: micros(self.start.elapsed()),
            waited: micros(self.waited + current),
            waited_for_host: micros(self.waited_for_host + if for_host { current } else { Duration::ZERO }),
            for_host,
        }
    }

    /// Creates the clock of a cell that waited elsewhere, and has been in no interpreter for the time `asleep` since.
    pub(super) fn restored(limits: &Limits, saved: SavedClock, asleep: Duration) -> Self {
        let now = Instant::now();
        let elapsed = Duration::from_micros(saved.elapsed).saturating_add(asleep);
        Self {
            // The clock of a machine that has just started may not reach back as far: the cell gets time as a gift.
            start: now.checked_sub(elapsed).unwrap_or(now),
            waited: Duration::from_micros(saved.waited).min(elapsed),
            waited_for_host: Duration::from_micros(saved.waited_for_host),
            current: Some((now.checked_sub(asleep).unwrap_or(now), saved.for_host)),
            ..Self::new(limits, saved.own_timeout())
        }
    }

    /// Begins a wait. Returns it with a timer for the end of the limits, if that is earlier.
    pub(super) fn begin_wait(&mut self, wait: Wait) -> Wait {
        self.current = Some((Instant::now(), wait.for_host));
        let left = [
            self.max_wait.map(|limit| limit.saturating_sub(self.waited)),
            self.own_timeout.filter(|_| !wait.for_host).map(|limit| limit.saturating_sub(self.counted())),
        ];
        let left = match self.exceeded {
            None => left.into_iter().flatten().min(),
            Some(exceeded) => Some(self.grace.saturating_sub(exceeded.since.elapsed())),
        };
        Wait { timer: left.into_iter().chain(wait.timer).min(), ..wait }
    }

    /// Excludes the current wait so far from all limits.
    pub(super) fn exclude_wait(&mut self) {
        let Some((begin, _)) = &mut self.current else { return };
        let time = begin.elapsed();
        *begin += time;
        self.start += time;
    }

    /// Ends the current wait.
    pub(super) fn end_wait(&mut self) -> WaitEnd {
        let Some((begin, for_host)) = self.current.take() else { return WaitEnd::WithinLimits };
        let time = begin.elapsed();
        self.waited += time;
        if for_host {
            self.waited_for_host += time;
        }
        if let Some(Exceeded { since, reason, .. }) = self.exceeded {
            return if since.elapsed() >= self.grace { WaitEnd::Kill(reason) } else { WaitEnd::WithinLimits };
        }
        let waited = self.max_wait.filter(|limit| self.waited >= *limit).map(|limit| (limit, StopReason::WaitTime));
        let own = self.own_timeout.filter(|limit| !for_host && self.counted() >= *limit);
        let Some((limit, reason)) = waited.or(own.map(|limit| (limit, StopReason::WallTime))) else {
            return WaitEnd::WithinLimits;
        };
        self.exceeded = Some(Exceeded { limit, reason, since: Instant::now() });
        if self.grace.is_zero() { WaitEnd::Kill(reason) } else { WaitEnd::Interrupt }
    }

    /// Returns the limit that the code has exceeded, if any, and whether it is that of waiting.
    pub(super) fn expired(&self) -> Option<(Duration, bool)> {
        if let Some(Exceeded { limit, reason, .. }) = self.exceeded {
            return Some((limit, reason == StopReason::WaitTime));
        }
        let running = self.start.elapsed().saturating_sub(self.waited);
        self.timeout.filter(|timeout| running >= *timeout).map(|timeout| (timeout, false))
    }

    /// Returns the time that counts against the caller's own timeout.
    fn counted(&self) -> Duration {
        self.start.elapsed().saturating_sub(self.waited_for_host)
    }
}
