//! The records of a session's feeds in the audit log and for operators, and their spans.

use std::sync::Arc;

use belljar_audit::{AuditStopped, random_id};
use belljar_core::activity::trace::{Span, SpanName, Trace};
use belljar_core::activity::{CodeActivity, CodeKind, CodeOutcome, CpuClock};
use belljar_core::kernel::{Backend, CellObserver, InterruptHandle};
use belljar_core::{Activity, CellStatus, Scope};

use crate::feed_view::{FeedView, OpenFeedView};

/// The records of the feeds of a session.
#[derive(Default)]
pub(crate) struct FeedRecord {
    activity: Activity,
    owner: Option<Arc<str>>,
    /// A random name of the session, which has no ID.
    session: String,
    feed: CodeActivity,
    span: Span,
    /// Opens `view`, if operators see feeds.
    open: Option<OpenFeedView>,
    view: Option<Box<dyn FeedView>>,
    /// Says whose processor time is that of the feed.
    clock: Option<CpuClock>,
}

impl FeedRecord {
    /// Creates the records of a session of this client.
    pub(crate) fn new(activity: Activity, owner: Option<Arc<str>>, open: Option<OpenFeedView>) -> Self {
        let session = if activity.is_on() { random_id() } else { String::new() };
        Self { activity, owner, session, open, ..Self::default() }
    }

    /// Begins a feed, whose parent has sent `trace`. Operators see `shown` in place of its code.
    ///
    /// # Errors
    /// Fails if the audit log cannot be written.
    pub(crate) fn begin(
        &mut self,
        code: &str,
        shown: &str,
        trace: &Trace,
        backend: &dyn Backend,
    ) -> Result<(), AuditStopped> {
        if self.activity.is_on() {
            self.activity.audit().admit()?;
            let scope = self.begin_span(trace);
            self.feed = CodeActivity::begin(&scope, CodeKind::Cell, code, clock_of(backend));
            self.feed.enter(SpanName::Run);
        }
        self.show(shown, backend);
        Ok(())
    }

    /// Continues to record a feed that began in another worker. Only its end has a record here.
    pub(crate) fn resume(&mut self, code: &str, trace: &Trace, backend: &dyn Backend) {
        if self.activity.is_on() {
            let scope = self.begin_span(trace);
            self.feed = CodeActivity::resumed(&scope, CodeKind::Cell, code, clock_of(backend));
            self.feed.enter(SpanName::Run);
        }
        self.show(code, backend);
    }

    /// Shows a feed to operators, if they see feeds.
    fn show(&mut self, code: &str, backend: &dyn Backend) {
        self.clock = Some(clock_of(backend));
        if let Some(open) = self.open.take() {
            self.view = open(self.owner.as_ref());
        }
        if let Some(view) = &mut self.view {
            view.begin(code);
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

    /// Returns an observer that records what the feed does, and passes it to `inner`.
    pub(crate) fn observe(&self, inner: Arc<dyn CellObserver>) -> Arc<dyn CellObserver> {
        let inner = match &self.view {
            Some(view) => view.observer(inner),
            None => inner,
        };
        self.feed.observe(inner)
    }

    /// Continues the feed on this thread, and adds its processor time. `handle` interrupts it.
    pub(crate) fn run<T>(&self, handle: Arc<dyn InterruptHandle>, step: impl FnOnce() -> T) -> T {
        let Some(view) = &self.view else { return self.feed.measure(step) };
        view.set_running(Some(handle));
        let result = self.feed.measure_with(self.clock.and_then(|clock| view.cpu(clock)), step);
        view.set_running(None);
        result
    }

    /// Notes whether the feed waits for its parent.
    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        if let Some(view) = &self.view {
            view.set_waiting(is_waiting);
        }
    }

    /// Records the end of the feed with its status, or with the reason why it was not run.
    pub(crate) fn end(&mut self, result: Result<CellStatus, &str>) {
        match &result {
            Ok(status) => self.feed.end(status),
            Err(reason) => self.feed.end(CodeOutcome::failed(reason)),
        }
        self.feed = CodeActivity::default();
        drop(std::mem::take(&mut self.span));
        if let Some(view) = &mut self.view {
            view.end(result.map_err(str::to_owned));
        }
    }
}

/// Returns whose processor time is that of feeds.
fn clock_of(backend: &dyn Backend) -> CpuClock {
    if backend.measures_processor_time() { CpuClock::Thread } else { CpuClock::None }
}
