//! How calls of tools are answered, as metrics, spans and records name it.

use belljar_core::{CellStatus, ExitReason, LimitKind, Outcome};
use belljar_sessions::SessionError;

use super::Refusal;

/// How a call of a tool was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CallStatus {
    Success,
    /// The code raised an exception, or ended its interpreter.
    RunError,
    /// The code reached a limit.
    LimitReached(LimitKind),
    /// A package was not installed, and the code did not run.
    InstallError,
    /// The call was refused because of a limit of the server.
    Refused(Refusal),
    /// The session does not exist, or has expired.
    UnknownSession,
    /// The arguments are not valid.
    Invalid,
    /// The call waits for input: the client repeats it with an answer.
    InputRequired,
    /// The call became a task, whose result the client polls.
    Task,
    /// The client cancelled the call, or disconnected.
    Cancelled,
    /// The server failed to do what the call asked for.
    Failed,
}

/// Returns the names of all statuses: the values of the label `status`.
pub fn call_statuses() -> impl Iterator<Item = &'static str> {
    CallStatus::ALL.into_iter().map(CallStatus::name)
}

impl CallStatus {
    /// A status of each name.
    const ALL: [Self; 10] = [
        Self::Success,
        Self::RunError,
        Self::InstallError,
        Self::Refused(Refusal::QueueFull),
        Self::UnknownSession,
        Self::Invalid,
        Self::InputRequired,
        Self::Task,
        Self::Cancelled,
        Self::Failed,
    ];

    /// Every label value: a status, of which those with a reason share one.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RunError | Self::LimitReached(_) => "run-error",
            Self::InstallError => "install-error",
            Self::Refused(_) => "refused",
            Self::UnknownSession => "unknown-session",
            Self::Invalid => "invalid",
            Self::InputRequired => "input-required",
            Self::Task => "task",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

impl From<&Outcome> for CallStatus {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Success(_) | Outcome::Exited(ExitReason::Exit(0)) => Self::Success,
            Outcome::InstallError(_) => Self::InstallError,
            Outcome::Exited(ExitReason::Limit(limit)) => Self::LimitReached(*limit),
            Outcome::Error(error) => from_exception(&error.kind),
            Outcome::Exited(_) => Self::RunError,
        }
    }
}

impl From<&CellStatus> for CallStatus {
    fn from(status: &CellStatus) -> Self {
        match status {
            CellStatus::Ok => Self::Success,
            CellStatus::Error(error) => from_exception(&error.name),
            CellStatus::TimedOut { waited: true, .. } => Self::LimitReached(LimitKind::WaitTime),
            CellStatus::TimedOut { .. } => Self::LimitReached(LimitKind::WallTime),
            CellStatus::KernelDied(ExitReason::Limit(limit)) => Self::LimitReached(*limit),
            CellStatus::KernelDied(_) => Self::RunError,
        }
    }
}

/// Returns the status of code that an exception of this class ended. Below the limit of memory, allocations fail.
fn from_exception(class: &str) -> CallStatus {
    if class == "MemoryError" { CallStatus::LimitReached(LimitKind::Memory) } else { CallStatus::RunError }
}

impl From<&SessionError> for CallStatus {
    fn from(error: &SessionError) -> Self {
        match error {
            SessionError::Expired { .. } => Self::UnknownSession,
            SessionError::Queue { .. } => Self::Refused(Refusal::SessionQueueFull),
            SessionError::TooMany(_) => Self::Refused(Refusal::SessionsFull),
            SessionError::Busy(_) => Self::Refused(Refusal::QueueFull),
            SessionError::Refused(refusal) => Self::Refused(refusal.into()),
            SessionError::File(_) => Self::Invalid,
            SessionError::Audit(_) => Self::Refused(Refusal::AuditFailed),
            SessionError::Kernel(_)
            | SessionError::Store(_)
            | SessionError::Folder(_)
            | SessionError::Unrestorable(_)
            | SessionError::Gone => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_statuses_have_every_name() {
        // The compiler asks for the place of a new status, which is then found missing.
        let place = |status: CallStatus| match status {
            CallStatus::Success => 0,
            CallStatus::RunError | CallStatus::LimitReached(_) => 1,
            CallStatus::InstallError => 2,
            CallStatus::Refused(_) => 3,
            CallStatus::UnknownSession => 4,
            CallStatus::Invalid => 5,
            CallStatus::InputRequired => 6,
            CallStatus::Task => 7,
            CallStatus::Cancelled => 8,
            CallStatus::Failed => 9,
        };
        assert!(CallStatus::ALL.into_iter().map(place).eq(0..CallStatus::ALL.len()));
        let names: std::collections::BTreeSet<_> = call_statuses().collect();
        assert_eq!(names.len(), CallStatus::ALL.len());
    }
}
