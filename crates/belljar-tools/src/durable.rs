//! The calls of a run that can go on in another process: what is saved of them, and how they go on.
//!
//! | stage of the call | after the restart |
//! | --- | --- |
//! | not sent: it waits for its approval, for its server or for a permit | it starts over, and asks again |
//! | sent, and the tool is read-only or idempotent | it is sent again, without another approval |
//! | sent, and the tool may have further effects | `ToolInterrupted` is raised in the code |

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belljar_core::{EncodedValue, FunctionCall, ReplySender};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::approval::Fingerprint;
use crate::call_log::CallLog;
use crate::run::ToolRun;

/// A lasting record of the calls that were sent.
pub trait CallJournal: Send + Sync {
    /// Calls `record` and adds the call to the journal, if the run has been saved, so that both are in what is saved or
    /// in the journal.
    ///
    /// # Errors
    /// Fails if the journal cannot be written. The call must not be sent then.
    fn before_sending(&self, call: u64, is_repeatable: bool, record: &dyn Fn()) -> io::Result<()>;
}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStage {
    /// The call was not sent.
    New,
    /// The call was sent.
    Sent {
        /// True if it may be sent again without harm.
        is_repeatable: bool,
    },
}

/// The calls of a run, for another process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SavedRun {
    /// The number of calls that have ended, for the limit.
    pub(crate) calls: u32,
    /// The size of the results.
    pub(crate) bytes: u64,
    /// The time that the run has waited.
    pub(crate) waited: Duration,
    /// The tools that are approved for the run.
    pub(crate) grants: Vec<Fingerprint>,
    pub(crate) log: CallLog,
    pub(crate) operations: Vec<SavedOperation>,
}

/// An operation in progress, for another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SavedOperation {
    id: u64,
    name: String,
    /// The encoded arguments. Operations of tools have no buffers.
    arguments: Box<RawValue>,
    pub(crate) stage: CallStage,
}

impl SavedOperation {
    pub(crate) fn new(id: u64, name: &str, arguments: &EncodedValue, stage: CallStage) -> Self {
        Self { id, name: name.to_owned(), arguments: arguments.json.clone(), stage }
    }

    /// Returns whether the operation counts as a call.
    fn is_counted(&self) -> bool {
        self.name.ends_with(":call") || self.name.ends_with(":read")
    }
}

impl SavedRun {
    /// Returns the calls that had begun.
    pub fn log(&self) -> &CallLog {
        &self.log
    }

    /// Notes that a call was sent after the state was saved.
    pub fn set_sent(&mut self, call: u64, is_repeatable: bool) {
        if let Some(operation) = self.operations.iter_mut().find(|operation| operation.id == call) {
            operation.stage = CallStage::Sent { is_repeatable };
        }
    }
}

impl ToolRun {
    /// Returns the state of the calls. Must be called while the journal is locked.
    pub fn save(&self) -> SavedRun {
        let shared = &self.shared;
        let operations = shared.operations.lock();
        let operations: Vec<_> = operations.values().filter_map(|operation| operation.saved.clone()).collect();
        let pending = operations.iter().filter(|operation| operation.is_counted()).count();
        let calls = shared.calls.load(Ordering::Relaxed);
        SavedRun {
            calls: calls.saturating_sub(u32::try_from(pending).unwrap_or(u32::MAX)),
            bytes: shared.bytes.load(Ordering::Relaxed),
            waited: shared.clock.used(),
            grants: shared.run_grants.all(),
            log: self.log(),
            operations,
        }
    }

    /// Returns whether an operation is in progress that does not wait for an answer, such as a call that was sent.
    pub fn has_active_calls(&self) -> bool {
        self.shared.operations.lock().values().any(|operation| !operation.is_asking)
    }

    /// Continues the operations that were in progress when the run was saved.
    pub fn resume(&self, operations: Vec<PendingOperation>, replies: &ReplySender) {
        for PendingOperation(SavedOperation { id, name, arguments, stage }) in operations {
            let arguments = EncodedValue { json: arguments, buffers: Vec::new() };
            self.start_at(FunctionCall { id, name, arguments }, stage, replies);
        }
    }

    /// Ends the operations in progress without a trace: they go on in another [`ToolRun`].
    pub fn suspend(&self) {
        self.shared.recorder.suspend();
        self.cancel_all();
    }
}

/// An operation that was in progress when its run was saved.
#[derive(Debug)]
pub struct PendingOperation(SavedOperation);

impl SavedRun {
    /// Removes the operations that were in progress.
    pub fn take_operations(&mut self) -> Vec<PendingOperation> {
        std::mem::take(&mut self.operations).into_iter().map(PendingOperation).collect()
    }
}
