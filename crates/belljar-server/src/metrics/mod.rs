//! The server's metrics, in OpenMetrics format. `docs/operations.md` describes each family.
//!
//! Events are counted when they happen, which takes nanoseconds. Numbers that describe a state (sessions, queues, the
//! cache) are determined when the metrics are read.
//!
//! | file | subject |
//! | --- | --- |
//! | `status` | how calls were answered |
//! | `refusals` | refused requests and calls |
//! | `mcp_sessions` | the durations of MCP sessions |

mod mcp_sessions;
mod refusals;
mod status;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use belljar_core::kernel::Backend;
use belljar_core::{Activity, CacheUses, LimitKind, Scope};
use belljar_sessions::{GuestThreadPool, Sessions};
use belljar_tools::RequestDurations;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub use mcp_sessions::McpSessionDurations;
pub(crate) use mcp_sessions::{McpSessionRecord, McpTransport};
pub(crate) use refusals::Refusal;
pub use refusals::Refusals;
pub(crate) use status::CallStatus;
pub use status::call_statuses;

use crate::os::resident_memory;

/// The upper bounds of the durations of calls, in seconds.
const DURATION_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    tool: Cow<'static, str>,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLookupLabels {
    kind: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheKindLabels {
    kind: &'static str,
}

/// The server's metrics.
pub(crate) struct Metrics {
    registry: Registry,
    backend: Arc<dyn Backend>,
    pool: Arc<GuestThreadPool>,
    /// The sessions, if the server has them.
    sessions: OnceLock<Sessions>,
    calls: Family<CallLabels, Counter>,
    durations: Family<CallLabels, Histogram>,
    in_flight: Gauge,
    limits: Family<LimitLabels, Counter>,
    pub(crate) refusals: Refusals,
    pub(crate) mcp_sessions: McpSessionDurations,
    /// The durations of requests to MCP servers, if code can call their tools.
    tool_requests: Arc<OnceLock<RequestDurations>>,
    /// The number of interpreters of `run_python_code` that exist now.
    pub(crate) live: Gauge,
    session_states: Family<StateLabels, Gauge>,
    session_queue: Gauge,
    running: Gauge,
    held: Gauge,
    queue: Gauge,
    cache_lookups: Family<CacheLookupLabels, Counter>,
    cache_builds: Family<CacheKindLabels, Counter>,
    cache_entries: Gauge,
    cache_size: Gauge,
    memory: Gauge,
}

impl Metrics {
    /// Creates the metrics of a server that runs code on `backend`, with the threads of `pool`.
    pub(crate) fn new(backend: Arc<dyn Backend>, pool: Arc<GuestThreadPool>, activity: Activity) -> Self {
        let metrics = Self {
            registry: Registry::with_prefix("belljar"),
            backend,
            pool,
            sessions: OnceLock::new(),
            calls: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            in_flight: Gauge::default(),
            limits: Family::default(),
            refusals: Refusals::new(activity),
            mcp_sessions: McpSessionDurations::default(),
            tool_requests: Arc::default(),
            live: Gauge::default(),
            session_states: Family::default(),
            session_queue: Gauge::default(),
            running: Gauge::default(),
            held: Gauge::default(),
            queue: Gauge::default(),
            cache_lookups: Family::default(),
            cache_builds: Family::default(),
            cache_entries: Gauge::default(),
            cache_size: Gauge::default(),
            memory: Gauge::default(),
        };
        let limits = [
            LimitKind::WallTime,
            LimitKind::CpuTime,
            LimitKind::WaitTime,
            LimitKind::Output,
            LimitKind::Stack,
            LimitKind::Memory,
        ];
        for limit in limits {
            drop(metrics.limits.get_or_create(&LimitLabels { limit: limit.name() }));
        }
        metrics.with_registered_families()
    }

    fn with_registered_families(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register("build", "Version of the server", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        registry.register("calls", "Tool calls that were answered, by tool and status", self.calls.clone());
        let help = "Time from a call of a tool to its answer";
        registry.register_with_unit("call_duration", help, Unit::Seconds, self.durations.clone());
        registry.register("calls_in_flight", "Tool calls that are being answered", self.in_flight.clone());
        registry.register("limits_reached", "Calls whose code reached a limit, by limit", self.limits.clone());
        registry.register("refusals", "Refused requests and calls, by reason", self.refusals.family.clone());
        let help = "Time from the beginning of an MCP session to its end";
        registry.register_with_unit("mcp_session_duration", help, Unit::Seconds, self.mcp_sessions.family());
        let help = "Interpreters of run_python_code that exist now";
        registry.register("live_interpreters", help, self.live.clone());
        let help = "Sessions that exist now, awake with an interpreter or asleep on the disk";
        registry.register("sessions", help, self.session_states.clone());
        let help = "Calls to sessions that wait for a thread, or for earlier calls to their session";
        registry.register("session_queue_length", help, self.session_queue.clone());
        registry.register("running", "Guest threads that work for a call or a session", self.running.clone());
        let help = "Guest threads that code holds while it waits without await";
        registry.register("held_threads", help, self.held.clone());
        let help = "Calls of run_python_code, and sessions with calls, that wait for a guest thread";
        registry.register("queue_length", help, self.queue.clone());
        let help = "Time from the arrival of a call until its work began";
        registry.register_with_unit("queue_wait", help, Unit::Seconds, self.pool.waits().clone());
        registry.register_collector(Box::new(InstallCollector(self.backend.clone())));
        registry.register_collector(Box::new(ToolRequestCollector(self.tool_requests.clone())));
        let help = "Lookups in the cache of files, by kind of entry and result";
        registry.register("cache_lookups", help, self.cache_lookups.clone());
        registry.register("cache_builds", "Cache entries that were created, by kind", self.cache_builds.clone());
        registry.register("cache_entries", "Entries in the cache", self.cache_entries.clone());
        let help = "Size of the entries in the cache";
        registry.register_with_unit("cache_size", help, Unit::Bytes, self.cache_size.clone());
        registry.register_with_unit("resident_memory", "Memory of the process", Unit::Bytes, self.memory.clone());
        self
    }

    /// Adds the sessions of the server, of which there is at most one set.
    pub(crate) fn add_sessions(&self, sessions: &Sessions) {
        let _ = self.sessions.set(sessions.clone());
    }

    /// Adds the durations of requests to MCP servers, of which there is at most one set.
    pub(crate) fn add_tool_requests(&self, durations: &RequestDurations) {
        let _ = self.tool_requests.set(durations.clone());
    }

    /// Begins to record a call of one of the server's tools in this context.
    pub(crate) fn begin_call(&self, tool: Cow<'static, str>, scope: Scope) -> CallRecord<'_> {
        self.in_flight.inc();
        CallRecord { metrics: self, tool, scope, status: CallStatus::Cancelled, begin: Instant::now() }
    }

    /// Returns all metrics in OpenMetrics' text format. Reads the manifests of the cache, which may take milliseconds.
    pub(crate) fn text(&self) -> String {
        self.update();
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut page, &self.registry);
        page
    }

    /// Determines the numbers that describe a state.
    fn update(&self) {
        self.memory.set(resident_memory().unwrap_or(0));
        let load = self.pool.load();
        self.running.set(gauge_value(load.running));
        self.held.set(gauge_value(load.held));
        self.queue.set(gauge_value(load.queued));
        if let Some(sessions) = self.sessions.get() {
            let (awake, all) = sessions.count();
            for (state, count) in [("awake", awake), ("asleep", all.saturating_sub(awake))] {
                self.session_states.get_or_create(&StateLabels { state }).set(gauge_value(count));
            }
            self.session_queue.set(gauge_value(sessions.waiting()));
        }
        if let Some(cache) = self.backend.statistics().cache {
            self.cache_entries.set(gauge_value(cache.entries));
            self.cache_size.set(gauge_value(cache.bytes));
            for (kind, CacheUses { hits, misses, builds }) in cache.uses {
                for (result, count) in [("hit", hits), ("miss", misses)] {
                    self.cache_lookups.get_or_create(&CacheLookupLabels { kind, result }).inner().store(count, ORDER);
                }
                self.cache_builds.get_or_create(&CacheKindLabels { kind }).inner().store(builds, ORDER);
            }
        }
    }
}

const ORDER: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

fn gauge_value(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// Reads the installations of a backend, which may load its runtime late.
struct InstallCollector(Arc<dyn Backend>);

impl fmt::Debug for InstallCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("InstallCollector").finish_non_exhaustive()
    }
}

impl Collector for InstallCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let installs = self.0.statistics().installs;
        let help = "Installations of packages for calls and sessions, by result";
        let mut family = encoder.encode_descriptor("installs", help, None, MetricType::Counter)?;
        for (result, count) in [("success", &installs.succeeded), ("error", &installs.failed)] {
            count.encode(family.encode_family(&ResultLabels { result })?)?;
        }
        let help = "Time that installations of packages took";
        let unit = Some(&Unit::Seconds);
        let histogram = encoder.encode_descriptor("install_duration", help, unit, installs.duration.metric_type())?;
        installs.duration.encode(histogram)
    }
}

/// Reads the durations of requests to MCP servers, which the server gets after its metrics.
#[derive(Debug)]
struct ToolRequestCollector(Arc<OnceLock<RequestDurations>>);

impl Collector for ToolRequestCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.get().map_or(Ok(()), |durations| durations.encode(encoder))
    }
}

/// A call that is being answered. When dropped, it is counted with its status.
pub(crate) struct CallRecord<'a> {
    metrics: &'a Metrics,
    tool: Cow<'static, str>,
    scope: Scope,
    /// Until it is set, the call counts as cancelled: its future may be dropped at any time.
    pub(crate) status: CallStatus,
    begin: Instant,
}

impl Drop for CallRecord<'_> {
    fn drop(&mut self) {
        let Self { metrics, tool, scope, status, begin } = self;
        metrics.in_flight.dec();
        let labels = CallLabels { tool: tool.clone(), status: status.name() };
        metrics.durations.get_or_create(&labels).observe(begin.elapsed().as_secs_f64());
        metrics.calls.get_or_create(&labels).inc();
        match *status {
            CallStatus::LimitReached(limit) => {
                metrics.limits.get_or_create(&LimitLabels { limit: limit.name() }).inc();
            }
            CallStatus::Refused(reason) => metrics.refusals.count_call(reason, tool, scope),
            _ => {}
        }
    }
}
