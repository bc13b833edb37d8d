//! Calls of deferred functions: the code waits for answers that its caller gives later, or in another process.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use belljar_core::{EncodedValue, FunctionCall, FunctionError, FunctionReply, ReplySender};
use parking_lot::Mutex;

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
}

#[derive(Default)]
struct State {
    /// The calls without answers, by their numbers.
    pending: BTreeMap<u64, FunctionCall>,
    replies: Option<ReplySender>,
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
    pub(crate) fn restored(names: Vec<String>, pending: Vec<FunctionCall>) -> Self {
        let calls = Self::new(names);
        calls.state.lock().pending = pending.into_iter().map(|call| (call.id, call)).collect();
        calls
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
        !self.state.lock().pending.is_empty()
    }

    /// Returns the calls that wait for answers.
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
        self.state.lock().pending.remove(&id);
    }

    /// Raises an error in the code, which waits for answers in a way that does not let it pause.
    pub(crate) fn refuse(&self) {
        let mut state = self.state.lock();
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
