//! Reading resources.

use std::sync::Arc;

use rmcp::model::{ClientRequest, ReadResourceRequest, ReadResourceRequestParams, ResourceContents, ServerResult};

use super::McpServer;
use super::connection::Connection;
use super::options::{CallOptions, RequestOptions};
use super::rounds::Rounds;
use super::session::Session;
use crate::error::McpError;
use crate::output::{self, ToolOutput};

impl McpServer {
    /// Reads a resource: text, binary data, or a list if it has several contents.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// let readme = server.read_resource("file:///README.md").await?;
    /// println!("{}", readme.to_text());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection, and [`McpError::Protocol`] with the server's message, code and data.
    pub async fn read_resource(&self, uri: &str) -> Result<ToolOutput, McpError> {
        self.read_resource_with(uri, CallOptions::new()).await
    }

    /// Reads a resource as [`read_resource`](Self::read_resource) does, with options.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// use belljar_mcp_client::CallOptions;
    /// use std::time::Duration;
    ///
    /// let options = CallOptions::new().timeout(Duration::from_secs(10));
    /// let readme = server.read_resource_with("file:///README.md", options).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`read_resource`](Self::read_resource), and [`McpError::Timeout`].
    pub async fn read_resource_with(&self, uri: &str, options: CallOptions) -> Result<ToolOutput, McpError> {
        let options = options.started();
        let read = async {
            let session = self.session().await?;
            self.read_in(&session, uri, options.request_options(self)).await
        };
        options.bounded(self, "resources/read", read).await
    }

    pub(super) async fn read_in(
        &self,
        session: &Arc<Session>,
        uri: &str,
        options: RequestOptions,
    ) -> Result<ToolOutput, McpError> {
        let contents = self.contents_in(session, uri, options).await?;
        let outputs: Result<Vec<ToolOutput>, _> = contents.into_iter().map(output::map_resource).collect();
        outputs.map(output::unwrap_single).map_err(|error| self.invalid_response(&error))
    }

    /// Reads a resource and returns the contents in the protocol's types.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// let contents = server.read_resource_raw("file:///README.md").await?;
    /// println!("{} contents", contents.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`read_resource`](Self::read_resource).
    pub async fn read_resource_raw(&self, uri: &str) -> Result<Vec<ResourceContents>, McpError> {
        let session = self.session().await?;
        self.contents_in(&session, uri, self.plain_options()).await
    }

    async fn contents_in(
        &self,
        session: &Arc<Session>,
        uri: &str,
        options: RequestOptions,
    ) -> Result<Vec<ResourceContents>, McpError> {
        let mut retries = session.retries();
        loop {
            let connection = session.connection().await?;
            match self.contents_on(&connection, uri, &options).await {
                Err(error) if retries.wait(&error).await => {}
                result => return result,
            }
        }
    }

    async fn contents_on(
        &self,
        connection: &Connection,
        uri: &str,
        options: &RequestOptions,
    ) -> Result<Vec<ResourceContents>, McpError> {
        let mut params = ReadResourceRequestParams::new(uri);
        let mut rounds = Rounds::default();
        loop {
            let request = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params.clone()));
            match connection.request(request, options.clone()).await? {
                ServerResult::ReadResourceResult(result) => return Ok(result.contents),
                ServerResult::InputRequiredResult(required) => {
                    (params.input_responses, params.request_state) =
                        rounds.answer(connection, required, "resources/read", options.run.as_ref()).await?;
                }
                _ => return Err(connection.unexpected("resources/read")),
            }
        }
    }
}
