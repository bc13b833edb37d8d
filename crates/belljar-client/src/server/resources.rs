//! Reading resources.

use std::sync::Arc;

use rmcp::model::{ClientRequest, ReadResourceRequest, ReadResourceRequestParams, ResourceContents, ServerResult};

use super::McpServer;
use super::options::RequestOptions;
use super::rounds::Rounds;
use super::session::Session;
use crate::error::McpError;
use crate::output::{self, ToolOutput};

impl McpServer {
    /// Reads a resource: text, binary data, or a list if it has several contents.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
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
        let session = self.session().await?;
        self.read_in(&session, uri, self.plain_options()).await
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
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
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
        let connection = session.connection().await?;
        let mut params = ReadResourceRequestParams::new(uri);
        let mut rounds = Rounds::default();
        loop {
            let request = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params.clone()));
            match connection.request(request, options.clone()).await? {
                ServerResult::ReadResourceResult(result) => return Ok(result.contents),
                ServerResult::InputRequiredResult(required) => {
                    (params.input_responses, params.request_state) =
                        rounds.answer(&connection, required, "resources/read").await?;
                }
                _ => return Err(connection.unexpected("resources/read")),
            }
        }
    }
}
