//! Events of sessions.

use std::sync::Arc;

use belljar_core::Stream;

use super::SessionHandle;

/// An event of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionEvent {
    /// The session.
    pub session: SessionHandle,
    /// The number of the cell, if it is one of a cell.
    pub cell: Option<u64>,
    /// The change.
    pub change: SessionChange,
}

/// A change of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionChange {
    /// The session was created.
    Created,
    /// The session has ended.
    Closed,
    /// A cell was submitted.
    Submitted,
    /// The code of the cell has begun.
    Began,
    /// The code has written text.
    Output {
        /// The stream.
        stream: Stream,
        /// The text.
        text: Arc<str>,
        /// The number of bytes that the cell has written with it.
        end: u64,
    },
    /// The code has displayed something or updated a display, or its output was cleared.
    Displayed,
    /// A call of a tool has begun or ended, a connection has ended, or packages were installed.
    Called,
    /// The code asks something, or does not wait for an answer any more.
    QuestionsChanged,
    /// The cell has ended.
    Completed,
}

impl SessionChange {
    /// Returns the name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Closed => "ended",
            Self::Submitted => "queued",
            Self::Began => "began",
            Self::Output { .. } => "output",
            Self::Displayed => "displayed",
            Self::Called => "called",
            Self::QuestionsChanged => "asked",
            Self::Completed => "completed",
        }
    }
}
