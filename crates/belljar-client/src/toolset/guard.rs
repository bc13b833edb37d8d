//! Guards that keep connections open.

use futures::future::BoxFuture;

use crate::error::McpError;

/// A guard that keeps one connection open until it is closed or dropped.
pub(crate) trait CloseGuard: Send + Sync + 'static {
    /// Releases the connection and waits until it is closed, unless another guard keeps it open.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), McpError>>;
}

/// A guard that keeps a toolset's connections open, as [`ConnectionGuard`](crate::ConnectionGuard) does for one server.
///
/// ```no_run
/// # use belljar_client::{McpError, RunContext, Toolset, ToolsetGuard};
/// # async fn run(toolset: impl Toolset) -> Result<(), McpError> {
/// let connections: ToolsetGuard = toolset.enter().await?;
/// let tools = toolset.tools(&RunContext::new()).await?;
/// connections.close().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "connections close when this is dropped"]
pub struct ToolsetGuard {
    guards: Vec<Box<dyn CloseGuard>>,
}

impl ToolsetGuard {
    /// Creates a guard for a toolset without connections.
    ///
    /// ```
    /// let guard = belljar_client::ToolsetGuard::noop();
    /// ```
    pub fn noop() -> Self {
        Self { guards: Vec::new() }
    }

    pub(crate) fn new(guard: impl CloseGuard) -> Self {
        Self { guards: vec![Box::new(guard)] }
    }

    /// Releases the connections and waits until those without another guard are closed.
    ///
    /// ```no_run
    /// # use belljar_client::{McpError, Toolset};
    /// # async fn run(toolset: impl Toolset) -> Result<(), McpError> {
    /// toolset.enter().await?.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`ConnectionGuard::close`](crate::ConnectionGuard::close).
    pub async fn close(self) -> Result<(), McpError> {
        futures::future::try_join_all(self.guards.into_iter().map(CloseGuard::close)).await.map(drop)
    }
}

impl FromIterator<ToolsetGuard> for ToolsetGuard {
    fn from_iter<I: IntoIterator<Item = ToolsetGuard>>(guards: I) -> Self {
        Self { guards: guards.into_iter().flat_map(|guard| guard.guards).collect() }
    }
}

impl std::fmt::Debug for ToolsetGuard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ToolsetGuard").field("connections", &self.guards.len()).finish()
    }
}
