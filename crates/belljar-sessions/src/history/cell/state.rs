//! The state of a recorded cell: its output, calls and connections so far.

use belljar_core::{CellStatus, ConnectionRecord, ToolCallEvent};

use crate::history::output::BoundedOutput;
use crate::history::questions::Questions;
use crate::history::{CellState, RecordedCall};
use crate::report::FileChange;
use crate::sessions::milliseconds_now;

/// The maximum number of recorded calls of tools of a cell.
const MAX_CALLS: usize = 500;
/// The number of bytes that a call counts in addition to its texts.
const CALL_BYTES: usize = 200;

/// The state of a record.
pub(super) struct State {
    pub(super) state: CellState,
    pub(super) began: Option<u64>,
    pub(super) ended: Option<u64>,
    pub(super) output: BoundedOutput,
    pub(super) files: Vec<FileChange>,
    pub(super) calls: Vec<RecordedCall>,
    pub(super) omitted_calls: u64,
    pub(super) connections: Vec<ConnectionRecord>,
    pub(super) installed: Vec<String>,
    pub(super) questions: Questions,
    pub(super) memory: Option<u64>,
    /// The bytes of the calls, connections, packages and files, and of the error.
    pub(super) other_bytes: usize,
}

impl State {
    pub(super) fn size(&self) -> usize {
        self.output.size() + self.questions.size() + self.other_bytes
    }

    /// Records a call of a tool that begins, or has ended.
    pub(super) fn note_call(&mut self, event: &ToolCallEvent<'_>) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.number == event.number) {
            (call.status, call.duration_ms) = (event.status, event.duration_ms);
            call.result_bytes = event.result_bytes;
            call.error = event.error.map(str::to_owned);
            self.other_bytes += event.error.map_or(0, str::len);
        } else if self.calls.len() < MAX_CALLS {
            self.other_bytes += CALL_BYTES + event.arguments.len() + event.error.map_or(0, str::len);
            self.calls.push(RecordedCall {
                number: event.number,
                server: event.server.to_owned(),
                tool: event.tool.to_owned(),
                arguments: event.arguments.to_owned(),
                status: event.status,
                began: milliseconds_now(),
                duration_ms: event.duration_ms,
                result_bytes: event.result_bytes,
                error: event.error.map(str::to_owned),
            });
        } else if event.status == "running" {
            self.omitted_calls += 1;
        }
    }
}

/// Returns the bytes of the error that a cell ended with.
pub(super) fn size_of_error(status: &CellStatus) -> usize {
    let lines = |traceback: &[String]| traceback.iter().map(String::len).sum::<usize>();
    match status {
        CellStatus::Error(error) => error.name.len() + error.message.len() + lines(&error.traceback),
        CellStatus::TimedOut { traceback, .. } => lines(traceback),
        CellStatus::Ok | CellStatus::KernelDied(_) => 0,
    }
}
