//! The history of a session: its last cells, and its events.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use belljar_core::CallCancellation;
use belljar_core::kernel::InterruptHandle;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::cell::CellRecord;
use super::event::{SessionChange, SessionEvent};
use super::handle::SessionHandle;
use crate::id::SessionId;
use crate::sessions::{Owner, milliseconds_now};

/// The number of events that a slow reader of one session may be behind. A channel allocates all of its slots at once,
/// 24 KB.
const EVENT_CAPACITY: usize = 256;

/// The kind of what has a history.
pub(super) enum HistoryKind {
    /// A session in the table.
    Session,
    /// Code that runs once: the cancellation of its call.
    Run(CallCancellation),
    /// A session of Monty's protocol: the handle that interrupts the code of its feed, while it runs.
    Feeds(Mutex<Option<Arc<dyn InterruptHandle>>>),
}

/// The history of a session.
pub struct SessionHistory {
    id: SessionId,
    /// The name of the session, computed at its first use: calls that run code once mostly end without one.
    handle: OnceLock<SessionHandle>,
    /// The only client that may use the session, if it was created with authentication.
    pub owner: Option<Owner>,
    /// The time at which the session was created, or first used since the server's start, in milliseconds since 1970.
    pub created: u64,
    pub(super) state: Mutex<SessionCells>,
    kind: HistoryKind,
    /// The channel of the session's events, while an operator follows it.
    events: Mutex<Option<broadcast::Sender<SessionEvent>>>,
    /// The events of all sessions.
    changes: broadcast::Sender<SessionEvent>,
    updated: AtomicU64,
}

/// The cells of a session.
#[derive(Default)]
pub(super) struct SessionCells {
    pub(super) cells: VecDeque<Arc<CellRecord>>,
    /// The number of cells so far.
    pub(super) count: u64,
    /// The bytes of `cells`, as far as they are counted.
    pub(super) bytes: usize,
    /// Set while the session is not in the table of this server.
    pub(super) absence: Option<Absence>,
    /// The most bytes of memory that the interpreter has had, as of the last cell that has ended.
    pub(super) memory: Option<u64>,
}

/// The absence of a session from the table of this server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Absence {
    /// The reason.
    pub(crate) reason: AbsenceReason,
    /// The time at which it began, in milliseconds since 1970.
    pub(crate) since: u64,
    /// The place in the order in which sessions became absent.
    pub(super) turn: u64,
}

/// The reason why a session is not in the table of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbsenceReason {
    /// The session has ended.
    Completed,
    /// This server has given the session up to the cluster's store.
    Away,
}

impl SessionCells {
    /// Counts a record as it is now. Returns its bytes before and now, or `None` if it was forgotten.
    pub(super) fn recount(&mut self, record: &CellRecord) -> Option<(usize, usize)> {
        self.cells.binary_search_by_key(&record.number, |cell| cell.number).ok()?;
        let (before, now) = record.recount();
        self.bytes = self.bytes.saturating_add(now).saturating_sub(before);
        Some((before, now))
    }

    /// Forgets the oldest cell that has ended. Returns its bytes.
    pub(super) fn forget_oldest(&mut self) -> Option<usize> {
        // A cell that was refused has ended although those before it run or wait.
        let at = self.cells.iter().position(|cell| cell.has_ended())?;
        let freed = self.cells.remove(at)?.counted_bytes();
        self.bytes = self.bytes.saturating_sub(freed);
        Some(freed)
    }

    /// Forgets all cells. Returns their bytes and the cells.
    pub(super) fn forget_all(&mut self) -> (usize, VecDeque<Arc<CellRecord>>) {
        (std::mem::take(&mut self.bytes), std::mem::take(&mut self.cells))
    }
}

impl SessionHistory {
    /// Creates a history.
    pub(super) fn new(
        id: &SessionId,
        owner: Option<&Owner>,
        changes: broadcast::Sender<SessionEvent>,
        kind: HistoryKind,
    ) -> Self {
        let now = milliseconds_now();
        Self {
            id: id.clone(),
            handle: OnceLock::new(),
            owner: owner.cloned(),
            created: now,
            state: Mutex::default(),
            kind,
            events: Mutex::default(),
            changes,
            updated: AtomicU64::new(now),
        }
    }

    /// Returns the name of the session.
    pub fn handle(&self) -> &SessionHandle {
        self.handle.get_or_init(|| SessionHandle::from_id(&self.id))
    }

    /// Returns the events of the session from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<SessionEvent> {
        let mut events = self.events.lock();
        match &*events {
            Some(sender) => sender.subscribe(),
            None => {
                let (sender, receiver) = broadcast::channel(EVENT_CAPACITY);
                *events = Some(sender);
                receiver
            }
        }
    }

    /// Returns the recorded cells, the oldest first.
    pub fn cells(&self) -> Vec<Arc<CellRecord>> {
        self.state.lock().cells.iter().cloned().collect()
    }

    /// Returns the cell with this number, unless it was forgotten.
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

    /// Returns whether this is code that runs once, in an interpreter of its own, and not a session.
    pub fn is_run(&self) -> bool {
        matches!(self.kind, HistoryKind::Run(_))
    }

    /// Returns whether this is a session of Monty's protocol, whose cells are feeds.
    pub fn is_feeds(&self) -> bool {
        matches!(self.kind, HistoryKind::Feeds(_))
    }

    /// Stops code that runs once, and interrupts the code of a feed. Returns false if none runs, and for sessions.
    pub fn stop(&self) -> bool {
        match &self.kind {
            HistoryKind::Run(call) if self.absence().is_none() => {
                drop(call.kill_on_drop());
                true
            }
            HistoryKind::Feeds(running) => {
                // Called without the lock, since it may wake the code's thread.
                let handle = running.lock().clone();
                handle.is_some_and(|handle| {
                    handle.interrupt();
                    true
                })
            }
            HistoryKind::Run(_) | HistoryKind::Session => false,
        }
    }

    /// Sets the handle that interrupts the code of a feed.
    pub(super) fn set_running(&self, handle: Option<Arc<dyn InterruptHandle>>) {
        if let HistoryKind::Feeds(running) = &self.kind {
            *running.lock() = handle;
        }
    }

    /// Returns the absence of the session from the table of this server, if it is absent.
    pub(crate) fn absence(&self) -> Option<Absence> {
        self.state.lock().absence
    }

    /// Returns the time of the last event, in milliseconds since 1970.
    pub(super) fn updated(&self) -> u64 {
        self.updated.load(Ordering::Relaxed)
    }

    pub(super) fn send(&self, cell: Option<u64>, change: SessionChange) {
        self.updated.store(milliseconds_now(), Ordering::Relaxed);
        let is_output = matches!(change, SessionChange::Output { .. });
        let is_listed = !is_output && self.changes.receiver_count() > 0;
        let mut events = self.events.lock();
        if !is_listed && events.is_none() {
            return;
        }
        let event = SessionEvent { session: self.handle().clone(), cell, change };
        // Fails without readers.
        if is_listed {
            let _ = self.changes.send(event.clone());
        }
        if events.as_ref().is_some_and(|sender| sender.send(event).is_err()) {
            *events = None;
        }
    }

    /// Returns whether an operator follows the session.
    pub(super) fn is_followed(&self) -> bool {
        self.events.lock().as_ref().is_some_and(|sender| sender.receiver_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_exists_while_the_session_is_followed() {
        let (changes, _) = broadcast::channel(1);
        let history = SessionHistory::new(&SessionId::random().unwrap(), None, changes, HistoryKind::Session);
        history.send(None, SessionChange::Created);
        assert!(history.events.lock().is_none());
        assert!(!history.is_followed());
        let (mut first, mut second) = (history.subscribe(), history.subscribe());
        assert!(history.is_followed());
        history.send(Some(1), SessionChange::Began);
        for reader in [&mut first, &mut second] {
            assert_eq!(reader.try_recv().unwrap().change, SessionChange::Began);
        }
        drop((first, second));
        assert!(!history.is_followed());
        history.send(None, SessionChange::Closed);
        assert!(history.events.lock().is_none());
        let mut third = history.subscribe();
        history.send(Some(2), SessionChange::Began);
        assert_eq!(third.try_recv().unwrap().cell, Some(2));
    }
}
