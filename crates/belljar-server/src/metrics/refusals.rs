//! Refused requests and calls: their reasons, their numbers, and their records in the audit log.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_audit::{Details, Event, owner_name};
use belljar_core::{Activity, Scope};
use belljar_sessions::{QuotaKind, WorkRefusal};
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::guard::current_owner;

/// The maximum number of refusals of one reason and owner with a record of their own in the audit log, in a second.
const MAX_REFUSAL_RECORDS: u32 = 20;
/// The number of reasons and owners from which on those are forgotten whose second is over.
const MAX_REFUSAL_GROUPS: usize = 1000;

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
pub(super) struct RefusalLabels {
    reason: Refusal,
}

/// The number of refused requests and calls, by reason. Clones share the numbers.
#[derive(Debug, Clone)]
pub struct Refusals {
    pub(super) family: Family<RefusalLabels, Counter>,
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
    /// Creates the numbers, with records in an audit log.
    pub(super) fn new(activity: Activity) -> Self {
        Self { activity, ..Self::default() }
    }

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
    pub(super) fn count_call(&self, reason: Refusal, tool: &str, scope: &Scope) {
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
