//! The records of a session's feeds in the audit log, and their spans.

use std::sync::Arc;

use belljar_audit::{AuditStopped, random_id};
use belljar_core::activity::trace::{Span, SpanName, Trace};
use belljar_core::activity::{CodeActivity, CodeKind, CodeOutcome, CpuClock};
use belljar_core::kernel::Backend;
use belljar_core::{Activity, Scope};

/// The records of the feeds of a session.
#[derive(Default)]
pub(crate) struct FeedRecord {
    activity: Activity,
    owner: Option<Arc<str>>,
    /// A random name of the session, which has no ID.
    session: String,
    feed: CodeActivity,
    span: Span,
}

impl FeedRecord {
    /// Creates the records of a session of this client.
    pub(crate) fn new(activity: Activity, owner: Option<Arc<str>>) -> Self {
        let session = if activity.is_on() { random_id() } else { String::new() };
        Self { activity, owner, session, ..Self::default() }
    }

    /// Begins a feed, whose parent has sent `trace`.
    ///
    /// # Errors
    /// When the audit log cannot be written.
    pub(crate) fn begin(&mut self, code: &str, trace: &Trace, backend: &dyn Backend) -> Result<(), AuditStopped> {
        if !self.activity.is_on() {
            return Ok(());
        }
        self.activity.audit().admit()?;
        let scope = self.begin_span(trace);
        self.feed = CodeActivity::begin(&scope, CodeKind::Cell, code, clock_of(backend));
        self.feed.enter(SpanName::Run);
        Ok(())
    }

    /// Continues to record a feed that began in another worker. Only its end has a record here.
    pub(crate) fn resume(&mut self, code: &str, trace: &Trace, backend: &dyn Backend) {
        if self.activity.is_on() {
            let scope = self.begin_span(trace);
            self.feed = CodeActivity::resumed(&scope, CodeKind::Cell, code, clock_of(backend));
            self.feed.enter(SpanName::Run);
        }
    }

    /// Begins the span of a feed, and returns its context.
    fn begin_span(&mut self, trace: &Trace) -> Scope {
        self.span = self.activity.begin_call(SpanName::Feed, "", trace, Vec::new);
        let trace = if self.span.is_on() { self.span.trace() } else { trace.clone() };
        let scope = self.activity.scope("monty", self.owner.as_deref(), trace);
        scope.set_session(&self.session);
        scope
    }

    /// Returns the feed that was begun last.
    pub(crate) fn activity(&self) -> CodeActivity {
        self.feed.clone()
    }

    /// Records the end of the feed.
    pub(crate) fn end(&mut self, outcome: impl Into<CodeOutcome>) {
        self.feed.end(outcome);
        self.feed = CodeActivity::default();
        drop(std::mem::take(&mut self.span));
    }
}

/// Returns whose processor time is that of feeds.
fn clock_of(backend: &dyn Backend) -> CpuClock {
    if backend.runs_on_caller() { CpuClock::Thread } else { CpuClock::None }
}
