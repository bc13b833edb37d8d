//! A server with the fixtures of the official conformance suite, on Belljar's own transport. It runs no Python: the
//! suite tests the transport.
//!
//! `conformance` listens on a free port of this machine and prints its address.

#![expect(deprecated, reason = "the legacy era's suite tests features that the modern era deprecates")]

mod rounds;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use belljar_server::{HttpOptions, HttpTransport, McpService, serve_http};
use belljar_sessions::Owner;
use parking_lot::Mutex;
use rmcp::model::*;
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;

/// The suite's fixtures, from `fixtures.json`.
static FIXTURES: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("fixtures.json").replace("\"PNG\"", &format!("\"{PNG}\""));
    serde_json::from_str(&text.replace("\"WAV\"", "\"UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=\""))
        .unwrap_or_default()
});

/// An image of one black pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";

/// The time between two notifications, as required by the suite.
const STEP: Duration = Duration::from_millis(50);

#[derive(Clone)]
struct Fixtures {
    level: Arc<AtomicU8>,
    subscribed: Arc<Mutex<HashSet<String>>>,
    /// Sends the names of changed lists.
    changes: broadcast::Sender<&'static str>,
}

/// Converts JSON into a protocol type: the fixtures have the form of the suite's descriptions.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// Converts JSON into the type of a complete result. rmcp removes the marker in the legacy era.
fn complete<T: DeserializeOwned>(mut value: Value) -> Result<T, ErrorData> {
    value["resultType"] = json!("complete");
    typed(value)
}

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text.into())])
}

impl Fixtures {
    fn names(kind: &str) -> Vec<String> {
        match &FIXTURES[kind] {
            Value::Object(object) => object.keys().cloned().collect(),
            Value::Array(names) => names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            _ => Vec::new(),
        }
    }

    fn wants(&self, level: LoggingLevel, context: &RequestContext<RoleServer>) -> bool {
        let modern = context.protocol_version().is_some_and(|version| version.as_str() >= "2026");
        if modern {
            return context.meta.log_level().is_some_and(|least| level as u8 >= least as u8);
        }
        level as u8 >= self.level.load(Ordering::Relaxed)
    }

    async fn log(&self, context: &RequestContext<RoleServer>, message: &str) -> Result<(), ErrorData> {
        if self.wants(LoggingLevel::Info, context) {
            let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message));
            let sent = context.peer.notify_logging_message(message).await;
            sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        }
        tokio::time::sleep(STEP).await;
        Ok(())
    }

    async fn active(
        &self,
        name: &str,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or("…").to_owned();
        let failed = |error: rmcp::ServiceError| ErrorData::internal_error(error.to_string(), None);
        match name {
            "test_tool_with_logging" | "test_logging_tool" => {
                for message in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                    self.log(context, message).await?;
                }
            }
            "test_tool_with_progress" => {
                for done in [0.0, 50.0, 100.0] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let progress = ProgressNotificationParam::new(token, done).with_total(100.0);
                        context.peer.notify_progress(progress).await.map_err(failed)?;
                    }
                    tokio::time::sleep(STEP).await;
                }
            }
            "test_sampling" => {
                let question = SamplingMessage::user_text(argument("prompt"));
                let answer = context.peer.create_message(CreateMessageRequestParams::new(vec![question], 100)).await;
                let answer = serde_json::to_value(answer.map_err(failed)?).unwrap_or_default();
                return Ok(text(format!("LLM response: {}", answer["content"]["text"].as_str().unwrap_or("none"))));
            }
            "test_missing_capability" => {
                let declared = context.client_capabilities().is_some_and(|declared| declared.sampling.is_some());
                if !declared {
                    let missing = typed(json!({ "sampling": {} }))?;
                    return Err(ErrorData::missing_required_client_capability(missing));
                }
            }
            "test_trigger_tool_change" | "test_trigger_prompt_change" => {
                let list = if name.contains("tool_change") { "tools" } else { "prompts" };
                // Sending fails when no client listens.
                let _ = self.changes.send(list);
            }
            _ => {
                let params = json!({
                    "message": argument("message"), "requestedSchema": FIXTURES["elicitations"][name],
                });
                let answer = context.peer.create_elicitation(typed(params)?).await.map_err(failed)?;
                let answer = serde_json::to_value(answer).unwrap_or_default();
                let (action, content) = (answer["action"].as_str().unwrap_or_default(), &answer["content"]);
                let kind = if name == "test_elicitation" { "User response" } else { "Elicitation completed" };
                return Ok(text(format!("{kind}: action={action}, content={content}")));
            }
        }
        Ok(text(format!("{name} has completed")))
    }
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true },
            "logging": {},
            "completions": {},
        });
        let capabilities = serde_json::from_value(capabilities).unwrap_or_default();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("belljar-conformance", "1.0.0"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let names = ["results", "active", "rounds"].into_iter().flat_map(Self::names);
        let names = names.filter(|name| !name.ends_with("_prompt"));
        let tools: Vec<Value> = names
            .map(|name| {
                let properties = match name.as_str() {
                    "test_sampling" => json!({ "prompt": { "type": "string" } }),
                    "test_elicitation" => json!({ "message": { "type": "string" } }),
                    _ => json!({}),
                };
                let schema = json!({ "type": "object", "properties": properties });
                json!({ "name": name, "description": format!("The suite's fixture {name}"), "inputSchema": schema })
            })
            .collect();
        complete(json!({ "tools": tools, "ttlMs": 0, "cacheScope": "public" }))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        if let Some(result) = FIXTURES["results"].get(name) {
            return Ok(complete::<CallToolResult>(result.clone())?.into());
        }
        if FIXTURES["rounds"].get(name).is_some() {
            let next = rounds::next(name, request.input_responses, request.request_state, &context)?;
            return Ok(match next {
                rounds::Next::Ask(ask) => (*ask).into(),
                rounds::Next::Done(answers) => text(answers).into(),
            });
        }
        if !Self::names("active").iter().any(|active| active == name) {
            return Err(ErrorData::invalid_params(format!("unknown tool {name}"), None));
        }
        Ok(self.active(name, request.arguments.unwrap_or_default(), &context).await?.into())
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.level.store(request.level as u8, Ordering::Relaxed);
        Ok(())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        complete(json!({ "completion": { "values": ["paris", "park", "party"], "total": 3, "hasMore": false } }))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        complete(json!({ "resources": FIXTURES["resources"], "ttlMs": 0, "cacheScope": "public" }))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        complete(json!({ "resourceTemplates": FIXTURES["templates"], "ttlMs": 0, "cacheScope": "public" }))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let mut content = match (FIXTURES["contents"].get(&uri), id) {
            (Some(content), _) => content.clone(),
            (None, Some(id)) => {
                let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                json!({ "mimeType": "application/json", "text": data.to_string() })
            }
            (None, None) => {
                return Err(ErrorData::resource_not_found("Resource not found", Some(json!({ "uri": uri }))));
            }
        };
        content["uri"] = json!(uri);
        Ok(complete::<ReadResourceResult>(json!({ "contents": [content], "ttlMs": 0, "cacheScope": "public" }))?.into())
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.subscribed.lock().insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribed.lock().remove(&request.uri);
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        complete(json!({ "prompts": FIXTURES["prompts"], "ttlMs": 0, "cacheScope": "public" }))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let Some(messages) = FIXTURES["messages"].get(&request.name).and_then(Value::as_array) else {
            return Err(ErrorData::invalid_params(format!("unknown prompt {}", request.name), None));
        };
        let mut arguments = request.arguments.unwrap_or_default();
        if FIXTURES["rounds"].get(&request.name).is_some() {
            match rounds::next(&request.name, request.input_responses, request.request_state, &context)? {
                rounds::Next::Ask(ask) => return Ok((*ask).into()),
                rounds::Next::Done(answers) => arguments.insert("answers".into(), answers.into()),
            };
        }
        let mut written = json!(messages).to_string();
        for (name, value) in &arguments {
            let quoted = json!(value.as_str().unwrap_or_default()).to_string();
            written = written.replace(&format!("{{{name}}}"), quoted.trim_matches('"'));
        }
        let contents: Vec<Value> = serde_json::from_str(&written).unwrap_or_default();
        let messages: Vec<Value> =
            contents.into_iter().map(|content| json!({ "role": "user", "content": content })).collect();
        Ok(complete::<GetPromptResult>(json!({ "messages": messages }))?.into())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let changed = tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.recv() => changed,
            };
            let sent = match changed {
                Ok("tools") => context.sink().notify_tool_list_changed().await,
                Ok(_) => context.sink().notify_prompt_list_changed().await,
                Err(_) => return Ok(()),
            };
            // Sending fails when the client did not subscribe to this list.
            drop(sent);
        }
    }
}

impl McpService for Fixtures {
    fn for_client(&self, _: Option<Owner>) -> Self {
        Self { level: Arc::new(AtomicU8::new(LoggingLevel::Debug as u8)), ..self.clone() }
    }

    fn calls_in_flight(&self) -> usize {
        0
    }

    fn metrics(&self) -> String {
        String::new()
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the starting process reads the address")]
async fn main() -> std::io::Result<()> {
    let (changes, _) = broadcast::channel(16);
    let server = Fixtures { level: Arc::default(), subscribed: Arc::default(), changes };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    serve_http(server, listener, HttpOptions::new(HttpTransport::Streamable), std::future::pending()).await
}
