//! The connection to one MCP server: the only file that knows `belljar-mcp-client`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_mcp_client::protocol::{
    CallToolResult, ContentBlock, Resource, ResourceContents, ServerNotification, Tool as WireTool,
};
use belljar_mcp_client::{CallOptions, ConnectionGuard, McpError, McpServer};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::error::ToolFailure;
use crate::policy::Effects;
use crate::values::{Link, Part, ToolValue, binary, parse_text};

/// The time for which a failure to connect is remembered, so that many calls at once make one attempt.
const FAILURE_TTL: Duration = Duration::from_secs(3);
/// The time for which a list of tools is used without asking the client, which caches it and knows of changes.
const LIST_AGE: Duration = Duration::from_secs(1);
/// The maximum number of a server's resources that code can list.
const MAX_RESOURCES: usize = 10_000;

/// The definition of a tool, as its server lists it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    pub(crate) input: Arc<Map<String, Value>>,
    pub(crate) output: Option<Arc<Map<String, Value>>>,
    pub(crate) effects: Effects,
}

impl From<&WireTool> for Definition {
    fn from(tool: &WireTool) -> Self {
        let annotations = tool.annotations.as_ref();
        Self {
            name: tool.name.to_string(),
            title: tool.title.clone(),
            description: tool.description.as_deref().unwrap_or_default().to_owned(),
            input: tool.input_schema.clone(),
            output: tool.output_schema.clone(),
            effects: Effects {
                read_only: annotations.and_then(|hints| hints.read_only_hint) == Some(true),
                destructive: annotations.and_then(|hints| hints.destructive_hint) != Some(false),
                idempotent: annotations.and_then(|hints| hints.idempotent_hint) == Some(true),
            },
        }
    }
}

/// A server, connected when it is first needed, and kept connected.
pub(crate) struct Connection {
    server: McpServer,
    state: tokio::sync::Mutex<State>,
    known: Arc<Mutex<Known>>,
    changes: watch::Sender<u64>,
}

/// The part of the state that calls need, so that they do not wait for one another.
#[derive(Default)]
struct Known {
    /// The number of the connection, while there is one.
    connected: Option<u64>,
    /// The time of the last list; `None` if there may be another one.
    listed_at: Option<Instant>,
    /// True once the server has announced another list, until that is read.
    is_announced: bool,
    /// The last list.
    listed: Option<Arc<Vec<Definition>>>,
}

impl Known {
    /// Notes that the connection is lost. The next one may have other tools.
    fn disconnected(&mut self) {
        self.connected = None;
        self.listed_at = None;
    }
}

#[derive(Default)]
struct State {
    guard: Option<ConnectionGuard>,
    /// The number of connections so far.
    generation: u64,
    failure: Option<(Instant, ToolFailure)>,
    /// True once the server could not be reached, until its tools are listed.
    was_unavailable: bool,
}

impl Connection {
    /// Creates the connection to a server, whose handler of messages is replaced. `changes` is incremented when its
    /// list of tools has changed.
    pub(crate) fn new(server: &McpServer, changes: watch::Sender<u64>) -> Self {
        let known = Arc::<Mutex<Known>>::default();
        let (noted, announced) = (known.clone(), changes.clone());
        let server = server.to_builder().message_handler(move |notification| {
            if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
                let mut known = noted.lock();
                known.listed_at = None;
                known.is_announced = true;
                drop(known);
                announced.send_modify(|count| *count += 1);
            }
        });
        Self { server: server.build(), state: tokio::sync::Mutex::default(), known, changes }
    }

    /// Returns the server's name: its ID in a configuration file.
    pub(crate) fn name(&self) -> String {
        self.server.label()
    }

    /// Connects, unless the server is connected or has failed to connect just now. Returns the number of the
    /// connection.
    async fn connect(&self, state: &mut State) -> Result<u64, ToolFailure> {
        if state.guard.is_some() {
            return Ok(state.generation);
        }
        if let Some((when, failure)) = &state.failure
            && when.elapsed() < FAILURE_TTL
        {
            return Err(failure.clone());
        }
        match self.server.connect().await {
            Ok(guard) => {
                state.guard = Some(guard);
                state.failure = None;
                state.generation += 1;
                self.known.lock().connected = Some(state.generation);
                Ok(state.generation)
            }
            Err(error) => {
                let failure = self.unavailable(&error);
                state.failure = Some((Instant::now(), failure.clone()));
                state.was_unavailable = true;
                Err(failure)
            }
        }
    }

    /// Returns the tools that the server lists. The same list is the same `Arc`.
    pub(crate) async fn tools(&self) -> Result<Arc<Vec<Definition>>, ToolFailure> {
        match self.fresh_list() {
            Some(listed) => Ok(listed),
            None => Box::pin(self.list()).await,
        }
    }

    async fn list(&self) -> Result<Arc<Vec<Definition>>, ToolFailure> {
        let mut state = self.state.lock().await;
        // Another call may have listed them meanwhile.
        if let Some(listed) = self.fresh_list() {
            return Ok(listed);
        }
        let generation = self.connect(&mut state).await?;
        let tools = match self.server.list_tools().await {
            Ok(tools) => tools,
            Err(error) => {
                if is_lost(&error) {
                    self.forget(&mut state, generation);
                }
                return Err(self.unavailable(&error));
            }
        };
        let is_same = |listed: &Arc<Vec<Definition>>| {
            listed.len() == tools.len() && listed.iter().zip(&tools).all(|(one, other)| is_unchanged(one, other))
        };
        let mut known = self.known.lock();
        known.listed_at = Some(Instant::now());
        let is_announced = std::mem::take(&mut known.is_announced);
        if let Some(listed) = known.listed.as_ref().filter(|listed| is_same(listed)) {
            return Ok(listed.clone());
        }
        let listed: Arc<Vec<_>> = Arc::new(tools.iter().map(Definition::from).collect());
        let previous = known.listed.replace(listed.clone());
        drop(known);
        // A server that was unavailable has a list now.
        let is_other = match previous {
            Some(previous) => previous != listed,
            None => std::mem::take(&mut state.was_unavailable),
        };
        if is_other && !is_announced {
            self.changes.send_modify(|count| *count += 1);
        }
        Ok(listed)
    }

    /// Returns the list of tools if it is new enough to be used without asking the client.
    fn fresh_list(&self) -> Option<Arc<Vec<Definition>>> {
        let known = self.known.lock();
        known.listed_at.filter(|when| when.elapsed() < LIST_AGE)?;
        known.listed.clone()
    }

    /// Forgets a connection that is lost, unless there is a newer one.
    fn forget(&self, state: &mut State, generation: u64) {
        if state.generation == generation {
            state.guard = None;
            self.known.lock().disconnected();
        }
    }

    /// Closes the connection.
    pub(crate) async fn close(&self) {
        let mut state = self.state.lock().await;
        self.known.lock().disconnected();
        let guard = state.guard.take();
        if let Some(guard) = guard
            && let Err(error) = guard.close().await
        {
            tracing::debug!(%error, "failed to close the connection to a server");
        }
    }

    /// Sends a request on a connection. If that is lost, the next request connects again.
    ///
    /// Futures of the client take kilobytes, which each future around them would move: they are boxed.
    async fn request<F, T>(&self, request: std::pin::Pin<Box<F>>) -> Result<T, CallFailure>
    where
        F: Future<Output = Result<T, McpError>>,
    {
        let connected = self.known.lock().connected;
        let generation = match connected {
            Some(generation) => generation,
            None => Box::pin(async { self.connect(&mut *self.state.lock().await).await }).await?,
        };
        let error = match request.await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if is_lost(&error) {
            self.forget(&mut *self.state.lock().await, generation);
        }
        Err(match error {
            McpError::Timeout { .. } => CallFailure::TimedOut,
            McpError::Protocol { code, message, .. } => {
                CallFailure::Failed(ToolFailure::ErrorResponse { code, message })
            }
            error => CallFailure::Failed(self.unavailable(&error)),
        })
    }

    /// Returns the failure of a server that cannot be reached. The code gets no details: they contain commands,
    /// addresses, and what the server wrote to standard error.
    fn unavailable(&self, error: &McpError) -> ToolFailure {
        let name = self.name();
        tracing::warn!(server = name, %error, "a server is unavailable");
        let reason = match error {
            McpError::Spawn { error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
                "its program does not exist".into()
            }
            McpError::Spawn { error, .. } => format!("its program failed to start: {}", error.kind()),
            McpError::Closed { .. } => "the connection was closed".into(),
            McpError::Unreachable { .. } => "a request failed".into(),
            McpError::Timeout { .. } => "it did not respond in time".into(),
            McpError::InvalidResponse { .. } => "its response is not valid".into(),
            McpError::Unauthorized { .. } => "it requires authorization".into(),
            _ => "the connection failed".into(),
        };
        ToolFailure::Unavailable(format!("server `{name}` is unavailable: {reason}"))
    }

    /// Calls a tool. Dropping the future cancels the call on the server.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<ToolValue, CallFailure> {
        let result = self.request(Box::pin(self.server.call_tool_raw(tool, arguments, CallOptions::new()))).await?;
        Ok(value_of(result)?)
    }

    /// Lists the server's resources.
    pub(crate) async fn resources(&self) -> Result<Vec<Link>, CallFailure> {
        let resources = self.request(Box::pin(self.server.list_resources())).await?;
        Ok(resources.into_iter().take(MAX_RESOURCES).map(Link::from).collect())
    }

    /// Reads a resource.
    pub(crate) async fn read(&self, uri: &str) -> Result<ToolValue, CallFailure> {
        let contents = self.request(Box::pin(self.server.read_resource_raw(uri))).await?;
        let parts = contents.into_iter().map(part_of_resource).collect::<Result<Vec<_>, _>>()?;
        Ok(ToolValue::from(parts))
    }
}

/// The failure of a call, which may be the end of its time.
pub(crate) enum CallFailure {
    Failed(ToolFailure),
    TimedOut,
}

impl From<ToolFailure> for CallFailure {
    fn from(failure: ToolFailure) -> Self {
        Self::Failed(failure)
    }
}

/// Returns whether an error means that the connection is of no use any more.
fn is_lost(error: &McpError) -> bool {
    matches!(error, McpError::Closed { .. } | McpError::Unreachable { .. })
}

/// Returns whether the server lists a tool as it did. The client keeps the schemas of a list that has not changed.
fn is_unchanged(known: &Definition, listed: &WireTool) -> bool {
    known.name == listed.name
        && Arc::ptr_eq(&known.input, &listed.input_schema)
        && known.description == listed.description.as_deref().unwrap_or_default()
}

/// Converts a result as `belljar-mcp-client` does, except that links to resources stay links.
///
/// # Errors
/// Returns the message of a tool that failed, or an error if contents are not base64.
fn value_of(result: CallToolResult) -> Result<ToolValue, ToolFailure> {
    if result.is_error == Some(true) {
        let texts: Vec<&str> =
            result.content.iter().filter_map(|part| part.as_text()).map(|part| part.text.as_str()).collect();
        let message = texts.join("\n");
        let message = if message.is_empty() { "the tool failed without a message".into() } else { message };
        return Err(ToolFailure::ErrorResult(message));
    }
    let is_text = |part: &ContentBlock| matches!(part, ContentBlock::Text(_));
    if let Some(structured) = result.structured_content
        && is_truthy(&structured)
        && result.content.iter().all(is_text)
    {
        return Ok(ToolValue::Single(Part::Json(unwrap_lone_result(structured))));
    }
    let parts = result.content.into_iter().map(part_of_content).collect::<Result<Vec<_>, _>>()?;
    Ok(ToolValue::from(parts))
}

fn part_of_content(part: ContentBlock) -> Result<Part, ToolFailure> {
    Ok(match part {
        ContentBlock::Text(text) => parse_text(text.text),
        ContentBlock::Image(image) => binary(&image.data, image.mime_type)?,
        ContentBlock::Audio(audio) => binary(&audio.data, audio.mime_type)?,
        ContentBlock::Resource(embedded) => part_of_resource(embedded.resource)?,
        ContentBlock::ResourceLink(link) => Part::Link(link.into()),
        _ => Part::Json(Value::String(String::new())),
    })
}

fn part_of_resource(contents: ResourceContents) -> Result<Part, ToolFailure> {
    Ok(match contents {
        ResourceContents::TextResourceContents { text, .. } => Part::Json(Value::String(text)),
        ResourceContents::BlobResourceContents { blob, mime_type, .. } => {
            binary(&blob, mime_type.unwrap_or_else(|| "application/octet-stream".into()))?
        }
        _ => Part::Json(Value::String(String::new())),
    })
}

impl From<Resource> for Link {
    fn from(resource: Resource) -> Self {
        let Resource { uri, name, title, description, mime_type, size, .. } = resource;
        Self { uri, name, title, description, mime_type, size }
    }
}

fn unwrap_lone_result(structured: Value) -> Value {
    match structured {
        Value::Object(mut fields) if fields.len() == 1 && fields.contains_key("result") => {
            fields.remove("result").unwrap_or(Value::Null)
        }
        other => other,
    }
}

/// Returns whether a value is true in Python: the client uses structured content only then.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}
