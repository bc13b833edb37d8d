//! Repetition of requests that are safe to repeat, with increasing delays.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::McpError;

/// The policy for repeating requests that failed in transport. Off by default, because the delays are invisible to an
/// agent that could do something else meanwhile.
///
/// Lists, resources, prompts and completions are repeated if the connection was lost or the server responded with
/// status 502, 503 or 504; so are calls of tools that are annotated as read-only or idempotent. Any
/// request is repeated after status 429, because the server did not process it. A `Retry-After` is honoured; one that
/// exceeds the maximum delay is an error at once, which contains it.
///
/// ```
/// use std::time::Duration;
/// use belljar_mcp_client::{McpServerStreamableHttp, RetryPolicy};
///
/// # fn main() -> Result<(), belljar_mcp_client::McpError> {
/// let policy = RetryPolicy::new(3).max_delay(Duration::from_secs(30));
/// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.retry(policy).build();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The maximum number of repetitions of a request.
    pub retries: u32,
    /// The delay before the first repetition; doubles with every further one.
    pub first_delay: Duration,
    /// The maximum delay.
    pub max_delay: Duration,
}

impl RetryPolicy {
    /// Allows this many repetitions, after 0.5, 1, 2, … seconds, at most 10.
    ///
    /// ```
    /// # use belljar_mcp_client::RetryPolicy;
    /// assert_eq!(RetryPolicy::new(3).retries, 3);
    /// ```
    pub fn new(retries: u32) -> Self {
        Self { retries, first_delay: Duration::from_millis(500), max_delay: Duration::from_secs(10) }
    }

    /// Sets the delay before the first repetition.
    ///
    /// ```
    /// # use belljar_mcp_client::RetryPolicy;
    /// # use std::time::Duration;
    /// let policy = RetryPolicy::new(3).first_delay(Duration::from_millis(100));
    /// ```
    pub fn first_delay(mut self, delay: Duration) -> Self {
        self.first_delay = delay;
        self
    }

    /// Sets the maximum delay, also of a `Retry-After`.
    ///
    /// ```
    /// # use belljar_mcp_client::RetryPolicy;
    /// # use std::time::Duration;
    /// let policy = RetryPolicy::new(3).max_delay(Duration::from_secs(60));
    /// ```
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// Returns the delay before the repetition of a request that failed with this error, if it may be repeated.
    fn delay(self, done: u32, error: &McpError, is_safe: bool) -> Option<Duration> {
        let requested = match error {
            McpError::Unreachable { status: Some(429), retry_after, .. } => *retry_after,
            McpError::Unreachable { status: Some(502..=504), retry_after, .. } if is_safe => *retry_after,
            McpError::Unreachable { status: None, .. } | McpError::Closed { .. } if is_safe => None,
            _ => return None,
        };
        if done >= self.retries || requested.is_some_and(|requested| requested > self.max_delay) {
            return None;
        }
        let backoff = self.first_delay.saturating_mul(2u32.saturating_pow(done)).min(self.max_delay);
        Some(requested.map_or(backoff, |requested| requested.max(backoff)))
    }
}

/// The repetitions of one request.
pub(super) struct Retries {
    policy: Option<RetryPolicy>,
    is_safe: bool,
    done: u32,
}

impl Retries {
    /// Creates the repetitions of a request; `is_safe` allows the server to process it twice.
    pub(super) fn new(policy: Option<RetryPolicy>, is_safe: bool) -> Self {
        Self { policy, is_safe, done: 0 }
    }

    /// Waits before the repetition of a request that failed with this error; returns false if it must not be repeated.
    pub(super) async fn wait(&mut self, error: &McpError) -> bool {
        let Some(delay) = self.policy.and_then(|policy| policy.delay(self.done, error, self.is_safe)) else {
            return false;
        };
        self.done += 1;
        tracing::debug!(%error, ?delay, "repeating a request");
        tokio::time::sleep(delay).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(status: Option<u16>, retry_after: Option<u64>) -> McpError {
        let retry_after = retry_after.map(Duration::from_secs);
        McpError::Unreachable { server: "s".to_owned(), reason: "r".to_owned(), status, retry_after }
    }

    #[test]
    fn only_refused_requests_are_repeated_if_unsafe() {
        let policy = RetryPolicy::new(2);
        let half = Some(Duration::from_millis(500));
        assert_eq!(policy.delay(0, &failed(Some(429), None), false), half);
        assert_eq!(policy.delay(0, &failed(Some(503), None), false), None);
        assert_eq!(policy.delay(0, &failed(None, None), false), None);
        for status in [Some(503), None] {
            assert_eq!(policy.delay(0, &failed(status, None), true), half);
        }
        assert_eq!(policy.delay(0, &failed(Some(400), None), true), None);
        assert_eq!(policy.delay(2, &failed(Some(429), None), true), None);
    }

    #[test]
    fn retry_after_is_honoured_up_to_the_maximum() {
        let policy = RetryPolicy::new(9);
        assert_eq!(policy.delay(0, &failed(Some(503), Some(7)), true), Some(Duration::from_secs(7)));
        assert_eq!(policy.delay(2, &failed(Some(503), Some(1)), true), Some(Duration::from_secs(2)));
        assert_eq!(policy.delay(0, &failed(Some(503), Some(11)), true), None);
        assert_eq!(policy.delay(8, &failed(Some(503), None), true), Some(Duration::from_secs(10)));
    }
}
