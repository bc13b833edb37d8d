//! The activity of code, for the audit log and for traces: the context that its events have in common.
//!
//! ```text
//!  Activity ── of a server
//!     └─ Scope ── of a call: protocol, client, session, run, and its span
//!          └─ CodeActivity ── of a run or a cell: start, end, processor time
//!               └─ observer ── what it does meanwhile: connections, installations, output
//! ```
//!
//! Without an audit log and without traces, all of these are empty, and do nothing.

mod code;
mod observer;
mod origin;
pub mod trace;

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use belljar_audit::{Audit, AuditStopped, Details, Event, Identifier, Record, owner_name};

pub use code::{CodeActivity, CodeEnd, CodeKind, CodeOutcome, CpuClock};
pub use origin::CallOrigin;
use trace::{Attributes, Span, SpanName, Trace};

/// The audit log and the traces of a server. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Activity {
    audit: Audit,
    is_traced: bool,
}

impl Activity {
    /// Creates the activity of a server. Spans are created only if `is_traced` is set.
    pub fn new(audit: Audit, is_traced: bool) -> Self {
        Self { audit, is_traced }
    }

    /// Returns the audit log.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Returns whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.is_traced || self.audit.is_on()
    }

    /// Begins the root span of a call, whose parent is that of the caller, if the caller has one. `name` is the part of
    /// the span's name after that of the table.
    pub fn begin_call(
        &self,
        span: SpanName,
        name: &str,
        parent: &Trace,
        attributes: impl FnOnce() -> Attributes,
    ) -> Span {
        if !self.is_traced {
            return Span::default();
        }
        Span::begin(span, name, parent, attributes())
    }

    /// Creates the context of a call by this client.
    pub fn scope(&self, protocol: &'static str, owner: Option<&str>, trace: Trace) -> Scope {
        if !self.is_on() {
            return Scope::default();
        }
        let owner = owner.map(|owner| owner_name(owner).into());
        let trace_id = trace.id().map(Into::into);
        Scope(Some(Arc::new(Context {
            activity: self.clone(),
            protocol,
            owner,
            trace,
            trace_id,
            session: OnceLock::new(),
            run: OnceLock::new(),
        })))
    }

    /// Creates the context of a call by this client that began before, perhaps in another process.
    pub fn resumed_scope(&self, origin: &CallOrigin, owner: Option<&str>) -> Scope {
        self.scope(origin.protocol(), owner, origin.trace())
    }

    /// Records an event outside of calls.
    pub fn record(&self, event: Event, details: impl FnOnce() -> Details) {
        self.audit.record(|| Record::new(event, details()));
    }

    /// Records an event of a session.
    pub fn record_session(&self, event: Event, session: &str, owner: Option<&str>, details: impl FnOnce() -> Details) {
        self.record(event, || Details {
            session: Some(Identifier::for_secret(session)),
            owner: owner.map(|owner| owner_name(owner).into()),
            ..details()
        });
    }
}

/// The context of a call, or none. Cheap to clone.
#[derive(Clone, Default)]
pub struct Scope(Option<Arc<Context>>);

struct Context {
    activity: Activity,
    protocol: &'static str,
    owner: Option<Arc<str>>,
    trace: Trace,
    trace_id: Option<Arc<str>>,
    session: OnceLock<Identifier>,
    run: OnceLock<Identifier>,
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Scope").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

impl Scope {
    /// Returns whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Sets the session, by its ID. Only the first call has an effect.
    pub fn set_session(&self, id: &str) {
        if let Some(context) = &self.0 {
            context.session.get_or_init(|| Identifier::for_secret(id));
        }
    }

    /// Sets the run, by the ID of a run that can outlast its process. Only the first call has an effect.
    pub fn set_run(&self, id: &str) {
        if let Some(context) = &self.0 {
            context.run.get_or_init(|| Identifier::for_secret(id));
        }
    }

    /// Returns the origin of the call, to be saved with code that waits. Without an audit log and without traces, it is
    /// empty.
    pub fn origin(&self) -> CallOrigin {
        let origin = self.0.as_ref().map(|context| CallOrigin::new(context.protocol, &context.trace));
        origin.unwrap_or_default()
    }

    /// Returns the name of the client in records, if it is known.
    pub fn owner(&self) -> Option<Arc<str>> {
        self.0.as_ref()?.owner.clone()
    }

    /// Returns whether code may run.
    ///
    /// # Errors
    /// Fails if the audit log cannot be written, and code must not run without it.
    pub fn admit(&self) -> Result<(), AuditStopped> {
        self.0.as_ref().map_or(Ok(()), |context| context.activity.audit.admit())
    }

    /// Records an event.
    pub fn record(&self, event: Event, details: impl FnOnce() -> Details) {
        let Some(context) = &self.0 else { return };
        context.activity.audit.record(|| Record::new(event, context.details(details())));
    }

    /// Begins a span within that of the call.
    pub fn begin_span(&self, span: SpanName, name: &str, attributes: impl FnOnce() -> Attributes) -> Span {
        match &self.0 {
            Some(context) if context.trace.is_on() => Span::begin(span, name, &context.trace, attributes()),
            _ => Span::default(),
        }
    }

    /// Records a span that has ended.
    pub fn add_span(&self, span: SpanName, name: &str, begin: SystemTime, attributes: impl FnOnce() -> Attributes) {
        if let Some(context) = self.0.as_ref().filter(|context| context.trace.is_on()) {
            drop(Span::begin_at(span, name, &context.trace, Some(begin), attributes()));
        }
    }

    /// Returns the same context within another span.
    #[must_use]
    pub fn within(&self, span: &Span) -> Self {
        let Some(context) = &self.0 else { return Self::default() };
        let trace = if span.trace().is_on() { span.trace() } else { context.trace.clone() };
        Self(Some(Arc::new(Context {
            activity: context.activity.clone(),
            protocol: context.protocol,
            owner: context.owner.clone(),
            trace,
            trace_id: context.trace_id.clone(),
            session: context.session.clone(),
            run: context.run.clone(),
        })))
    }
}

impl Context {
    /// Adds what the events of the call have in common.
    fn details(&self, details: Details) -> Details {
        Details {
            protocol: Some(self.protocol),
            owner: self.owner.clone(),
            session: self.session.get().copied(),
            run: self.run.get().copied(),
            trace_id: self.trace_id.clone(),
            ..details
        }
    }
}
