//! `async-openai`: tools for programs that use it, and models behind any OpenAI-compatible endpoint for servers.

mod tools;

pub use tools::OpenAiTools;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_trait::async_trait;
use serde_json::{Map, Value, json};

use crate::handlers::{
    Model, ModelError, Role, SamplingContent, SamplingMessage, SamplingRequest, SamplingResponse, StopReason,
    ToolChoice,
};

/// A model behind an endpoint of chat completions.
///
/// ```
/// use belljar_mcp_client::McpServerStdio;
/// use belljar_mcp_client::adapters::openai::OpenAiModel;
///
/// let model = OpenAiModel::new("http://localhost:11434/v1", "no key", "llama3.2");
/// let server = McpServerStdio::new("server").sampling_model(model).build();
/// ```
#[derive(Debug, Clone)]
pub struct OpenAiModel {
    client: Client<OpenAIConfig>,
    model: String,
}

impl OpenAiModel {
    /// Creates a model of this name behind this URL, which usually ends in `/v1`.
    ///
    /// ```
    /// # use belljar_mcp_client::adapters::openai::OpenAiModel;
    /// let model = OpenAiModel::new("https://api.example.org/v1", "the key", "the model");
    /// ```
    pub fn new(url: impl Into<String>, key: impl Into<String>, model: impl Into<String>) -> Self {
        let config = OpenAIConfig::new().with_api_base(url).with_api_key(key);
        Self { client: Client::with_config(config), model: model.into() }
    }

    /// Creates a model that uses a configured client.
    ///
    /// ```
    /// # use belljar_mcp_client::adapters::openai::OpenAiModel;
    /// use async_openai::{Client, config::OpenAIConfig};
    ///
    /// let client = Client::with_config(OpenAIConfig::new().with_api_base("http://localhost:11434/v1"));
    /// let model = OpenAiModel::with_client(client, "llama3.2");
    /// ```
    pub fn with_client(client: Client<OpenAIConfig>, model: impl Into<String>) -> Self {
        Self { client, model: model.into() }
    }
}

#[async_trait]
impl Model for OpenAiModel {
    fn name(&self) -> String {
        self.model.clone()
    }

    fn supports_tools(&self) -> bool {
        true
    }

    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
        let body = body(&self.model, &request);
        let response: Value =
            self.client.chat().create_byot(body).await.map_err(|error| ModelError::new(error.to_string()))?;
        read(&response)
    }
}

/// Converts a request to the endpoint's format.
fn body(model: &str, request: &SamplingRequest) -> Value {
    let system = request.system_prompt.iter().map(|prompt| json!({"role": "system", "content": prompt}));
    let messages: Vec<Value> = system.chain(request.messages.iter().flat_map(messages)).collect();
    let mut body = json!({"model": model, "messages": messages, "max_tokens": request.max_tokens});
    if let Some(temperature) = request.temperature {
        body["temperature"] = json!(temperature);
    }
    if !request.stop_sequences.is_empty() {
        body["stop"] = json!(request.stop_sequences);
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.input_schema});
            json!({"type": "function", "function": function})
        });
        body["tools"] = tools.collect();
        body["tool_choice"] = match request.tool_choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::Required => json!("required"),
            ToolChoice::None => json!("none"),
        };
    }
    body
}

/// Converts a turn. In the endpoint's format each tool result is a separate message.
fn messages(message: &SamplingMessage) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut calls = Vec::new();
    let mut results = Vec::new();
    for part in &message.content {
        match part {
            SamplingContent::Text(text) => parts.push(json!({"type": "text", "text": text})),
            SamplingContent::Image(image) => {
                parts.push(json!({"type": "image_url", "image_url": {"url": image.data_url()}}));
            }
            SamplingContent::Audio(audio) => {
                let format = audio.media_type.rsplit('/').next().unwrap_or("wav").trim_start_matches("x-");
                parts.push(json!({"type": "input_audio", "input_audio": {"data": audio.base64(), "format": format}}));
            }
            SamplingContent::ToolUse { id, name, input } => {
                let arguments = Value::Object(input.clone()).to_string();
                calls.push(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}));
            }
            SamplingContent::ToolResult { id, content, .. } => {
                let text = SamplingMessage { role: message.role, content: content.clone() }.text();
                results.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
            }
        }
    }
    if !parts.is_empty() || !calls.is_empty() {
        let role = if message.role == Role::Assistant { "assistant" } else { "user" };
        // A single text is sent as a string: not every endpoint accepts parts.
        let content = match parts.as_slice() {
            [] => Value::Null,
            [only] if only["type"] == "text" => only["text"].clone(),
            _ => json!(parts),
        };
        let mut turn = json!({"role": role, "content": content});
        if !calls.is_empty() {
            turn["tool_calls"] = json!(calls);
        }
        results.push(turn);
    }
    results
}

fn read(response: &Value) -> Result<SamplingResponse, ModelError> {
    let choice = &response["choices"][0];
    if choice.is_null() {
        return Err(ModelError::new("the endpoint's response does not have any choices"));
    }
    let mut content = Vec::new();
    if let Some(text) = choice["message"]["content"].as_str().filter(|text| !text.is_empty()) {
        content.push(SamplingContent::Text(text.to_owned()));
    }
    for call in choice["message"]["tool_calls"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let arguments = call["function"]["arguments"].as_str().unwrap_or("{}");
        let input: Map<String, Value> = serde_json::from_str(arguments)
            .map_err(|error| ModelError::new(format!("the model's arguments are not a JSON object: {error}")))?;
        content.push(SamplingContent::ToolUse { id: text(&call["id"]), name: text(&call["function"]["name"]), input });
    }
    let stop_reason = match choice["finish_reason"].as_str() {
        None | Some("stop") => StopReason::EndTurn,
        Some("length") => StopReason::MaxTokens,
        Some("tool_calls") => StopReason::ToolUse,
        Some(other) => StopReason::Other(other.to_owned()),
    };
    Ok(SamplingResponse { content, stop_reason, model: response["model"].as_str().map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::SamplingTool;
    use crate::output::Binary;

    fn turn(role: Role, content: Vec<SamplingContent>) -> SamplingMessage {
        SamplingMessage { role, content }
    }

    #[test]
    fn request_keeps_all_supported_fields() {
        let binary = |media_type: &str| Binary::new(vec![1], media_type);
        let call = SamplingContent::ToolUse { id: "c1".into(), name: "add".into(), input: Map::new() };
        let result = vec![SamplingContent::Text("2".into())];
        let result = SamplingContent::ToolResult { id: "c1".into(), content: result, is_error: false };
        let parts = vec![
            SamplingContent::Text("What is it?".into()),
            SamplingContent::Image(binary("image/png")),
            SamplingContent::Audio(binary("audio/x-wav")),
        ];
        let tool = SamplingTool { name: "add".into(), description: Some("Adds.".into()), input_schema: Map::new() };
        let request = SamplingRequest {
            system_prompt: Some("Be kind.".into()),
            messages: vec![
                turn(Role::User, parts),
                turn(Role::Assistant, vec![call]),
                turn(Role::User, vec![result, SamplingContent::Text("Go on.".into())]),
            ],
            max_tokens: 7,
            temperature: Some(0.5),
            stop_sequences: vec!["END".into()],
            tools: vec![tool],
            tool_choice: ToolChoice::Required,
            ..Default::default()
        };
        let body = body("m", &request);
        let function = json!({"name": "add", "description": "Adds.", "parameters": {}});
        let expected = json!({
            "model": "m",
            "max_tokens": 7,
            "temperature": 0.5,
            "stop": ["END"],
            "tools": [{"type": "function", "function": function}],
            "tool_choice": "required",
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQ=="}},
                    {"type": "input_audio", "input_audio": {"data": "AQ==", "format": "wav"}},
                ]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "2"},
                {"role": "user", "content": "Go on."},
            ],
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn tool_calls_and_stop_reason_are_converted() {
        let call = json!({"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"n\": 1}"}});
        let answer = |call: Value| {
            let message = json!({"content": null, "tool_calls": [call]});
            json!({"model": "m-1", "choices": [{"message": message, "finish_reason": "tool_calls"}]})
        };
        let response = read(&answer(call)).unwrap();
        let input = Map::from_iter([("n".to_owned(), json!(1))]);
        assert_eq!(response.content, [SamplingContent::ToolUse { id: "c1".into(), name: "add".into(), input }]);
        assert_eq!((response.stop_reason, response.model.as_deref()), (StopReason::ToolUse, Some("m-1")));
        read(&answer(json!({"function": {"name": "add", "arguments": "no JSON"}}))).unwrap_err();
        read(&json!({"error": "busy"})).unwrap_err();
    }
}
