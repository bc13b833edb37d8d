//! Calls of deferred functions, and of MCP servers' tools that need approval: the code waits for answers that its
//! caller gives later, or in another process.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use belljar_core::{EncodedValue, FunctionCall, FunctionError, FunctionReply, ReplySender};
use belljar_tools::{Approval, ApprovalRequest};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::steps::WakeSignal;

/// The maximum number of calls that wait for answers at the same time.
const MAX_PENDING: usize = 10_000;

/// The calls of deferred functions by one run or cell.
#[derive(Default)]
pub(crate) struct DeferredCalls {
    /// The names of the functions.
    names: HashSet<String>,
    state: Mutex<State>,
    /// The number of calls of other functions that have no reply.
    others: Arc<AtomicUsize>,
    /// Notified of questions whether a call may be made.
    signal: Arc<WakeSignal>,
}

#[derive(Default)]
struct State {
    /// The calls without answers, by their numbers.
    pending: BTreeMap<u64, FunctionCall>,
    replies: Option<ReplySender>,
    /// The calls of tools that wait for approval, by their numbers.
    approvals: BTreeMap<u64, OpenApproval>,
    /// The approvals of calls that have not asked in this process.
    early: BTreeMap<u64, Approval>,
}

/// A call of an MCP server's tool that waits for approval.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PendingApproval {
    pub(crate) id: u64,
    pub(crate) server: String,
    pub(crate) tool: String,
    /// JSON.
    pub(crate) arguments: String,
}

struct OpenApproval {
    approval: PendingApproval,
    /// `None` if the call has not asked in this process.
    sender: Option<oneshot::Sender<Result<Approval, String>>>,
}

/// A call of another function, which has no reply as long as this exists.
pub(crate) struct InProgress(Arc<AtomicUsize>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl DeferredCalls {
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self { names: names.into_iter().collect(), ..Self::default() }
    }

    /// Returns the calls of a run that waited in another process.
    pub(crate) fn restored(names: Vec<String>, pending: Vec<FunctionCall>, approvals: Vec<PendingApproval>) -> Self {
        let calls = Self::new(names);
        let open = |approval: PendingApproval| (approval.id, OpenApproval { approval, sender: None });
        {
            let mut state = calls.state.lock();
            state.pending = pending.into_iter().map(|call| (call.id, call)).collect();
            state.approvals = approvals.into_iter().map(open).collect();
        }
        calls
    }

    /// Returns what wakes the thread that waits for the code.
    pub(crate) fn signal(&self) -> &Arc<WakeSignal> {
        &self.signal
    }

    /// Asks whether a call may be made.
    pub(crate) fn ask(&self, request: ApprovalRequest) -> oneshot::Receiver<Result<Approval, String>> {
        let (sender, answer) = oneshot::channel();
        let ApprovalRequest { call: id, server, tool, full_arguments: arguments, .. } = request;
        let mut state = self.state.lock();
        if let Some(early) = state.early.remove(&id) {
            // The receiver is returned below.
            let _ = sender.send(Ok(early));
            return answer;
        }
        let approval = PendingApproval { id, server, tool, arguments };
        state.approvals.insert(id, OpenApproval { approval, sender: Some(sender) });
        drop(state);
        self.signal.wake();
        answer
    }

    /// Returns the calls that wait for approval.
    pub(crate) fn approvals(&self) -> Vec<PendingApproval> {
        self.state.lock().approvals.values().map(|open| open.approval.clone()).collect()
    }

    /// Returns whether a call was approved, or denied, before it asked in this process.
    pub(crate) fn has_approval(&self, id: u64) -> bool {
        self.state.lock().early.contains_key(&id)
    }

    /// Answers whether a call may be made.
    pub(crate) fn approve(&self, id: u64, approval: Approval) {
        let mut state = self.state.lock();
        let Some(OpenApproval { sender, .. }) = state.approvals.remove(&id) else { return };
        match sender {
            // Ignore send errors: the code may have ended.
            Some(sender) => drop(sender.send(Ok(approval))),
            None => drop(state.early.insert(id, approval)),
        }
    }

    /// Sets the sender of the replies to restored calls.
    pub(crate) fn set_replies(&self, replies: ReplySender) {
        self.state.lock().replies = Some(replies);
    }

    /// Lets the call wait for its answer, and returns `None`, if its function is deferred. Returns the call otherwise.
    pub(crate) fn defer(&self, call: FunctionCall, replies: &ReplySender) -> Option<FunctionCall> {
        if !self.names.contains(&call.name) {
            return Some(call);
        }
        let mut state = self.state.lock();
        if state.pending.len() >= MAX_PENDING {
            let message = format!("at most {MAX_PENDING} calls of deferred functions wait at the same time");
            fail(call.id, message, replies);
            return None;
        }
        state.pending.insert(call.id, call);
        state.replies = Some(replies.clone());
        None
    }

    /// Counts a call of another function.
    pub(crate) fn begin_other(&self) -> InProgress {
        self.others.fetch_add(1, Ordering::AcqRel);
        InProgress(self.others.clone())
    }

    /// Returns whether calls of other functions have no reply.
    pub(crate) fn has_others(&self) -> bool {
        self.others.load(Ordering::Acquire) > 0
    }

    /// Returns whether calls wait for answers.
    pub(crate) fn has_pending(&self) -> bool {
        let state = self.state.lock();
        !state.pending.is_empty() || !state.approvals.is_empty()
    }

    /// Returns the calls of functions that wait for answers.
    pub(crate) fn pending(&self) -> Vec<FunctionCall> {
        self.state.lock().pending.values().cloned().collect()
    }

    /// Answers a call. Returns whether it waited.
    pub(crate) fn answer(&self, id: u64, result: Result<EncodedValue, FunctionError>) -> bool {
        let mut state = self.state.lock();
        if state.pending.remove(&id).is_none() {
            return false;
        }
        if let Some(replies) = &state.replies {
            // Ignore send errors: the code may have ended.
            let _ = replies.send(FunctionReply { id, result });
        }
        true
    }

    /// Forgets a call whose answer the code does not wait for any more.
    pub(crate) fn cancel(&self, id: u64) {
        let mut state = self.state.lock();
        state.pending.remove(&id);
        state.approvals.remove(&id);
    }

    /// Raises an error in the code, which waits for answers in a way that does not let it pause.
    pub(crate) fn refuse(&self) {
        let mut state = self.state.lock();
        for (_, OpenApproval { sender, .. }) in std::mem::take(&mut state.approvals) {
            let reason = "the code cannot pause inside of asyncio.run() or another call that blocks";
            // Ignore send errors: the code may have ended.
            drop(sender.map(|sender| sender.send(Err(reason.into()))));
        }
        let pending = std::mem::take(&mut state.pending);
        let Some(replies) = &state.replies else { return };
        for FunctionCall { id, name, .. } in pending.into_values() {
            let message = format!(
                "`{name}` is a deferred function: the code cannot pause inside of asyncio.run() or another call that \
                 blocks. Await it in the code itself, or in a function that the code awaits"
            );
            fail(id, message, replies);
        }
    }
}

fn fail(id: u64, message: String, replies: &ReplySender) {
    // Ignore send errors: the code may have ended.
    let _ = replies.send(FunctionReply { id, result: Err(FunctionError { name: "RuntimeError".into(), message }) });
}
