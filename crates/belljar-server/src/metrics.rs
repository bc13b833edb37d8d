//! The server's metrics, in OpenMetrics format.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds of the latency histogram, in seconds.
const LATENCY_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    status: &'static str,
}

/// The server's metrics.
pub(crate) struct Metrics {
    registry: Registry,
    calls: Family<Labels, Counter>,
    latency: Family<Labels, Histogram>,
    /// The number of interpreters that exist now.
    pub(crate) live: Gauge,
    memory: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let calls = Family::default();
        let latency: Family<Labels, Histogram> = Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS));
        let (live, memory) = (Gauge::default(), Gauge::default());
        let mut registry = Registry::with_prefix("belljar");
        registry.register("calls", "Tool calls that were answered, by status", calls.clone());
        let unit = Unit::Seconds;
        registry.register_with_unit("call_duration", "Time from a call to its answer", unit, latency.clone());
        registry.register("live_interpreters", "Interpreters that exist now", live.clone());
        registry.register_with_unit("resident_memory", "Memory of the process", Unit::Bytes, memory.clone());
        Self { registry, calls, latency, live, memory }
    }
}

impl Metrics {
    /// Records a call that was answered after `time`.
    pub(crate) fn answered(&self, status: &'static str, time: Duration) {
        let labels = Labels { status };
        self.calls.get_or_create(&labels).inc();
        self.latency.get_or_create(&labels).observe(time.as_secs_f64());
    }

    /// Returns all metrics in OpenMetrics' text format.
    pub(crate) fn text(&self) -> String {
        self.memory.set(resident_memory().unwrap_or(0));
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut page, &self.registry);
        page
    }
}

/// Returns the process's resident memory in bytes, or `None` if `/proc` is not available.
fn resident_memory() -> Option<i64> {
    let kibibytes = procfs::process::Process::myself().ok()?.status().ok()?.vmrss?;
    i64::try_from(kibibytes).ok()?.checked_mul(1024)
}
