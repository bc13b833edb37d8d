//! The history of sessions: their last cells with output and calls of tools, in memory, for operators.
//!
//! ```text
//!  CellCall ─▶ CellRecord ◀─ WatchedObserver ◀─ output, displays, calls of tools
//!                  │ questions of code and of approvals ◀─▶ operators
//!                  ▼
//!  History ─ SessionHistory ─▶ events of one session, with output
//!     └──────────────────────▶ events of all sessions, without output
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `session` | the history of one session |
//! | `run` | code that runs once, without a session |
//! | `feeds` | sessions of Monty's protocol |
//! | `cell` | the record of a cell |
//! | `snapshot` | a recorded cell as it is at a moment |
//! | `output` | the output of a cell, within bounds |
//! | `event` | events of sessions |
//! | `observer` | the observer that fills a record |
//! | `questions` | the questions of code to operators |
//! | `handle` | names of sessions that are not secrets |
//! | `overview` | the list of all sessions |

mod cell;
mod event;
mod feeds;
mod handle;
mod observer;
mod output;
mod overview;
mod questions;
mod run;
mod session;
mod snapshot;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::id::{IdSequence, SessionId};
use crate::sessions::{Owner, milliseconds_now};
pub(crate) use cell::CellGuard;
pub use cell::CellRecord;
pub use event::{SessionChange, SessionEvent};
pub use feeds::FeedsRecord;
pub use handle::SessionHandle;
pub use overview::{SessionActivity, SessionOverview};
pub use questions::CellQuestion;
pub use run::{RunEnd, RunRecord};
use session::HistoryKind;
pub use session::SessionHistory;
pub(crate) use session::{Absence, AbsenceReason};
pub use snapshot::{CellSnapshot, CellState, RecordedCall};

/// The number of cells that are recorded for a session, and the number of calls that are kept after they have run code
/// once. From then on, the allocator gives each record the memory of the one that was forgotten: with 500 cells and
/// 1,000 calls, that memory was in no near cache of the processor, and calls took longer (docs/benchmarks.md).
const MAX_CELLS: usize = 200;
const MAX_ENDED_RUNS: usize = 200;
/// The maximum number of bytes of the cells of a session, and of all sessions.
const MAX_SESSION_BYTES: usize = 16 << 20;
const MAX_BYTES: usize = 256 << 20;
/// The number of absent sessions whose cells are kept: those that have ended, and those that were given up to the
/// cluster's store.
const MAX_ABSENT: usize = 1000;
/// The number of events that a slow reader of all sessions may be behind.
const EVENT_CAPACITY: usize = 1024;

/// The histories of a server's sessions.
pub struct History {
    known: Mutex<KnownSessions>,
    changes: broadcast::Sender<SessionEvent>,
    /// The bytes of all cells, as far as they are counted.
    bytes: AtomicUsize,
    /// The IDs of code that runs once, from its first use on.
    run_ids: OnceLock<IdSequence>,
}

/// The sessions that have a history. Locked before the state of one of them.
#[derive(Default)]
struct KnownSessions {
    sessions: HashMap<SessionId, Arc<SessionHistory>>,
    /// Those that are absent, in the order in which they became so.
    absent: BTreeMap<u64, SessionId>,
    /// The calls that have run code once, and the sessions of Monty's protocol, in the order in which they ended. There
    /// may be far more of them than of sessions.
    ended_runs: BTreeMap<u64, SessionId>,
    /// The number of absences so far.
    turns: u64,
}

impl KnownSessions {
    /// Returns the absent ones among those that `history` is one of: sessions, or calls and connections that ran code.
    fn queue_of(&mut self, history: &SessionHistory) -> &mut BTreeMap<u64, SessionId> {
        if history.is_run() || history.is_feeds() { &mut self.ended_runs } else { &mut self.absent }
    }
}

impl Default for History {
    fn default() -> Self {
        let (changes, _) = broadcast::channel(EVENT_CAPACITY);
        Self { known: Mutex::default(), changes, bytes: AtomicUsize::new(0), run_ids: OnceLock::new() }
    }
}

impl History {
    /// Returns the events of all sessions from now on, without output.
    pub fn subscribe(&self) -> broadcast::Receiver<SessionEvent> {
        self.changes.subscribe()
    }

    /// Returns the history of a session, if the session was used since the server's start.
    pub fn find(&self, id: &SessionId) -> Option<Arc<SessionHistory>> {
        self.known.lock().sessions.get(id).cloned()
    }

    /// Returns the history of a session that exists, also if it was not used since the server's start.
    pub fn follow(&self, id: &SessionId, owner: Option<&Owner>) -> Arc<SessionHistory> {
        self.session(id, owner)
    }

    /// Returns the histories of sessions whose cells may ask something.
    pub fn asking(&self) -> Vec<Arc<SessionHistory>> {
        let mut all = self.all();
        all.retain(|history| history.absence().is_none());
        all.sort_by_key(|history| std::cmp::Reverse(history.updated()));
        all
    }

    /// Returns the history of a session, and begins it if there is none.
    pub(crate) fn session(&self, id: &SessionId, owner: Option<&Owner>) -> Arc<SessionHistory> {
        let mut known = self.known.lock();
        if let Some(found) = known.sessions.get(id) {
            return found.clone();
        }
        let history = Arc::new(SessionHistory::new(id, owner, self.changes.clone(), HistoryKind::Session));
        known.sessions.insert(id.clone(), history.clone());
        drop(known);
        history.send(None, SessionChange::Created);
        history
    }

    /// Notes that a session is not in the table any more. Its cells stay until others need the memory.
    pub(crate) fn set_absent(&self, id: &SessionId, reason: AbsenceReason) {
        self.note_absence(id, reason);
        drop(self.forget_absent());
    }

    /// Does the same as [`History::set_absent`], and forgets nothing.
    fn note_absence(&self, id: &SessionId, reason: AbsenceReason) {
        let mut known = self.known.lock();
        let Some(history) = known.sessions.get(id).cloned() else { return };
        known.turns += 1;
        let turn = known.turns;
        let earlier = {
            let mut state = history.state.lock();
            // Nothing follows the end.
            if state.absence.is_some_and(|absence| absence.reason == AbsenceReason::Completed) {
                return;
            }
            state.absence.replace(Absence { reason, since: milliseconds_now(), turn })
        };
        if let Some(earlier) = earlier {
            known.absent.remove(&earlier.turn);
        }
        known.queue_of(&history).insert(turn, id.clone());
        drop(known);
        if reason == AbsenceReason::Completed {
            history.send(None, SessionChange::Closed);
        }
    }

    /// Notes that a session is in the table again.
    pub(crate) fn set_present(&self, id: &SessionId) {
        let mut known = self.known.lock();
        let Some(history) = known.sessions.get(id).cloned() else { return };
        let absence = history.state.lock().absence.take();
        if let Some(absence) = absence {
            known.absent.remove(&absence.turn);
        }
    }

    pub(crate) fn all_by_id(&self) -> HashMap<SessionId, Arc<SessionHistory>> {
        self.known.lock().sessions.clone()
    }

    /// Returns the session of a handle, and its history.
    pub(crate) fn find_handle(&self, handle: &SessionHandle) -> Option<(SessionId, Arc<SessionHistory>)> {
        let known = self.known.lock();
        let found = known.sessions.iter().find(|(_, history)| *history.handle() == *handle);
        found.map(|(id, history)| (id.clone(), history.clone()))
    }

    fn all(&self) -> Vec<Arc<SessionHistory>> {
        self.known.lock().sessions.values().cloned().collect()
    }

    /// Forgets the sessions that have been absent for longest, and the calls that have ended first, if there are too
    /// many of either.
    fn forget_absent(&self) -> Vec<ForgottenSession> {
        let mut known = self.known.lock();
        let KnownSessions { sessions, absent, ended_runs, .. } = &mut *known;
        let mut forgotten = Vec::new();
        for (queue, most) in [(absent, MAX_ABSENT), (ended_runs, MAX_ENDED_RUNS)] {
            while queue.len() > most
                && let Some((_, id)) = queue.pop_first()
            {
                let Some(history) = sessions.remove(&id) else { continue };
                let (bytes, cells) = history.state.lock().forget_all();
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                forgotten.push(ForgottenSession { _history: history, _cells: cells });
            }
        }
        forgotten
    }

    /// Records a cell that is about to be queued.
    pub(crate) fn begin_cell(
        self: &Arc<Self>,
        id: &SessionId,
        owner: Option<&Owner>,
        code: &str,
        by_operator: bool,
    ) -> Arc<CellRecord> {
        self.begin_cell_of(&self.session(id, owner), code, by_operator)
    }

    /// Records a cell of the session with this history.
    fn begin_cell_of(
        self: &Arc<Self>,
        session: &Arc<SessionHistory>,
        code: &str,
        by_operator: bool,
    ) -> Arc<CellRecord> {
        let mut state = session.state.lock();
        state.count += 1;
        let record = Arc::new(CellRecord::new(state.count, code, by_operator, session, self));
        state.cells.push_back(record.clone());
        drop(state);
        self.recount(session, &record);
        session.send(Some(record.number), SessionChange::Submitted);
        record
    }

    /// Counts the bytes of a record as it is now, and forgets old cells beyond the limits. If that is not enough, a
    /// cell that has not ended loses its output so far; at its end it has the output of its result.
    fn recount(&self, session: &SessionHistory, record: &CellRecord) {
        self.count(session, record);
        if self.bytes.load(Ordering::Relaxed) <= MAX_BYTES {
            return;
        }
        self.forget_oldest_sessions(session);
        if self.bytes.load(Ordering::Relaxed) > MAX_BYTES && !record.has_ended() {
            record.drop_output();
            self.count(session, record);
        }
    }

    /// Counts the bytes of a record as it is now, and forgets old cells of its session beyond the limits of one.
    fn count(&self, session: &SessionHistory, record: &CellRecord) {
        let mut state = session.state.lock();
        let Some((before, now)) = state.recount(record) else { return };
        if now >= before {
            self.bytes.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.bytes.fetch_sub(before - now, Ordering::Relaxed);
        }
        while state.cells.len() > MAX_CELLS || (state.bytes > MAX_SESSION_BYTES && state.cells.len() > 1) {
            let Some(freed) = state.forget_oldest() else { break };
            self.bytes.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Forgets the cells of the sessions that were used longest ago, until three quarters of the memory are in use.
    fn forget_oldest_sessions(&self, current: &SessionHistory) {
        let mut all = self.all();
        all.sort_by_key(|history| history.updated());
        for history in all {
            if self.bytes.load(Ordering::Relaxed) <= MAX_BYTES / 4 * 3 {
                return;
            }
            if std::ptr::eq(Arc::as_ptr(&history), current) {
                continue;
            }
            let mut state = history.state.lock();
            while let Some(freed) = state.forget_oldest() {
                self.bytes.fetch_sub(freed, Ordering::Relaxed);
            }
        }
    }
}

/// A session that the history does not have any more. Dropping it frees its cells, which takes a while.
struct ForgottenSession {
    _history: Arc<SessionHistory>,
    _cells: VecDeque<Arc<CellRecord>>,
}

/// The history that a record belongs to.
struct Place {
    history: Weak<History>,
    session: Weak<SessionHistory>,
}

impl Place {
    /// Counts the bytes of a record of this place as it is now.
    fn recount(&self, record: &CellRecord) {
        if let (Some(history), Some(session)) = (self.history.upgrade(), self.session.upgrade()) {
            history.recount(&session, record);
        }
    }
}

#[cfg(test)]
mod tests;
