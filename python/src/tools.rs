//! Tools of MCP servers for code: the servers of a sandbox, approval by a function of the caller, and the calls of a
//! run.

mod settings;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use belljar_core::{FunctionCall, ReplySender};
use belljar_tools::{
    Approval, ApprovalRequest, Approver, CallJournal, CallRecord, CallStatus, NoApprover, NoToolEvents,
    PendingOperation, SavedRun, SessionGrants, ToolRun, ToolRunContext, Tools,
};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyList;
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::deferred::DeferredCalls;
use crate::error::Error;
use crate::executor::executor;
use crate::job::PythonUser;
pub(crate) use settings::ToolSettings;

/// The time that servers have to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(4);
/// The maximum number of calls that a run records, and the maximum size of their arguments together, in bytes.
const MAX_CALLS: usize = 10_000;
const MAX_ARGUMENTS: usize = 16 << 20;
/// The reason for code whose calls nothing can approve.
const CANNOT_ASK: &str = "the sandbox has no function to ask. Pass approve= to ask one, or approval=\"none\" to allow all \
     calls without asking";

/// The tools of sandboxes whose servers may be connected.
static OPEN: Mutex<Vec<Weak<Tools>>> = Mutex::new(Vec::new());

/// The servers of a sandbox. Dropping the last clone disconnects from them.
#[derive(Clone)]
pub(crate) struct HostTools {
    open: Arc<OpenTools>,
    /// The approvals for the rest of the session: of all one-shot runs of a sandbox, or of the cells of a session.
    grants: Arc<SessionGrants>,
}

struct OpenTools(Arc<Tools>);

impl HostTools {
    fn new(tools: Tools) -> Self {
        let tools = Arc::new(tools);
        let mut open = OPEN.lock();
        open.retain(|tools| tools.strong_count() > 0);
        open.push(Arc::downgrade(&tools));
        Self { open: Arc::new(OpenTools(tools)), grants: Arc::default() }
    }

    /// Returns the same tools without approvals, for another session.
    pub(crate) fn for_session(&self) -> Self {
        Self { open: self.open.clone(), grants: Arc::default() }
    }

    /// Starts the calls of a run, whose caller approves them if `callbacks` can.
    pub(crate) fn start_run(&self, py: Python<'_>, callbacks: Option<&Py<PyAny>>) -> Result<ToolCalls, Error> {
        self.restore_run(py, callbacks, None, SavedRun::default())
    }

    /// Starts the calls of a run that goes on from a saved state. With `deferred`, the run may pause; if its flag is
    /// set and `callbacks` approves nothing, calls that need approval wait there.
    pub(crate) fn restore_run(
        &self,
        py: Python<'_>,
        callbacks: Option<&Py<PyAny>>,
        deferred: Option<(&Arc<DeferredCalls>, bool)>,
        mut saved: SavedRun,
    ) -> Result<ToolCalls, Error> {
        let approves = |callbacks: &&Py<PyAny>| -> bool {
            callbacks.getattr(py, "approves").and_then(|approves| approves.extract(py)).unwrap_or(false)
        };
        let approver: Arc<dyn Approver> = match callbacks.filter(approves) {
            Some(callbacks) => Arc::new(CallbackApprover(callbacks.clone_ref(py))),
            None if let Some((deferred, true)) = deferred => Arc::new(PausingApprover(deferred.clone())),
            None => Arc::new(NoApprover { reason: CANNOT_ASK.into() }),
        };
        let runtime = executor()?.clone();
        let context = ToolRunContext {
            runtime,
            approver,
            grants: self.grants.clone(),
            events: Arc::new(NoToolEvents),
            scope: belljar_core::Scope::default(),
        };
        let journal = deferred.map(|_| Arc::new(NoJournal) as Arc<dyn CallJournal>);
        let operations = Mutex::new(saved.take_operations());
        let run = ToolRun::restored(self.open.0.clone(), context, journal, saved);
        Ok(ToolCalls { run, began: Mutex::default(), operations })
    }

    /// Returns the stubs of all tools, for a model.
    pub(crate) async fn stubs(&self) -> String {
        self.open.0.stubs_at_once().await
    }

    /// Disconnects from the servers.
    pub(crate) async fn close(&self) {
        close(self.open.0.clone()).await;
    }
}

impl Drop for OpenTools {
    fn drop(&mut self) {
        // Connections end on the thread that they belong to.
        if let Ok(executor) = executor() {
            executor.spawn(close(self.0.clone()));
        }
    }
}

async fn close(tools: Arc<Tools>) {
    // A server that does not end in time is killed when its connection is dropped.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, tools.close()).await;
}

/// Disconnects from the servers of all sandboxes: the interpreter shuts down.
pub(crate) fn close_all() {
    let open: Vec<Arc<Tools>> = std::mem::take(&mut *OPEN.lock()).iter().filter_map(Weak::upgrade).collect();
    if open.is_empty() {
        return;
    }
    let Ok(executor) = executor() else { return };
    let (sender, ended) = std::sync::mpsc::channel::<()>();
    for tools in open {
        let sender = sender.clone();
        executor.spawn(async move {
            close(tools).await;
            drop(sender);
        });
    }
    drop(sender);
    // Nothing is sent: the channel ends with the last sender.
    let _ = ended.recv_timeout(CLOSE_TIMEOUT);
}

/// The calls of one run or cell.
pub(crate) struct ToolCalls {
    run: ToolRun,
    began: Mutex<Began>,
    /// The operations that were in progress in another process.
    operations: Mutex<Vec<PendingOperation>>,
}

/// The calls that have begun, in order.
#[derive(Default)]
struct Began {
    calls: Vec<Call>,
    /// The size of the arguments, in bytes.
    bytes: usize,
}

/// A call that has begun: of the server's log for a sandbox on a server.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Call {
    #[serde(skip)]
    began: Option<Instant>,
    server: String,
    tool: String,
    /// JSON; not all of it in the log of a server.
    arguments: String,
    status: String,
    duration_ms: f64,
    result_bytes: u64,
    error: Option<String>,
}

impl ToolCalls {
    /// Starts an operation, if the call is one of the module `tools`, and returns whether it is.
    pub(crate) fn handles(call: &FunctionCall) -> bool {
        ToolRun::handles(call)
    }

    /// Starts an operation.
    pub(crate) fn start(&self, call: FunctionCall, replies: &ReplySender) {
        if let Some(call) = Call::new(&call) {
            self.began.lock().push(call);
        }
        self.run.start(call, replies);
    }

    /// Cancels an operation.
    pub(crate) fn cancel(&self, id: u64) {
        self.run.cancel(id);
    }

    /// Returns whether operations go on without the caller of the run.
    pub(crate) fn are_active(&self) -> bool {
        self.run.has_active_calls()
    }

    /// Continues the operations that were in progress in another process.
    pub(crate) fn resume(&self, replies: &ReplySender) {
        self.run.resume(std::mem::take(&mut *self.operations.lock()), replies);
    }

    /// Returns the state of the calls, for another process.
    pub(crate) fn save(&self) -> SavedRun {
        self.run.save()
    }

    /// Ends the run and returns its calls.
    pub(crate) fn finish(&self) -> Vec<Call> {
        self.run.cancel_all();
        let mut calls = std::mem::take(&mut self.began.lock().calls);
        // The log has the calls in almost the same order. A call that was cancelled at once is not in it.
        let mut records = self.run.log().calls;
        for call in &mut calls {
            if let Some(at) = records.iter().position(|record| call.is(record)) {
                call.complete(records.remove(at));
            }
        }
        calls
    }
}

impl Began {
    fn push(&mut self, call: Call) {
        self.bytes = self.bytes.saturating_add(call.arguments.len());
        if self.calls.len() < MAX_CALLS && self.bytes <= MAX_ARGUMENTS {
            self.calls.push(call);
        }
    }
}

impl Call {
    /// Returns the call that an operation makes, if it makes one.
    fn new(call: &FunctionCall) -> Option<Self> {
        let json = call.arguments.json.get();
        let (server, tool, arguments) = match call.name.as_str() {
            "tools:call" => {
                let ((server, tool, arguments, ..), _): CallOperation = serde_json::from_str(json).ok()?;
                (server, tool, arguments)
            }
            "tools:read" => {
                let ((server, uri, _), _): ReadOperation = serde_json::from_str(json).ok()?;
                (server, "resources".to_owned(), serde_json::json!({ "uri": uri }).to_string())
            }
            _ => return None,
        };
        let (status, began) = ("cancelled".to_owned(), Some(Instant::now()));
        Some(Self { began, server, tool, arguments, status, duration_ms: 0.0, result_bytes: 0, error: None })
    }

    /// Returns whether a record, whose texts are shortened, can be of this call.
    fn is(&self, record: &CallRecord) -> bool {
        let starts = |text: &str, shortened: &str| {
            text == shortened || shortened.rsplit_once(" … [").is_some_and(|(start, _)| text.starts_with(start))
        };
        starts(&self.server, &record.server)
            && starts(&self.tool, &record.tool)
            && starts(&self.arguments, &record.arguments)
    }

    fn complete(&mut self, record: CallRecord) {
        let CallRecord { status, duration_ms, result_bytes, error, .. } = record;
        // A call that had not ended when the code did was cancelled just now.
        let status = if status == CallStatus::Running { CallStatus::Cancelled } else { status };
        self.status =
            serde_json::to_value(status).ok().and_then(|it| Some(it.as_str()?.to_owned())).unwrap_or_default();
        (self.duration_ms, self.result_bytes, self.error) = (duration_ms, result_bytes, error);
    }
}

/// The arguments of the operation `tools:call`: server, tool, arguments, line, and whether the tool's name is the
/// original one.
type CallOperation = ((String, String, String, String, bool), serde::de::IgnoredAny);
/// The arguments of the operation `tools:read`: server, URI and line.
type ReadOperation = ((String, String, String), serde::de::IgnoredAny);

/// Returns calls as tuples, with the time at which each began as `time.perf_counter` has it.
pub(crate) fn to_python(py: Python<'_>, calls: Vec<Call>) -> PyResult<Bound<'_, PyList>> {
    let now: f64 = py.import("time")?.call_method0("perf_counter")?.extract()?;
    let tuples = calls.into_iter().map(|call| {
        let began = call.began.map_or(0.0, |began| now - began.elapsed().as_secs_f64());
        let Call { server, tool, arguments, status, duration_ms, result_bytes, error, .. } = call;
        (began, server, tool, arguments, status, duration_ms / 1e3, result_bytes, error)
    });
    PyList::new(py, tuples.collect::<Vec<_>>())
}

/// Lets calls wait until the caller of the run, which pauses, approves them.
struct PausingApprover(Arc<DeferredCalls>);

#[async_trait]
impl Approver for PausingApprover {
    async fn approve(&self, request: ApprovalRequest) -> Result<Approval, String> {
        self.0.ask(request).await.unwrap_or_else(|_| Err("the code has ended".into()))
    }

    /// The caller sees all calls that wait.
    fn asks_at_once(&self) -> bool {
        true
    }

    fn has_answer(&self, call: u64) -> bool {
        self.0.has_approval(call)
    }
}

/// The journal of calls of a run that may pause: its dump has the calls, and a call that is sent later belongs to the
/// run in memory.
struct NoJournal;

impl CallJournal for NoJournal {
    fn before_sending(&self, _: u64, _: bool, record: &dyn Fn()) -> std::io::Result<()> {
        record();
        Ok(())
    }
}

/// Asks the function that the caller has passed: `callbacks` is a `belljar._calls.Callbacks`.
struct CallbackApprover(Py<PyAny>);

#[async_trait]
impl Approver for CallbackApprover {
    async fn approve(&self, request: ApprovalRequest) -> Result<Approval, String> {
        let (sender, answer) = oneshot::channel();
        let callbacks = Python::attach(|py| self.0.clone_ref(py));
        let user = PythonUser::new();
        // The function may block, or wait for a person. Nothing waits for it if the code ends meanwhile.
        tokio::task::spawn_blocking(move || {
            ask(callbacks, request, sender);
            drop(user);
        });
        answer.await.unwrap_or_else(|_| Err("the function that approves calls gave no answer".into()))
    }
}

fn ask(callbacks: Py<PyAny>, request: ApprovalRequest, sender: Answer) {
    Python::attach(|py| {
        let ApprovalRequest { server, tool, full_arguments, line, has_changed, .. } = request;
        let asked = Py::new(py, Question(Mutex::new(Some(sender)))).and_then(|question| {
            callbacks.call_method1(py, "on_approval", (server, tool, full_arguments, line, has_changed, question))
        });
        if let Err(error) = asked {
            // The question is dropped, which denies the call.
            error.write_unraisable(py, None);
        }
        drop(callbacks);
    });
}

type Answer = oneshot::Sender<Result<Approval, String>>;

/// A question whether a call may be made. It is answered once; dropping it denies the call.
#[pyclass(frozen, module = "belljar._native")]
pub(crate) struct Question(Mutex<Option<Answer>>);

#[pymethods]
impl Question {
    /// Answers with "once", "run", "session" or "no".
    fn answer(&self, answer: &str) {
        self.send(Ok(Approval::from_answer(answer)));
    }

    /// Denies the call because the user could not be asked.
    fn fail(&self, reason: String) {
        self.send(Err(reason));
    }
}

impl Question {
    fn send(&self, answer: Result<Approval, String>) {
        if let Some(sender) = self.0.lock().take() {
            // Ignore send errors: the code may have ended.
            let _ = sender.send(answer);
        }
    }
}
