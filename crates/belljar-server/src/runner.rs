//! Runs the code of `run_python_code`: each call on a guest thread, in its own interpreter.

use std::sync::Arc;
use std::time::SystemTime;

use belljar_audit::AuditStopped;
use belljar_core::activity::trace::SpanName;
use belljar_core::activity::{CodeActivity, CodeKind, CodeOutcome, CpuClock};
use belljar_core::kernel::{Backend, CellObserver, InputError, InputReply, KernelError, OneShotRequest};
use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{
    Activity, CallCancellation, ConnectionLog, ConnectionRecord, ExitReason, InstallRecord, Outcome, Progress,
    RecordedConnections, RunStep, Stream,
};
use belljar_sessions::{
    GuestThreadPool, JobTicket, ParkedWork, Permit, PoolFull, RunEnd, RunRecord, Sessions, Tenant, TenantKey,
    WorkRefusal,
};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use rmcp::model::LoggingLevel;
use tokio::sync::oneshot;

use crate::answer::RunAnswer;
use crate::code_output::CodeOutput;
use crate::code_tools::{CancelOnDrop, PreparedCalls};
use crate::input_rounds::CodeClient;
use crate::metrics::{CallStatus, Metrics, Refusal};
use crate::notifier::ClientNotifier;
use crate::report::Recording;

/// The reason why code was not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// All guest threads are busy and the queue is full.
    #[error(transparent)]
    Busy(#[from] PoolFull),
    /// A quota of the owner is used up, or the machine has little memory.
    #[error(transparent)]
    Refused(#[from] WorkRefusal),
    /// The backend did not run the code.
    #[error(transparent)]
    Backend(#[from] KernelError),
    /// The audit log cannot be written.
    #[error(transparent)]
    Audit(#[from] AuditStopped),
    /// A panic ended the call.
    #[error("internal error: the call ended without an answer")]
    Panicked,
}

impl From<&RunError> for CallStatus {
    fn from(error: &RunError) -> Self {
        match error {
            RunError::Audit(_) => Self::Refused(Refusal::AuditFailed),
            RunError::Busy(_) => Self::Refused(Refusal::QueueFull),
            RunError::Refused(refusal) => Self::Refused(refusal.into()),
            RunError::Backend(KernelError::InvalidDependency(_) | KernelError::InvalidNetwork(_)) => Self::Invalid,
            RunError::Backend(KernelError::Cancelled) => Self::Cancelled,
            RunError::Backend(_) | RunError::Panicked => Self::Failed,
        }
    }
}

/// Runs code, each piece in its own interpreter. Cheap to clone.
#[derive(Clone)]
pub struct Runner {
    shared: Arc<Shared>,
    /// The owner whose quotas calls count for.
    tenant: Tenant,
}

struct Shared {
    backend: Arc<dyn Backend>,
    pool: Arc<GuestThreadPool>,
    metrics: Metrics,
    activity: Activity,
}

impl Runner {
    /// Creates a runner of code on `backend`, whose threads `pool` provides.
    pub fn new(backend: Arc<dyn Backend>, pool: Arc<GuestThreadPool>) -> Self {
        Self::with_activity(backend, pool, Activity::default())
    }

    /// Creates a runner that records what code does.
    pub fn with_activity(backend: Arc<dyn Backend>, pool: Arc<GuestThreadPool>, activity: Activity) -> Self {
        let metrics = Metrics::new(backend.clone(), pool.clone(), activity.clone());
        let tenant = pool.tenants().find(TenantKey::Local);
        Self { shared: Arc::new(Shared { backend, pool, metrics, activity }), tenant }
    }

    /// Returns the same runner for calls that count for the quotas of `tenant`.
    #[must_use]
    pub(crate) fn for_tenant(&self, tenant: Tenant) -> Self {
        Self { tenant, ..self.clone() }
    }

    /// Returns the owner that a client is.
    pub(crate) fn find_tenant(&self, client: TenantKey<'_>) -> Tenant {
        self.shared.pool.tenants().find(client)
    }

    /// Returns the audit log and the traces.
    pub(crate) fn activity(&self) -> &Activity {
        &self.shared.activity
    }

    /// Returns whether requests may have an [`Exchange`](belljar_core::Exchange).
    pub(crate) fn supports_exchange(&self) -> bool {
        self.shared.backend.supports_exchange()
    }

    /// Returns the server's metrics.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Runs a piece of code. When the future is dropped, the code's interpreter is killed. With the `sessions` of the
    /// client, operators see the code.
    pub(crate) async fn run(
        &self,
        request: OneShotRequest,
        client: RunClient,
        recording: Option<Arc<Recording>>,
        tools: Option<PreparedCalls>,
        sessions: Option<&Sessions>,
    ) -> Result<RunAnswer, RunError> {
        request.scope.admit()?;
        let pool = &self.shared.pool;
        let (ticket, waiting) = pool.admit(&self.tenant)?;
        let cancellation = CallCancellation::default();
        let (sender, receiver) = oneshot::channel();
        let record = sessions.and_then(|sessions| sessions.record_run(&request.code, &cancellation));
        let job = RunJob {
            shared: self.shared.clone(),
            tenant: self.tenant.clone(),
            waiting,
            arrival: SystemTime::now(),
            request,
            client,
            recording,
            tools,
            record,
            cancellation: cancellation.clone(),
        };
        pool.submit_for(&self.tenant, move |permit| job.run(sender, permit))?;
        let _guard = cancellation.kill_on_drop();
        tokio::select! {
            result = receiver => result.unwrap_or(Err(RunError::Panicked)),
            refusal = ticket.expired(pool.tenants().queue_timeout()) => Err(refusal.into()),
        }
    }
}

/// One call, on a guest thread.
struct RunJob {
    shared: Arc<Shared>,
    tenant: Tenant,
    waiting: JobTicket,
    arrival: SystemTime,
    request: OneShotRequest,
    client: RunClient,
    recording: Option<Arc<Recording>>,
    tools: Option<PreparedCalls>,
    /// The record for operators, if code is recorded.
    record: Option<RunRecord>,
    cancellation: CallCancellation,
}

impl RunJob {
    fn run(self, sender: oneshot::Sender<Result<RunAnswer, RunError>>, permit: Permit) {
        if !self.waiting.begin() {
            return;
        }
        if self.cancellation.is_cancelled() {
            drop(permit);
            // An operator may have stopped the code. Ignore send errors: the caller may have gone.
            let _ = sender.send(Err(KernelError::Cancelled.into()));
            return;
        }
        self.shared.pool.record_wait(self.waiting.waited());
        if let Err(refusal) = self.tenant.check_memory() {
            drop(permit);
            // Ignore send errors: the caller may have gone.
            let _ = sender.send(Err(refusal.into()));
            return;
        }
        let Self { shared, tenant, waiting: _, arrival, mut request, client, recording, tools, record, cancellation } =
            self;
        request.scope.add_span(SpanName::Queue, "", arrival, Vec::new);
        let live = LiveInterpreterGuard::new(shared.metrics.live.clone());
        let observer: Arc<dyn CellObserver> = Arc::new(OneShotClient { client: client.clone(), recording });
        request.tools = tools.is_some();
        request.owner = Some(tenant.unique_name());
        let (tool_run, observer) = match tools {
            Some(tools) => {
                let (run, observer) = tools.start(observer);
                (Some(CancelOnDrop(run)), observer)
            }
            None => (None, observer),
        };
        let observer = match &record {
            Some(record) => record.begin(observer),
            None => observer,
        };
        let work = ParkedWork::new(shared.pool.clone(), tenant);
        let clock = if shared.backend.measures_processor_time() { CpuClock::Thread } else { CpuClock::None };
        let activity = CodeActivity::begin(&request.scope, CodeKind::Run, &request.code, clock);
        let observer = activity.observe(observer);
        let cpu = record.as_ref().and_then(|record| record.cpu(clock));
        let begin = || shared.backend.begin_run(request, observer, &cancellation, work.waker());
        let step = activity.measure_with(cpu, begin);
        OneShotCall { client, tool_run, work, sender, live, activity, clock, record }.after_step(step, permit);
    }
}

/// A call whose code has begun.
struct OneShotCall {
    client: RunClient,
    tool_run: Option<CancelOnDrop>,
    work: Arc<ParkedWork>,
    sender: oneshot::Sender<Result<RunAnswer, RunError>>,
    live: LiveInterpreterGuard,
    activity: CodeActivity,
    clock: CpuClock,
    record: Option<RunRecord>,
}

impl OneShotCall {
    /// Answers the call if its code has ended, and otherwise lets it wait without a thread.
    fn after_step(self, step: Result<RunStep, KernelError>, permit: Permit) {
        let completed = match step {
            Ok(RunStep::Completed(completed)) => Ok(*completed),
            Ok(RunStep::Waiting(wait, run)) => {
                let work = self.work.clone();
                work.park(wait.timer, move |permit| {
                    let cpu = self.record.as_ref().and_then(|record| record.cpu(self.clock));
                    let step = self.activity.measure_with(cpu, || run.resume());
                    self.after_step(step, permit);
                });
                return;
            }
            Err(error) => Err(error),
        };
        let Self { client, tool_run, work, sender, live, activity, clock: _, mut record } = self;
        let ended = record
            .as_ref()
            .map(|_| RunEnd::from(completed.as_ref().map(|completed| &completed.report).map_err(ToString::to_string)));
        let end = match &completed {
            Ok(completed) => activity.close(&completed.report.outcome),
            Err(error) => activity.close(CodeOutcome::failed(error)),
        };
        let (result, interpreter) = match completed {
            Ok(completed) => {
                let answer = RunAnswer {
                    report: completed.report,
                    output: client.output.take(),
                    calls: tool_run.map(|run| run.0.log()),
                    connections: client.take_connections(),
                };
                log_error(&answer, &client.notifier());
                (Ok(answer), Some(completed.interpreter))
            }
            Err(error) => (Err(error.into()), None),
        };
        client.notifier().end();
        // A client that has its answer may call again: it must find the thread's permit free, and the memory if that is
        // limited.
        let interpreter = interpreter.filter(|_| !work.tenant().has_memory_quota());
        drop(permit);
        // Ignore send errors: the caller may have gone.
        let _ = sender.send(result);
        // The answer does not wait for the records, nor for memory to be freed: that of the interpreter, and of an old
        // record.
        drop(end);
        if let (Some(record), Some(ended)) = (&mut record, ended) {
            record.end(ended);
        }
        drop(interpreter);
        drop(record);
        drop(live);
    }
}

/// Logs to the client why its code failed.
pub(crate) fn log_error(answer: &RunAnswer, notifier: &ClientNotifier) {
    let Some(error) = answer.error() else { return };
    match &answer.report.outcome {
        Outcome::InstallError(reason) => notifier.log(LoggingLevel::Error, "belljar", reason.clone()),
        Outcome::Exited(ExitReason::Exit(_)) => {}
        _ => notifier.log(LoggingLevel::Error, "python", error),
    }
}

/// A gauge's count of one interpreter, until this is dropped.
struct LiveInterpreterGuard(Gauge);

impl LiveInterpreterGuard {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for LiveInterpreterGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The client of a run: the call that waits for it receives output as log messages, and progress. Clones share it.
#[derive(Clone)]
pub(crate) struct RunClient {
    notifier: Arc<Mutex<ClientNotifier>>,
    output: CodeOutput,
    connections: Arc<ConnectionLog>,
}

impl RunClient {
    /// Creates the client of a run whose first call has this notifier.
    pub(crate) fn new(notifier: ClientNotifier) -> Self {
        let connections = Arc::default();
        Self { output: CodeOutput::new(&notifier), notifier: Arc::new(Mutex::new(notifier)), connections }
    }

    /// Returns the connections of the code so far, and forgets them.
    pub(crate) fn take_connections(&self) -> RecordedConnections {
        self.connections.take()
    }

    /// Returns the notifier of the call that waits for the run, or waited for it last.
    fn notifier(&self) -> ClientNotifier {
        self.notifier.lock().clone()
    }
}

impl CodeClient for RunClient {
    fn attach(&self, notifier: ClientNotifier) {
        self.output.attach(&notifier);
        *self.notifier.lock() = notifier;
    }

    fn detach(&self) {
        self.output.detach();
        self.notifier().end();
    }
}

/// Passes a run's events to its client.
struct OneShotClient {
    client: RunClient,
    /// Set if the caller wants a report.
    recording: Option<Arc<Recording>>,
}

impl Progress for OneShotClient {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        self.client.notifier().start(step)
    }
}

impl CellObserver for OneShotClient {
    fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        if let Some(recording) = &self.recording {
            recording.on_stream(stream, bytes);
        }
        self.client.output.on_stream(stream, bytes);
    }

    fn on_phase(&self, name: &str) {
        self.client.notifier().step(name);
    }

    fn on_install(&self, record: &InstallRecord) {
        if let Some(packages) = record.installed() {
            self.client.notifier().log(LoggingLevel::Info, "belljar", format!("installed {packages}"));
        }
    }

    fn on_connection(&self, record: &ConnectionRecord) {
        self.client.connections.push(record.clone());
        self.client.notifier().log(LoggingLevel::Info, "network", record.to_string());
    }

    fn on_tool_call(&self, line: &str) {
        self.client.notifier().log(LoggingLevel::Info, "tools", line.to_owned());
        self.client.notifier().step(line);
    }

    fn on_debug(&self, message: &str) {
        self.client.notifier().log(LoggingLevel::Debug, "belljar", message);
    }

    fn request_input(&self, _: &str, _: bool) -> Result<std::sync::mpsc::Receiver<InputReply>, InputError> {
        Err(InputError::Unsupported("a call of run_python_code cannot ask, but a cell of a session can"))
    }
}
