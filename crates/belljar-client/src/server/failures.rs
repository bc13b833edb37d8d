//! Attempts to connect that several callers share: the callers that waited for an attempt get its failure instead of
//! repeating it one after another.

use std::io;

use parking_lot::Mutex;

use crate::error::McpError;

/// The failures of a sequence of attempts, of which only the last is kept.
#[derive(Default)]
pub(super) struct Failures(Mutex<(u64, Option<McpError>)>);

impl Failures {
    /// Returns the number of failures so far.
    pub(super) fn count(&self) -> u64 {
        self.0.lock().0
    }

    /// Returns the last failure, if it is later than this number of failures.
    pub(super) fn since(&self, count: u64) -> Option<McpError> {
        let failures = self.0.lock();
        failures.1.as_ref().filter(|_| failures.0 != count).map(duplicate)
    }

    pub(super) fn record(&self, error: &McpError) {
        let mut failures = self.0.lock();
        *failures = (failures.0 + 1, Some(duplicate(error)));
    }
}

/// Copies an error of an attempt to connect. Sources that cannot be copied become part of the text.
fn duplicate(error: &McpError) -> McpError {
    match error {
        McpError::Spawn { command, error } => {
            let error = match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(error.kind(), error.to_string()),
            };
            McpError::Spawn { command: command.clone(), error }
        }
        McpError::Connect { server, reason, status, retry_after, source: _ } => McpError::Connect {
            server: server.clone(),
            reason: reason.clone(),
            status: *status,
            retry_after: *retry_after,
            source: None,
        },
        McpError::Closed { server, reason } => McpError::Closed { server: server.clone(), reason: reason.clone() },
        McpError::Unauthorized { server, reason, status } => {
            McpError::Unauthorized { server: server.clone(), reason: reason.clone(), status: *status }
        }
        McpError::Unreachable { server, reason, status, retry_after } => McpError::Unreachable {
            server: server.clone(),
            reason: reason.clone(),
            status: *status,
            retry_after: *retry_after,
        },
        McpError::Timeout { server, method, seconds, diagnostics } => McpError::Timeout {
            server: server.clone(),
            method: method.clone(),
            seconds: *seconds,
            diagnostics: diagnostics.clone(),
        },
        McpError::Protocol { server, code, message, data } => {
            McpError::Protocol { server: server.clone(), code: *code, message: message.clone(), data: data.clone() }
        }
        McpError::InvalidResponse { server, reason } => {
            McpError::InvalidResponse { server: server.clone(), reason: reason.clone() }
        }
        other => McpError::Hook(other.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_after_the_count_are_returned() {
        let failures = Failures::default();
        let before = failures.count();
        assert!(failures.since(before).is_none());
        failures.record(&McpError::Closed { server: "s".to_owned(), reason: "r".to_owned() });
        assert_eq!(failures.since(before).unwrap().to_string(), "the connection to s is closed: r");
        assert!(failures.since(failures.count()).is_none());
    }

    #[test]
    fn duplicates_have_the_same_text() {
        let error = io::Error::from_raw_os_error(2);
        let spawn = McpError::Spawn { command: "c".to_owned(), error };
        assert_eq!(duplicate(&spawn).to_string(), spawn.to_string());
        assert!(matches!(duplicate(&spawn), McpError::Spawn { .. }));
    }
}
