//! Runs the code of `run_python_code`: each call on a guest thread, in its own interpreter.

use std::sync::Arc;
use std::time::Instant;

use belljar_core::kernel::{Backend, CellObserver, InputError, InputReply, KernelError, OneShotRequest};
use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{
    CallCancellation, ConnectionLog, ConnectionRecord, ExitReason, Outcome, Progress, RecordedConnections, RunStep,
    Stream,
};
use belljar_sessions::{GuestThreadPool, ParkedWork, Permit, PoolFull};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use rmcp::model::LoggingLevel;
use tokio::sync::oneshot;

use crate::answer::RunAnswer;
use crate::code_tools::{CancelOnDrop, PreparedCalls};
use crate::input_rounds::CodeClient;
use crate::metrics::{CallStatus, Metrics, Refusal};
use crate::notifier::{ClientNotifier, Output};
use crate::report::Recording;

/// The reason why code was not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// All guest threads are busy and the queue is full.
    #[error(transparent)]
    Busy(#[from] PoolFull),
    /// The backend did not run the code.
    #[error(transparent)]
    Backend(#[from] KernelError),
    /// A panic ended the call.
    #[error("internal error: the call ended without an answer")]
    Panicked,
}

impl From<&RunError> for CallStatus {
    fn from(error: &RunError) -> Self {
        match error {
            RunError::Busy(_) => Self::Refused(Refusal::QueueFull),
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
}

struct Shared {
    backend: Arc<dyn Backend>,
    pool: Arc<GuestThreadPool>,
    metrics: Metrics,
}

impl Runner {
    /// Creates a runner of code on `backend`, whose threads `pool` provides.
    pub fn new(backend: Arc<dyn Backend>, pool: Arc<GuestThreadPool>) -> Self {
        let metrics = Metrics::new(backend.clone(), pool.clone());
        Self { shared: Arc::new(Shared { backend, pool, metrics }) }
    }

    /// Returns whether requests may have an [`Exchange`](belljar_core::Exchange).
    pub(crate) fn supports_exchange(&self) -> bool {
        self.shared.backend.supports_exchange()
    }

    /// Returns the server's metrics.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Runs a piece of code. When the future is dropped, the code's interpreter is killed.
    pub(crate) async fn run(
        &self,
        request: OneShotRequest,
        client: RunClient,
        recording: Option<Arc<Recording>>,
        tools: Option<PreparedCalls>,
    ) -> Result<RunAnswer, RunError> {
        let cancellation = CallCancellation::default();
        let (sender, receiver) = oneshot::channel();
        let (shared, cancelled) = (self.shared.clone(), cancellation.clone());
        let job = RunJob { shared, request, client, recording, tools, cancellation: cancelled };
        let arrival = Instant::now();
        let submitted = self.shared.pool.submit(move |permit| {
            job.shared.pool.record_wait(arrival.elapsed());
            job.run(sender, permit);
        });
        let _guard = cancellation.kill_on_drop();
        match submitted {
            Ok(()) => receiver.await.unwrap_or(Err(RunError::Panicked)),
            Err(full) => Err(full.into()),
        }
    }
}

/// One call, on a guest thread.
struct RunJob {
    shared: Arc<Shared>,
    request: OneShotRequest,
    client: RunClient,
    recording: Option<Arc<Recording>>,
    tools: Option<PreparedCalls>,
    cancellation: CallCancellation,
}

impl RunJob {
    fn run(self, sender: oneshot::Sender<Result<RunAnswer, RunError>>, permit: Permit) {
        if self.cancellation.is_cancelled() {
            return;
        }
        let Self { shared, mut request, client, recording, tools, cancellation } = self;
        let live = LiveInterpreterGuard::new(shared.metrics.live.clone());
        let observer: Arc<dyn CellObserver> = Arc::new(OneShotClient { client: client.clone(), recording });
        request.tools = tools.is_some();
        let (tool_run, observer) = match tools {
            Some(tools) => {
                let (run, observer) = tools.start(observer);
                (Some(CancelOnDrop(run)), observer)
            }
            None => (None, observer),
        };
        let work = ParkedWork::new(shared.pool.clone());
        let step = shared.backend.begin_run(request, observer, &cancellation, work.waker());
        OneShotCall { client, tool_run, work, sender, live }.after_step(step, permit);
    }
}

/// A call whose code has begun.
struct OneShotCall {
    client: RunClient,
    tool_run: Option<CancelOnDrop>,
    work: Arc<ParkedWork>,
    sender: oneshot::Sender<Result<RunAnswer, RunError>>,
    live: LiveInterpreterGuard,
}

impl OneShotCall {
    /// Answers the call if its code has ended, and otherwise lets it wait without a thread.
    fn after_step(self, step: Result<RunStep, KernelError>, permit: Permit) {
        let completed = match step {
            Ok(RunStep::Completed(completed)) => Ok(*completed),
            Ok(RunStep::Waiting(wait, run)) => {
                let work = self.work.clone();
                work.park(wait.timer, move |permit| self.after_step(run.resume(), permit));
                return;
            }
            Err(error) => Err(error),
        };
        let Self { client, tool_run, sender, live, .. } = self;
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
        // A client that has its answer may call again: it must find the thread's permit free.
        drop(permit);
        // Ignore send errors: the caller may have gone.
        let _ = sender.send(result);
        // The answer does not wait for the interpreter's memory to be freed.
        drop(interpreter);
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
    output: Output,
    connections: Arc<ConnectionLog>,
}

impl RunClient {
    /// Creates the client of a run whose first call has this notifier.
    pub(crate) fn new(notifier: ClientNotifier) -> Self {
        let connections = Arc::default();
        Self { output: Output::new(&notifier), notifier: Arc::new(Mutex::new(notifier)), connections }
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

    fn on_installed(&self, packages: &str) {
        self.client.notifier().log(LoggingLevel::Info, "belljar", format!("installed {packages}"));
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
