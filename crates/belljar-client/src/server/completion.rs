//! Completion of arguments of prompts and resource templates.

use rmcp::model::{
    ArgumentInfo, ClientRequest, CompleteRequest, CompleteRequestParams, CompletionContext, CompletionInfo, Reference,
    ServerResult,
};
use serde::{Deserialize, Serialize};

use super::McpServer;
use super::options::CallOptions;
use crate::error::McpError;

/// An argument to complete.
///
/// ```
/// use belljar_mcp_client::CompletionArgument;
///
/// let city = CompletionArgument::for_prompt("weather", "city", "Par");
/// let path = CompletionArgument::for_resource_template("file:///{path}", "path", "src/");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompletionArgument {
    reference: Reference,
    name: String,
    value: String,
    context: Vec<(String, String)>,
}

impl CompletionArgument {
    /// Creates an argument of a prompt with the text typed so far.
    ///
    /// ```
    /// let city = belljar_mcp_client::CompletionArgument::for_prompt("weather", "city", "Par");
    /// ```
    pub fn for_prompt(prompt: impl Into<String>, name: impl Into<String>, value: impl Into<String>) -> Self {
        let reference = Reference::for_prompt(prompt);
        Self { reference, name: name.into(), value: value.into(), context: Vec::new() }
    }

    /// Creates a variable of a resource template with the text typed so far.
    ///
    /// ```
    /// let path = belljar_mcp_client::CompletionArgument::for_resource_template("file:///{path}", "path", "src/");
    /// ```
    pub fn for_resource_template(
        template: impl Into<String>,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        let reference = Reference::for_resource(template);
        Self { reference, name: name.into(), value: value.into(), context: Vec::new() }
    }

    /// Adds another argument whose value is already known.
    ///
    /// ```
    /// # use belljar_mcp_client::CompletionArgument;
    /// let city = CompletionArgument::for_prompt("weather", "city", "Par").with_context("country", "France");
    /// ```
    pub fn with_context(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.context.push((name.into(), value.into()));
        self
    }
}

impl McpServer {
    /// Completes an argument of a prompt or of a resource template.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// use belljar_mcp_client::CompletionArgument;
    ///
    /// let city = CompletionArgument::for_prompt("weather", "city", "Par").with_context("country", "France");
    /// let cities = server.complete(city).await?;
    /// println!("{:?}", cities.values);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection, and [`McpError::Protocol`].
    pub async fn complete(&self, argument: CompletionArgument) -> Result<CompletionInfo, McpError> {
        self.complete_with(argument, CallOptions::new()).await
    }

    /// Completes an argument as [`complete`](Self::complete) does, with options.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// use belljar_mcp_client::{CallOptions, CompletionArgument};
    /// use std::time::Duration;
    ///
    /// let options = CallOptions::new().timeout(Duration::from_secs(1));
    /// let cities = server.complete_with(CompletionArgument::for_prompt("weather", "city", "Par"), options).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`complete`](Self::complete), and [`McpError::Timeout`].
    pub async fn complete_with(
        &self,
        argument: CompletionArgument,
        options: CallOptions,
    ) -> Result<CompletionInfo, McpError> {
        let info = ArgumentInfo::new(argument.name, argument.value);
        let mut params = CompleteRequestParams::new(argument.reference, info);
        if !argument.context.is_empty() {
            params.context = Some(CompletionContext::with_arguments(argument.context.into_iter().collect()));
        }
        let options = options.started();
        let complete = async {
            let session = self.session().await?;
            let mut retries = session.retries();
            loop {
                let connection = session.connection().await?;
                let request = ClientRequest::CompleteRequest(CompleteRequest::new(params.clone()));
                match connection.request(request, options.request_options(self)).await {
                    Ok(ServerResult::CompleteResult(result)) => return Ok(result.completion),
                    Ok(_) => return Err(connection.unexpected("completion/complete")),
                    Err(error) if retries.wait(&error).await => {}
                    Err(error) => return Err(error),
                }
            }
        };
        options.bounded(self, "completion/complete", complete).await
    }
}
