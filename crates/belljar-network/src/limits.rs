//! Limits of the network use of one interpreter, and their counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limits of the network use of one interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkLimits {
    /// Connections that are open at once.
    pub connections: usize,
    /// Connections that one run opens.
    pub opened: u64,
    /// Requests of HTTP in one run. Each is a record.
    pub requests: u64,
    /// Bytes that one run sends, without those of TLS.
    pub bytes_sent: u64,
    /// Bytes that one run receives, without those of TLS, after decompression by the host.
    pub bytes_received: u64,
    /// Look-ups of names at the resolver in one run, and different names that one interpreter uses.
    pub lookups: u64,
    /// Refusals of one run that are recorded.
    pub refusals: u64,
    /// The time for a look-up and the connection, and for the handshake of TLS.
    pub connect: Duration,
    /// The time without any byte.
    pub idle: Duration,
    /// The time of one connection.
    pub lifetime: Duration,
    /// The time in which one run uses the network, from the beginning of its first connection: its connections end
    /// then, and others are refused.
    pub total: Duration,
    /// The time for data that the code wrote before it closed a connection.
    pub linger: Duration,
}

impl Default for NetworkLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            opened: 10_000,
            requests: 100_000,
            bytes_sent: 1 << 30,
            bytes_received: 1 << 30,
            lookups: 1_000,
            refusals: 1_000,
            connect: Duration::from_secs(30),
            idle: Duration::from_secs(300),
            lifetime: Duration::from_secs(6 * 3600),
            total: Duration::from_secs(24 * 3600),
            linger: Duration::from_secs(10),
        }
    }
}

/// The counts of one run.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) opened: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) lookups: AtomicU64,
    pub(crate) refusals: AtomicU64,
    /// Parts of secrets at the ends of messages. A new run does not reset them.
    pub(crate) parts: AtomicU64,
}

impl Counts {
    /// Begins a new run.
    pub(crate) fn reset(&self) {
        let counts = [&self.opened, &self.requests, &self.sent, &self.received, &self.lookups, &self.refusals];
        for count in counts {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// Adds to a count and returns whether it is still within the limit.
pub(crate) fn count(counter: &AtomicU64, amount: u64, limit: u64) -> bool {
    counter.fetch_add(amount, Ordering::Relaxed).saturating_add(amount) <= limit
}
