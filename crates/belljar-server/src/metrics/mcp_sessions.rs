//! The durations of MCP sessions. They are those of connections: clients of the modern era have no sessions over HTTP.

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// The upper bounds of the durations, in seconds: those of the semantic conventions for MCP, and longer ones.
const DURATION_BUCKETS: [f64; 17] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 1800.0, 7200.0, 43200.0];

/// The transport of a session, as `network.transport` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum McpTransport {
    /// Standard streams.
    Pipe,
    /// HTTP.
    Tcp,
}

impl McpTransport {
    fn labels(self) -> TransportLabels {
        let transport = match self {
            Self::Pipe => "pipe",
            Self::Tcp => "tcp",
        };
        TransportLabels { transport }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TransportLabels {
    transport: &'static str,
}

/// The durations of MCP sessions, by transport. Clones share them.
#[derive(Debug, Clone)]
pub struct McpSessionDurations(Family<TransportLabels, Histogram>);

impl Default for McpSessionDurations {
    fn default() -> Self {
        let family: Family<TransportLabels, Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
        for transport in [McpTransport::Pipe, McpTransport::Tcp] {
            // A series that exists from the start has a rate when it first increases.
            drop(family.get_or_create(&transport.labels()));
        }
        Self(family)
    }
}

impl McpSessionDurations {
    /// Returns the family.
    pub(super) fn family(&self) -> Family<TransportLabels, Histogram> {
        self.0.clone()
    }

    /// Begins to measure a session.
    pub(crate) fn begin(&self, transport: McpTransport) -> McpSessionRecord {
        McpSessionRecord { durations: self.clone(), transport, begin: Instant::now() }
    }
}

/// A session that is open. Its duration counts when this is dropped.
#[derive(Debug)]
pub(crate) struct McpSessionRecord {
    durations: McpSessionDurations,
    transport: McpTransport,
    begin: Instant,
}

impl Drop for McpSessionRecord {
    fn drop(&mut self) {
        let McpSessionDurations(family) = &self.durations;
        family.get_or_create(&self.transport.labels()).observe(self.begin.elapsed().as_secs_f64());
    }
}
