//! What servers offer beside tools: resources, prompts, completions, a ping; and what they are told: that roots changed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{
    Annotations, ArgumentInfo, ClientNotification, ClientRequest, CompleteRequest, CompleteRequestParams,
    CompletionContext, CompletionInfo, ContentBlock, GetPromptRequest, GetPromptRequestParams, PingRequest,
    PromptMessage as WirePromptMessage, ReadResourceRequest, ReadResourceRequestParams, Reference, Resource,
    ResourceContents, Role, RootsListChangedNotification, ServerResult,
};
use serde_json::{Map, Value};

use super::McpServer;
use super::connection::RequestOptions;
use super::rounds::Rounds;
use super::session::Session;
use crate::error::McpError;
use crate::handlers::SamplingRole;
use crate::output::{self, Binary, ToolOutput};

/// A prompt, filled in.
///
/// ```no_run
/// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
/// let prompt = server.get_prompt("greet", [("name", "Ada")]).await?;
/// println!("{}: {} messages", prompt.description.unwrap_or_default(), prompt.messages.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Prompt {
    /// What it is for.
    pub description: Option<String>,
    /// Its messages.
    pub messages: Vec<PromptMessage>,
    /// What the server adds for programs.
    pub metadata: Option<Map<String, Value>>,
}

/// A message of a prompt.
///
/// ```no_run
/// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
/// for message in server.get_prompt("greet", [("name", "Ada")]).await?.messages {
///     println!("{:?} says {:?} ({:?})", message.role, message.content, message.annotations);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PromptMessage {
    /// Who speaks.
    pub role: SamplingRole,
    /// What is said.
    pub content: PromptContent,
    /// For whom it is, and how much it matters, if the server says.
    pub annotations: Option<Annotations>,
    /// What the server adds for programs.
    pub metadata: Option<Map<String, Value>>,
}

/// What a message of a prompt says.
///
/// ```
/// # use belljar_client::PromptContent;
/// fn words(content: &PromptContent) -> String {
///     match content {
///         PromptContent::Text(text) => text.clone(),
///         PromptContent::Binary(binary) => format!("[{}]", binary.media_type),
///         PromptContent::Embedded { contents, .. } => contents.to_text(),
///         PromptContent::Link(resource) => resource.uri.clone(),
///         _ => String::new(),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PromptContent {
    /// Text, as it is: JSON is not parsed here.
    Text(String),
    /// An image or a sound.
    Binary(Binary),
    /// A resource's contents: text, or binary.
    Embedded {
        /// Where they are from.
        uri: String,
        /// Their media type, if the server says.
        media_type: Option<String>,
        /// The contents.
        contents: ToolOutput,
    },
    /// A resource that can be read.
    Link(Resource),
}

/// What is to be completed.
///
/// ```
/// use belljar_client::Argument;
///
/// let city = Argument::of_prompt("weather", "city", "Par");
/// let path = Argument::of_template("file:///{path}", "path", "src/");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    reference: Reference,
    name: String,
    value: String,
    known: Vec<(String, String)>,
}

impl Argument {
    /// An argument of a prompt, with what is typed so far.
    ///
    /// ```
    /// let city = belljar_client::Argument::of_prompt("weather", "city", "Par");
    /// ```
    pub fn of_prompt(prompt: impl Into<String>, name: impl Into<String>, value: impl Into<String>) -> Self {
        let reference = Reference::for_prompt(prompt);
        Self { reference, name: name.into(), value: value.into(), known: Vec::new() }
    }

    /// A variable of a resource template, with what is typed so far.
    ///
    /// ```
    /// let path = belljar_client::Argument::of_template("file:///{path}", "path", "src/");
    /// ```
    pub fn of_template(template: impl Into<String>, name: impl Into<String>, value: impl Into<String>) -> Self {
        let reference = Reference::for_resource(template);
        Self { reference, name: name.into(), value: value.into(), known: Vec::new() }
    }

    /// Another argument that is known already.
    ///
    /// ```
    /// let city = belljar_client::Argument::of_prompt("weather", "city", "Par").knowing("country", "France");
    /// ```
    pub fn knowing(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.known.push((name.into(), value.into()));
        self
    }
}

impl McpServer {
    fn plain_options(&self) -> RequestOptions {
        RequestOptions { silence: self.inner.settings.read_timeout, ..Default::default() }
    }

    /// Reads a resource: text, binary, or a list where it has several contents.
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
    /// Those of the connection, and [`McpError::Protocol`] with the server's message, code and data.
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
        outputs.map(output::unwrap_single).map_err(|error| self.bad_answer(&error))
    }

    /// Reads a resource's contents as the protocol has them.
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
    /// As [`read_resource`](Self::read_resource).
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
                ServerResult::InputRequiredResult(wanted) => {
                    (params.input_responses, params.request_state) =
                        rounds.answer(&connection, wanted, "resources/read").await?;
                }
                _ => return Err(connection.unexpected("resources/read")),
            }
        }
    }

    /// Fills in a prompt.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
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
    /// Those of the connection, and [`McpError::Protocol`]; also when the server has no prompts at all.
    pub async fn get_prompt<N, V>(
        &self,
        name: &str,
        arguments: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Prompt, McpError>
    where
        N: Into<String>,
        V: Into<String>,
    {
        let session = self.session().await?;
        let connection = session.connection().await?;
        if connection.info().capabilities.prompts.is_none() {
            return Err(McpError::Protocol {
                code: rmcp::model::ErrorCode::METHOD_NOT_FOUND.0,
                message: format!("the server has no prompts, so none called `{name}`"),
                data: None,
            });
        }
        let arguments: Map<String, Value> =
            arguments.into_iter().map(|(name, value)| (name.into(), Value::String(value.into()))).collect();
        let mut params = GetPromptRequestParams::new(name);
        params.arguments = (!arguments.is_empty()).then_some(arguments);
        let mut rounds = Rounds::default();
        loop {
            let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(params.clone()));
            match connection.request(request, self.plain_options()).await? {
                ServerResult::GetPromptResult(result) => {
                    let messages: Result<_, _> = result.messages.into_iter().map(prompt_message).collect();
                    return Ok(Prompt {
                        description: result.description,
                        messages: messages.map_err(|error| self.bad_answer(&error))?,
                        metadata: result.meta.map(|meta| meta.0),
                    });
                }
                ServerResult::InputRequiredResult(wanted) => {
                    (params.input_responses, params.request_state) =
                        rounds.answer(&connection, wanted, "prompts/get").await?;
                }
                _ => return Err(connection.unexpected("prompts/get")),
            }
        }
    }

    /// Completes an argument of a prompt or of a resource template.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// use belljar_client::Argument;
    ///
    /// let cities = server.complete(Argument::of_prompt("weather", "city", "Par").knowing("country", "France")).await?;
    /// println!("{:?}", cities.values);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection, and [`McpError::Protocol`].
    pub async fn complete(&self, argument: Argument) -> Result<CompletionInfo, McpError> {
        let connection = self.session().await?.connection().await?;
        let info = ArgumentInfo::new(argument.name, argument.value);
        let mut params = CompleteRequestParams::new(argument.reference, info);
        if !argument.known.is_empty() {
            params.context = Some(CompletionContext::with_arguments(argument.known.into_iter().collect()));
        }
        let request = ClientRequest::CompleteRequest(CompleteRequest::new(params));
        match connection.request(request, self.plain_options()).await? {
            ServerResult::CompleteResult(result) => Ok(result.completion),
            _ => Err(connection.unexpected("completion/complete")),
        }
    }

    /// Asks the server whether it is there, and tells how long it took. The modern era has no ping: there the server is
    /// asked what it is.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// println!("there, after {:?}", server.ping().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection, [`McpError::Timeout`] after [`timeout`](crate::ServerBuilder::timeout).
    pub async fn ping(&self) -> Result<Duration, McpError> {
        let connection = self.session().await?.connection().await?;
        let request = if connection.is_modern() {
            ClientRequest::DiscoverRequest(rmcp::model::DiscoverRequest::new(rmcp::model::DiscoverRequestParams {}))
        } else {
            ClientRequest::PingRequest(PingRequest::default())
        };
        let options = RequestOptions { silence: self.inner.settings.timeout, ..Default::default() };
        let started = Instant::now();
        connection.request(request, options).await?;
        Ok(started.elapsed())
    }

    /// Tells the server that what [`roots`](crate::ServerBuilder::roots) said is no longer so, which makes it ask again.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// server.notify_roots_changed().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub async fn notify_roots_changed(&self) -> Result<(), McpError> {
        let connection = self.session().await?.connection().await?;
        connection
            .notify(ClientNotification::RootsListChangedNotification(RootsListChangedNotification::default()))
            .await
    }
}

fn prompt_message(message: WirePromptMessage) -> Result<PromptMessage, output::BadBase64> {
    let binary = |data: &str, media_type| Ok(PromptContent::Binary(Binary { data: output::decode(data)?, media_type }));
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
        Role::Assistant => SamplingRole::Assistant,
        _ => SamplingRole::User,
    };
    Ok(PromptMessage { role, content, annotations, metadata: metadata.map(|meta| meta.0) })
}
