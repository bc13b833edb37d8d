//! The policy for restarting a server whose connection cannot be reestablished, such as a child process that exited.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The policy for restarting a child process that exited while it is in use. The call during which it exited fails; the
/// next one restarts it. The state of the process is lost, so that restarts are off by default.
///
/// ```
/// use std::time::Duration;
/// use belljar_mcp_client::{McpServerStdio, RestartPolicy};
///
/// let policy = RestartPolicy::new(3).within(Duration::from_secs(60));
/// let server = McpServerStdio::new("server").restart(policy).build();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RestartPolicy {
    /// The maximum number of restarts within the period.
    pub max_restarts: u32,
    /// The period in which restarts are counted.
    pub period: Duration,
}

impl RestartPolicy {
    /// Allows this many restarts within five minutes.
    ///
    /// ```
    /// # use belljar_mcp_client::RestartPolicy;
    /// assert_eq!(RestartPolicy::new(3).max_restarts, 3);
    /// ```
    pub fn new(max_restarts: u32) -> Self {
        Self { max_restarts, period: Duration::from_secs(300) }
    }

    /// Sets the period in which restarts are counted.
    ///
    /// ```
    /// # use belljar_mcp_client::RestartPolicy;
    /// # use std::time::Duration;
    /// let policy = RestartPolicy::new(3).within(Duration::from_secs(60));
    /// ```
    pub fn within(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }
}

/// The times of the restarts of one session.
#[derive(Default)]
pub(super) struct Restarts(VecDeque<Instant>);

impl Restarts {
    /// Records a restart; returns false if the policy does not allow another one.
    pub(super) fn record(&mut self, policy: RestartPolicy, now: Instant) -> bool {
        while self.0.front().is_some_and(|first| now.duration_since(*first) >= policy.period) {
            self.0.pop_front();
        }
        let is_allowed = self.0.len() < policy.max_restarts as usize;
        if is_allowed {
            self.0.push_back(now);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_counted_within_the_period() {
        let policy = RestartPolicy::new(2).within(Duration::from_secs(10));
        let start = Instant::now();
        let mut restarts = Restarts::default();
        let allowed = [0, 6, 9, 10, 15, 16].map(|second| restarts.record(policy, start + Duration::from_secs(second)));
        assert_eq!(allowed, [true, true, false, true, false, true]);
        assert!(!Restarts::default().record(RestartPolicy::new(0), start));
    }
}
