//! A server asks for a language model's words.

use async_trait::async_trait;
use rmcp::model::{self as wire, CreateMessageRequestParams, CreateMessageResult, SamplingMessageContentBlock};
use serde_json::{Map, Value};

use crate::output::{Binary, decode};

/// A language model that servers may use.
///
/// ```
/// use async_trait::async_trait;
/// use belljar_client::{Model, ModelError, SamplingRequest, SamplingResponse};
///
/// /// Says what it was told last.
/// struct Parrot;
///
/// #[async_trait]
/// impl Model for Parrot {
///     fn name(&self) -> String {
///         "parrot".into()
///     }
///
///     async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
///         let said = request.messages.last().map(|message| message.text()).unwrap_or_default();
///         Ok(SamplingResponse::text(said))
///     }
/// }
/// ```
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// The model's name, which servers get to see.
    fn name(&self) -> String;

    /// Whether the model can be given tools. Servers are told, and without it send none.
    fn supports_tools(&self) -> bool {
        false
    }

    /// Completes a conversation.
    ///
    /// # Errors
    ///
    /// What went wrong, in words that the server may see.
    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError>;
}

/// A model could not, or would not, answer.
///
/// ```
/// # use belljar_client::{ModelError, SamplingResponse};
/// fn refuse() -> Result<SamplingResponse, ModelError> {
///     Err(ModelError::new("the user does not want this"))
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What went wrong. The server sees it.
    pub message: String,
}

impl ModelError {
    /// An error with this message.
    ///
    /// ```
    /// assert_eq!(belljar_client::ModelError::new("out of tokens").to_string(), "out of tokens");
    /// ```
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// What a server wants completed.
///
/// ```
/// # use belljar_client::{SamplingRequest, SamplingResponse};
/// fn answer(request: &SamplingRequest) -> SamplingResponse {
///     let system = request.system_prompt.as_deref().unwrap_or("");
///     SamplingResponse::text(format!("{system}: {} turns, {} tools", request.messages.len(), request.tools.len()))
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct SamplingRequest {
    /// What the model is to know before the conversation.
    pub system_prompt: Option<String>,
    /// The conversation.
    pub messages: Vec<SamplingMessage>,
    /// Most tokens of the answer.
    pub max_tokens: u32,
    /// How freely to choose words, from 0 to 1 (some models take more).
    pub temperature: Option<f32>,
    /// Where to stop.
    pub stop_sequences: Vec<String>,
    /// Which model the server would like.
    pub preferences: ModelPreferences,
    /// Tools that the model may call. The server runs them, and asks again with what they gave.
    pub tools: Vec<SamplingTool>,
    /// Whether the model must use one.
    pub tool_choice: ToolChoice,
    /// Of which servers the program is asked to add what it knows: `none`, `thisServer`, `allServers`.
    pub include_context: Option<String>,
    /// What the server would have the model's provider know.
    pub metadata: Option<Value>,
}

/// Which model a server would like. All of it is advice.
///
/// ```
/// # use belljar_client::ModelPreferences;
/// fn choose(wish: &ModelPreferences) -> &str {
///     if wish.speed > wish.intelligence { "small" } else { wish.hints.first().map_or("large", String::as_str) }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ModelPreferences {
    /// Names, or parts of names, the dearest first.
    pub hints: Vec<String>,
    /// How much cost matters, from 0 to 1.
    pub cost: Option<f32>,
    /// How much speed matters, from 0 to 1.
    pub speed: Option<f32>,
    /// How much it matters what the model can do, from 0 to 1.
    pub intelligence: Option<f32>,
}

/// Whether a model must use tools.
///
/// ```
/// assert_eq!(belljar_client::ToolChoice::default(), belljar_client::ToolChoice::Auto);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// At least one.
    Required,
    /// None.
    None,
}

/// A tool that a server offers to the model.
///
/// ```
/// # fn show(request: belljar_client::SamplingRequest) {
/// for tool in &request.tools {
///     println!("{}: {}", tool.name, tool.description.as_deref().unwrap_or_default());
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SamplingTool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// JSON schema of its arguments.
    pub input_schema: Map<String, Value>,
}

/// Who speaks.
///
/// ```
/// # fn show(message: belljar_client::SamplingMessage) {
/// let is_ours = message.role == belljar_client::SamplingRole::Assistant;
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingRole {
    /// The user, or a tool.
    User,
    /// The model.
    Assistant,
}

/// A turn of the conversation.
///
/// ```
/// use belljar_client::{Binary, SamplingContent, SamplingMessage, SamplingRole};
///
/// let image = Binary { data: vec![0x89, b'P', b'N', b'G'], media_type: "image/png".into() };
/// let content = vec![SamplingContent::Text("What is this?".into()), SamplingContent::Image(image)];
/// let message = SamplingMessage { role: SamplingRole::User, content };
/// assert_eq!(message.text(), "What is this?");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingMessage {
    /// Who speaks.
    pub role: SamplingRole,
    /// What is said.
    pub content: Vec<SamplingContent>,
}

impl SamplingMessage {
    /// Its text, parts on lines of their own.
    ///
    /// ```
    /// use belljar_client::{SamplingContent, SamplingMessage, SamplingRole};
    ///
    /// let message = SamplingMessage { role: SamplingRole::User, content: vec![SamplingContent::Text("hi".into())] };
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
/// # use belljar_client::SamplingContent;
/// fn words(part: &SamplingContent) -> String {
///     match part {
///         SamplingContent::Text(text) => text.clone(),
///         SamplingContent::Image(image) | SamplingContent::Audio(image) => format!("[{}]", image.media_type),
///         SamplingContent::ToolUse { name, .. } => format!("calls {name}"),
///         _ => String::new(),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum SamplingContent {
    /// Text.
    Text(String),
    /// An image.
    Image(Binary),
    /// A sound.
    Audio(Binary),
    /// The model calls a tool.
    ToolUse {
        /// The call's name, which its result repeats.
        id: String,
        /// The tool.
        name: String,
        /// Its arguments.
        input: Map<String, Value>,
    },
    /// What a tool gave.
    ToolResult {
        /// The call's name.
        id: String,
        /// What it gave: text, images and sounds.
        content: Vec<SamplingContent>,
        /// Whether the tool failed.
        is_error: bool,
    },
}

/// Why a model stopped.
///
/// ```
/// # use belljar_client::{SamplingResponse, StopReason};
/// let mut response = SamplingResponse::text("Once upon a");
/// response.stop_reason = StopReason::MaxTokens;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StopReason {
    /// It had said everything.
    #[default]
    EndTurn,
    /// It came to a stop sequence.
    StopSequence,
    /// It came to the most tokens.
    MaxTokens,
    /// It wants tools to be run.
    ToolUse,
    /// Another, in the provider's words.
    Other(String),
}

/// A model's answer.
///
/// ```
/// # use belljar_client::{SamplingContent, SamplingResponse, StopReason};
/// let response = SamplingResponse {
///     content: vec![SamplingContent::Text("yes".into())],
///     stop_reason: StopReason::EndTurn,
///     model: Some("the one that answered".into()),
/// };
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingResponse {
    /// What it says.
    pub content: Vec<SamplingContent>,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// The model that answered, if it is not the one that [`Model::name`] names.
    pub model: Option<String>,
}

impl SamplingResponse {
    /// An answer of text alone, that is complete.
    ///
    /// ```
    /// let response = belljar_client::SamplingResponse::text("yes");
    /// assert_eq!(response.stop_reason, belljar_client::StopReason::EndTurn);
    /// ```
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![SamplingContent::Text(text.into())], stop_reason: StopReason::EndTurn, model: None }
    }
}

/// Reads a request off the wire.
pub(crate) fn request(params: CreateMessageRequestParams) -> Result<SamplingRequest, String> {
    let preferences = params.model_preferences.map(|wish| ModelPreferences {
        hints: wish.hints.into_iter().flatten().filter_map(|hint| hint.name).collect(),
        cost: wish.cost_priority,
        speed: wish.speed_priority,
        intelligence: wish.intelligence_priority,
    });
    let tools = params.tools.into_iter().flatten().map(|tool| SamplingTool {
        name: tool.name.into_owned(),
        description: tool.description.map(|text| text.into_owned()),
        input_schema: (*tool.input_schema).clone(),
    });
    Ok(SamplingRequest {
        system_prompt: params.system_prompt,
        messages: params.messages.into_iter().map(message).collect::<Result<_, _>>()?,
        max_tokens: params.max_tokens,
        temperature: params.temperature,
        stop_sequences: params.stop_sequences.unwrap_or_default(),
        preferences: preferences.unwrap_or_default(),
        tools: tools.collect(),
        tool_choice: match params.tool_choice.and_then(|choice| choice.mode) {
            Some(wire::ToolChoiceMode::Required) => ToolChoice::Required,
            Some(wire::ToolChoiceMode::None) => ToolChoice::None,
            _ => ToolChoice::Auto,
        },
        include_context: params
            .include_context
            .and_then(|context| serde_json::to_value(context).ok())
            .and_then(|context| context.as_str().map(str::to_owned)),
        metadata: params.metadata,
    })
}

fn message(message: wire::SamplingMessage) -> Result<SamplingMessage, String> {
    Ok(SamplingMessage {
        role: match message.role {
            wire::Role::Assistant => SamplingRole::Assistant,
            _ => SamplingRole::User,
        },
        content: match message.content {
            wire::SamplingContent::Single(part) => vec![content(part)?],
            wire::SamplingContent::Multiple(parts) => parts.into_iter().map(content).collect::<Result<_, _>>()?,
        },
    })
}

fn content(part: SamplingMessageContentBlock) -> Result<SamplingContent, String> {
    Ok(match part {
        SamplingMessageContentBlock::Text(text) => SamplingContent::Text(text.text),
        SamplingMessageContentBlock::Image(image) => SamplingContent::Image(binary(&image.data, image.mime_type)?),
        SamplingMessageContentBlock::Audio(audio) => SamplingContent::Audio(binary(&audio.data, audio.mime_type)?),
        SamplingMessageContentBlock::ToolUse(call) => {
            SamplingContent::ToolUse { id: call.id, name: call.name, input: call.input }
        }
        SamplingMessageContentBlock::ToolResult(result) => SamplingContent::ToolResult {
            id: result.tool_use_id,
            content: result.content.into_iter().map(tool_result_part).collect::<Result<_, _>>()?,
            is_error: result.is_error.unwrap_or(false),
        },
        _ => return Err("a message has a part of a kind that this client does not know".to_owned()),
    })
}

fn tool_result_part(part: wire::ContentBlock) -> Result<SamplingContent, String> {
    Ok(match part {
        wire::ContentBlock::Text(text) => SamplingContent::Text(text.text),
        wire::ContentBlock::Image(image) => SamplingContent::Image(binary(&image.data, image.mime_type)?),
        wire::ContentBlock::Audio(audio) => SamplingContent::Audio(binary(&audio.data, audio.mime_type)?),
        wire::ContentBlock::Resource(embedded) => SamplingContent::Text(embedded.get_text()),
        wire::ContentBlock::ResourceLink(link) => SamplingContent::Text(link.uri),
        _ => return Err("a tool's result has a part of a kind that this client does not know".to_owned()),
    })
}

fn binary(data: &str, media_type: String) -> Result<Binary, String> {
    Ok(Binary { data: decode(data).map_err(|error| error.to_string())?, media_type })
}

/// Puts an answer on the wire. An answer of one part is that part, which clients of before 2025-11-25 expect.
pub(crate) fn response(response: SamplingResponse, model: String) -> CreateMessageResult {
    let stop_reason = match response.stop_reason {
        StopReason::EndTurn => CreateMessageResult::STOP_REASON_END_TURN.to_owned(),
        StopReason::StopSequence => CreateMessageResult::STOP_REASON_END_SEQUENCE.to_owned(),
        StopReason::MaxTokens => CreateMessageResult::STOP_REASON_END_MAX_TOKEN.to_owned(),
        StopReason::ToolUse => CreateMessageResult::STOP_REASON_TOOL_USE.to_owned(),
        StopReason::Other(reason) => reason,
    };
    let mut parts: Vec<_> = response.content.into_iter().map(block).collect();
    let content = match parts.pop() {
        Some(only) if parts.is_empty() => wire::SamplingContent::Single(only),
        Some(last) => {
            parts.push(last);
            wire::SamplingContent::Multiple(parts)
        }
        None => wire::SamplingContent::Single(SamplingMessageContentBlock::Text(wire::TextContent::new(""))),
    };
    let mut message = wire::SamplingMessage::assistant_text("");
    message.content = content;
    CreateMessageResult::new(message, response.model.unwrap_or(model)).with_stop_reason(stop_reason)
}

fn block(part: SamplingContent) -> SamplingMessageContentBlock {
    match part {
        SamplingContent::Text(text) => SamplingMessageContentBlock::Text(wire::TextContent::new(text)),
        SamplingContent::Image(image) => {
            SamplingMessageContentBlock::Image(wire::ImageContent::new(image.base64(), image.media_type))
        }
        SamplingContent::Audio(audio) => {
            SamplingMessageContentBlock::Audio(wire::AudioContent::new(audio.base64(), audio.media_type))
        }
        SamplingContent::ToolUse { id, name, input } => {
            SamplingMessageContentBlock::ToolUse(wire::ToolUseContent::new(id, name, input))
        }
        SamplingContent::ToolResult { id, content, is_error } => {
            let content = content.into_iter().filter_map(|part| match part {
                SamplingContent::Text(text) => Some(wire::ContentBlock::text(text)),
                SamplingContent::Image(image) => Some(wire::ContentBlock::image(image.base64(), image.media_type)),
                SamplingContent::Audio(audio) => Some(wire::ContentBlock::audio(audio.base64(), audio.media_type)),
                SamplingContent::ToolUse { .. } | SamplingContent::ToolResult { .. } => None,
            });
            let mut result = wire::ToolResultContent::new(id, content.collect());
            result.is_error = is_error.then_some(true);
            SamplingMessageContentBlock::ToolResult(result)
        }
    }
}
