//! Sampling: a server asks for a completion by a language model.

mod conversion;

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::RequestOrigin;
use crate::output::Binary;

pub(super) use conversion::{request, response};

/// A language model that servers may use.
///
/// ```
/// use belljar_mcp_client::async_trait;
/// use belljar_mcp_client::{Model, ModelError, SamplingRequest, SamplingResponse};
///
/// /// Repeats the last message.
/// struct Repeater;
///
/// #[async_trait]
/// impl Model for Repeater {
///     fn name(&self) -> String {
///         "repeater".into()
///     }
///
///     async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
///         let last = request.messages.last().map(|message| message.text()).unwrap_or_default();
///         Ok(SamplingResponse::text(last))
///     }
/// }
///
/// // One model for two servers.
/// let model: std::sync::Arc<dyn Model> = std::sync::Arc::new(Repeater);
/// let first = belljar_mcp_client::McpServerStdio::new("first").sampling_model(model.clone());
/// let second = belljar_mcp_client::McpServerStdio::new("second").sampling_model(model);
/// ```
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Returns the model's name, which servers see.
    fn name(&self) -> String;

    /// Returns whether the model accepts tools. It is announced to servers, which otherwise send none.
    fn supports_tools(&self) -> bool {
        false
    }

    /// Completes a conversation.
    ///
    /// # Errors
    ///
    /// A failure to complete the conversation. Its message is sent to the server.
    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError>;
}

#[async_trait]
impl<M: Model + ?Sized> Model for Arc<M> {
    fn name(&self) -> String {
        (**self).name()
    }

    fn supports_tools(&self) -> bool {
        (**self).supports_tools()
    }

    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
        (**self).complete(request).await
    }
}

#[async_trait]
impl<M: Model + ?Sized> Model for Box<M> {
    fn name(&self) -> String {
        (**self).name()
    }

    fn supports_tools(&self) -> bool {
        (**self).supports_tools()
    }

    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
        (**self).complete(request).await
    }
}

/// A failure or refusal of a model.
///
/// ```
/// # use belljar_mcp_client::{ModelError, SamplingResponse};
/// fn refuse() -> Result<SamplingResponse, ModelError> {
///     Err(ModelError::new("the user does not want this"))
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ModelError {
    /// The message, which the server sees.
    pub message: String,
}

impl ModelError {
    /// Creates an error with this message.
    ///
    /// ```
    /// assert_eq!(belljar_mcp_client::ModelError::new("out of tokens").to_string(), "out of tokens");
    /// ```
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// A server's request for a completion.
///
/// ```
/// # use belljar_mcp_client::{SamplingRequest, SamplingResponse};
/// fn answer(request: &SamplingRequest) -> SamplingResponse {
///     let system = request.system_prompt.as_deref().unwrap_or("");
///     SamplingResponse::text(format!("{system}: {} turns, {} tools", request.messages.len(), request.tools.len()))
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SamplingRequest {
    /// The system prompt.
    pub system_prompt: Option<String>,
    /// The conversation.
    pub messages: Vec<SamplingMessage>,
    /// The maximum number of tokens in the response.
    pub max_tokens: u32,
    /// The sampling temperature, from 0 to 1 (some models accept more).
    pub temperature: Option<f32>,
    /// Sequences that end the response.
    pub stop_sequences: Vec<String>,
    /// The server's preferences for a model.
    pub preferences: ModelPreferences,
    /// The tools that the model may call. The server runs them and sends another request with their results.
    pub tools: Vec<SamplingTool>,
    /// The server's requirement on the use of tools.
    pub tool_choice: ToolChoice,
    /// The servers whose context the program is asked to include: `none`, `thisServer`, `allServers`.
    pub include_context: Option<String>,
    /// Metadata for the model's provider.
    pub metadata: Option<Value>,
    /// The server, and the run if it is known.
    pub origin: RequestOrigin,
}

/// A server's preferences for a model. All of them are advisory.
///
/// ```
/// # use belljar_mcp_client::ModelPreferences;
/// fn choose(preferences: &ModelPreferences) -> &str {
///     if preferences.speed > preferences.intelligence {
///         return "small";
///     }
///     preferences.hints.first().map_or("large", String::as_str)
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ModelPreferences {
    /// Names, or parts of names, in order of preference.
    pub hints: Vec<String>,
    /// The importance of low cost, from 0 to 1.
    pub cost: Option<f32>,
    /// The importance of speed, from 0 to 1.
    pub speed: Option<f32>,
    /// The importance of capability, from 0 to 1.
    pub intelligence: Option<f32>,
}

/// A requirement on the use of tools.
///
/// ```
/// assert_eq!(belljar_mcp_client::ToolChoice::default(), belljar_mcp_client::ToolChoice::Auto);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model may use tools.
    #[default]
    Auto,
    /// The model must use at least one tool.
    Required,
    /// The model must not use tools.
    None,
}

/// A tool that a server offers to the model.
///
/// ```
/// # fn show(request: belljar_mcp_client::SamplingRequest) {
/// for tool in &request.tools {
///     println!("{}: {}", tool.name, tool.description.as_deref().unwrap_or_default());
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SamplingTool {
    /// The name.
    pub name: String,
    /// The description.
    pub description: Option<String>,
    /// The JSON schema of the arguments.
    pub input_schema: Map<String, Value>,
}

/// The role of the author of a turn, or of a message of a prompt.
///
/// ```
/// # fn show(message: belljar_mcp_client::SamplingMessage) {
/// let is_from_model = message.role == belljar_mcp_client::Role::Assistant;
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// The user, or a tool.
    User,
    /// The model.
    Assistant,
}

/// A turn of the conversation.
///
/// ```
/// use belljar_mcp_client::{Binary, SamplingContent, SamplingMessage, Role};
///
/// let image = Binary::new(vec![0x89, b'P', b'N', b'G'], "image/png");
/// let content = vec![SamplingContent::Text("What is this?".into()), SamplingContent::Image(image)];
/// let message = SamplingMessage::new(Role::User, content);
/// assert_eq!(message.text(), "What is this?");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SamplingMessage {
    /// The author's role.
    pub role: Role,
    /// The parts of the turn.
    pub content: Vec<SamplingContent>,
}

impl SamplingMessage {
    /// Creates a turn.
    ///
    /// ```
    /// use belljar_mcp_client::{Role, SamplingContent, SamplingMessage};
    ///
    /// let message = SamplingMessage::new(Role::User, vec![SamplingContent::Text("hi".into())]);
    /// ```
    pub fn new(role: Role, content: Vec<SamplingContent>) -> Self {
        Self { role, content }
    }

    /// Returns the text, with parts on separate lines.
    ///
    /// ```
    /// use belljar_mcp_client::{SamplingContent, SamplingMessage, Role};
    ///
    /// let message = SamplingMessage::new(Role::User, vec![SamplingContent::Text("hi".into())]);
    /// assert_eq!(message.text(), "hi");
    /// ```
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|part| match part {
                SamplingContent::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        texts.join("\n")
    }
}

/// A part of a turn.
///
/// ```
/// # use belljar_mcp_client::SamplingContent;
/// fn to_text(part: &SamplingContent) -> String {
///     match part {
///         SamplingContent::Text(text) => text.clone(),
///         SamplingContent::Image(image) | SamplingContent::Audio(image) => format!("[{}]", image.media_type),
///         SamplingContent::ToolUse { name, .. } => format!("calls {name}"),
///         _ => String::new(),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SamplingContent {
    /// Text.
    Text(String),
    /// An image.
    Image(Binary),
    /// Audio.
    Audio(Binary),
    /// A call of a tool by the model.
    ToolUse {
        /// The ID of the call, which its result repeats.
        id: String,
        /// The name of the tool.
        name: String,
        /// The arguments.
        input: Map<String, Value>,
    },
    /// The result of a tool.
    ToolResult {
        /// The ID of the call.
        id: String,
        /// The result: text, images and audio.
        content: Vec<SamplingContent>,
        /// True if the tool failed.
        is_error: bool,
    },
}

/// The reason for which a model stopped.
///
/// ```
/// # use belljar_mcp_client::{SamplingResponse, StopReason};
/// let mut response = SamplingResponse::text("Once upon a");
/// response.stop_reason = StopReason::MaxTokens;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The response is complete.
    #[default]
    EndTurn,
    /// The model produced a stop sequence.
    StopSequence,
    /// The model reached the maximum number of tokens.
    MaxTokens,
    /// The model requests tool calls.
    ToolUse,
    /// Another reason, as named by the provider.
    Other(String),
}

/// A model's response.
///
/// ```
/// # use belljar_mcp_client::{SamplingContent, SamplingResponse, StopReason};
/// let mut response = SamplingResponse::new(vec![SamplingContent::Text("yes".into())]);
/// response.stop_reason = StopReason::MaxTokens;
/// response.model = Some("the model that answered".into());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SamplingResponse {
    /// The parts of the response.
    pub content: Vec<SamplingContent>,
    /// The reason for which the model stopped.
    pub stop_reason: StopReason,
    /// The name of the model that responded, if it differs from [`Model::name`].
    pub model: Option<String>,
}

impl SamplingResponse {
    /// Creates a complete response of these parts.
    ///
    /// ```
    /// # use belljar_mcp_client::{SamplingContent, SamplingResponse};
    /// let response = SamplingResponse::new(vec![SamplingContent::Text("yes".into())]);
    /// assert_eq!(response, SamplingResponse::text("yes"));
    /// ```
    pub fn new(content: Vec<SamplingContent>) -> Self {
        Self { content, stop_reason: StopReason::EndTurn, model: None }
    }

    /// Creates a complete response of one text.
    ///
    /// ```
    /// let response = belljar_mcp_client::SamplingResponse::text("yes");
    /// assert_eq!(response.stop_reason, belljar_mcp_client::StopReason::EndTurn);
    /// ```
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(vec![SamplingContent::Text(text.into())])
    }
}
