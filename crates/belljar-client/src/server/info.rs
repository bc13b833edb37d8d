//! The server's description of itself, from the initialization, and a check that it responds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{ClientRequest, PingRequest, ServerPeerInfo};

use super::McpServer;
use super::options::RequestOptions;
use crate::error::McpError;

impl McpServer {
    /// Returns all of it: protocol version, capabilities, name, instructions.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// println!("{}", server.info().await?.protocol_version);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`connect`](Self::connect).
    pub async fn info(&self) -> Result<Arc<ServerPeerInfo>, McpError> {
        Ok(self.session().await?.connection().await?.info().clone())
    }

    /// Returns the server's capabilities.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// let has_prompts = server.capabilities().await?.prompts.is_some();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`connect`](Self::connect).
    pub async fn capabilities(&self) -> Result<rmcp::model::ServerCapabilities, McpError> {
        Ok(self.info().await?.capabilities.clone())
    }

    /// Returns the server's name and version, if it sent them.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// if let Some(info) = server.server_info().await? {
    ///     println!("{} {}", info.name, info.version);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`connect`](Self::connect).
    pub async fn server_info(&self) -> Result<Option<rmcp::model::Implementation>, McpError> {
        Ok(self.info().await?.server_info.clone())
    }

    /// Returns the server's instructions, if any. They are untrusted text.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// let instructions = server.server_instructions().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`connect`](Self::connect).
    pub async fn server_instructions(&self) -> Result<Option<String>, McpError> {
        Ok(self.info().await?.instructions.clone())
    }

    /// Checks that the server responds, and returns the round-trip time. The modern era does not have a ping:
    /// `server/discover` is requested instead.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// println!("there, after {:?}", server.ping().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection; [`McpError::Timeout`] after [`timeout`](crate::ServerBuilder::timeout).
    pub async fn ping(&self) -> Result<Duration, McpError> {
        let connection = self.session().await?.connection().await?;
        let request = if connection.is_modern() {
            ClientRequest::DiscoverRequest(rmcp::model::DiscoverRequest::new(rmcp::model::DiscoverRequestParams {}))
        } else {
            ClientRequest::PingRequest(PingRequest::default())
        };
        let options = RequestOptions { idle_timeout: self.inner.settings.timeout, ..self.plain_options() };
        let started = Instant::now();
        connection.request(request, options).await?;
        Ok(started.elapsed())
    }
}
