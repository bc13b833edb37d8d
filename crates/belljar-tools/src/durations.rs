//! The durations of requests that code makes to MCP servers, for metrics.
//!
//! A series has the name that the configuration gives its server, and no word that a server or code has chosen: their
//! number is bounded.

use std::fmt;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use crate::call_log::CallStatus;
use crate::error::{TOOL_ERROR, ToolFailure};

/// The upper bounds of the durations, in seconds: those of the semantic conventions for MCP.
const DURATION_BUCKETS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// The method of a request that calls a tool.
pub(crate) const CALL: &str = "tools/call";
/// The method of a request that reads a resource.
pub(crate) const READ: &str = "resources/read";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    server: String,
    method: &'static str,
    outcome: &'static str,
}

/// The durations of the requests of code, by server, method and outcome. Clones share them.
#[derive(Debug, Clone)]
pub struct RequestDurations(Family<RequestLabels, Histogram>);

impl RequestDurations {
    /// Creates the durations of requests to servers with these names.
    pub(crate) fn new<'a>(servers: impl Iterator<Item = &'a str>) -> Self {
        let family: Family<RequestLabels, Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
        for server in servers {
            // A series that exists from the start has a rate when it first increases.
            let labels = RequestLabels { server: server.to_owned(), method: CALL, outcome: CallStatus::Ok.name() };
            drop(family.get_or_create(&labels));
        }
        Self(family)
    }

    /// Begins to measure a request.
    pub(crate) fn begin(&self, server: &str, method: &'static str) -> RequestRecord {
        let outcome = CallStatus::Cancelled.name();
        let labels = RequestLabels { server: server.to_owned(), method, outcome };
        RequestRecord { durations: self.clone(), labels, begin: Instant::now() }
    }
}

impl Collector for RequestDurations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time from a request of code to an MCP server to its answer, by server, method and outcome";
        let family =
            encoder.encode_descriptor("tool_request_duration", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        self.0.encode(family)
    }
}

/// A request that was sent. If it is dropped without its answer, it counts as cancelled.
pub(crate) struct RequestRecord {
    durations: RequestDurations,
    labels: RequestLabels,
    begin: Instant,
}

impl RequestRecord {
    /// Ends the measurement with the answer of the request, and returns that.
    pub(crate) fn end<T>(mut self, answer: Result<T, ToolFailure>) -> Result<T, ToolFailure> {
        self.labels.outcome = match &answer {
            Ok(_) => CallStatus::Ok.name(),
            Err(ToolFailure::ErrorResult(_)) => TOOL_ERROR,
            Err(failure) => CallStatus::from(failure).name(),
        };
        answer
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        self.durations.0.get_or_create(&self.labels).observe(self.begin.elapsed().as_secs_f64());
    }
}
