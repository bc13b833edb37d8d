//! The vocabulary that Belljar's crates share: requests, limits, results, and the interface of what runs Python.
//!
//! This crate runs no Python itself, so that every backend and every front end can depend on it.
//!
//! | file | subject |
//! | --- | --- |
//! | [`kernel`] | the traits of backends and kernels |
//! | `cell_observer` | the receiver of what code does while it runs |
//! | `kernel_requests` | the requests to backends and kernels |
//! | `kernel_error` | the errors of kernels and backends |
//! | `run_request`, `limits` | what code is run with |
//! | `execution`, `exit_reason` | how code ended |
//! | `report` | the result of a run or a cell in one type, for callers that are programs |
//! | `exchange` | Python values and calls that cross between the code and its caller |
//! | `output`, [`mime`] | what cells write and display |
//! | `output_collector`, `image_collector` | output and images, collected within bounds |
//! | [`truncation`] | text for models, cut to a length |
//! | `cancellation` | calls whose caller has gone |
//! | `cell_watcher` | operators that follow a cell while it runs |
//! | [`files`], `session_folder` | a session's files, and directories of the host for them |
//! | [`progress`] | progress of long work |
//! | `waiting` | code that waits without a thread |
//! | `held_threads` | threads that code holds while it waits |
//! | `connection` | records of the network use of code |
//! | `connection_log` | those of one run or cell |
//! | `install_record` | records of installations of packages |
//! | `held_cell` | cells that hold their thread while they wait, and are recorded for another process |
//! | `statistics` | numbers for the metrics of servers |
//! | [`activity`] | what code does, for the audit log and for traces |
//! | `party` | the parties that answer questions of code |
//! | `usage_meter` | the meter of what code uses on behalf of an owner |
//! | [`bounded_json`] | JSON from a guest |

pub mod activity;
pub mod bounded_json;
mod cancellation;
mod cell_observer;
mod cell_watcher;
mod connection;
mod connection_log;
mod exchange;
mod execution;
mod exit_reason;
pub mod files;
mod held_cell;
mod held_threads;
mod image_collector;
mod install_record;
pub mod kernel;
mod kernel_error;
mod kernel_requests;
mod limits;
pub mod mime;
pub mod os;
mod output;
mod output_collector;
mod party;
mod priority;
mod processor_time;
pub mod progress;
mod report;
mod run_request;
mod session_folder;
mod statistics;
pub mod truncation;
mod usage_meter;
mod waiting;

pub use activity::{Activity, Scope};
/// Bytes that clones share, the type of buffers.
pub use bytes::Bytes;
pub use cancellation::{CallCancellation, CancelOnDrop};
pub use cell_watcher::{CellWatcher, OperatorAnswer, ToolCallEvent};
pub use connection::{ConnectionRecord, NETWORK_KEY};
pub use connection_log::{ConnectionLog, RecordedConnections};
pub use exchange::{
    Buffer, EncodedValue, Exchange, FunctionCall, FunctionError, FunctionReply, HostFunction, Parameter,
    TOOL_OPERATIONS, TOOLS_MODULE,
};
pub use execution::{
    CellResult, CellStatus, Execution, MissingDependency, Obstacle, Outcome, PythonError, RunReport, Statistics, Value,
};
pub use exit_reason::{ExitReason, LimitKind};
pub use held_cell::{
    CellRecorder, HeldCellSaver, HeldSnapshot, HeldWait, HeldWaitDecision, HeldWaitKind, SnapshotOfWait,
};
pub use held_threads::{HeldThreads, HoldingWait};
pub use image_collector::ImageCollector;
pub use install_record::InstallRecord;
pub use limits::{Limits, ParseSizeError, format_size, parse_size};
pub use output::{Output, Stream};
pub use output_collector::{OutputCollector, SavedOutput, TooMuchOutput};
pub use party::Party;
pub use priority::{give_way, gives_way, note_giving_way};
pub use processor_time::{add_processor_time, is_processor_time_measured};
pub use progress::{NoProgress, Progress};
pub use report::{REPORT_KEY, Report, ReportError, ReportImage, ReportRequest, ReportStatus, ReportValue};
pub use run_request::{RunRequest, SourceMode};
pub use session_folder::SessionFolder;
pub use statistics::{BackendStatistics, CacheStatistics, CacheUses, InstallStatistics};
pub use usage_meter::{MeterScope, UsageMeter, current_meter};
pub use waiting::{CellStep, ReplySender, RestoredRun, RunStep, Wait, WaitingRun, Waker, WakingInterruptHandle};
