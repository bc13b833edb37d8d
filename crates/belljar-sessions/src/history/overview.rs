//! The list of all sessions of a server, for operators.

use std::sync::Arc;
use std::time::Duration;

use super::{AbsenceReason, SessionHandle, SessionHistory};
use crate::id::SessionId;
use crate::sessions::Owner;

/// The activity of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionActivity {
    /// A call runs or waits for a thread.
    Running,
    /// A cell waits: for an answer, a call or a timer.
    Waiting,
    /// The interpreter is in memory, or was not started yet.
    Idle,
    /// The interpreter is on the disk.
    Asleep,
    /// This server has given the session up to the cluster's store: it is there, or in another replica.
    Away,
    /// The session has ended.
    Completed,
}

impl SessionActivity {
    /// All activities.
    pub const ALL: [Self; 6] = [Self::Running, Self::Waiting, Self::Idle, Self::Asleep, Self::Away, Self::Completed];

    /// Returns the name in the admin API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Idle => "idle",
            Self::Asleep => "asleep",
            Self::Away => "away",
            Self::Completed => "ended",
        }
    }
}

/// A session as operators see it in a list.
#[derive(Debug, Clone)]
pub struct SessionOverview {
    /// The name.
    pub handle: SessionHandle,
    /// The ID, which is a secret.
    pub id: SessionId,
    /// The only client that may use the session, if it was created with authentication.
    pub owner: Option<Owner>,
    /// The activity.
    pub activity: SessionActivity,
    /// The time of the creation, or of the first use since the server's start, in milliseconds since 1970.
    pub created: Option<u64>,
    /// The time of the last use, since 1970.
    pub last_used: Option<Duration>,
    /// The number of calls that wait for those before them.
    pub waiting_calls: usize,
    /// The number of cells since the server's start.
    pub cells: u64,
    /// The number of open questions of the last cell.
    pub questions: usize,
    /// The code of the last cell.
    pub last_code: Arc<str>,
    /// The most bytes of memory that the interpreter has had, as of the last cell.
    pub memory: Option<u64>,
    /// True if the session is a call of `run_python_code`.
    pub is_program: bool,
    /// True for a call of `run_python_code` that cannot wait on the disk: there is no session.
    pub is_run: bool,
    /// True for a session of Monty's protocol.
    pub is_feeds: bool,
}

impl SessionOverview {
    /// Creates the overview of a session with what the table has about it.
    pub(crate) fn new(
        handle: SessionHandle,
        id: SessionId,
        owner: Option<Owner>,
        activity: SessionActivity,
        last_used: Option<Duration>,
    ) -> Self {
        Self {
            handle,
            id,
            owner,
            activity,
            created: None,
            last_used,
            waiting_calls: 0,
            cells: 0,
            questions: 0,
            last_code: "".into(),
            memory: None,
            is_program: false,
            is_run: false,
            is_feeds: false,
        }
    }

    /// Creates the overview of a session that is not in the table, of code that runs once, or of feeds.
    pub(crate) fn for_absent_session(id: SessionId, history: &SessionHistory) -> Self {
        let absence = history.absence();
        let activity = match absence {
            None if history.is_run() => SessionActivity::Running,
            None if history.is_feeds() => {
                let runs = history.last().1.is_some_and(|feed| !feed.has_ended());
                if runs { SessionActivity::Running } else { SessionActivity::Idle }
            }
            Some(absence) if absence.reason == AbsenceReason::Away => SessionActivity::Away,
            // Without a reason, the session is about to end.
            _ => SessionActivity::Completed,
        };
        let used = if history.is_feeds() { history.updated() } else { history.created };
        let last_used = absence.map_or(used, |absence| absence.since);
        let last_used = Some(Duration::from_millis(last_used));
        Self::new(history.handle().clone(), id, history.owner.clone(), activity, last_used).with_history(history)
    }

    /// Adds what the history has about the session.
    #[must_use]
    pub(crate) fn with_history(mut self, history: &SessionHistory) -> Self {
        let (cells, last) = history.last();
        (self.created, self.cells, self.memory) = (Some(history.created), cells, history.memory());
        (self.is_program, self.is_run) = (history.is_run(), history.is_run());
        self.is_feeds = history.is_feeds();
        if let Some(last) = last {
            self.last_code = last.code.clone();
            self.questions = last.questions().len();
            let run = last.run();
            self.is_program |= run.as_ref().is_some_and(|run| run.info.is_program);
            let is_asleep = run.is_some_and(|run| run.state() == crate::runs::RunState::Asleep);
            if self.activity == SessionActivity::Running
                && (is_asleep || last.current_state() == super::CellState::Waiting)
            {
                self.activity = SessionActivity::Waiting;
            }
        }
        self
    }
}
