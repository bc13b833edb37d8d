//! The notification that the client's roots changed.

use rmcp::model::{ClientNotification, RootsListChangedNotification};

use super::McpServer;
use crate::error::McpError;

impl McpServer {
    /// Notifies the server that the [`roots`](crate::ServerBuilder::roots) changed, so that it requests them again.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// server.notify_roots_changed().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection.
    pub async fn notify_roots_changed(&self) -> Result<(), McpError> {
        let connection = self.session().await?.connection().await?;
        connection
            .notify(ClientNotification::RootsListChangedNotification(RootsListChangedNotification::default()))
            .await
    }
}
