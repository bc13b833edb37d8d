//! The errors of the store.

use std::io;

use belljar_store::CommitError;

use super::private_directory::DirectoryError;

/// The error of reading or writing a stored session.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The session is active in another process.
    #[error("another server is using the session; it can be used here once it is idle there")]
    InUse,
    /// The session is not in the store.
    #[error("the session does not exist")]
    Missing,
    /// The snapshot is incomplete or corrupt.
    #[error("the session's saved state is damaged: {0}")]
    Damaged(&'static str),
    /// The snapshot was saved for another session.
    #[error("the saved state in the session's directory belongs to another session")]
    OtherSession,
    /// A file of the session is a link, a FIFO or of another type that the store does not write.
    #[error("the session's {name} in the data directory is {found}, which is not used")]
    WrongType {
        /// The name of the file, or `directory`.
        name: &'static str,
        /// The type of the file, with an article.
        found: &'static str,
    },
    /// A file operation failed.
    #[error("failed to {operation} the session's saved state: {error}")]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The cause.
        error: io::Error,
    },
    /// The state is not in the store of the cluster, or it is unknown whether it is.
    #[error("{0}; {hint}", hint = .0.hint())]
    Commit(#[from] CommitError),
    /// The store of the cluster cannot be used.
    #[error("{0}; {hint}", hint = .0.hint())]
    Remote(#[from] belljar_store::StoreError),
    /// The server is ending.
    #[error("the server is ending; try again later")]
    Ending,
}

impl StoreError {
    /// Returns whether this process has lost a session: its state is not the newest any more.
    pub(crate) fn has_lost_session(&self) -> bool {
        match self {
            Self::Commit(error) => !matches!(error, CommitError::NotStored(_)),
            Self::Missing => true,
            _ => false,
        }
    }

    /// Returns a function that converts the error of a file operation.
    pub(crate) fn io<E: Into<DirectoryError>>(operation: &'static str) -> impl Fn(E) -> Self + Copy {
        move |error| match error.into() {
            DirectoryError::Io(error) => Self::Io { operation, error },
            DirectoryError::WrongType { name, found } => Self::WrongType { name, found },
            DirectoryError::TooLong(_) => Self::Damaged("it is too long"),
        }
    }

    /// Returns a function that does the same, but turns the error of a missing file into [`StoreError::Missing`].
    pub(super) fn missing_or_io(operation: &'static str) -> impl Fn(DirectoryError) -> Self + Copy {
        move |error| if error.is_missing() { Self::Missing } else { Self::io(operation)(error) }
    }
}
