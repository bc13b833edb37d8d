//! The limits and timeouts of sessions.

use std::time::Duration;

use crate::report::AnswerOptions;

/// The limits and timeouts of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// The idle time after which a session expires.
    pub timeout: Duration,
    /// The idle time after which a session is hibernated.
    pub sleep_after: Duration,
    /// The maximum number of sessions, active or hibernated.
    pub max_sessions: usize,
    /// The maximum number of queued calls of one session.
    pub max_queued: usize,
    /// The maximum number of bytes of code and files in the queued calls of one session.
    pub max_queued_bytes: usize,
    /// The parts of a cell's result that its report contains.
    pub answers: AnswerOptions,
    /// The time for which the result of a run waits for its client.
    pub run_ttl: Duration,
    /// The maximum size of the recording of a cell, in bytes, with which it survives its process while it holds its
    /// thread in a wait. Zero if cells are not recorded.
    pub replay_memory: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30 * 60),
            sleep_after: Duration::from_secs(5 * 60),
            max_sessions: 1000,
            max_queued: 1 << 14,
            max_queued_bytes: 64 << 20,
            answers: AnswerOptions::default(),
            run_ttl: Duration::from_secs(24 * 3600),
            replay_memory: 64 << 20,
        }
    }
}
