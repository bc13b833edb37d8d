//! The errors of calls to sessions.

use crate::folders::FolderError;
use crate::pool::PoolFull;
use crate::store::StoreError;
use crate::tenants::WorkRefusal;
use belljar_core::files::FileError;
use belljar_core::kernel::KernelError;

/// The error of a call to a session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The session does not exist, or has expired.
    #[error(
        "SessionExpiredError: Session {id} not found or has expired. Sessions expire after {after} of inactivity. Please \
         create a new session (use session_id=\"\" or session_id=\"0\") and re-execute your setup code."
    )]
    Expired {
        /// The given session ID, truncated.
        id: String,
        /// The session timeout: `30 minutes`.
        after: String,
    },
    /// The session's queue is full.
    #[error("SessionBusyError: {waiting} calls to the session are already queued; wait for their results")]
    Queue {
        /// The number of queued calls.
        waiting: usize,
    },
    /// The maximum number of sessions is open.
    #[error("TooManySessionsError: {0} sessions are open, which is the maximum; clear one that is not needed")]
    TooMany(usize),
    /// The threads of the server are busy, and its queue is full.
    #[error("ServerBusyError: {0}")]
    Busy(#[from] PoolFull),
    /// The audit log cannot be written, and no code runs without it.
    #[error("ServerBusyError: {0}")]
    Audit(#[from] belljar_audit::AuditStopped),
    /// A quota of the owner is used up, or the machine has little memory.
    #[error("RefusedError: {0}")]
    Refused(#[from] WorkRefusal),
    /// The kernel failed.
    #[error("SessionError: {0}")]
    Kernel(#[from] KernelError),
    /// A file cannot be read or written.
    #[error("FileError: {0}")]
    File(#[from] FileError),
    /// The session's folder on the host cannot be used.
    #[error("FileError: {0}")]
    Folder(#[from] FolderError),
    /// The session's snapshot cannot be read or written.
    #[error("SessionStateError: {0}")]
    Store(#[from] StoreError),
    /// The session's variables cannot be restored.
    #[error("SessionStateError: the session's variables cannot be restored: {0}. Its files can be listed and read")]
    Unrestorable(String),
    /// The call ended without a result: the session was cleared in the meantime, or an internal error occurred.
    #[error("SessionError: the session was cleared before the call ended")]
    Gone,
}
