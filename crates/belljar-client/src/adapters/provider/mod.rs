//! Tools, calls and results as the JSON of OpenAI, Anthropic and Gemini, without a dependency on a client of theirs.
//!
//! A program that sends requests itself needs three conversions: the tools of a [`Step`](crate::Step) for the request,
//! the calls in the response, and their results for the next request.
//!
//! ```no_run
//! use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
//! use belljar_mcp_client::{McpServerStdio, RunContext, ToolRunner};
//! use serde_json::json;
//!
//! # async fn post(body: serde_json::Value) -> serde_json::Value { body }
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let (provider, run) = (Provider::Anthropic, RunContext::new());
//! let runner = ToolRunner::new(McpServerStdio::new("belljar").arg("stdio").build());
//! let connections = runner.enter(&run).await?;
//! let mut messages = vec![provider.user_message("What is the 1000th prime?")];
//! let answer = loop {
//!     let step = runner.step(&run).await?;
//!     let tools = ProviderTools::new(provider, step.tools());
//!     let mut request = tools.request(step.instructions(), &messages);
//!     request["model"] = json!("claude-sonnet-4-5");
//!     request["max_tokens"] = json!(4096);
//!     let turn = tools.read(&post(request).await)?;
//!     messages.extend(turn.messages);
//!     if turn.calls.is_empty() {
//!         break turn.text;
//!     }
//!     let results = step.call_all(turn.calls).await?;
//!     messages.extend(tools.results(&results));
//! };
//! println!("{answer}");
//! connections.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Names and schemas are changed where a provider would reject them:
//!
//! | | OpenAI | Anthropic | Gemini |
//! | --- | --- | --- | --- |
//! | names | 64 of `A-Za-z0-9_-`; changed names map back | the same | the same, and the first is a letter or `_` |
//! | `$ref`, `$defs` | replaced by the target; recursion is cut | the same | the same |
//! | `$schema`, `$id`, `$comment` | removed | removed | removed |
//! | `anyOf`, `oneOf`, `allOf` of the root | merged into one object | merged | merged |
//! | other keywords | kept | kept | those of OpenAPI 3.0 that Gemini supports |
//!
//! Arguments are checked against the original schema, by the [`ToolRunner`](crate::ToolRunner) or the server.

mod anthropic;
mod gemini;
mod names;
mod openai_chat;
mod openai_responses;
mod schema;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::runner::{ToolCall, ToolMessage, ToolReturn};
use crate::toolset::{ToolDefinition, ToolList};
pub(super) use names::Names;
#[cfg(any(feature = "genai", feature = "rig"))]
pub(super) use schema::json_schema;

/// An API of language models.
///
/// ```
/// use belljar_mcp_client::adapters::provider::Provider;
/// use serde_json::json;
///
/// assert_eq!(Provider::Anthropic.user_message("Hi."), json!({"role": "user", "content": "Hi."}));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Provider {
    /// OpenAI's chat completions, which many other providers and local servers offer as well.
    #[serde(rename = "openai_chat")]
    OpenAiChat,
    /// OpenAI's responses.
    #[serde(rename = "openai_responses")]
    OpenAiResponses,
    /// Anthropic's messages.
    Anthropic,
    /// Gemini's `generateContent`.
    Gemini,
}

impl Provider {
    /// Returns the message of a user.
    ///
    /// ```
    /// use belljar_mcp_client::adapters::provider::Provider;
    /// use serde_json::json;
    ///
    /// let message = Provider::Gemini.user_message("Hi.");
    /// assert_eq!(message, json!({"role": "user", "parts": [{"text": "Hi."}]}));
    /// ```
    pub fn user_message(self, text: &str) -> Value {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses | Self::Anthropic => json!({"role": "user", "content": text}),
            Self::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
        }
    }
}

/// The tools of one step in the form of a provider.
///
/// ```
/// use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
/// use belljar_mcp_client::{ToolDefinition, ToolList};
/// use serde_json::json;
///
/// let tools = ToolList::from(vec![ToolDefinition::new("files.read", json!({"type": "object"}))]);
/// let tools = ProviderTools::new(Provider::Anthropic, &tools);
/// assert_eq!(tools.to_json()[0]["name"], "files_read");
/// ```
#[derive(Debug, Clone)]
pub struct ProviderTools {
    provider: Provider,
    names: Names,
    tools: Vec<Value>,
    /// The complete descriptions of tools whose description was shortened.
    shortened: Vec<String>,
}

impl ProviderTools {
    /// Converts tools.
    ///
    /// ```
    /// # use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
    /// # use belljar_mcp_client::ToolList;
    /// let tools = ProviderTools::new(Provider::Gemini, &ToolList::new());
    /// assert_eq!(tools.to_json(), serde_json::json!([]));
    /// ```
    pub fn new(provider: Provider, tools: &ToolList) -> Self {
        let names = Names::new(tools.names(), provider == Provider::Gemini);
        let convert = match provider {
            Provider::OpenAiChat => openai_chat::tool,
            Provider::OpenAiResponses => openai_responses::tool,
            Provider::Anthropic => anthropic::tool,
            Provider::Gemini => gemini::tool,
        };
        let converted = tools.iter().map(|tool| convert(&names.to_provider(&tool.name), tool));
        let tools = converted.collect();
        Self { provider, names, tools, shortened: Vec::new() }
    }

    /// Shortens descriptions to a number of characters: some models, of Azure for example, accept at most 1024. The
    /// complete descriptions follow the instructions of a [`request`](Self::request).
    ///
    /// ```
    /// # use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
    /// # use belljar_mcp_client::{ToolDefinition, ToolList};
    /// let tool = ToolDefinition::new("now", serde_json::json!({})).with_description("Returns the time.");
    /// let tools = ProviderTools::new(Provider::Anthropic, &vec![tool].into()).max_description(8);
    /// assert_eq!(tools.to_json()[0]["description"], "Returns…");
    /// assert_eq!(tools.request(None, &[])["system"], "The tool `now`: Returns the time.");
    /// ```
    pub fn max_description(mut self, characters: usize) -> Self {
        for tool in &mut self.tools {
            let fields = if self.provider == Provider::OpenAiChat { &mut tool["function"] } else { tool };
            let Some(text) = fields["description"].as_str().filter(|text| text.chars().count() > characters) else {
                continue;
            };
            let kept: String = text.chars().take(characters.saturating_sub(1)).chain(['…']).collect();
            self.shortened.push(format!("The tool `{}`: {text}", fields["name"].as_str().unwrap_or_default()));
            fields["description"] = json!(kept);
        }
        self
    }

    /// Returns the value of a request's `tools`. Without tools, most providers require to leave it out, as
    /// [`request`](Self::request) does.
    ///
    /// ```
    /// # use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
    /// # use belljar_mcp_client::ToolList;
    /// assert_eq!(ProviderTools::new(Provider::OpenAiChat, &ToolList::new()).to_json(), serde_json::json!([]));
    /// ```
    pub fn to_json(&self) -> Value {
        match self.provider {
            Provider::Gemini if !self.tools.is_empty() => json!([{"functionDeclarations": self.tools}]),
            _ => Value::Array(self.tools.clone()),
        }
    }

    /// Returns the body of a request with these messages, to which the program adds `model` and other settings.
    ///
    /// ```
    /// # use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
    /// # use belljar_mcp_client::ToolList;
    /// # use serde_json::json;
    /// let provider = Provider::OpenAiChat;
    /// let tools = ProviderTools::new(provider, &ToolList::new());
    /// let mut request = tools.request(Some("Be brief."), &[provider.user_message("Hi.")]);
    /// request["model"] = json!("llama3.2");
    /// assert_eq!(request["messages"][0], json!({"role": "system", "content": "Be brief."}));
    /// ```
    pub fn request(&self, instructions: Option<&str>, messages: &[Value]) -> Value {
        let instructions = instructions.into_iter().filter(|text| !text.is_empty());
        let instructions: Vec<&str> = instructions.chain(self.shortened.iter().map(String::as_str)).collect();
        let instructions = instructions.join("\n\n");
        let instructions = Some(instructions.as_str()).filter(|text| !text.is_empty());
        let mut body = match self.provider {
            Provider::OpenAiChat => {
                let system = instructions.map(|text| json!({"role": "system", "content": text}));
                json!({"messages": system.into_iter().chain(messages.iter().cloned()).collect::<Vec<_>>()})
            }
            Provider::OpenAiResponses => json!({"input": messages}),
            Provider::Anthropic => json!({"messages": messages}),
            Provider::Gemini => json!({"contents": messages}),
        };
        match (self.provider, instructions) {
            (Provider::OpenAiResponses, Some(text)) => body["instructions"] = json!(text),
            (Provider::Anthropic, Some(text)) => body["system"] = json!(text),
            (Provider::Gemini, Some(text)) => body["systemInstruction"] = json!({"parts": [{"text": text}]}),
            _ => {}
        }
        if !self.tools.is_empty() {
            body["tools"] = self.to_json();
        }
        body
    }

    /// Reads the response of a provider.
    ///
    /// ```
    /// use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
    /// use belljar_mcp_client::{ToolCall, ToolDefinition, ToolList};
    /// use serde_json::json;
    ///
    /// let tools = ToolList::from(vec![ToolDefinition::new("math.add", json!({"type": "object"}))]);
    /// let tools = ProviderTools::new(Provider::Anthropic, &tools);
    /// let call = json!({"type": "tool_use", "id": "c1", "name": "math_add", "input": {"a": 1}});
    /// let turn = tools.read(&json!({"content": [call], "stop_reason": "tool_use"})).unwrap();
    /// assert_eq!(turn.calls, [ToolCall::new("c1", "math.add", json!({"a": 1}))]);
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ProviderError`] if the response is an error or not a response of this provider.
    pub fn read(&self, response: &Value) -> Result<ProviderTurn, ProviderError> {
        let error = response.get("error").filter(|error| !error.is_null());
        if let Some(error) = error {
            let message = error.get("message").and_then(Value::as_str).or_else(|| error.as_str());
            return Err(ProviderError::Refused(message.map_or_else(|| error.to_string(), str::to_owned)));
        }
        let mut turn = match self.provider {
            Provider::OpenAiChat => openai_chat::read(response),
            Provider::OpenAiResponses => openai_responses::read(response),
            Provider::Anthropic => anthropic::read(response),
            Provider::Gemini => gemini::read(response),
        }?;
        for call in &mut turn.calls {
            call.name = self.names.original(&call.name);
        }
        Ok(turn)
    }

    /// Returns the messages with the results of a turn's calls, in the order of the calls. All results of a turn belong
    /// in one call of this method: most providers require them together.
    ///
    /// A deferred call becomes a message that says so. To wait for the answer instead, keep the results until
    /// [`Step::resume`](crate::Step::resume) has replaced the deferred ones.
    ///
    /// ```
    /// use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
    /// use belljar_mcp_client::{ToolCall, ToolList, ToolOutcome, ToolReturn};
    /// use serde_json::json;
    ///
    /// let tools = ProviderTools::new(Provider::OpenAiChat, &ToolList::new());
    /// let result = ToolReturn::new(&ToolCall::new("c1", "now", json!({})), ToolOutcome::text("noon"));
    /// assert_eq!(tools.results(&[result]), [json!({"role": "tool", "tool_call_id": "c1", "content": "noon"})]);
    /// ```
    pub fn results(&self, results: &[ToolReturn]) -> Vec<Value> {
        let messages = results.iter().map(|result| {
            let mut message = result.message();
            message.name = self.names.to_provider(&message.name);
            message
        });
        let messages: Vec<ToolMessage> = messages.collect();
        if messages.is_empty() {
            return Vec::new();
        }
        match self.provider {
            Provider::OpenAiChat => openai_chat::results(&messages),
            Provider::OpenAiResponses => openai_responses::results(&messages),
            Provider::Anthropic => anthropic::results(&messages),
            Provider::Gemini => gemini::results(&messages),
        }
    }
}

/// A turn of a model, from [`ProviderTools::read`].
///
/// ```
/// use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
/// use belljar_mcp_client::ToolList;
/// use serde_json::json;
///
/// let tools = ProviderTools::new(Provider::OpenAiChat, &ToolList::new());
/// let message = json!({"role": "assistant", "content": "Hello."});
/// let turn = tools.read(&json!({"choices": [{"message": message, "finish_reason": "stop"}]})).unwrap();
/// assert_eq!((turn.text.as_str(), turn.calls.len()), ("Hello.", 0));
/// assert_eq!(turn.messages, [message]);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProviderTurn {
    /// The text of the turn, without the model's reasoning.
    pub text: String,
    /// The calls, with the names of the tools. Empty if the turn is the answer.
    pub calls: Vec<ToolCall>,
    /// The turn in the provider's form, to be appended to the messages of the next request. It contains the provider's
    /// marks of reasoning, which must be returned unchanged.
    pub messages: Vec<Value>,
    /// The reason for the end of the turn, in the provider's words (`stop`, `max_tokens`, …).
    pub stop_reason: Option<String>,
}

/// The error of a response that is not a turn of a model.
///
/// ```
/// use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
/// use belljar_mcp_client::ToolList;
/// use serde_json::json;
///
/// let tools = ProviderTools::new(Provider::OpenAiChat, &ToolList::new());
/// let error = tools.read(&json!({"error": {"message": "too many requests"}})).unwrap_err();
/// assert_eq!(error.to_string(), "the model's provider refused the request: too many requests");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The response is an error.
    #[error("the model's provider refused the request: {0}")]
    Refused(String),
    /// The response does not contain a turn.
    #[error("the response of the model's provider does not have {0}")]
    Missing(&'static str),
}

/// Returns the description of a tool for a model. The schema of the output belongs to it if the tool requires that.
pub(super) fn description(tool: &ToolDefinition) -> String {
    let description = tool.description.as_deref().unwrap_or_default();
    match &tool.output_schema {
        Some(schema) if tool.include_return_schema == Some(true) => {
            let gap = if description.is_empty() { "" } else { "\n\n" };
            format!("{description}{gap}Returns JSON of this schema: {schema}")
        }
        _ => description.to_owned(),
    }
}

/// Returns an object of the keys whose values are not empty text.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.into_iter().filter(|(_, value)| value != "" && !value.is_null());
    Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
}
