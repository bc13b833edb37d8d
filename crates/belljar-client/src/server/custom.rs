//! Servers in this process, and requests and notifications that the crate does not know.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use rmcp::RoleClient;
use rmcp::model::{ClientNotification, ClientRequest, CustomNotification, CustomRequest};
use rmcp::service::Peer;
use serde_json::Value;
use tokio::io::DuplexStream;

use super::builder::ServerBuilder;
use super::options::CallOptions;
use super::{CustomTransport, McpServer};
use crate::error::McpError;
use crate::transport::{Connector, OpenTransport};

/// The number of bytes in each direction that wait to be read.
const IN_PROCESS_BUFFER: usize = 64 * 1024;

/// A server in this process: a function that serves one connection.
struct InProcess<F> {
    name: String,
    serve: Arc<F>,
}

impl<F> fmt::Debug for InProcess<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("InProcess").field(&self.name).finish()
    }
}

#[async_trait]
impl<F, Serving> Connector for InProcess<F>
where
    F: Fn(DuplexStream) -> Serving + Send + Sync + 'static,
    Serving: Future<Output = ()> + Send + 'static,
{
    async fn connect(&self) -> Result<OpenTransport, McpError> {
        let (client_end, server_end) = tokio::io::duplex(IN_PROCESS_BUFFER);
        // It ends when the client's end is dropped.
        tokio::spawn((self.serve)(server_end));
        Ok(OpenTransport::new(client_end))
    }

    fn identity(&self) -> String {
        format!("in process {}", self.name)
    }

    fn label(&self) -> String {
        self.name.clone()
    }
}

impl McpServer {
    /// Creates the builder of a server in this process, for tests and for tools that a program implements as a server.
    /// The function serves one connection over a stream of bytes; it is called for each connection.
    ///
    /// ```
    /// use belljar_mcp_client::McpServer;
    /// use rmcp::model::{ServerCapabilities, ServerConfig};
    /// use rmcp::{ServerHandler, ServiceExt};
    ///
    /// #[derive(Clone)]
    /// struct Dice;
    ///
    /// impl ServerHandler for Dice {
    ///     fn get_info(&self) -> ServerConfig {
    ///         ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    ///     }
    /// }
    ///
    /// let server = McpServer::in_process("dice", async |stream| {
    ///     if let Ok(running) = Dice.serve(stream).await {
    ///         let _ = running.waiting().await;
    ///     }
    /// })
    /// .build();
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// assert!(server.list_tools().await.unwrap().is_empty());
    /// # });
    /// ```
    pub fn in_process<F, Serving>(name: impl Into<String>, serve: F) -> ServerBuilder<CustomTransport>
    where
        F: Fn(DuplexStream) -> Serving + Send + Sync + 'static,
        Serving: Future<Output = ()> + Send + 'static,
    {
        Self::custom(InProcess { name: name.into(), serve: Arc::new(serve) })
    }

    /// Sends a request that this crate does not know, such as that of an extension, and returns its result. The
    /// timeouts, cancellation and credentials are those of other requests. If the result has the shape of one that the
    /// protocol defines, it contains the fields of that shape only.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// use belljar_mcp_client::CallOptions;
    /// use serde_json::json;
    ///
    /// let result = server.custom_request("example/search", json!({"query": "x"}), CallOptions::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection, and [`McpError::Protocol`], for example with the code −32601 if the server does not
    /// know the method either.
    pub async fn custom_request(&self, method: &str, params: Value, options: CallOptions) -> Result<Value, McpError> {
        let options = options.started();
        let request = async {
            let connection = self.session().await?.connection().await?;
            let params = Some(params).filter(|params| !params.is_null());
            let request = ClientRequest::CustomRequest(CustomRequest::new(method, params));
            let result = connection.request(request, options.request_options(self)).await?;
            serde_json::to_value(result).map_err(|error| self.invalid_response(&error))
        };
        options.bounded(self, method, request).await
    }

    /// Sends a notification that this crate does not know. Notifications of the server that the crate does not know
    /// arrive at the [message handler](crate::ServerBuilder::message_handler).
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// server.custom_notification("notifications/example/typing", serde_json::json!({"active": true})).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection.
    pub async fn custom_notification(&self, method: &str, params: Value) -> Result<(), McpError> {
        let connection = self.session().await?.connection().await?;
        let params = Some(params).filter(|params| !params.is_null());
        let notification = ClientNotification::CustomNotification(CustomNotification::new(method, params));
        connection.notify(notification).await
    }

    /// Returns `rmcp`'s handle to the current connection, for parts of the protocol that this crate does not cover. It
    /// works as long as this connection is open: hold a guard. Requests of the handle have neither the timeouts nor the
    /// headers of this crate's.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// let running = server.connect().await?;
    /// let skills = server.peer().await?.list_all_skills().await;
    /// running.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`connect`](Self::connect).
    pub async fn peer(&self) -> Result<Peer<RoleClient>, McpError> {
        Ok(self.session().await?.connection().await?.peer().clone())
    }
}
