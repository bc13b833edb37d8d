//! The list of all sessions of a server, for operators.

use std::time::Duration;

use super::{SessionHandle, SessionHistory};
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
    /// The session has ended.
    Completed,
}

impl SessionActivity {
    /// All activities.
    pub const ALL: [Self; 5] = [Self::Running, Self::Waiting, Self::Idle, Self::Asleep, Self::Completed];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Idle => "idle",
            Self::Asleep => "asleep",
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
    /// The beginning of the code of the last cell.
    pub last_code: String,
    /// The most bytes of memory that the interpreter has had, as of the last cell.
    pub memory: Option<u64>,
    /// True if the session is a call of `run_python_code` that can wait on the disk.
    pub is_program: bool,
}

/// The number of characters of code in an overview.
const MAX_LISTED_CODE: usize = 120;

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
            last_code: String::new(),
            memory: None,
            is_program: false,
        }
    }

    /// Adds what the history has about the session.
    #[must_use]
    pub(crate) fn with_history(mut self, history: &SessionHistory) -> Self {
        let (cells, last) = history.last();
        (self.created, self.cells, self.memory) = (Some(history.created), cells, history.memory());
        if let Some(last) = last {
            self.last_code = last.code.trim_start().chars().take(MAX_LISTED_CODE).collect();
            self.questions = last.questions().len();
            let run = last.run();
            self.is_program = run.as_ref().is_some_and(|run| run.info.is_program);
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
