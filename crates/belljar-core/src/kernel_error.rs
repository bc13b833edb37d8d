//! The errors of kernels and backends, and of the code that they run.

use std::borrow::Cow;
use std::fmt;

use crate::exit_reason::ExitReason;

/// The cause of an error, as the crate that knows its type reports it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The error of a kernel or of its backend.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Python could not be made ready.
    #[error("{0}")]
    Start(#[source] BoxError),
    /// A package that the caller of the code asked for is not a valid requirement.
    #[error("dependencies: {0}")]
    InvalidDependency(#[source] BoxError),
    /// The network policy of a request is not valid, or comes too late.
    #[error("network: {0}")]
    InvalidNetwork(#[source] BoxError),
    /// The limit of memory is lower than what an interpreter takes before it runs anything.
    #[error("a session needs at least {needed_megabytes} MB of memory, and its limit is lower")]
    MemoryLimitTooLow {
        /// The memory that an idle session takes.
        needed_megabytes: u64,
    },
    /// A snapshot cannot be used by this backend, or not any more.
    #[error("{0}")]
    IncompatibleSnapshot(#[source] BoxError),
    /// A package could not be installed.
    #[error("{0}")]
    Install(#[source] BoxError),
    /// The backend does not support the operation.
    #[error("{0}")]
    Unsupported(Cow<'static, str>),
    /// The shell failed to answer a request that is not a cell.
    #[error(transparent)]
    Shell(#[from] ShellError),
    /// The process of the kernel has ended.
    #[error("the worker process of the session has ended, and with it its variables and files")]
    ProcessEnded,
    /// The call was cancelled before its code ran.
    #[error("the call was cancelled")]
    Cancelled,
    /// The operation failed.
    #[error("{0}")]
    Failed(#[source] BoxError),
}

/// The reason why a shell request has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShellError {
    /// Code that the request ran, such as a property's, raised this exception.
    #[error("{0}")]
    Exception(CellError),
    /// The shell was interrupted.
    #[error("KeyboardInterrupt")]
    Interrupted,
    /// The shell did not reply in time.
    #[error("TimeoutError: the kernel did not reply in time")]
    TimedOut,
    /// The reply is missing or does not match the messaging specification.
    #[error("the kernel sent an invalid reply")]
    InvalidReply,
    /// The interpreter ended.
    #[error("the interpreter ended while it handled the request")]
    Exited(ExitReason),
}

/// An exception that left a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellError {
    /// The name of the exception's class: `ZeroDivisionError`. Jupyter's `ename`.
    pub name: String,
    /// The exception's text. Jupyter's `evalue`.
    pub message: String,
    /// The traceback as the shell prints it, piece by piece; may have ANSI colours.
    pub traceback: Vec<String>,
}

impl fmt::Display for CellError {
    /// Writes `ZeroDivisionError: division by zero`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        if self.message.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.message) }
    }
}

/// The reply to a request for input: a line, or the reason for its absence.
pub type InputReply = Result<String, InputError>;

/// The reason why a request for input gets no line. The code that asked receives the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The caller of the code cannot be asked.
    #[error("input() is not available here: set the value in the code instead")]
    Unavailable,
    /// The caller of the code cannot be asked, for this reason.
    #[error("input() is not available: {0}. Set the value in the code instead")]
    Unsupported(&'static str),
    /// The caller of the code cannot be asked for secrets, for this reason.
    #[error("getpass() is not available: {0}")]
    SecretsForbidden(&'static str),
    /// As many cells as may wait for input wait for it.
    #[error("{0} cells wait for answers already: set the value in the code instead")]
    TooManyWaiting(usize),
    /// The client was asked, and declined.
    #[error("the question was declined")]
    Declined,
    /// The client was asked, and its answer has no line.
    #[error("the client did not answer: {0}")]
    NoAnswer(String),
    /// The client is gone.
    #[error("the client has disconnected")]
    Disconnected,
    /// The client was asked, and no answer arrived in time.
    #[error("no input arrived in time")]
    TimedOut,
    /// The code was interrupted while it waited.
    #[error("interrupted while waiting for input")]
    Interrupted,
}
