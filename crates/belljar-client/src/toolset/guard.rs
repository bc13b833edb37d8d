//! Guards that keep connections open.

use futures::FutureExt;
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
/// # use belljar_mcp_client::{McpError, RunContext, Toolset, ToolsetGuard};
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
    /// let guard = belljar_mcp_client::ToolsetGuard::noop();
    /// ```
    pub fn noop() -> Self {
        Self { guards: Vec::new() }
    }

    /// Creates a guard that owns a resource of the program's own toolset and drops it when it is closed or dropped.
    /// Guards of other toolsets are combined with `collect`.
    ///
    /// ```
    /// use belljar_mcp_client::ToolsetGuard;
    /// use std::sync::Arc;
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let pool = Arc::new("connections");
    /// let guard: ToolsetGuard = [ToolsetGuard::holding(pool.clone()), ToolsetGuard::noop()].into_iter().collect();
    /// assert_eq!(Arc::strong_count(&pool), 2);
    /// guard.close().await.unwrap();
    /// assert_eq!(Arc::strong_count(&pool), 1);
    /// # });
    /// ```
    pub fn holding(resource: impl Send + Sync + 'static) -> Self {
        struct DropGuard<R>(R);
        impl<R: Send + Sync + 'static> CloseGuard for DropGuard<R> {
            fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), McpError>> {
                drop(self.0);
                std::future::ready(Ok(())).boxed()
            }
        }
        Self::new(DropGuard(resource))
    }

    /// Creates a guard that runs `close` when it is closed. When it is dropped instead, `close` is dropped without
    /// having run.
    ///
    /// ```
    /// use belljar_mcp_client::ToolsetGuard;
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let guard = ToolsetGuard::closing(async || {
    ///     println!("closed");
    ///     Ok(())
    /// });
    /// guard.close().await.unwrap();
    /// # });
    /// ```
    pub fn closing<F, Closed>(close: F) -> Self
    where
        F: FnOnce() -> Closed + Send + Sync + 'static,
        Closed: Future<Output = Result<(), McpError>> + Send + 'static,
    {
        struct Closing<F>(F);
        impl<F, Closed> CloseGuard for Closing<F>
        where
            F: FnOnce() -> Closed + Send + Sync + 'static,
            Closed: Future<Output = Result<(), McpError>> + Send + 'static,
        {
            fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), McpError>> {
                (self.0)().boxed()
            }
        }
        Self::new(Closing(close))
    }

    pub(crate) fn new(guard: impl CloseGuard) -> Self {
        Self { guards: vec![Box::new(guard)] }
    }

    /// Releases the connections and waits until those without another guard are closed.
    ///
    /// ```no_run
    /// # use belljar_mcp_client::{McpError, Toolset};
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
        let closed = futures::future::join_all(self.guards.into_iter().map(CloseGuard::close)).await;
        closed.into_iter().collect()
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
