//! A run or a cell: its beginning, its end, and the processor time that its thread took.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use belljar_audit::{Details, Event, Identifier};
use parking_lot::Mutex;

use super::Scope;
use super::observer::ActivityObserver;
use super::trace::{KeyValue, Span, SpanName};
use crate::execution::{CellStatus, Outcome};
use crate::exit_reason::ExitReason;
use crate::kernel::CellObserver;
use crate::processor_time;

/// The most failed installations of a run or cell that are recorded: code can cause them at any rate.
const MAX_FAILED_INSTALLS: u32 = 100;

/// The kind of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeKind {
    /// Code in an interpreter of its own.
    Run,
    /// A cell of a session.
    Cell,
}

impl CodeKind {
    fn events(self) -> (Event, Event) {
        match self {
            Self::Run => (Event::RunStart, Event::RunEnd),
            Self::Cell => (Event::CellStart, Event::CellEnd),
        }
    }
}

/// How code ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeOutcome {
    /// A word: `success`, `error`, `exit`, `limit:memory`, `interrupted`, `crash`, `install-error`, `failed`.
    pub outcome: Cow<'static, str>,
    /// The class of the exception, or the reason. Messages of exceptions may contain anything, and are left out.
    pub error: Option<String>,
}

impl CodeOutcome {
    /// Creates the outcome of code that was not run.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self { outcome: "failed".into(), error: Some(error.to_string()) }
    }

    fn new(outcome: &'static str) -> Self {
        Self { outcome: outcome.into(), error: None }
    }

    fn for_exception(class: &str) -> Self {
        Self { outcome: "error".into(), error: Some(class.into()) }
    }

    fn from_exit(reason: &ExitReason) -> Self {
        match reason {
            ExitReason::Exit(0) => Self::new("success"),
            ExitReason::Exit(status) => Self { outcome: "exit".into(), error: Some(format!("status {status}")) },
            ExitReason::Limit(limit) => Self { outcome: format!("limit:{}", limit.name()).into(), error: None },
            ExitReason::Cancelled => Self::new("cancelled"),
            ExitReason::Crash(reason) => Self { outcome: "crash".into(), error: Some(reason.clone()) },
            ExitReason::Signal(signal) => Self { outcome: "crash".into(), error: Some(format!("signal {signal}")) },
        }
    }
}

impl From<&Outcome> for CodeOutcome {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Success(_) => Self::new("success"),
            Outcome::Error(error) => Self::for_exception(&error.kind),
            Outcome::Exited(reason) => Self::from_exit(reason),
            Outcome::InstallError(reason) => Self { outcome: "install-error".into(), error: Some(reason.clone()) },
        }
    }
}

impl From<&CellStatus> for CodeOutcome {
    fn from(status: &CellStatus) -> Self {
        match status {
            CellStatus::Ok => Self::new("success"),
            CellStatus::Error(error) => Self::for_exception(&error.name),
            CellStatus::TimedOut { waited: true, .. } => Self::new("limit:wait"),
            CellStatus::TimedOut { .. } => Self::new("limit:time"),
            CellStatus::KernelDied(reason) => Self::from_exit(reason),
        }
    }
}

/// Says whose processor time is that of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuClock {
    /// The thread that continues the code.
    Thread,
    /// Another process: the time is not measured.
    None,
}

/// A run or a cell that has begun, or none. If it is dropped without an end, it counts as cancelled. Cheap to clone.
#[derive(Clone, Default)]
pub struct CodeActivity(pub(super) Option<Arc<State>>);

pub(super) struct State {
    pub(super) scope: Scope,
    kind: CodeKind,
    sha256: Identifier,
    start: Instant,
    clock: CpuClock,
    cpu: AtomicU64,
    pub(super) output_bytes: AtomicU64,
    failed_installs: AtomicU32,
    /// The stage that the code is in, and its span.
    stage: Mutex<Option<(SpanName, Span)>>,
    has_ended: Mutex<bool>,
}

impl CodeActivity {
    /// Begins to record code.
    pub fn begin(scope: &Scope, kind: CodeKind, code: &str, clock: CpuClock) -> Self {
        let begun = Self::resumed(scope, kind, code, clock);
        let (Some(state), Some(context)) = (&begun.0, &scope.0) else { return begun };
        let code = context.activity.audit.has_code().then(|| code.into());
        scope.record(kind.events().0, || Details { code_sha256: Some(state.sha256), code, ..Details::default() });
        begun
    }

    /// Begins to record code that began before, in this process or in another.
    pub fn resumed(scope: &Scope, kind: CodeKind, code: &str, clock: CpuClock) -> Self {
        let Some(context) = &scope.0 else { return Self::default() };
        if context.run.get().is_none() && context.activity.audit.is_on() {
            let _ = context.run.set(context.activity.audit.next_run());
        }
        Self(Some(Arc::new(State {
            scope: scope.clone(),
            kind,
            sha256: Identifier::for_code(code),
            start: Instant::now(),
            clock,
            cpu: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            failed_installs: AtomicU32::new(0),
            stage: Mutex::default(),
            has_ended: Mutex::new(false),
        })))
    }

    /// Returns whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the context of the code.
    pub fn scope(&self) -> Scope {
        self.0.as_ref().map(|state| state.scope.clone()).unwrap_or_default()
    }

    /// Returns an observer that records what the code does, and passes it on.
    pub fn observe(&self, inner: Arc<dyn CellObserver>) -> Arc<dyn CellObserver> {
        match &self.0 {
            Some(state) => Arc::new(ActivityObserver { inner, activity: Self(Some(state.clone())) }),
            None => inner,
        }
    }

    /// Counts an installation that has failed. Returns whether it is to be recorded.
    pub(super) fn count_failed_install(&self) -> bool {
        let count = |state: &Arc<State>| state.failed_installs.fetch_add(1, Ordering::Relaxed);
        self.0.as_ref().is_some_and(|state| count(state) < MAX_FAILED_INSTALLS)
    }

    /// Continues the code on this thread, and adds its processor time.
    pub fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        self.measure_with(None, work)
    }

    /// Does the same as [`CodeActivity::measure`], and adds the nanoseconds to `meter`, too. This needs no audit log,
    /// and is right only if this thread continues the code.
    pub fn measure_with<T>(&self, meter: Option<&AtomicU64>, work: impl FnOnce() -> T) -> T {
        let own = self.0.as_ref().filter(|state| state.clock == CpuClock::Thread).map(|state| &state.cpu);
        if own.is_none() && meter.is_none() {
            return work();
        }
        let (result, spent) = processor_time::measure(work);
        let spent = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        for meter in [own, meter].into_iter().flatten() {
            meter.fetch_add(spent, Ordering::Relaxed);
        }
        result
    }

    /// Begins a stage, unless the code is in it, and ends the one before it.
    pub fn enter(&self, stage: SpanName) {
        let Some(state) = &self.0 else { return };
        let mut current = state.stage.lock();
        if current.as_ref().is_none_or(|(name, _)| *name != stage) {
            *current = Some((stage, state.scope.begin_span(stage, "", Vec::new)));
        }
    }

    /// Ends the stage: the code is in no interpreter until it enters another one.
    pub fn leave(&self) {
        if let Some(state) = &self.0 {
            drop(state.stage.lock().take());
        }
    }

    /// Records the wait for a thread, which began with the call.
    pub fn add_queue(&self, begin: SystemTime) {
        if let Some(state) = &self.0 {
            state.scope.add_span(SpanName::Queue, "", begin, Vec::new);
        }
    }

    /// Records the end of the code. Only the first call has an effect.
    pub fn end(&self, outcome: impl Into<CodeOutcome>) {
        drop(self.close(outcome));
    }

    /// Ends the code. Its record is written when the result is dropped, since the client need not wait for that. Only
    /// the first call has an effect.
    pub fn close(&self, outcome: impl Into<CodeOutcome>) -> CodeEnd {
        let Some(state) = &self.0 else { return CodeEnd(None) };
        let (outcome, duration) = (outcome.into(), state.start.elapsed());
        CodeEnd(state.close(&outcome).then(|| {
            UNRECORDED_ENDS.fetch_add(1, Ordering::Relaxed);
            (state.clone(), outcome, duration)
        }))
    }
}

/// The end of code that is not recorded yet, or none.
#[must_use = "the end is recorded when this is dropped"]
pub struct CodeEnd(Option<(Arc<State>, CodeOutcome, Duration)>);

/// The number of ends in this process that are not recorded yet.
static UNRECORDED_ENDS: AtomicU32 = AtomicU32::new(0);
/// The longest time that the process waits for them when it ends.
const END_TIMEOUT: Duration = Duration::from_secs(1);

impl CodeEnd {
    /// Waits until the end of all code of this process that has ended is recorded, for a second at most: a server that
    /// ends right after an answer would lose the record of that code.
    pub fn wait_until_recorded() {
        let deadline = Instant::now() + END_TIMEOUT;
        while UNRECORDED_ENDS.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for CodeEnd {
    fn drop(&mut self) {
        if let Some((state, outcome, duration)) = self.0.take() {
            state.record_end(outcome, duration);
            UNRECORDED_ENDS.fetch_sub(1, Ordering::Release);
        }
    }
}

impl State {
    /// Ends the span of the code. Returns false if the code has ended before.
    fn close(&self, CodeOutcome { outcome, error }: &CodeOutcome) -> bool {
        if std::mem::replace(&mut *self.has_ended.lock(), true) {
            return false;
        }
        let span = self.stage.lock().take().map(|(_, span)| span).unwrap_or_default();
        if span.is_on() {
            span.set(KeyValue::new("belljar.outcome", outcome.clone()));
        }
        if outcome != "success" {
            span.fail(error.as_deref().filter(|_| outcome == "error").unwrap_or(outcome), outcome);
        }
        true
    }

    fn record_end(&self, CodeOutcome { outcome, error }: CodeOutcome, duration: Duration) {
        self.scope.record(self.kind.events().1, || Details {
            code_sha256: Some(self.sha256),
            outcome: Some(outcome),
            error,
            duration: Some(duration),
            cpu: (self.clock == CpuClock::Thread).then(|| Duration::from_nanos(self.cpu.load(Ordering::Relaxed))),
            bytes: Some(self.output_bytes.load(Ordering::Relaxed)),
            ..Details::default()
        });
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let (outcome, duration) = (CodeOutcome::new("cancelled"), self.start.elapsed());
        if self.close(&outcome) {
            self.record_end(outcome, duration);
        }
    }
}
