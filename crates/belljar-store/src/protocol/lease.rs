//! The lease of this replica: when it is renewed, and when the replica stops itself.
//!
//! ```text
//!  sent ──────────── 1/3 ─────────────────────────────── 3/4 ───────── 1 ─────▶ time since the last renewal was sent
//!  the renewal        renewed again; after a failure      stops        others may take over, at the earliest
//!                     tried again until …                 itself
//! ```
//!
//! Times are those of the replica's own monotonic clock. The lease is counted from the moment at which the renewal was
//! *sent*; other replicas count from a moment at which they *saw* it, which is later. So the replica has stopped before
//! others take over, even if the clocks run at speeds that differ by a quarter.

use std::time::Duration;

/// The times of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTimes {
    /// The time after which others may take over.
    pub length: Duration,
}

impl LeaseTimes {
    /// Returns the time between two renewals.
    #[must_use]
    pub fn renewal(self) -> Duration {
        self.length / 3
    }

    /// Returns the time for which a renewal holds.
    #[must_use]
    pub fn hold(self) -> Duration {
        self.length / 4 * 3
    }

    /// Returns the time between two attempts to renew after a failure.
    #[must_use]
    pub fn retry(self) -> Duration {
        self.length / 20
    }
}

/// An event of the lease. Times are since any fixed moment of the replica's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseEvent {
    /// Time has passed.
    Tick,
    /// The renewal that was sent at this time has happened.
    Renewed {
        /// The time before the renewal was first sent.
        sent: Duration,
    },
    /// The renewal has not happened, or it is unknown whether it has.
    Failed,
    /// Another replica, or the coordination service, has ended the lease.
    Revoked,
}

/// A command to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseCommand {
    /// Renews the lease.
    Renew,
    /// Sends [`LeaseEvent::Tick`] at this time.
    WaitUntil(Duration),
    /// Stops the replica: it owns nothing any more.
    Stop,
}

/// The lease of this replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    times: LeaseTimes,
    /// The time at which the last successful renewal was sent.
    renewed: Duration,
    next: Duration,
    has_stopped: bool,
}

impl Lease {
    /// Returns a lease that was obtained by a request sent at this time.
    #[must_use]
    pub fn new(times: LeaseTimes, sent: Duration) -> Self {
        Self { times, renewed: sent, next: sent + times.renewal(), has_stopped: false }
    }

    /// Returns whether the replica may act as an owner at this time.
    #[must_use]
    pub fn is_valid(&self, now: Duration) -> bool {
        !self.has_stopped && now < self.deadline()
    }

    /// Returns the time at which the replica stops itself unless it renews the lease.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.renewed + self.times.hold()
    }

    /// Handles an event at the time `now`, and returns what the caller has to do next.
    pub fn on(&mut self, event: LeaseEvent, now: Duration) -> LeaseCommand {
        match event {
            LeaseEvent::Revoked => self.has_stopped = true,
            LeaseEvent::Renewed { sent } if self.is_valid(now) => {
                self.renewed = self.renewed.max(sent);
                self.next = self.renewed + self.times.renewal();
            }
            LeaseEvent::Failed => self.next = now + self.times.retry(),
            // A renewal that is confirmed too late does not revive the lease: the replica may have stopped already.
            LeaseEvent::Renewed { .. } | LeaseEvent::Tick => {}
        }
        if !self.is_valid(now) {
            self.has_stopped = true;
            return LeaseCommand::Stop;
        }
        if now >= self.next { LeaseCommand::Renew } else { LeaseCommand::WaitUntil(self.next.min(self.deadline())) }
    }
}
