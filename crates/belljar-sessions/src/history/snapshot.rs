//! A recorded cell as it is at a moment.

use std::time::Duration;

use belljar_core::{CellStatus, ConnectionRecord, Output};

use super::CellQuestion;
use crate::report::FileChange;

/// The state of a recorded cell.
#[derive(Debug, Clone, PartialEq)]
pub enum CellState {
    /// The cell waits for earlier calls to its session, or for a thread.
    Pending,
    /// The code runs.
    Running,
    /// The code waits on the disk or for an answer.
    Waiting,
    /// The cell has ended.
    Completed(CellStatus),
    /// The cell was not run, for this reason.
    NotRun(String),
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    /// The number of the call in its cell.
    pub number: u64,
    /// The server's name.
    pub server: String,
    /// The tool's name.
    pub tool: String,
    /// The arguments as JSON, shortened.
    pub arguments: String,
    /// The status: see [`ToolCallEvent::status`](belljar_core::ToolCallEvent::status).
    pub status: &'static str,
    /// The time at which the call began, in milliseconds since 1970.
    pub began: u64,
    /// The time from the call to its result, in milliseconds.
    pub duration_ms: f64,
    /// The size of the result, in bytes.
    pub result_bytes: u64,
    /// The error that the code received.
    pub error: Option<String>,
}

/// A cell as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct CellSnapshot {
    /// The state.
    pub state: CellState,
    /// The time at which the code began, in milliseconds since 1970.
    pub began: Option<u64>,
    /// The time at which the cell ended, in milliseconds since 1970.
    pub ended: Option<u64>,
    /// The output, in order.
    pub outputs: Vec<Output>,
    /// The number of bytes and displays that `outputs` lacks.
    pub omitted: u64,
    /// The number of bytes of text that the cell has written: see [`SessionChange::Output`](super::SessionChange).
    pub written: u64,
    /// The files that the cell created or changed.
    pub files: Vec<FileChange>,
    /// The calls of tools, in the order in which they began.
    pub calls: Vec<RecordedCall>,
    /// The number of calls that were not recorded.
    pub omitted_calls: u64,
    /// The connections and HTTP requests that have ended or were refused.
    pub connections: Vec<ConnectionRecord>,
    /// The packages that were installed.
    pub installed: Vec<String>,
    /// The open questions.
    pub questions: Vec<CellQuestion>,
    /// The most bytes of memory that the session's interpreter has had.
    pub memory: Option<u64>,
    /// The processor time of the code in the steps that have ended, if the backend measures it.
    pub cpu: Option<Duration>,
}
