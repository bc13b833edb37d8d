//! Cells that hold their thread while they wait, and can still be continued elsewhere: their kernel records them.
//!
//! Such a cell has a stack that no snapshot contains. A snapshot from before the cell and a recording of what the cell
//! has received since can be saved instead, and running the cell again with the recording leads to the same wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kernel::KernelError;

/// Saves a cell that holds its thread while it waits. Runs on the thread that the cell holds.
pub trait HeldCellSaver: Send + Sync {
    /// Receives, several times a second, that the cell waits. Saves it if it is time to, with what `snapshot` returns.
    fn on_wait(&self, wait: &HeldWait<'_>, snapshot: &mut SnapshotOfWait<'_>) -> HeldWaitDecision;

    /// Receives that the wait is over: the code goes on when this returns.
    ///
    /// # Errors
    /// Returns the reason why the code must not go on.
    fn end_wait(&self) -> Result<(), String>;
}

/// Makes the snapshot of a cell that holds its thread while it waits. Receives the metadata of the snapshot from which
/// the cell was begun, and the length of its data.
pub type SnapshotOfWait<'a> = dyn FnMut(&Value, usize) -> Result<HeldSnapshot, KernelError> + 'a;

/// The snapshot of a cell that holds its thread while it waits. Its data is the beginning of the data of the snapshot
/// from which the cell was begun, and the recording.
#[derive(Debug)]
pub struct HeldSnapshot {
    /// [`KernelSnapshot::metadata`](crate::kernel::KernelSnapshot::metadata).
    pub metadata: Value,
    /// The length of that beginning.
    pub start_length: usize,
    /// The recording.
    pub recording: Vec<u8>,
}

/// A wait of a cell that holds its thread.
pub struct HeldWait<'a> {
    /// The time since its beginning.
    pub elapsed: Duration,
    /// The object of the wait.
    pub kind: HeldWaitKind,
    /// Returns whether a reply has arrived since the cell was saved, or since the beginning of the wait.
    /// A cell that was saved is saved again then, if the code waits on.
    pub has_replies: &'a dyn Fn() -> bool,
    /// The time after which the code goes on by itself.
    pub timer: Option<Duration>,
    /// True if there will be no reply here, since the server ends.
    pub is_abandoned: bool,
}

/// The object of a wait that holds its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeldWaitKind {
    /// A line of input.
    Input,
    /// Functions of the host.
    Calls,
    /// A time, which only the code knows.
    Sleep,
}

/// The decision about a cell that holds its thread while it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldWaitDecision {
    /// The cell waits on.
    Wait,
    /// The interpreter ends: the cell is saved, and goes on in another one.
    Suspend,
}

/// The recorder of a cell: see [`Kernel::record`](crate::kernel::Kernel::record).
#[derive(Clone)]
pub struct CellRecorder {
    /// Saves the cell.
    pub saver: Arc<dyn HeldCellSaver>,
    /// The maximum size of the recording, in bytes. A cell with a longer one waits in its process only.
    pub max_bytes: usize,
}

impl fmt::Debug for CellRecorder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CellRecorder").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}
