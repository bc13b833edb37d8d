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
mod handle;
mod observer;
mod output;
mod overview;
mod questions;
mod snapshot;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::id::SessionId;
use crate::sessions::{Owner, milliseconds_now};
pub(crate) use cell::CellGuard;
pub use cell::CellRecord;
pub use event::{SessionChange, SessionEvent};
pub use handle::SessionHandle;
pub use overview::{SessionActivity, SessionOverview};
pub use questions::CellQuestion;
pub use snapshot::{CellSnapshot, CellState, RecordedCall};

/// The maximum number of cells that are recorded for a session.
const MAX_CELLS: usize = 500;
/// The maximum number of bytes of the cells of a session, and of all sessions.
const MAX_SESSION_BYTES: usize = 16 << 20;
const MAX_BYTES: usize = 256 << 20;
/// The maximum number of ended sessions whose cells are kept.
const MAX_ENDED: usize = 1000;
/// The number of events that a slow reader may be behind.
const EVENT_CAPACITY: usize = 1024;

/// The histories of a server's sessions.
pub struct History {
    sessions: Mutex<HashMap<SessionId, Arc<SessionHistory>>>,
    changes: broadcast::Sender<SessionEvent>,
    bytes: AtomicUsize,
}

/// The history of a session.
pub struct SessionHistory {
    /// The name of the session.
    pub handle: SessionHandle,
    /// The only client that may use the session, if it was created with authentication.
    pub owner: Option<Owner>,
    /// The time at which the session was created, or first used since the server's start, in milliseconds since 1970.
    pub created: u64,
    state: Mutex<SessionCells>,
    events: broadcast::Sender<SessionEvent>,
    changes: broadcast::Sender<SessionEvent>,
    updated: AtomicU64,
}

#[derive(Default)]
struct SessionCells {
    cells: VecDeque<Arc<CellRecord>>,
    /// The number of cells so far.
    count: u64,
    bytes: usize,
    ended: Option<u64>,
    /// The most bytes of memory that the interpreter has had, as of the last cell that has ended.
    memory: Option<u64>,
}

impl Default for History {
    fn default() -> Self {
        let (changes, _) = broadcast::channel(EVENT_CAPACITY);
        Self { sessions: Mutex::default(), changes, bytes: AtomicUsize::new(0) }
    }
}

impl History {
    /// Returns the events of all sessions from now on, without output.
    pub fn subscribe(&self) -> broadcast::Receiver<SessionEvent> {
        self.changes.subscribe()
    }

    /// Returns the history of a session, if the session was used since the server's start.
    pub fn find(&self, id: &SessionId) -> Option<Arc<SessionHistory>> {
        self.sessions.lock().get(id).cloned()
    }

    /// Returns the history of a session that exists, also if it was not used since the server's start.
    pub fn follow(&self, id: &SessionId, owner: Option<&Owner>) -> Arc<SessionHistory> {
        self.session(id, owner)
    }

    /// Returns the histories of sessions whose cells may ask something.
    pub fn asking(&self) -> Vec<Arc<SessionHistory>> {
        let mut all: Vec<Arc<SessionHistory>> = self.all().into_iter().map(|(_, history)| history).collect();
        all.retain(|history| history.ended().is_none());
        all.sort_by_key(|history| std::cmp::Reverse(history.updated.load(Ordering::Relaxed)));
        all
    }

    /// Returns the history of a session, and begins it if there is none.
    pub(crate) fn session(&self, id: &SessionId, owner: Option<&Owner>) -> Arc<SessionHistory> {
        let mut sessions = self.sessions.lock();
        if let Some(found) = sessions.get(id) {
            return found.clone();
        }
        let history = Arc::new(SessionHistory {
            handle: SessionHandle::of(id),
            owner: owner.cloned(),
            created: milliseconds_now(),
            state: Mutex::default(),
            events: broadcast::channel(EVENT_CAPACITY).0,
            changes: self.changes.clone(),
            updated: AtomicU64::new(milliseconds_now()),
        });
        sessions.insert(id.clone(), history.clone());
        drop(sessions);
        history.send(None, SessionChange::Created);
        history
    }

    /// Notes that a session has ended. Its cells stay until others need the memory.
    pub(crate) fn end(&self, id: &SessionId) {
        let Some(history) = self.find(id) else { return };
        history.state.lock().ended.get_or_insert_with(milliseconds_now);
        history.send(None, SessionChange::Closed);
        self.forget_ended();
    }

    pub(crate) fn all_by_id(&self) -> HashMap<SessionId, Arc<SessionHistory>> {
        self.sessions.lock().clone()
    }

    /// Returns the session of a handle, and its history.
    pub(crate) fn find_handle(&self, handle: &SessionHandle) -> Option<(SessionId, Arc<SessionHistory>)> {
        let sessions = self.sessions.lock();
        let found = sessions.iter().find(|(_, history)| history.handle == *handle);
        found.map(|(id, history)| (id.clone(), history.clone()))
    }

    fn all(&self) -> Vec<(SessionId, Arc<SessionHistory>)> {
        self.sessions.lock().iter().map(|(id, history)| (id.clone(), history.clone())).collect()
    }

    /// Forgets the sessions that ended first, beyond the maximum number.
    fn forget_ended(&self) {
        let mut ended: Vec<(u64, SessionId)> =
            self.all().into_iter().filter_map(|(id, history)| Some((history.ended()?, id))).collect();
        if ended.len() <= MAX_ENDED {
            return;
        }
        ended.sort_unstable();
        let surplus = ended.len() - MAX_ENDED;
        for (_, id) in ended.into_iter().take(surplus) {
            if let Some(history) = self.sessions.lock().remove(&id) {
                self.bytes.fetch_sub(history.state.lock().bytes, Ordering::Relaxed);
            }
        }
    }

    /// Records a cell that is about to be queued.
    pub(crate) fn begin_cell(
        self: &Arc<Self>,
        id: &SessionId,
        owner: Option<&Owner>,
        code: &str,
        by_operator: bool,
    ) -> Arc<CellRecord> {
        let session = self.session(id, owner);
        let mut state = session.state.lock();
        state.count += 1;
        let record = Arc::new(CellRecord::new(state.count, code, by_operator, &session, self));
        state.cells.push_back(record.clone());
        drop(state);
        self.add_bytes(&session, record.size());
        session.send(Some(record.number), SessionChange::Submitted);
        record
    }

    /// Counts the bytes of a record, and forgets old cells beyond the limits.
    fn add_bytes(&self, session: &SessionHistory, bytes: usize) {
        let mut state = session.state.lock();
        state.bytes += bytes;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        while state.cells.len() > MAX_CELLS || (state.bytes > MAX_SESSION_BYTES && state.cells.len() > 1) {
            let Some(freed) = state.forget_oldest() else { break };
            self.bytes.fetch_sub(freed, Ordering::Relaxed);
        }
        drop(state);
        if self.bytes.load(Ordering::Relaxed) > MAX_BYTES {
            self.forget_oldest_sessions(session);
        }
    }

    /// Forgets the cells of the sessions that were used longest ago, until three quarters of the memory are in use.
    fn forget_oldest_sessions(&self, current: &SessionHistory) {
        let mut all = self.all();
        all.sort_by_key(|(_, history)| history.updated.load(Ordering::Relaxed));
        for (_, history) in all {
            if self.bytes.load(Ordering::Relaxed) <= MAX_BYTES / 4 * 3 {
                return;
            }
            if history.handle == current.handle {
                continue;
            }
            let mut state = history.state.lock();
            while let Some(freed) = state.forget_oldest() {
                self.bytes.fetch_sub(freed, Ordering::Relaxed);
            }
        }
    }
}

impl SessionCells {
    /// Forgets the oldest cell, if it has ended. Returns its bytes.
    fn forget_oldest(&mut self) -> Option<usize> {
        let freed = self.cells.front().filter(|cell| cell.has_ended())?.counted_bytes();
        self.cells.pop_front();
        self.bytes = self.bytes.saturating_sub(freed);
        Some(freed)
    }
}

impl SessionHistory {
    /// Returns the events of the session from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<SessionEvent> {
        self.events.subscribe()
    }

    /// Returns the recorded cells, the oldest first.
    pub fn cells(&self) -> Vec<Arc<CellRecord>> {
        self.state.lock().cells.iter().cloned().collect()
    }

    /// Returns a recorded cell.
    pub fn cell(&self, number: u64) -> Option<Arc<CellRecord>> {
        self.state.lock().cells.iter().find(|cell| cell.number == number).cloned()
    }

    /// Returns the number of cells since the session's first use by this server, and the last of them.
    pub fn last(&self) -> (u64, Option<Arc<CellRecord>>) {
        let state = self.state.lock();
        (state.count, state.cells.back().cloned())
    }

    /// Returns the most bytes of memory that the interpreter has had, as of the last cell that has ended.
    pub fn memory(&self) -> Option<u64> {
        self.state.lock().memory
    }

    /// Returns the time at which the session ended, in milliseconds since 1970.
    pub fn ended(&self) -> Option<u64> {
        self.state.lock().ended
    }

    fn send(&self, cell: Option<u64>, change: SessionChange) {
        self.updated.store(milliseconds_now(), Ordering::Relaxed);
        let is_output = matches!(change, SessionChange::Output { .. });
        let event = SessionEvent { session: self.handle.clone(), cell, change };
        // Fails without readers.
        if !is_output {
            let _ = self.changes.send(event.clone());
        }
        let _ = self.events.send(event);
    }

    /// Returns whether an operator follows the session.
    fn is_followed(&self) -> bool {
        self.events.receiver_count() > 0
    }
}

/// The history that a record belongs to.
#[derive(Clone)]
struct Place {
    history: Weak<History>,
    session: Weak<SessionHistory>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> SessionId {
        SessionId::random().unwrap()
    }

    #[test]
    fn old_cells_are_forgotten() {
        let history = Arc::new(History::default());
        let id = id();
        for _ in 0..MAX_CELLS + 5 {
            drop(CellGuard::new(history.begin_cell(&id, None, "1", false)));
        }
        let found = history.find(&id).unwrap();
        assert_eq!(found.cells().len(), MAX_CELLS);
        assert_eq!(found.cells().first().map(|cell| cell.number), Some(6));
        assert_eq!(found.last().0, MAX_CELLS as u64 + 5);
    }

    #[test]
    fn memory_of_all_sessions_is_bounded() {
        let history = Arc::new(History::default());
        let code = "x".repeat(32 << 10);
        let cells = MAX_BYTES / code.len() + 1000;
        let mut last = None;
        for number in 0..cells {
            let id = id();
            drop(CellGuard::new(history.begin_cell(&id, None, &code, false)));
            if number + 1 == cells {
                last = Some(id);
            }
        }
        assert!(history.bytes.load(Ordering::Relaxed) <= MAX_BYTES);
        let all: usize = history.all().iter().map(|(_, session)| session.state.lock().bytes).sum();
        assert_eq!(history.bytes.load(Ordering::Relaxed), all);
        assert_eq!(history.find(&last.unwrap()).unwrap().cells().len(), 1);
    }

    #[test]
    fn only_the_last_ended_sessions_stay() {
        let history = Arc::new(History::default());
        for _ in 0..MAX_ENDED + 3 {
            let id = id();
            history.session(&id, None);
            history.end(&id);
        }
        let running = id();
        history.session(&running, None);
        assert_eq!(history.all().len(), MAX_ENDED + 1);
        assert!(history.find(&running).is_some());
    }
}
