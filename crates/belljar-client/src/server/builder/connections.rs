//! The settings of a server's connections: restarts, repetition of requests, sessions of identities.

use std::time::Duration;

use super::ServerBuilder;
use crate::server::restart::RestartPolicy;
use crate::server::retry::RetryPolicy;

impl<T> ServerBuilder<T> {
    /// Restarts a child process that exited while it is in use, with the next call. By default it stays closed until
    /// its last guard is dropped, because its state is lost with it. Servers over HTTP are
    /// [reconnected](Self::reconnect) instead.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServerStdio, RestartPolicy};
    /// let server = McpServerStdio::new("server").restart(RestartPolicy::new(3));
    /// ```
    pub fn restart(mut self, policy: RestartPolicy) -> Self {
        self.settings.restart = Some(policy);
        self
    }

    /// Repeats requests that failed in transport and are safe to repeat, see [`RetryPolicy`]. Off by default.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServerStreamableHttp, RetryPolicy};
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.retry(RetryPolicy::new(3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = Some(policy);
        self
    }

    /// Sets the time for which the session of [an identity](crate::McpServer::for_run) is kept open after its last use.
    /// Defaults to five minutes. With zero it is closed as soon as no guard and no call uses it.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStreamableHttp;
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server =
    /// McpServerStreamableHttp::new("https://example.org/mcp")?.identity_idle_time(Duration::from_secs(60));
    /// # Ok(())
    /// # }
    /// ```
    pub fn identity_idle_time(mut self, time: Duration) -> Self {
        self.settings.identities.idle_time = time;
        self
    }

    /// Sets the maximum number of sessions of [identities](crate::McpServer::for_run) that are kept open while nothing
    /// uses them; the one that was idle for the longest time is closed first. Defaults to 64. Sessions in use are not
    /// limited.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStreamableHttp;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.max_idle_identities(1_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_idle_identities(mut self, sessions: usize) -> Self {
        self.settings.identities.max_idle = sessions;
        self
    }
}
