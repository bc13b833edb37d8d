//! The tools of a step for a program that uses `async-openai`.

use async_openai::types::chat::{ChatCompletionRequestMessage, ChatCompletionResponseMessage, ChatCompletionTools};
use serde_json::{Value, json};

use crate::adapters::provider::{Provider, ProviderTools};
use crate::runner::{ToolCall, ToolReturn};
use crate::toolset::ToolList;

/// The tools of one step in the types of `async-openai`.
///
/// ```no_run
/// use async_openai::Client;
/// use async_openai::types::chat::{ChatCompletionRequestUserMessage, CreateChatCompletionRequestArgs};
/// use belljar_mcp_client::adapters::openai::OpenAiTools;
/// use belljar_mcp_client::{McpServerStdio, RunContext, ToolRunner};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let (client, run) = (Client::new(), RunContext::new());
/// let runner = ToolRunner::new(McpServerStdio::new("belljar").arg("stdio").build());
/// let connections = runner.enter(&run).await?;
/// let mut messages = vec![ChatCompletionRequestUserMessage::from("What is the 1000th prime?").into()];
/// let answer = loop {
///     let step = runner.step(&run).await?;
///     let tools = OpenAiTools::new(step.tools());
///     let request = CreateChatCompletionRequestArgs::default()
///         .model("gpt-5.2")
///         .messages(messages.clone())
///         .tools(tools.definitions()?)
///         .build()?;
///     let response = client.chat().create(request).await?;
///     let message = &response.choices.first().ok_or("no choices")?.message;
///     let calls = tools.calls(message)?;
///     if calls.is_empty() {
///         break message.content.clone().unwrap_or_default();
///     }
///     let results = step.call_all(calls).await?;
///     messages.extend(tools.messages(message, &results)?);
/// };
/// println!("{answer}");
/// connections.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OpenAiTools(ProviderTools);

impl OpenAiTools {
    /// Converts tools. Names and schemas are changed where OpenAI would reject them, see
    /// [`provider`](crate::adapters::provider).
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolList, adapters::openai::OpenAiTools};
    /// let tools = OpenAiTools::new(&ToolList::new());
    /// ```
    pub fn new(tools: &ToolList) -> Self {
        Self(ProviderTools::new(Provider::OpenAiChat, tools))
    }

    /// Returns the tools of a request. OpenAI rejects an empty list.
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolList, adapters::openai::OpenAiTools};
    /// assert!(OpenAiTools::new(&ToolList::new()).definitions().unwrap().is_empty());
    /// ```
    ///
    /// # Errors
    ///
    /// The types of `async-openai` do not accept the JSON.
    pub fn definitions(&self) -> Result<Vec<ChatCompletionTools>, serde_json::Error> {
        serde_json::from_value(self.0.to_json())
    }

    /// Returns the calls in a message of the model.
    ///
    /// ```
    /// # use async_openai::types::chat::ChatCompletionResponseMessage;
    /// # use belljar_mcp_client::{ToolCall, adapters::openai::OpenAiTools};
    /// fn calls(tools: &OpenAiTools, message: &ChatCompletionResponseMessage) -> Vec<ToolCall> {
    ///     tools.calls(message).unwrap_or_default()
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The message cannot be converted to JSON.
    pub fn calls(&self, message: &ChatCompletionResponseMessage) -> Result<Vec<ToolCall>, serde_json::Error> {
        Ok(self.read(message)?.0)
    }

    /// Returns the messages to append to the history: the model's, and those with the results of all its calls.
    ///
    /// ```
    /// # use async_openai::types::chat::{ChatCompletionRequestMessage, ChatCompletionResponseMessage};
    /// # use belljar_mcp_client::{ToolReturn, adapters::openai::OpenAiTools};
    /// fn history(
    ///     tools: &OpenAiTools,
    ///     message: &ChatCompletionResponseMessage,
    ///     results: &[ToolReturn],
    /// ) -> Vec<ChatCompletionRequestMessage> {
    ///     tools.messages(message, results).unwrap_or_default()
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The types of `async-openai` do not accept the JSON.
    pub fn messages(
        &self,
        message: &ChatCompletionResponseMessage,
        results: &[ToolReturn],
    ) -> Result<Vec<ChatCompletionRequestMessage>, serde_json::Error> {
        let (_, mut messages) = self.read(message)?;
        messages.extend(self.0.results(results));
        messages.into_iter().map(serde_json::from_value).collect()
    }

    fn read(&self, message: &ChatCompletionResponseMessage) -> Result<(Vec<ToolCall>, Vec<Value>), serde_json::Error> {
        let response = json!({"choices": [{"message": serde_json::to_value(message)?}]});
        let turn = self.0.read(&response).map_err(<serde_json::Error as serde::ser::Error>::custom)?;
        Ok((turn.calls, turn.messages))
    }
}
