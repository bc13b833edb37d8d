//! The server's metrics, in OpenMetrics format. `docs/operations.md` describes each family.
//!
//! Events are counted when they happen, which takes nanoseconds. Numbers that describe a state (sessions, queues, the
//! cache) are determined when the metrics are read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use belljar_audit::{Details, Event, owner_name};
use belljar_core::kernel::Backend;
use belljar_core::{Activity, CacheUses, CellStatus, ExitReason, LimitKind, Outcome, Scope};
use belljar_sessions::{GuestThreadPool, QuotaKind, SessionError, Sessions, WorkRefusal};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelValueEncoder, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::guard::current_owner;

/// The upper bounds of the durations of calls, in seconds.
const DURATION_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];

/// The maximum number of refusals of one reason and owner with a record of their own in the audit log, in a second.
const MAX_REFUSAL_RECORDS: u32 = 20;
/// The number of reasons and owners from which on those are forgotten whose second is over.
const MAX_REFUSAL_GROUPS: usize = 1000;

/// How a call of a tool was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CallStatus {
    Success,
    /// The code raised an exception, or ended its interpreter.
    RunError,
    /// The code reached a limit.
    LimitReached(LimitKind),
    /// A package was not installed, and the code did not run.
    InstallError,
    /// The call was refused because of a limit of the server.
    Refused(Refusal),
    /// The session does not exist, or has expired.
    UnknownSession,
    /// The arguments are not valid.
    Invalid,
    /// The call waits for input: the client repeats it with an answer.
    InputRequired,
    /// The call became a task, whose result the client polls.
    Task,
    /// The client cancelled the call, or disconnected.
    Cancelled,
    /// The server failed to do what the call asked for.
    Failed,
}

impl CallStatus {
    /// Every label value: a status, of which those with a reason share one.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RunError | Self::LimitReached(_) => "run-error",
            Self::InstallError => "install-error",
            Self::Refused(_) => "refused",
            Self::UnknownSession => "unknown-session",
            Self::Invalid => "invalid",
            Self::InputRequired => "input-required",
            Self::Task => "task",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

impl From<&Outcome> for CallStatus {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Success(_) | Outcome::Exited(ExitReason::Exit(0)) => Self::Success,
            Outcome::InstallError(_) => Self::InstallError,
            Outcome::Exited(ExitReason::Limit(limit)) => Self::LimitReached(*limit),
            Outcome::Error(error) => from_exception(&error.kind),
            Outcome::Exited(_) => Self::RunError,
        }
    }
}

impl From<&CellStatus> for CallStatus {
    fn from(status: &CellStatus) -> Self {
        match status {
            CellStatus::Ok => Self::Success,
            CellStatus::Error(error) => from_exception(&error.name),
            CellStatus::TimedOut { waited: true, .. } => Self::LimitReached(LimitKind::WaitTime),
            CellStatus::TimedOut { .. } => Self::LimitReached(LimitKind::WallTime),
            CellStatus::KernelDied(ExitReason::Limit(limit)) => Self::LimitReached(*limit),
            CellStatus::KernelDied(_) => Self::RunError,
        }
    }
}

/// Returns the status of code that an exception of this class ended. Below the limit of memory, allocations fail.
fn from_exception(class: &str) -> CallStatus {
    if class == "MemoryError" { CallStatus::LimitReached(LimitKind::Memory) } else { CallStatus::RunError }
}

impl From<&SessionError> for CallStatus {
    fn from(error: &SessionError) -> Self {
        match error {
            SessionError::Expired { .. } => Self::UnknownSession,
            SessionError::Queue { .. } => Self::Refused(Refusal::SessionQueueFull),
            SessionError::TooMany(_) => Self::Refused(Refusal::SessionsFull),
            SessionError::Busy(_) => Self::Refused(Refusal::QueueFull),
            SessionError::Refused(refusal) => Self::Refused(refusal.into()),
            SessionError::File(_) => Self::Invalid,
            SessionError::Audit(_) => Self::Refused(Refusal::AuditFailed),
            SessionError::Kernel(_)
            | SessionError::Store(_)
            | SessionError::Folder(_)
            | SessionError::Unrestorable(_)
            | SessionError::Gone => Self::Failed,
        }
    }
}

/// The reason why the server refused a request or a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// The request's `Host` is not a name of the server, or is not the only one.
    Host,
    /// The request's `Origin` is not allowed.
    Origin,
    /// The request has no valid token.
    Token,
    /// The token's issuer cannot be reached.
    TokenUnchecked,
    /// The request names an MCP session of another client.
    ForeignSession,
    /// The body is too long.
    BodyTooLong,
    /// The body did not arrive in time, or not completely.
    BodyIncomplete,
    /// Other requests take the memory for bodies.
    BodiesFull,
    /// The maximum number of MCP sessions over HTTP is open.
    HttpSessionsFull,
    /// All threads are busy and the queue is full.
    QueueFull,
    /// The maximum number of sessions exists.
    SessionsFull,
    /// The session's queue is full.
    SessionQueueFull,
    /// The audit log cannot be written.
    AuditFailed,
    /// A quota of the owner is used up.
    Quota(QuotaKind),
    /// The call waited for too long.
    QueueTimeout,
    /// The machine has little memory left.
    Overloaded,
}

impl From<&WorkRefusal> for Refusal {
    fn from(refusal: &WorkRefusal) -> Self {
        match refusal {
            WorkRefusal::Quota(exceeded) => Self::Quota(exceeded.kind),
            WorkRefusal::QueueTimeout { .. } => Self::QueueTimeout,
            WorkRefusal::Overloaded { .. } => Self::Overloaded,
        }
    }
}

impl Refusal {
    const ALL: [Self; 22] = [
        Self::Host,
        Self::Origin,
        Self::Token,
        Self::TokenUnchecked,
        Self::ForeignSession,
        Self::BodyTooLong,
        Self::BodyIncomplete,
        Self::BodiesFull,
        Self::HttpSessionsFull,
        Self::QueueFull,
        Self::SessionsFull,
        Self::SessionQueueFull,
        Self::AuditFailed,
        Self::Quota(QuotaKind::Runs),
        Self::Quota(QuotaKind::Queue),
        Self::Quota(QuotaKind::Sessions),
        Self::Quota(QuotaKind::Memory),
        Self::Quota(QuotaKind::Processor),
        Self::Quota(QuotaKind::Storage),
        Self::Quota(QuotaKind::Network),
        Self::QueueTimeout,
        Self::Overloaded,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Origin => "origin",
            Self::Token => "token",
            Self::TokenUnchecked => "token-unchecked",
            Self::ForeignSession => "foreign-session",
            Self::BodyTooLong => "body-too-long",
            Self::BodyIncomplete => "body-incomplete",
            Self::BodiesFull => "bodies-full",
            Self::HttpSessionsFull => "http-sessions-full",
            Self::QueueFull => "queue-full",
            Self::SessionsFull => "sessions-full",
            Self::SessionQueueFull => "session-queue-full",
            Self::AuditFailed => "audit-failed",
            Self::Quota(QuotaKind::Runs) => "quota-runs",
            Self::Quota(QuotaKind::Queue) => "quota-queue",
            Self::Quota(QuotaKind::Sessions) => "quota-sessions",
            Self::Quota(QuotaKind::Memory) => "quota-memory",
            Self::Quota(QuotaKind::Processor) => "quota-processor",
            Self::Quota(QuotaKind::Storage) => "quota-storage",
            Self::Quota(QuotaKind::Network) => "quota-network",
            Self::QueueTimeout => "queue-timeout",
            Self::Overloaded => "overloaded",
        }
    }
}

impl Refusal {
    /// Returns the event of the audit log: the request's sender was refused, or a limit was reached.
    fn event(self) -> Event {
        match self {
            Self::Host | Self::Origin | Self::Token | Self::TokenUnchecked | Self::ForeignSession => Event::AuthRefusal,
            _ => Event::Refusal,
        }
    }
}

impl EncodeLabelValue for Refusal {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        self.name().encode(encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    reason: Refusal,
}

/// The number of refused requests and calls, by reason. Clones share the numbers.
#[derive(Debug, Clone)]
pub struct Refusals {
    family: Family<RefusalLabels, Counter>,
    /// The audit log, which has them, too.
    activity: Activity,
    records: Arc<Mutex<RefusalRecords>>,
}

/// The refusals whose records in the audit log are limited together: those of one reason and owner. All refusals of
/// senders are limited together, so that clients without a token hide no others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RefusalGroup {
    /// `None` for refusals of senders.
    reason: Option<Refusal>,
    owner: Option<Arc<str>>,
}

/// The records of refusals in the audit log. Clients must not be able to fill a disk with them.
#[derive(Debug, Default)]
struct RefusalRecords(HashMap<RefusalGroup, RefusalWindow>);

/// The records of a group in a second.
#[derive(Debug)]
struct RefusalWindow {
    begin: Instant,
    count: u32,
    /// The refusals that have no record.
    omitted: u64,
}

impl RefusalWindow {
    fn is_over(&self) -> bool {
        self.begin.elapsed() >= Duration::from_secs(1)
    }
}

impl RefusalRecords {
    /// Returns the number of refusals of this group before this one that have no record, or `None` if this one has none
    /// either.
    fn admit(&mut self, group: RefusalGroup) -> Option<u64> {
        if self.0.len() >= MAX_REFUSAL_GROUPS {
            self.0.retain(|_, window| !window.is_over() || window.omitted > 0);
        }
        let window =
            self.0.entry(group).or_insert_with(|| RefusalWindow { begin: Instant::now(), count: 0, omitted: 0 });
        if window.is_over() {
            (window.begin, window.count) = (Instant::now(), 0);
        }
        if window.count >= MAX_REFUSAL_RECORDS {
            window.omitted += 1;
            return None;
        }
        window.count += 1;
        Some(std::mem::take(&mut window.omitted))
    }
}

impl Default for Refusals {
    fn default() -> Self {
        let family = Family::default();
        for reason in Refusal::ALL {
            // A series that exists from the start has a rate when it first increases.
            drop(family.get_or_create(&RefusalLabels { reason }));
        }
        Self { family, activity: Activity::default(), records: Arc::default() }
    }
}

impl Refusals {
    /// Counts the refusal of the request that this task handles.
    pub(crate) fn count(&self, reason: Refusal) {
        self.count_for(reason, current_owner().ok().flatten().as_deref());
    }

    /// Counts the refusal of a request of this client.
    pub(crate) fn count_for(&self, reason: Refusal, owner: Option<&str>) {
        let owner: Option<Arc<str>> = owner.map(|owner| owner_name(owner).into());
        if let Some(details) = self.details(reason, owner.clone()) {
            self.activity.record(reason.event(), || Details { owner, ..details });
        }
    }

    /// Counts the refusal of a call of a tool.
    fn count_call(&self, reason: Refusal, tool: &str, scope: &Scope) {
        if let Some(details) = self.details(reason, scope.owner()) {
            scope.record(reason.event(), || Details { target: Some(tool.to_owned()), ..details });
        }
    }

    /// Counts a refusal, and returns the fields of its record, if it has one.
    fn details(&self, reason: Refusal, owner: Option<Arc<str>>) -> Option<Details> {
        self.family.get_or_create(&RefusalLabels { reason }).inc();
        if !self.activity.is_on() {
            return None;
        }
        let of_sender = reason.event() == Event::AuthRefusal;
        let group = RefusalGroup { reason: (!of_sender).then_some(reason), owner };
        let omitted = self.records.lock().admit(group)?;
        Some(Details {
            name: Some(reason.name().into()),
            count: Some(omitted).filter(|omitted| *omitted > 0),
            ..Details::default()
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    tool: Cow<'static, str>,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabels {
    tool: Cow<'static, str>,
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
    durations: Family<ToolLabels, Histogram>,
    in_flight: Gauge,
    limits: Family<LimitLabels, Counter>,
    pub(crate) refusals: Refusals,
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
            refusals: Refusals { activity, ..Refusals::default() },
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
        metrics.durations.get_or_create(&ToolLabels { tool: tool.clone() }).observe(begin.elapsed().as_secs_f64());
        metrics.calls.get_or_create(&CallLabels { tool: tool.clone(), status: status.name() }).inc();
        match *status {
            CallStatus::LimitReached(limit) => {
                metrics.limits.get_or_create(&LimitLabels { limit: limit.name() }).inc();
            }
            CallStatus::Refused(reason) => metrics.refusals.count_call(reason, tool, scope),
            _ => {}
        }
    }
}

/// Returns the process's resident memory in bytes, or `None` if `/proc` is not available.
fn resident_memory() -> Option<i64> {
    let kibibytes = procfs::process::Process::myself().ok()?.status().ok()?.vmrss?;
    i64::try_from(kibibytes).ok()?.checked_mul(1024)
}
