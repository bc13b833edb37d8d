//! The record of a session of Monty's protocol: a history whose cells are feeds, and whose interpreter its client's
//! connection has.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use belljar_core::CellStatus;
use belljar_core::activity::CpuClock;
use belljar_core::kernel::{CellObserver, InterruptHandle};

use super::session::{HistoryKind, SessionHistory};
use super::{AbsenceReason, CellGuard, History, SessionChange};
use crate::id::SessionId;
use crate::sessions::Owner;

/// The record of a session of feeds. Dropping it ends the record.
pub struct FeedsRecord {
    history: Arc<History>,
    /// A random ID, which nothing else has.
    id: SessionId,
    session: Arc<SessionHistory>,
    /// The feed that was begun last, until it has ended.
    feed: Option<CellGuard>,
}

impl History {
    /// Records a session of feeds, which has begun.
    ///
    /// # Errors
    /// Fails if the system's random number generator fails.
    pub fn begin_feeds(self: &Arc<Self>, owner: Option<&Owner>) -> std::io::Result<FeedsRecord> {
        let id = SessionId::random()?;
        let kind = HistoryKind::Feeds(parking_lot::Mutex::default());
        let session = Arc::new(SessionHistory::new(&id, owner, self.changes.clone(), kind));
        self.known.lock().sessions.insert(id.clone(), session.clone());
        session.send(None, SessionChange::Created);
        Ok(FeedsRecord { history: self.clone(), id, session, feed: None })
    }
}

impl FeedsRecord {
    /// Records a feed whose code is about to begin, or to go on from another server.
    pub fn begin(&mut self, code: &str) {
        let record = self.history.begin_cell_of(&self.session, code, false);
        record.begin();
        self.feed = Some(CellGuard::new(record));
    }

    /// Returns the observer that records what the feed does, and passes it to `inner`.
    pub fn observer(&self, inner: Arc<dyn CellObserver>) -> Arc<dyn CellObserver> {
        match &self.feed {
            Some(CellGuard(record)) => record.observer(inner),
            None => inner,
        }
    }

    /// Sets the handle that interrupts the code, while it runs.
    pub fn set_running(&self, handle: Option<Arc<dyn InterruptHandle>>) {
        self.session.set_running(handle);
    }

    /// Notes whether the feed waits for its client.
    pub fn set_waiting(&self, is_waiting: bool) {
        if let Some(CellGuard(record)) = &self.feed {
            record.set_waiting(is_waiting);
        }
    }

    /// Returns the nanoseconds of processor time of the feed, to which the threads that continue it add. `clock` is
    /// whose time that is: without one, nothing is measured.
    pub fn cpu(&self, clock: CpuClock) -> Option<&AtomicU64> {
        let CellGuard(record) = self.feed.as_ref()?;
        record.cpu(clock)
    }

    /// Ends the record of the feed with its status, or with the reason why it was not run.
    pub fn end(&mut self, result: Result<CellStatus, String>) {
        if let Some(CellGuard(record)) = &self.feed {
            record.complete_feed(result);
        }
        self.feed = None;
    }
}

impl Drop for FeedsRecord {
    fn drop(&mut self) {
        self.feed = None;
        self.history.set_absent(&self.id, AbsenceReason::Completed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::{CellState, SessionActivity, SessionOverview};
    use super::*;

    /// Counts interrupts.
    #[derive(Default)]
    struct Interrupts(AtomicUsize);

    impl InterruptHandle for Interrupts {
        fn interrupt(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn kill(&self) {}
    }

    #[test]
    fn session_of_feeds_is_idle_runs_waits_and_ends() {
        let history = Arc::new(History::default());
        let mut feeds = history.begin_feeds(None).unwrap();
        let (id, session) = (feeds.id.clone(), feeds.session.clone());
        let activity = || SessionOverview::for_absent_session(id.clone(), &session).activity;
        assert_eq!(activity(), SessionActivity::Idle);
        feeds.begin("1");
        assert_eq!(activity(), SessionActivity::Running);
        feeds.set_waiting(true);
        assert!(activity() == SessionActivity::Waiting && !session.stop());
        feeds.set_waiting(false);
        let interrupts = Arc::new(Interrupts::default());
        feeds.set_running(Some(interrupts.clone()));
        assert!(session.stop() && activity() == SessionActivity::Running);
        assert_eq!(interrupts.0.load(Ordering::Relaxed), 1);
        feeds.set_running(None);
        feeds.end(Ok(CellStatus::Ok));
        assert_eq!(session.cell(1).unwrap().current_state(), CellState::Completed(CellStatus::Ok));
        assert_eq!(activity(), SessionActivity::Idle);
        feeds.begin("2");
        drop(feeds);
        // What had not ended was not run to its end.
        assert!(matches!(session.cell(2).unwrap().current_state(), CellState::NotRun(_)));
        assert_eq!(activity(), SessionActivity::Completed);
    }
}
