//! Prompts: their types, and getting one from the server.

use rmcp::model::{
    Annotations, ClientRequest, ContentBlock, GetPromptRequest, GetPromptRequestParams,
    PromptMessage as WirePromptMessage, Resource, ResourceContents, Role as WireRole, ServerResult,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::McpServer;
use super::connection::Connection;
use super::options::{CallOptions, RequestOptions};
use super::rounds::Rounds;
use crate::error::McpError;
use crate::handlers::Role;
use crate::output::{self, Binary, ToolOutput};

/// A prompt with its arguments filled in.
///
/// ```no_run
/// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
/// let prompt = server.get_prompt("greet", [("name", "Ada")]).await?;
/// println!("{}: {} messages", prompt.description.unwrap_or_default(), prompt.messages.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PromptResult {
    /// The description.
    pub description: Option<String>,
    /// The messages.
    pub messages: Vec<PromptMessage>,
    /// Metadata from the server, for programs.
    pub metadata: Option<Map<String, Value>>,
}

/// A message of a prompt.
///
/// ```no_run
/// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
/// for message in server.get_prompt("greet", [("name", "Ada")]).await?.messages {
///     println!("{:?} sent {:?} ({:?})", message.role, message.content, message.annotations);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PromptMessage {
    /// The role of the message's author.
    pub role: Role,
    /// The content.
    pub content: PromptContent,
    /// The intended audience and the importance, if the server sent them.
    pub annotations: Option<Annotations>,
    /// Metadata from the server, for programs.
    pub metadata: Option<Map<String, Value>>,
}

/// The content of a prompt's message.
///
/// ```
/// # use belljar_mcp_client::PromptContent;
/// fn to_text(content: &PromptContent) -> String {
///     match content {
///         PromptContent::Text(text) => text.clone(),
///         PromptContent::Binary(binary) => format!("[{}]", binary.media_type),
///         PromptContent::Embedded { contents, .. } => contents.to_text(),
///         PromptContent::Link(resource) => resource.uri.clone(),
///         _ => String::new(),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptContent {
    /// Text; JSON is not parsed.
    Text(String),
    /// An image or audio.
    Binary(Binary),
    /// The contents of an embedded resource: text, or binary data.
    Embedded {
        /// The URI of the resource.
        uri: String,
        /// The media type, if the server sent one.
        media_type: Option<String>,
        /// The contents.
        contents: ToolOutput,
    },
    /// A link to a resource.
    Link(Resource),
}

impl McpServer {
    /// Gets a prompt with these arguments.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// let prompt = server.get_prompt("review", [("language", "rust")]).await?;
    /// for message in prompt.messages {
    ///     println!("{:?}: {:?}", message.role, message.content);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection, and [`McpError::Protocol`]; also if the server does not support prompts.
    pub async fn get_prompt<N, V>(
        &self,
        name: &str,
        arguments: impl IntoIterator<Item = (N, V)>,
    ) -> Result<PromptResult, McpError>
    where
        N: Into<String>,
        V: Into<String>,
    {
        self.get_prompt_with(name, arguments, CallOptions::new()).await
    }

    /// Gets a prompt as [`get_prompt`](Self::get_prompt) does, with options.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// use belljar_mcp_client::CallOptions;
    /// use std::time::Duration;
    ///
    /// let options = CallOptions::new().timeout(Duration::from_secs(10));
    /// let prompt = server.get_prompt_with("review", [("language", "rust")], options).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`get_prompt`](Self::get_prompt), and [`McpError::Timeout`].
    pub async fn get_prompt_with<N, V>(
        &self,
        name: &str,
        arguments: impl IntoIterator<Item = (N, V)>,
        options: CallOptions,
    ) -> Result<PromptResult, McpError>
    where
        N: Into<String>,
        V: Into<String>,
    {
        let arguments: Map<String, Value> =
            arguments.into_iter().map(|(name, value)| (name.into(), Value::String(value.into()))).collect();
        let options = options.started();
        let get = async {
            let session = self.session().await?;
            let mut retries = session.retries();
            loop {
                let connection = session.connection().await?;
                match self.prompt_on(&connection, name, arguments.clone(), options.request_options(self)).await {
                    Err(error) if retries.wait(&error).await => {}
                    result => return result,
                }
            }
        };
        options.bounded(self, "prompts/get", get).await
    }

    async fn prompt_on(
        &self,
        connection: &Connection,
        name: &str,
        arguments: Map<String, Value>,
        options: RequestOptions,
    ) -> Result<PromptResult, McpError> {
        if connection.info().capabilities.prompts.is_none() {
            return Err(McpError::Protocol {
                server: self.label(),
                code: rmcp::model::ErrorCode::METHOD_NOT_FOUND.0,
                message: format!("the server does not support prompts, requested `{name}`"),
                data: None,
            });
        }
        let mut params = GetPromptRequestParams::new(name);
        params.arguments = (!arguments.is_empty()).then_some(arguments);
        let mut rounds = Rounds::default();
        loop {
            let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(params.clone()));
            match connection.request(request, options.clone()).await? {
                ServerResult::GetPromptResult(result) => {
                    let messages: Result<_, _> = result.messages.into_iter().map(prompt_message).collect();
                    return Ok(PromptResult {
                        description: result.description,
                        messages: messages.map_err(|error| self.invalid_response(&error))?,
                        metadata: result.meta.map(|meta| meta.0),
                    });
                }
                ServerResult::InputRequiredResult(required) => {
                    (params.input_responses, params.request_state) =
                        rounds.answer(connection, required, "prompts/get", options.run.as_ref()).await?;
                }
                _ => return Err(connection.unexpected("prompts/get")),
            }
        }
    }
}

fn prompt_message(message: WirePromptMessage) -> Result<PromptMessage, output::InvalidBase64> {
    let binary = |data: &str, media_type| Ok(PromptContent::Binary(Binary::new(output::decode(data)?, media_type)));
    let (content, annotations, metadata) = match message.content {
        ContentBlock::Text(text) => (PromptContent::Text(text.text), text.annotations, text.meta),
        ContentBlock::Image(image) => (binary(&image.data, image.mime_type)?, image.annotations, image.meta),
        ContentBlock::Audio(audio) => (binary(&audio.data, audio.mime_type)?, audio.annotations, audio.meta),
        ContentBlock::Resource(embedded) => {
            let (uri, media_type) = match &embedded.resource {
                ResourceContents::TextResourceContents { uri, mime_type, .. }
                | ResourceContents::BlobResourceContents { uri, mime_type, .. } => (uri.clone(), mime_type.clone()),
                _ => Default::default(),
            };
            let contents = output::map_resource(embedded.resource)?;
            (PromptContent::Embedded { uri, media_type, contents }, embedded.annotations, embedded.meta)
        }
        ContentBlock::ResourceLink(link) => {
            let (annotations, metadata) = (link.annotations.clone(), link.meta.clone());
            (PromptContent::Link(link), annotations, metadata)
        }
        _ => (PromptContent::Text(String::new()), None, None),
    };
    let role = match message.role {
        WireRole::Assistant => Role::Assistant,
        _ => Role::User,
    };
    Ok(PromptMessage { role, content, annotations, metadata: metadata.map(|meta| meta.0) })
}
