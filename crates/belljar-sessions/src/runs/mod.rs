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
//! | `registry` | the runs of a server |

mod held;
mod interrupt;
mod registry;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use belljar_core::kernel::CellObserver;
use belljar_core::{CallCancellation, Party, ReplySender, Waker};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use crate::history::CellRecord;
use crate::id::SessionId;
use crate::sessions::{Owner, milliseconds_now};
use crate::store::RunJournal;

pub(crate) use interrupt::RunInterrupt;
pub(crate) use registry::RunRegistry;
pub use state::{InvalidEvent, RunEvent, RunOutcome, RunState};

/// The time between the interrupt of a run that was cancelled and the kill of its interpreter.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// The interval at which a run that asks is looked at. If its code has not begun to wait then, it holds its thread, and
/// the question is put although the run is not saved.
const UNSAVED_QUESTION_DELAY: Duration = Duration::from_millis(500);

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

/// A question to the client of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The number of the call that waits for the answer, which is unique in the run.
    pub call: u64,
    /// The text.
    pub message: String,
}

/// An answer to a [`Question`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAnswer {
    /// A line of text.
    Text(String),
    /// The user refused to answer.
    Declined,
}

/// News for a client that waits for a run.
#[derive(Debug, Clone)]
pub enum RunNews {
    /// The run has a result.
    Completed(Arc<Value>),
    /// The run asks something.
    Question(Question),
}

/// The error of an answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run does not wait for this answer: it was answered before, or the run has ended")]
pub struct NotAsked;

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

/// A run.
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

struct OpenQuestion {
    message: String,
    /// True if the run was saved since it asked, or cannot be saved.
    is_visible: bool,
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
        }
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

    /// Tells operators that what the run asks has changed.
    fn note_questions(&self) {
        if let Some(record) = self.record() {
            record.note_questions();
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

    /// Returns the state.
    pub fn state(&self) -> RunState {
        self.progress.lock().state
    }

    /// Returns the questions that the run waits for.
    pub fn questions(&self) -> Vec<Question> {
        let progress = self.progress.lock();
        let question = |(call, open): (&u64, &OpenQuestion)| Question { call: *call, message: open.message.clone() };
        progress.questions.iter().map(question).collect()
    }

    /// Returns the questions that may be put to a client.
    pub fn visible_questions(&self) -> Vec<Question> {
        let progress = self.progress.lock();
        let visible = progress.questions.iter().filter(|(_, open)| open.is_visible);
        visible.map(|(call, open)| Question { call: *call, message: open.message.clone() }).collect()
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

    /// Returns whether the run waits for answers.
    pub(crate) fn has_questions(&self) -> bool {
        !self.progress.lock().questions.is_empty()
    }

    /// Returns whether the run asks something that the client must not see before the run is saved.
    pub(crate) fn has_hidden_questions(&self) -> bool {
        has_hidden(&self.progress.lock().questions)
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

    /// Asks the client, and waits for its answer, or for that of an operator. Returns the answer and the party that
    /// gave it. A question that was open before, or whose answer has arrived, is the same one. When the future is
    /// dropped, the question is withdrawn.
    ///
    /// `holds_thread` is set if the code holds its thread while it waits: unless it is recorded, such a run cannot be
    /// saved, and its question is put at once.
    pub async fn ask(&self, call: u64, message: String, holds_thread: bool) -> (RunAnswer, Party) {
        let suspensions = self.progress.lock().suspensions;
        let _withdrawn = WithdrawOnDrop { run: self, call, suspensions };
        let mut changed = self.changed.subscribe();
        {
            let mut progress = self.progress.lock();
            if !progress.answers.contains_key(&call) {
                let is_visible = holds_thread && !progress.is_recorded;
                progress.questions.entry(call).or_insert(OpenQuestion { message, is_visible });
            }
        }
        if holds_thread {
            self.changed.send_replace(());
            self.note_questions();
        } else {
            self.wake();
        }
        let shown_later = async {
            loop {
                tokio::time::sleep(UNSAVED_QUESTION_DELAY).await;
                if self.is_shown(call) {
                    // A timer for each of the runs that wait for their users would use up processor time.
                    std::future::pending::<()>().await;
                }
                if self.state() == RunState::Running && !self.progress.lock().is_held {
                    self.show_questions();
                }
            }
        };
        let answered = async {
            loop {
                changed.mark_unchanged();
                {
                    let mut progress = self.progress.lock();
                    if holds_thread && progress.suspensions != suspensions {
                        // The code asks again, in another interpreter.
                        return (RunAnswer::Declined, Party::Client);
                    }
                    if progress.suspensions == suspensions
                        && !progress.is_suspending
                        && let Some(answer) = progress.answers.remove(&call)
                    {
                        return answer;
                    }
                }
                // The sender is a part of the run.
                let _ = changed.changed().await;
            }
        };
        tokio::select! {
            answer = answered => answer,
            () = shown_later => (RunAnswer::Declined, Party::Client),
        }
    }

    /// Returns whether clients see the question of a call, or it was answered.
    fn is_shown(&self, call: u64) -> bool {
        self.progress.lock().questions.get(&call).is_none_or(|question| question.is_visible)
    }

    /// Answers a question. `by` is the party that has answered.
    ///
    /// # Errors
    /// Fails if the run does not wait for this answer.
    pub fn answer(&self, call: u64, answer: RunAnswer, by: Party) -> Result<(), NotAsked> {
        {
            let mut progress = self.progress.lock();
            progress.questions.remove(&call).ok_or(NotAsked)?;
            progress.answers.insert(call, (answer, by));
            progress.updated = milliseconds_now();
        }
        self.changed.send_replace(());
        self.note_questions();
        // A run that is asleep has no call that would continue it.
        self.wake();
        Ok(())
    }

    /// Waits until the run asks something, or has a result.
    pub async fn news(&self) -> RunNews {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            {
                let progress = self.progress.lock();
                if let Some(result) = &progress.result {
                    return RunNews::Completed(result.clone());
                }
                if let Some((call, open)) = progress.questions.iter().find(|(_, open)| open.is_visible) {
                    return RunNews::Question(Question { call: *call, message: open.message.clone() });
                }
            }
            let _ = changed.changed().await;
        }
    }

    /// Waits until a question was answered or withdrawn.
    pub async fn answered(&self, call: u64) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if !self.progress.lock().questions.contains_key(&call) {
                return;
            }
            let _ = changed.changed().await;
        }
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

    /// Returns whether answers have arrived that no call has received.
    pub(crate) fn has_answers(&self) -> bool {
        !self.progress.lock().answers.is_empty()
    }

    /// Leaves the questions to later calls, if `can_suspend` still returns true once no call can receive an answer any
    /// more. Returns false if the calls go on.
    ///
    /// An answer that has arrived before would be forgotten: its call would have it without acting on it, or never look
    /// for it again, and nothing would wake the run. A question that is not visible yet is not in the saved run: it
    /// would never be put, and the run would wait for ever.
    pub(crate) fn suspend(&self, can_suspend: impl FnOnce() -> bool) -> bool {
        {
            let mut progress = self.progress.lock();
            if !progress.answers.is_empty() || has_hidden(&progress.questions) {
                return false;
            }
            progress.is_suspending = true;
        }
        // Not locked: calls lock their own state before the run's.
        let can_suspend = can_suspend();
        let mut progress = self.progress.lock();
        let is_suspended = can_suspend && !has_hidden(&progress.questions);
        progress.is_suspending = false;
        progress.suspensions += u64::from(is_suspended);
        drop(progress);
        // The calls look for answers again.
        self.changed.send_replace(());
        is_suspended
    }

    /// Adds the questions of a saved run.
    pub(crate) fn restore_questions(&self, questions: &[Question]) {
        let mut progress = self.progress.lock();
        for Question { call, message } in questions {
            progress.questions.insert(*call, OpenQuestion { message: message.clone(), is_visible: true });
        }
    }

    /// Puts the questions to the client: the run is saved.
    pub(crate) fn show_questions(&self) {
        let mut progress = self.progress.lock();
        let hidden = progress.questions.values_mut().filter(|question| !question.is_visible);
        let mut any = false;
        hidden.for_each(|question| (question.is_visible, any) = (true, true));
        if any {
            progress.updated = milliseconds_now();
        }
        drop(progress);
        if any {
            self.changed.send_replace(());
            self.note_questions();
        }
    }

    fn wake(&self) {
        let waker = self.progress.lock().waker.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn has_hidden(questions: &BTreeMap<u64, OpenQuestion>) -> bool {
    questions.values().any(|question| !question.is_visible)
}

/// Withdraws a question when the call that asked it ends.
struct WithdrawOnDrop<'a> {
    run: &'a Run,
    call: u64,
    suspensions: u64,
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        let mut progress = self.run.progress.lock();
        if progress.suspensions != self.suspensions {
            return;
        }
        // The call was cancelled before it received its answer.
        progress.answers.remove(&self.call);
        if progress.questions.remove(&self.call).is_some() {
            drop(progress);
            self.run.changed.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests;
