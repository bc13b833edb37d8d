//! `genai`: tools for the models of its client.

use genai::chat::{Binary as GenaiBinary, ChatMessage, ContentPart, Tool, ToolCall as GenaiCall, ToolResponse};

use super::provider::{Names, description, json_schema};
use crate::output::ToolOutput;
use crate::runner::{ToolCall, ToolReturn};
use crate::toolset::ToolList;

/// The tools of one step in the types of `genai`.
///
/// ```no_run
/// use belljar_mcp_client::adapters::genai::GenaiTools;
/// use belljar_mcp_client::{McpServerStdio, RunContext, ToolRunner};
/// use genai::Client;
/// use genai::chat::{ChatMessage, ChatRequest};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let (client, run) = (Client::new()?, RunContext::new());
/// let runner = ToolRunner::new(McpServerStdio::new("belljar").arg("stdio").build());
/// let connections = runner.enter(&run).await?;
/// let mut messages = vec![ChatMessage::user("What is the 1000th prime?")];
/// let answer = loop {
///     let step = runner.step(&run).await?;
///     let tools = GenaiTools::new(step.tools());
///     let request = ChatRequest::new(messages.clone()).with_tools(tools.definitions());
///     let response = client.exec_chat("claude-sonnet-4-5", request, None).await?;
///     let calls = tools.calls(&response.tool_calls());
///     if calls.is_empty() {
///         break response.into_first_text().unwrap_or_default();
///     }
///     messages.extend(response.into_assistant_message_for_tool_use());
///     messages.extend(tools.messages(&step.call_all(calls).await?));
/// };
/// println!("{answer}");
/// connections.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct GenaiTools {
    names: Names,
    tools: Vec<Tool>,
}

impl GenaiTools {
    /// Converts tools. Names and schemas are changed where a provider would reject them, see
    /// [`provider`](crate::adapters::provider).
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolList, adapters::genai::GenaiTools};
    /// let tools = GenaiTools::new(&ToolList::new());
    /// ```
    pub fn new(tools: &ToolList) -> Self {
        // Any of the client's providers may be used.
        let names = Names::new(tools.names(), true);
        let tools = tools.iter().map(|tool| {
            let converted = Tool::new(names.to_provider(&tool.name)).with_schema(json_schema(&tool.input_schema));
            match description(tool) {
                text if text.is_empty() => converted,
                text => converted.with_description(text),
            }
        });
        Self { tools: tools.collect(), names }
    }

    /// Returns the tools of a request.
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolList, adapters::genai::GenaiTools};
    /// assert!(GenaiTools::new(&ToolList::new()).definitions().is_empty());
    /// ```
    pub fn definitions(&self) -> Vec<Tool> {
        self.tools.clone()
    }

    /// Converts the calls of a response.
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolList, adapters::genai::GenaiTools};
    /// assert!(GenaiTools::new(&ToolList::new()).calls(&[]).is_empty());
    /// ```
    pub fn calls(&self, calls: &[&GenaiCall]) -> Vec<ToolCall> {
        let convert = |call: &&GenaiCall| {
            let name = self.names.original(&call.fn_name);
            ToolCall::new(call.call_id.clone(), name, call.fn_arguments.clone())
        };
        calls.iter().map(convert).collect()
    }

    /// Returns the messages with the results of a turn's calls. A result of `genai` is text: images, sounds and PDFs
    /// follow in a message of the user, and other binary data is a note with its type and size.
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolCall, ToolList, ToolOutcome, ToolReturn, adapters::genai::GenaiTools};
    /// let tools = GenaiTools::new(&ToolList::new());
    /// let result = ToolReturn::new(&ToolCall::new("c1", "now", serde_json::json!({})), ToolOutcome::text("noon"));
    /// assert_eq!(tools.messages(&[result]).len(), 1);
    /// ```
    pub fn messages(&self, results: &[ToolReturn]) -> Vec<ChatMessage> {
        let mut messages = Vec::new();
        let mut attached = Vec::new();
        for result in results {
            let message = result.message();
            let name = self.names.to_provider(&message.name);
            for part in &message.content {
                if let ToolOutput::Binary(binary) = part
                    && is_attached(&binary.media_type)
                {
                    let title = format!("The {} of `{name}` ({}):", binary.media_type, message.id);
                    attached.push(ContentPart::from_text(title));
                    let data = GenaiBinary::from_base64(binary.media_type.clone(), binary.base64(), None);
                    attached.push(ContentPart::Binary(data));
                }
            }
            let text = if message.is_error { format!("Error: {}", message.text()) } else { message.text() };
            messages.push(ToolResponse::new(message.id, text).with_fn_name(name));
        }
        let mut converted: Vec<ChatMessage> = Vec::new();
        if !messages.is_empty() {
            converted.push(messages.into());
        }
        if !attached.is_empty() {
            converted.push(ChatMessage::user(attached));
        }
        converted
    }
}

/// Returns whether data of this media type is sent: an API may refuse the whole request because of another type.
fn is_attached(media_type: &str) -> bool {
    matches!(
        media_type,
        "image/png"
            | "image/jpeg"
            | "image/gif"
            | "image/webp"
            | "audio/wav"
            | "audio/x-wav"
            | "audio/mpeg"
            | "audio/mp3"
            | "application/pdf"
    )
}
