//! Runs: cells that can wait for longer than their client, or their process, lives.
//!
//! While a cell of a persistent session waits, its session's snapshot is its continuation. A [`Run`] is the host's view
//! of such a cell: its state, the questions that it waits for, and its result once it has one. ARCHITECTURE.md, "A wait
//! survives its process", has the protocol on disk.
//!
//! | file | subject |
//! | --- | --- |
//! | `state` | the states of a run, as a pure function |
//! | `held` | runs whose code holds its thread while it waits |
//! | `interrupt` | the interrupt handle of code whose interpreter changes |
//! | `questions` | the questions of a run, and their answers |
//! | `registry` | the runs of a server |

mod held;
mod interrupt;
mod questions;
mod registry;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use belljar_core::activity::CallOrigin;
use belljar_core::kernel::CellObserver;
use belljar_core::{Activity, CallCancellation, Party, ReplySender, Scope, Waker};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use crate::history::CellRecord;
use crate::id::SessionId;
use crate::sessions::{Owner, milliseconds_now};
use crate::store::RunJournal;

pub(crate) use interrupt::RunInterrupt;
use questions::OpenQuestion;
pub use questions::{NoSuchQuestion, Question, RunAnswer};
pub(crate) use registry::RunRegistry;
pub use state::{InvalidEvent, RunEvent, RunOutcome, RunState};

/// The time between the interrupt of a run that was cancelled and the kill of its interpreter.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// The ID of a run: random, and as long as that of a session. It gives access to the run's result.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(String);

impl RunId {
    /// Returns a new random ID.
    ///
    /// # Errors
    /// Fails if the system's random number generator fails.
    pub fn random() -> io::Result<Self> {
        SessionId::random().map(|id| Self(id.as_str().to_owned()))
    }

    /// Parses an ID. Returns `None` if the text does not have the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        SessionId::parse(text).map(|id| Self(id.as_str().to_owned()))
    }

    /// Returns the ID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RunId(…)")
    }
}

/// The facts about a run that do not change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunInfo {
    /// The ID.
    pub id: RunId,
    /// The code.
    pub code: String,
    /// The arguments of the call that began the run, as its client sent them.
    pub arguments: Value,
    /// The time at which the run began, in milliseconds since 1970.
    pub began: u64,
    /// True if the run began its session.
    pub is_new_session: bool,
    /// True for code in an interpreter of its own. Its session has nothing else, and ends with it.
    #[serde(default)]
    pub is_program: bool,
}

/// The result or the question that a client which waits for a run receives next.
#[derive(Debug, Clone)]
pub enum RunUpdate {
    /// The run has a result.
    Completed(Arc<Value>),
    /// The run asks something.
    Question(Question),
}

/// The host's part of a run: the calls that its code waits for.
pub trait RunCalls: Send + Sync {
    /// Returns the state of the calls. Called while the run's journal is locked.
    fn save(&self) -> Value;

    /// Returns the number of calls so far, if the code can make any.
    fn count(&self) -> Option<u64>;

    /// Returns whether a call is in progress that does not wait for an answer, such as one that was sent: the run stays
    /// in memory until then, since an answer wakes it and nothing else does. Waits for a call that is just receiving
    /// its answer.
    fn has_active_calls(&self) -> bool;

    /// Ends the calls in progress without a trace: they go on in others, of [`RunResumer::resume`].
    fn suspend(&self);
}

/// The calls of a run that goes on.
pub struct ResumedCalls {
    /// The observer of the code.
    pub observer: Arc<dyn CellObserver>,
    /// The calls.
    pub calls: Arc<dyn RunCalls>,
    /// Begins the calls that were in progress.
    pub start: Box<dyn FnOnce(&ReplySender) + Send>,
}

/// Continues the calls of runs whose interpreter was on the disk.
pub trait RunResumer: Send + Sync {
    /// Returns the calls of a run from their state. `sent` has the calls that were sent after the state was saved, and
    /// whether each may be sent again without harm.
    ///
    /// # Errors
    /// Returns the reason why the state cannot be used.
    fn resume(&self, run: &Arc<Run>, calls: &Value, sent: &[(u64, bool)]) -> Result<ResumedCalls, String>;
}

/// Has the store of a cluster have the journal of a run.
pub(crate) type CommitJournal = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// A durable run: a cell of a persistent session, or a program, that can outlast its call, client and server.
pub struct Run {
    /// The facts that do not change.
    pub info: RunInfo,
    /// The session.
    pub session: SessionId,
    pub(crate) owner: Option<Owner>,
    pub(crate) interrupt: Arc<RunInterrupt>,
    pub(crate) cancellation: CallCancellation,
    pub(crate) journal: Mutex<RunJournal>,
    /// Has the store of the cluster have the journal; without a cluster it does nothing.
    pub(crate) commit: OnceLock<CommitJournal>,
    /// The number of lines of input that the code has asked for.
    inputs: AtomicU64,
    progress: Mutex<RunProgress>,
    changed: watch::Sender<()>,
    /// The record for operators, if cells are recorded. Weak, since the result may wait for its client for longer than
    /// the history keeps the cell.
    record: OnceLock<Weak<CellRecord>>,
    /// The call that began the run.
    origin: OnceLock<CallOrigin>,
}

/// The part of a run that changes.
struct RunProgress {
    state: RunState,
    /// The open questions, by the numbers of their calls.
    questions: BTreeMap<u64, OpenQuestion>,
    /// Answers that their calls have not received.
    answers: BTreeMap<u64, (RunAnswer, Party)>,
    result: Option<Arc<Value>>,
    /// The outcome, once the run has ended, unless an earlier build has stored the result.
    outcome: Option<RunOutcome>,
    /// The number of calls, as far as it is known without the calls themselves.
    call_count: Option<u64>,
    /// The time of the end, in milliseconds since 1970.
    ended: u64,
    /// The time of the last change of the state or the questions, in milliseconds since 1970.
    updated: u64,
    waker: Option<Waker>,
    /// True if no client waits for the result.
    is_detached: bool,
    /// True once a client has polled the result.
    is_fetched: bool,
    /// The number of times that the calls were ended to go on elsewhere. Their questions and answers are for the calls
    /// after them.
    suspensions: u64,
    /// True if the code is recorded: its questions are put once it is saved, although it holds its thread.
    is_recorded: bool,
    /// True while recorded code holds its thread in a wait.
    is_held: bool,
    /// The reason why the code does not survive its process while it holds its thread.
    not_durable: Option<String>,
    /// True while the run decides whether to suspend its calls: answers are not taken meanwhile.
    is_suspending: bool,
}

impl Run {
    pub(crate) fn new(info: RunInfo, session: SessionId, owner: Option<Owner>, state: RunState) -> Self {
        let progress = RunProgress {
            state,
            questions: BTreeMap::new(),
            answers: BTreeMap::new(),
            result: None,
            outcome: None,
            call_count: None,
            ended: 0,
            updated: milliseconds_now(),
            waker: None,
            is_detached: state == RunState::Asleep,
            is_fetched: false,
            suspensions: 0,
            is_recorded: false,
            is_held: false,
            not_durable: None,
            is_suspending: false,
        };
        Self {
            info,
            session,
            owner,
            interrupt: Arc::default(),
            cancellation: CallCancellation::default(),
            journal: Mutex::default(),
            commit: OnceLock::new(),
            inputs: AtomicU64::new(0),
            progress: Mutex::new(progress),
            changed: watch::Sender::new(()),
            record: OnceLock::new(),
            origin: OnceLock::new(),
        }
    }

    /// Sets the call that began the run. Only the first call has an effect.
    pub(crate) fn set_origin(&self, origin: CallOrigin) {
        let _ = self.origin.set(origin);
    }

    /// Returns the call that began the run, as far as it is known.
    pub(crate) fn origin(&self) -> CallOrigin {
        self.origin.get().cloned().unwrap_or_default()
    }

    /// Returns the context of the run after its interpreter was on the disk: that of the call that began it.
    pub fn resumed_scope(&self, activity: &Activity) -> Scope {
        let scope = activity.resumed_scope(&self.origin(), self.owner());
        scope.set_session(self.session.as_str());
        scope.set_run(self.info.id.as_str());
        scope
    }

    pub(crate) fn set_record(&self, record: &Arc<CellRecord>) {
        let _ = self.record.set(Arc::downgrade(record));
    }

    fn record(&self) -> Option<Arc<CellRecord>> {
        self.record.get()?.upgrade()
    }

    /// Returns whether operators see what the run asks, and can answer.
    pub fn has_operators(&self) -> bool {
        self.record().is_some()
    }

    /// Returns the number of the cell in the record for operators, if cells are recorded.
    pub fn cell_number(&self) -> Option<u64> {
        self.record().map(|record| record.number)
    }

    /// Returns the observer that also fills the record for operators, if there is one.
    pub(crate) fn watched(&self, observer: Arc<dyn CellObserver>) -> Arc<dyn CellObserver> {
        match self.record() {
            Some(record) => record.observer(observer),
            None => observer,
        }
    }

    /// Returns the client that the run belongs to, if it belongs to one.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Returns whether the run belongs to a client.
    pub fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// Returns the state at this moment. [`Self::next_update`] waits for changes.
    pub fn state(&self) -> RunState {
        self.progress.lock().state
    }

    /// Returns the time of the last change of the state or of the questions, in milliseconds since 1970.
    pub fn updated(&self) -> u64 {
        self.progress.lock().updated
    }

    /// Returns the time since that change.
    pub fn since_update(&self) -> Duration {
        Duration::from_millis(milliseconds_now().saturating_sub(self.updated()))
    }

    /// Returns whether the code has waited for this time without a change.
    pub fn has_waited_for(&self, time: Duration) -> bool {
        self.state().is_waiting() && self.since_update() >= time
    }

    /// Returns the result, if the run has ended.
    pub fn result(&self) -> Option<Arc<Value>> {
        self.progress.lock().result.clone()
    }

    /// Returns the outcome, if the run has ended or waits.
    pub fn outcome(&self) -> Option<RunOutcome> {
        let progress = self.progress.lock();
        if progress.state.is_waiting() { Some(RunOutcome::Paused) } else { progress.outcome }
    }

    /// Returns the number of calls when the run was saved or ended, if its code could make any.
    pub fn call_count(&self) -> Option<u64> {
        self.progress.lock().call_count
    }

    /// Notes the number of calls, for when the calls themselves are not in memory.
    pub fn set_call_count(&self, calls: Option<u64>) {
        self.progress.lock().call_count = calls;
    }

    /// Returns the time of the end, in milliseconds since 1970.
    pub(crate) fn ended(&self) -> u64 {
        self.progress.lock().ended
    }

    /// Returns whether no client waits for the result.
    pub fn is_detached(&self) -> bool {
        self.progress.lock().is_detached
    }

    /// Notes that the client has left.
    pub fn detach(&self) {
        self.progress.lock().is_detached = true;
    }

    /// Returns whether a client has polled the result.
    pub fn is_fetched(&self) -> bool {
        self.progress.lock().is_fetched
    }

    /// Notes that a client has polled the result.
    pub fn set_fetched(&self) {
        self.progress.lock().is_fetched = true;
    }

    /// Ends the run with a result. `outcome` is missing only if an earlier build has stored the result.
    pub(crate) fn complete(&self, result: Value, outcome: Option<RunOutcome>) {
        {
            let mut progress = self.progress.lock();
            // Nothing can follow the end: a result stays the first one.
            if progress.state.after(RunEvent::Complete).is_err() {
                return;
            }
            progress.state = RunState::Completed;
            (progress.result, progress.outcome) = (Some(Arc::new(result)), outcome);
            progress.ended = milliseconds_now();
            progress.updated = progress.ended;
            progress.questions.clear();
            progress.waker = None;
        }
        self.changed.send_replace(());
    }

    /// Interrupts the code, and kills its interpreter if it goes on for too long.
    pub fn cancel(&self) {
        drop(self.cancellation.interrupt_on_drop(CANCEL_GRACE));
    }

    /// Records that a call is about to be sent: see the server's journal of calls.
    ///
    /// # Errors
    /// Fails if the journal cannot be written.
    pub fn before_sending(&self, call: u64, is_repeatable: bool, record: &dyn Fn()) -> io::Result<()> {
        let journal = self.journal.lock();
        record();
        let is_saved = journal.append(call, is_repeatable)?;
        drop(journal);
        match self.commit.get() {
            // Another replica would send the call again.
            Some(commit) if is_saved => commit(),
            _ => Ok(()),
        }
    }

    pub(crate) fn advance(&self, event: RunEvent) {
        let mut progress = self.progress.lock();
        match progress.state.after(event) {
            Ok(next) => (progress.state, progress.updated) = (next, milliseconds_now()),
            Err(invalid) => tracing::error!(%invalid, "a run is in an unexpected state"),
        }
    }

    pub(crate) fn set_waker(&self, waker: Waker) {
        self.progress.lock().waker = Some(waker);
    }

    fn wake(&self) {
        let waker = self.progress.lock().waker.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
