//! The bounds of remote operations, and pauses between attempts.

use std::time::Duration;

use tokio::time::Instant;

/// The time for an operation.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for a commit, for whose answer a client waits. It is less than the time after which clients give up.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(20);
/// The time for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(40), Duration::from_secs(2));

/// The time at which an operation fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline of an operation that begins now and transfers so many bytes.
    pub(crate) fn for_size(bytes: usize) -> Self {
        Self(Instant::now() + OPERATION_TIMEOUT + transfer_time(bytes))
    }

    /// Returns the deadline of a commit that begins now, for all of its requests together.
    pub(crate) fn for_commit(bytes: usize) -> Self {
        Self(Instant::now() + COMMIT_TIMEOUT + transfer_time(bytes))
    }

    pub(crate) fn new() -> Self {
        Self::for_size(0)
    }

    pub(crate) fn within(limit: Duration) -> Self {
        Self(Instant::now() + limit.min(OPERATION_TIMEOUT))
    }

    pub(crate) fn is_over(self) -> bool {
        Instant::now() >= self.0
    }

    /// Returns the time until which a request that begins now must have an answer.
    pub(crate) fn for_request(self, bytes: usize) -> Instant {
        self.0.min(Instant::now() + REQUEST_TIMEOUT + transfer_time(bytes))
    }

    /// Waits before an attempt, for longer at each. Returns false if the operation's time is over then.
    pub(crate) async fn pause(self, attempt: u32) -> bool {
        let longest = (PAUSES.0 * 2_u32.saturating_pow(attempt.min(16))).min(PAUSES.1);
        // Between a half and the whole, so that replicas that failed together do not try again together.
        let end = Instant::now() + longest.div_f64(2.0) + longest.mul_f64(fraction() / 2.0);
        if end >= self.0 {
            return false;
        }
        tokio::time::sleep_until(end).await;
        true
    }
}

/// Returns one second for each MiB.
fn transfer_time(bytes: usize) -> Duration {
    Duration::from_micros((bytes as u64).saturating_mul(1_000_000) >> 20)
}

/// Returns a random number from 0 to 1.
pub(crate) fn fraction() -> f64 {
    let mut bytes = [0; 4];
    if getrandom::fill(&mut bytes).is_err() {
        return 0.5;
    }
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}
