//! The tool calls of one run or cell: the executor of the host operations `tools:…`.

mod asking;
mod operations;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use belljar_core::{CellWatcher, FunctionCall, FunctionError, FunctionReply, ReplySender, Scope, TOOL_OPERATIONS};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::approval::{Approver, RunGrants, SessionGrants};
use crate::call_log::{CallLog, Recorder, ToolEvents};
use crate::catalogue::Tools;
use crate::durable::{CallJournal, CallStage, SavedOperation, SavedRun};
use crate::error::{ExceededLimit, ToolFailure};
use crate::wait_clock::WaitClock;

/// The tool calls of one run or cell. Cheap to clone.
#[derive(Clone)]
pub struct ToolRun {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    tools: Arc<Tools>,
    runtime: Handle,
    approver: Arc<dyn Approver>,
    session_grants: Arc<SessionGrants>,
    pub(crate) run_grants: RunGrants,
    /// Held while the user is asked, so that calls of the same tool ask once.
    asking: tokio::sync::Mutex<()>,
    pub(crate) recorder: Arc<Recorder>,
    scope: Scope,
    permits: Semaphore,
    pub(crate) clock: Arc<WaitClock>,
    pub(crate) calls: AtomicU32,
    pub(crate) bytes: AtomicU64,
    /// The operations in progress, by the numbers of their calls.
    pub(crate) operations: Mutex<HashMap<u64, Operation>>,
    /// Set if the run can go on in another process.
    journal: Option<Arc<dyn CallJournal>>,
}

/// An operation in progress.
pub(crate) struct Operation {
    task: AbortHandle,
    /// Its call, if it can be continued in another process.
    pub(crate) saved: Option<SavedOperation>,
    /// True while it waits for an answer, or for the answer to another question to be able to ask.
    pub(crate) is_asking: bool,
}

/// The parts of a [`ToolRun`] that its caller provides.
pub struct ToolRunContext {
    /// The runtime that operations run on.
    pub runtime: Handle,
    /// Asks the user.
    pub approver: Arc<dyn Approver>,
    /// The grants of the session that the run belongs to.
    pub grants: Arc<SessionGrants>,
    /// Receives the calls.
    pub events: Arc<dyn ToolEvents>,
    /// The context of the run, for the audit log and for traces.
    pub scope: Scope,
}

impl ToolRun {
    /// Creates the calls of a new run.
    pub fn new(tools: Arc<Tools>, context: ToolRunContext) -> Self {
        Self::restored(tools, context, None, SavedRun::default())
    }

    /// Creates the calls of a run that goes on from a saved state. With a journal, the run can be saved.
    pub fn restored(
        tools: Arc<Tools>,
        context: ToolRunContext,
        journal: Option<Arc<dyn CallJournal>>,
        saved: SavedRun,
    ) -> Self {
        let ToolRunContext { runtime, approver, grants, events, scope } = context;
        let permits = Semaphore::new(usize::from(tools.limits.concurrency.max(1)));
        let clock = WaitClock::restored(tools.limits.wait, saved.waited);
        let run_grants = RunGrants::default();
        saved.grants.into_iter().for_each(|fingerprint| run_grants.grant(fingerprint));
        let shared = Shared {
            tools,
            runtime,
            approver,
            session_grants: grants,
            run_grants,
            asking: tokio::sync::Mutex::default(),
            recorder: Recorder::restored(saved.log, events, scope.clone()),
            scope,
            permits,
            clock,
            calls: AtomicU32::new(saved.calls),
            bytes: AtomicU64::new(saved.bytes),
            operations: Mutex::default(),
            journal,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns whether a call of a host function is an operation of tools.
    pub fn handles(call: &FunctionCall) -> bool {
        call.name.starts_with(TOOL_OPERATIONS)
    }

    /// Starts an operation. Its reply is sent to `replies`.
    pub fn start(&self, call: FunctionCall, replies: &ReplySender) {
        self.start_at(call, CallStage::New, replies);
    }

    /// Starts an operation, which has reached a stage before.
    pub(crate) fn start_at(&self, call: FunctionCall, stage: CallStage, replies: &ReplySender) {
        let FunctionCall { id, name, arguments } = call;
        let saved = self.shared.journal.is_some().then(|| SavedOperation::new(id, &name, &arguments, stage));
        let (shared, replies) = (self.shared.clone(), replies.clone());
        // Recorded here: a task that is aborted before it has run records nothing.
        let begun = shared.begin(&name, &arguments);
        let operation = async move {
            let (guard, left) = shared.clock.begin();
            let exceeded = || Err(ToolFailure::from(ExceededLimit::Wait(shared.tools.limits.wait)).into());
            let result = {
                // Pinned here: each future that the work is moved into would reserve room for it once more.
                let mut work = pin!(async {
                    match begun? {
                        Some(begun) => {
                            shared.call(OperationNumber { id, stage }, begun).await.map_err(FunctionError::from)
                        }
                        None => Box::pin(shared.operate(&name, &arguments)).await,
                    }
                });
                // A timer of zero would let an operation that takes less than a millisecond succeed.
                if left.is_zero() {
                    exceeded()
                } else if shared.journal.is_some() {
                    // The time of a question does not count, and each request has its own limit.
                    work.as_mut().await
                } else {
                    tokio::time::timeout(left, work.as_mut()).await.unwrap_or_else(|_| exceeded())
                }
            };
            drop(guard);
            // Locked: an operation is in progress until its reply was sent, and not any more when the code has it.
            let mut operations = shared.operations.lock();
            // Ignore send errors: the code may have ended.
            let _ = replies.send(FunctionReply { id, result });
            operations.remove(&id);
        };
        // The operation waits for the lock before it removes its entry.
        let mut operations = self.shared.operations.lock();
        let task = self.shared.runtime.spawn(operation).abort_handle();
        operations.insert(id, Operation { task, saved, is_asking: false });
    }

    /// Cancels an operation: the code does not wait for its reply any more.
    pub fn cancel(&self, id: u64) {
        if let Some(operation) = self.shared.operations.lock().remove(&id) {
            operation.task.abort();
        }
    }

    /// Cancels the operations that are still in progress: the code has ended.
    pub fn cancel_all(&self) {
        for (_, operation) in self.shared.operations.lock().drain() {
            operation.task.abort();
        }
        self.shared.recorder.cancel();
    }

    /// Sets the watcher of the calls, which can also answer what the user is asked. Only the first call has an effect.
    pub(crate) fn set_watcher(&self, watcher: &Arc<dyn CellWatcher>) {
        self.shared.recorder.set_watcher(watcher);
    }

    /// Returns the calls so far.
    pub fn log(&self) -> CallLog {
        self.shared.recorder.log()
    }
}

/// The number of an operation, and the stage that it had reached in another process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OperationNumber {
    pub(crate) id: u64,
    pub(crate) stage: CallStage,
}

impl OperationNumber {
    fn is_sent(self) -> bool {
        matches!(self.stage, CallStage::Sent { .. })
    }
}
