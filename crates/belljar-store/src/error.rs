//! The errors of remote operations.

use crate::protocol::NodeId;

/// The error of an operation on the store or on the coordination service.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The service did not answer in time, or answered with errors that may pass.
    #[error("failed to {operation}: {reason}")]
    Unavailable {
        /// The operation, as a verb with its object.
        operation: String,
        /// The last error.
        reason: String,
    },
    /// The service refuses the operation and always will: a missing permission, or a feature that it lacks.
    #[error("failed to {operation}: the service refuses it: {reason}")]
    Refused {
        /// The operation, as a verb with its object.
        operation: String,
        /// The service's reason.
        reason: String,
    },
    /// An object has not the content that its name or its record promises.
    #[error("{name} is damaged: {reason}")]
    Damaged {
        /// The object.
        name: String,
        /// The reason.
        reason: String,
    },
    /// An object that a record refers to does not exist.
    #[error("{name} does not exist")]
    Missing {
        /// The object.
        name: String,
    },
    /// A limit is exceeded.
    #[error("{what} has {size} bytes, more than {limit}")]
    TooLarge {
        /// The item.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// A name or another argument has a form that is not accepted.
    #[error("{0}")]
    Invalid(String),
    /// This replica's lease has run out, or was ended by another replica.
    #[error("replica {node} has lost its lease and owns no session any more")]
    Fenced {
        /// The replica.
        node: NodeId,
    },
    /// The random number generator of the system failed.
    #[error("failed to get random bytes: {0}")]
    Random(String),
}

impl StoreError {
    /// Returns what the operator or the caller can do.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "check that the service is reachable; the operation can be repeated",
            Self::Refused { .. } => "check the credentials and the permissions to read, write, list and delete",
            Self::Damaged { .. } => "restore the object from a backup, or delete the session",
            Self::Missing { .. } => "check that no lifecycle rule of the store deletes objects under the prefix",
            Self::TooLarge { .. } => "store less, or in more parts",
            Self::Invalid(_) => "correct the argument",
            Self::Fenced { .. } => "restart the replica, or join again: its sessions continue from their last commit",
            Self::Random(_) => "restart the process",
        }
    }

    /// Returns whether the same operation may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Random(_))
    }

    pub(crate) fn unavailable(operation: impl Into<String>, reason: impl ToString) -> Self {
        Self::Unavailable { operation: operation.into(), reason: reason.to_string() }
    }

    pub(crate) fn damaged(name: impl Into<String>, reason: impl ToString) -> Self {
        Self::Damaged { name: name.into(), reason: reason.to_string() }
    }
}

/// The error of a commit.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// Nothing was written, and the session is still owned: the commit can be repeated.
    #[error("the session's state was not stored: {0}")]
    NotStored(#[source] StoreError),
    /// Nothing was written: this replica does not own the session any more.
    #[error("the session's state was not stored: another replica has taken the session over, or it was deleted")]
    Lost,
    /// The state may have been stored, or may yet be. The session is not owned any more: activate it to find out.
    #[error("it is unknown whether the session's state was stored: the store has not confirmed it in time")]
    Unknown,
    /// Nothing was written: this replica's lease has run out.
    #[error("the session's state was not stored: {0}")]
    Fenced(#[source] StoreError),
}

impl CommitError {
    /// Returns whether it is certain that nothing was stored.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// Returns what the caller can do.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotStored(error) | Self::Fenced(error) => error.hint(),
            Self::Lost => "activate the session: it continues from its last commit, on the replica that owns it",
            Self::Unknown => "activate the session and compare its sequence number with the one before the commit",
        }
    }
}
