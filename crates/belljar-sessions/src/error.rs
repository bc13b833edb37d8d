//! Why a call to a session was not answered, in words to act on.

use crate::pool::Busy;
use crate::store::StoreError;
use belljar_core::files::FileError;
use belljar_core::kernel::KernelError;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no such session, or there was one.
    #[error(
        "SessionExpiredError: Session {id} not found or has expired. Sessions expire after {after} of inactivity. Please \
         create a new session (use session_id=\"\" or session_id=\"0\") and re-execute your setup code."
    )]
    Expired {
        /// The name that was given, shortened.
        id: String,
        /// `30 minutes`
        after: String,
    },
    /// Its queue is full.
    #[error("SessionBusyError: {waiting} calls to the session wait already; wait for their answers")]
    Queue {
        /// How many wait.
        waiting: usize,
    },
    /// There are too many.
    #[error(
        "TooManySessionsError: {0} sessions are open, and no more can be; clear one that is not needed (--max-sessions)"
    )]
    TooMany(usize),
    /// Too much is being done already.
    #[error("ServerBusyError: {0}")]
    Busy(#[from] Busy),
    /// The kernel does not do it.
    #[error("SessionError: {0}")]
    Kernel(#[from] KernelError),
    /// The file cannot be read or written.
    #[error("FileError: {0}")]
    File(#[from] FileError),
    /// Its state cannot be used.
    #[error("SessionStateError: {0}")]
    Store(#[from] StoreError),
    /// Its variables cannot be brought back.
    #[error(
        "SessionStateError: the session's variables cannot be restored: {0}. Its files can be listed and read; \
         restart_session begins anew with them"
    )]
    Refused(String),
    /// The call ended without an answer: the session was cleared meanwhile, or a fault of ours.
    #[error("SessionError: the session was cleared before the call was answered")]
    Gone,
}
