//! Sessions: interpreters that keep their state between calls. This crate creates, finds, runs, hibernates and expires
//! them. [`belljar_core::kernel`] defines the backends that run them.
//!
//! ```text
//!  execute(id, cell) ─▶ Sessions: lookup ─▶ Session: queue ─▶ GuestThreadPool ─▶ Kernel: running, or restored
//!                          │ clock, limits                                          │
//!                          └─ evict_idle: expire, hibernate ◀─ Store: snapshots ◀───┘ snapshot after the cell
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `sessions` | all sessions: the table, the queueing of calls, expiry and hibernation |
//! | `session` | one session: its queue |
//! | `state` | the state of one session, and the operations on it |
//! | `report` | the result of a cell, with its images and overlong text saved in files |
//! | `id`, `clock` | session IDs, the source of time |
//! | `outputs`, `traceback` | truncation of overlong output and tracebacks |
//! | `files` | names, addresses and types of a session's files |
//! | `folders` | directories of the host that hold the files of sessions |
//! | `store`, `bases` | snapshots on disk, and what they are differences from |
//! | `cluster` | sessions whose states are in a store that several servers share |
//! | `notebook` | notebook files |
//! | `pool` | guest threads and their queue |
//! | `runs` | cells that can wait for longer than their client or their process lives |
//! | `history` | the last cells of sessions, for operators |
//! | `parking` | waits of code that holds no thread |
//! | `error` | the errors of calls |
//! | `os` | what depends on the operating system |
//! | `tenants` | owners of calls and sessions: their quotas, and their turns |

mod bases;
mod clock;
mod cluster;
mod error;
mod files;
mod folders;
mod history;
mod id;
pub mod notebook;
mod os;
mod outputs;
mod parking;
mod pool;
mod report;
mod runs;
mod session;
mod sessions;
mod state;
mod store;
mod tenants;
mod traceback;

pub use belljar_store::{ClusterUrl, StoreKind, StoreUrl, Variables};
pub use clock::{Clock, ManualClock, SystemClock};
pub use cluster::{Cluster, ClusterError, ClusterOptions, Durability, Node, Place, RemoteRun};
pub use error::SessionError;
pub use files::{FileAddress, is_text, mime_of};
pub use folders::{FolderError, SessionFolders};
pub use history::{
    CellQuestion, CellRecord, CellSnapshot, CellState, FeedsRecord, History, RecordedCall, RunEnd, RunRecord,
    SessionActivity, SessionChange, SessionEvent, SessionHandle, SessionHistory, SessionOverview,
};
pub use id::SessionId;
pub use notebook::NotebookError;
pub use parking::ParkedWork;
pub use pool::{GuestThreadPool, Permit, PoolFull, PoolLimits, PoolLoad};
pub use report::{AfterKernelDeath, AnswerOptions, CellReport, FileChange};
pub use runs::{
    InvalidEvent, NoSuchQuestion, Question, ResumedCalls, Run, RunAnswer, RunCalls, RunEvent, RunId, RunInfo,
    RunOutcome, RunResumer, RunState, RunUpdate,
};
pub use sessions::{Owner, ResumedReport, ResumedRun, SessionOptions, Sessions, StoredRuns};
pub use state::files::MAX_UPLOAD;
pub use store::{ListedRun, RunCommand, SnapshotHeader, Store, StoreError, StoredResult, StoredRun, StoredSession};
pub use tenants::{
    CallTicket, InvalidQuota, JobTicket, LoadState, LoadThresholds, MAX_QUOTA_FILE, QuotaExceeded, QuotaFileError,
    QuotaKind, QuotaSettings, QuotaTable, Quotas, RefusalDetails, SessionSlot, Tenant, TenantKey, Tenants, WorkRefusal,
    watch_memory,
};
