//! Calling tools: rounds that want input, tasks, hooks, and what becomes of the result.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelTaskParams, CancelTaskRequest, ClientRequest,
    CreateTaskResult, GetTaskParams, GetTaskRequest, InputRequiredResult, InputResponses, MetaObject,
    RequestMetaObject, ServerResult, TaskPayload, UpdateTaskParams, UpdateTaskRequest,
};
use serde_json::{Map, Value};

use super::McpServer;
use super::connection::{Connection, RequestOptions};
use super::session::Session;
use super::settings::ToolErrorBehavior;
use crate::error::McpError;
use crate::handlers::notifications::CallWatch;
use crate::handlers::{Progress, ProgressHandler, respond};
use crate::output::{self, Mapped, Part};
use crate::run::RunContext;
use crate::schema;
use crate::toolset::{Retry, ToolOutcome};
use crate::transport::http::RunHeaders;

/// Rounds of input that one call may want.
const MAX_ROUNDS: usize = 32;

/// How often a task is asked after, when the server does not say, and the bounds on what it may say.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const SHORTEST_POLL: Duration = Duration::from_millis(20);
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// A hook around every call of a server's tools.
///
/// ```
/// use async_trait::async_trait;
/// use belljar_client::{CallTool, McpError, McpServerStdio, ProcessToolCall, RunContext, ToolOutcome};
/// use serde_json::{Map, Value, json};
///
/// /// Tells the server who asks.
/// struct Signed;
///
/// #[async_trait]
/// impl ProcessToolCall for Signed {
///     async fn process(
///         &self,
///         run: &RunContext,
///         call: CallTool<'_>,
///         name: &str,
///         mut arguments: Map<String, Value>,
///     ) -> Result<ToolOutcome, McpError> {
///         arguments.insert("user".into(), json!(run.get_deps::<String>()));
///         let metadata = Map::from_iter([("signature".to_owned(), json!("…"))]);
///         call.call_with_metadata(name, arguments, metadata).await
///     }
/// }
///
/// let server = McpServerStdio::new("server").process_tool_call(Signed).build();
/// ```
#[async_trait]
pub trait ProcessToolCall: Send + Sync + 'static {
    /// Makes the call, or does not. The name is the bare one, without a prefix.
    ///
    /// # Errors
    ///
    /// Those of the call, or the hook's own ([`McpError::Hook`]).
    async fn process(
        &self,
        run: &RunContext,
        call: CallTool<'_>,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError>;
}

/// The call itself, as a hook gets it. It may be made more than once.
///
/// See [`ProcessToolCall`] for an example.
#[derive(Clone, Copy)]
pub struct CallTool<'a> {
    server: &'a McpServer,
    run: &'a RunContext,
}

impl CallTool<'_> {
    /// Calls a tool by its bare name.
    ///
    /// # Errors
    ///
    /// As [`McpServer::direct_call_tool`].
    pub async fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        self.call_with_metadata(name, arguments, Map::new()).await
    }

    /// Calls a tool by its bare name, with metadata that goes into `_meta` beside the run's.
    ///
    /// # Errors
    ///
    /// As [`McpServer::direct_call_tool`].
    pub async fn call_with_metadata(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        metadata: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        let mut options = CallOptions::of_run(self.run);
        options.metadata.extend(metadata);
        self.server.call_tool_with(name, Value::Object(arguments), options).await
    }
}

impl std::fmt::Debug for CallTool<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CallTool").field("server", self.server).finish_non_exhaustive()
    }
}

/// What a single call goes out with.
///
/// ```
/// use std::time::Duration;
/// use belljar_client::CallOptions;
/// use serde_json::json;
///
/// let options = CallOptions::new()
///     .metadata("trace", json!("abc"))
///     .timeout(Duration::from_secs(30))
///     .progress_handler(|step| eprintln!("{:?}", step.message));
/// ```
#[derive(Clone, Default)]
pub struct CallOptions {
    metadata: Map<String, Value>,
    headers: Option<RunHeaders>,
    progress: Option<ProgressHandler>,
    timeout: Option<Duration>,
}

impl CallOptions {
    /// A call that adds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    fn of_run(run: &RunContext) -> Self {
        Self {
            metadata: run.metadata.clone(),
            headers: (!run.headers.is_empty()).then(|| RunHeaders(run.headers.clone())),
            progress: run.progress.clone(),
            timeout: None,
        }
    }

    /// Adds to the call's `_meta`.
    pub fn metadata(mut self, name: impl Into<String>, value: Value) -> Self {
        self.metadata.insert(name.into(), value);
        self
    }

    /// Gets the call's progress. It must not block.
    pub fn progress_handler(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(handler));
        self
    }

    /// The longest that a request of the call may take, whether the server is silent or not. No bound unless told.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn request_options(&self, server: &McpServer) -> RequestOptions {
        let meta = (!self.metadata.is_empty()).then(|| RequestMetaObject(MetaObject(self.metadata.clone())));
        RequestOptions {
            meta,
            headers: self.headers.clone(),
            progress: self.progress.clone(),
            silence: server.inner.settings.read_timeout,
            total: self.timeout,
        }
    }
}

impl std::fmt::Debug for CallOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CallOptions")
            .field("metadata", &self.metadata)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl McpServer {
    /// Calls a tool by its bare name. Neither prefix nor hook take part.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// use serde_json::json;
    ///
    /// let outcome = server.direct_call_tool("echo", json!({"message": "hi"})).await?;
    /// println!("{}", outcome.to_text());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection. What the server says about the call itself, a failed tool or a protocol error, is
    /// [`ToolOutcome::Retry`].
    pub async fn direct_call_tool(&self, name: &str, arguments: Value) -> Result<ToolOutcome, McpError> {
        self.call_tool_with(name, arguments, CallOptions::new()).await
    }

    /// Calls a tool by its bare name, with options.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// use belljar_client::CallOptions;
    /// use serde_json::json;
    ///
    /// let options = CallOptions::new().progress_handler(|step| eprintln!("{:?}", step.fraction()));
    /// let outcome = server.call_tool_with("index", json!({"path": "."}), options).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`direct_call_tool`](Self::direct_call_tool).
    pub async fn call_tool_with(
        &self,
        name: &str,
        arguments: Value,
        options: CallOptions,
    ) -> Result<ToolOutcome, McpError> {
        let session = self.session().await?;
        let arguments = match as_object(arguments) {
            Ok(arguments) => arguments,
            Err(retry) => return Ok(retry),
        };
        if self.inner.settings.validate_arguments
            && let Some(problems) = self.problems(&session, name, &arguments).await?
        {
            return Ok(ToolOutcome::retry(format!("the arguments of `{name}` do not fit its schema: {problems}")));
        }
        match self.call_in(&session, name, Some(arguments), &options).await {
            Ok(result) => self.outcome(&session, name, result, &options).await,
            Err(McpError::Protocol { message, .. }) if self.fails_softly() => Ok(ToolOutcome::retry(message)),
            Err(error @ McpError::Timeout { .. }) if self.fails_softly() => Ok(ToolOutcome::retry(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Calls a tool by its bare name and gives the server's result as it is, with all that the protocol has.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// use belljar_client::CallOptions;
    /// use serde_json::json;
    ///
    /// let result = server.call_tool_raw("echo", json!({"message": "hi"}), CallOptions::new()).await?;
    /// println!("{:?}", result.meta);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection, and [`McpError::Protocol`].
    pub async fn call_tool_raw(
        &self,
        name: &str,
        arguments: Value,
        options: CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let session = self.session().await?;
        let arguments = match arguments {
            Value::Object(arguments) => Some(arguments),
            Value::Null => None,
            _ => return Err(McpError::Config("arguments of a tool are a JSON object".to_owned())),
        };
        self.call_in(&session, name, arguments, &options).await
    }

    /// Calls one of this server's tools in a run: by its prefixed name, through the hook.
    pub(crate) async fn call_in_run(
        &self,
        run: &RunContext,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        let bare = self.tool_prefix().and_then(|prefix| name.strip_prefix(prefix)?.strip_prefix('_')).unwrap_or(name);
        let call = CallTool { server: self, run };
        match &self.inner.settings.process_tool_call {
            Some(hook) => hook.process(run, call, bare, arguments).await,
            None => call.call(bare, arguments).await,
        }
    }

    fn fails_softly(&self) -> bool {
        self.inner.settings.tool_error_behavior == ToolErrorBehavior::Retry
    }

    /// What in the arguments does not fit the tool's schema.
    async fn problems(
        &self,
        session: &Arc<Session>,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Option<String>, McpError> {
        let tools = self.tools_in(session).await?;
        let Some(tool) = tools.iter().find(|tool| tool.name == name) else { return Ok(None) };
        let schema = Value::Object((*tool.input_schema).clone());
        Ok(schema::check(&schema, &Value::Object(arguments.clone())).err())
    }

    async fn outcome(
        &self,
        session: &Arc<Session>,
        name: &str,
        result: CallToolResult,
        options: &CallOptions,
    ) -> Result<ToolOutcome, McpError> {
        if result.is_error == Some(true) {
            let message = output::failure_message(&result);
            return match self.inner.settings.tool_error_behavior {
                ToolErrorBehavior::Retry => Ok(ToolOutcome::Retry(Retry { message })),
                ToolErrorBehavior::Error => Err(McpError::ToolFailed { tool: name.to_owned(), message }),
            };
        }
        let parts = match output::map_result(result).map_err(|error| self.bad_answer(&error))? {
            Mapped::Done(output) => return Ok(ToolOutcome::Output(output)),
            Mapped::Parts(parts) => parts,
        };
        let mut outputs = Vec::with_capacity(parts.len());
        for part in parts {
            outputs.push(match part {
                Part::Output(output) => output,
                Part::Link(uri) => self.read_in(session, &uri, options.request_options(self)).await?,
            });
        }
        Ok(ToolOutcome::Output(output::unwrap_single(outputs)))
    }

    pub(super) fn bad_answer(&self, error: &dyn std::error::Error) -> McpError {
        McpError::BadAnswer { server: self.label(), reason: error.to_string() }
    }

    /// A call from the first request to the result, over rounds of input and to the end of a task.
    async fn call_in(
        &self,
        session: &Arc<Session>,
        name: &str,
        arguments: Option<Map<String, Value>>,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let connection = session.connection().await?;
        let mut params = CallToolRequestParams::new(name.to_owned());
        params.arguments = arguments;
        let mut rounds = Rounds::default();
        loop {
            let request = ClientRequest::CallToolRequest(CallToolRequest::new(params.clone()));
            let (result, watch) = connection.watched_request(request, options.request_options(self)).await?;
            match result {
                ServerResult::CallToolResult(result) => return Ok(result),
                ServerResult::InputRequiredResult(wanted) => {
                    (params.input_responses, params.request_state) =
                        rounds.answer(&connection, wanted, "tools/call").await?;
                }
                ServerResult::CreateTaskResult(created) => {
                    return self.follow(&connection, created, &watch, options).await;
                }
                _ => return Err(connection.unexpected("tools/call")),
            }
        }
    }

    /// Follows a task to its end. When the future is dropped, the server is told to stop.
    async fn follow(
        &self,
        connection: &Arc<Connection>,
        created: CreateTaskResult,
        watch: &CallWatch,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let id = created.task.task_id.clone();
        let cancel = CancelTaskOnDrop { connection: connection.clone(), id: Some(id.clone()) };
        let mut told = None;
        let mut steps = 0.0;
        let mut task = created.task;
        loop {
            if task.status_message.is_some() && told != task.status_message {
                told.clone_from(&task.status_message);
                steps += 1.0;
                watch.step(Progress { progress: steps, total: None, message: told.clone() });
            }
            let wait = task.poll_interval_ms.map_or(POLL_INTERVAL, Duration::from_millis);
            tokio::time::sleep(wait.clamp(SHORTEST_POLL, LONGEST_POLL)).await;
            let request = ClientRequest::GetTaskRequest(GetTaskRequest::new(GetTaskParams::new(id.clone())));
            let answer = match connection.request(request, options.request_options(self)).await? {
                ServerResult::GetTaskResult(answer) => answer.task,
                _ => return Err(connection.unexpected("tasks/get")),
            };
            task = answer.task;
            match answer.payload {
                TaskPayload::Completed { result } => {
                    cancel.disarm();
                    return serde_json::from_value(Value::Object(result)).map_err(|error| self.bad_answer(&error));
                }
                TaskPayload::Failed { error } => {
                    cancel.disarm();
                    let error: rmcp::ErrorData =
                        serde_json::from_value(Value::Object(error)).map_err(|error| self.bad_answer(&error))?;
                    return Err(McpError::protocol(error));
                }
                TaskPayload::Cancelled => {
                    cancel.disarm();
                    return Err(McpError::Protocol {
                        code: rmcp::model::ErrorCode::INTERNAL_ERROR.0,
                        message: task.status_message.unwrap_or_else(|| "the task was cancelled".to_owned()),
                        data: None,
                    });
                }
                TaskPayload::InputRequired { input_requests } => {
                    let responses = respond::answer_all(connection.responder(), input_requests)
                        .await
                        .map_err(McpError::protocol)?;
                    let update = UpdateTaskRequest::new(UpdateTaskParams::new(id.clone(), responses));
                    connection.request(ClientRequest::UpdateTaskRequest(update), options.request_options(self)).await?;
                }
                _ => {}
            }
        }
    }
}

/// Arguments are an object; none are an empty one.
fn as_object(arguments: Value) -> Result<Map<String, Value>, ToolOutcome> {
    match arguments {
        Value::Object(arguments) => Ok(arguments),
        Value::Null => Ok(Map::new()),
        other => Err(ToolOutcome::retry(format!("arguments of a tool are a JSON object, not `{other}`"))),
    }
}

/// Rounds in which a server of the modern era asks for input before it answers.
#[derive(Default)]
pub(super) struct Rounds {
    done: usize,
    empty: u32,
}

impl Rounds {
    /// Answers a round: what to send with the request next.
    pub(super) async fn answer(
        &mut self,
        connection: &Connection,
        wanted: InputRequiredResult,
        method: &str,
    ) -> Result<(Option<InputResponses>, Option<String>), McpError> {
        self.done += 1;
        let requests = wanted.input_requests.unwrap_or_default();
        if self.done > MAX_ROUNDS || (requests.is_empty() && wanted.request_state.is_none()) {
            return Err(connection.unexpected(method));
        }
        if requests.is_empty() {
            // The server only wants to be asked again: not at once.
            let wait = Duration::from_millis(50) * 2u32.saturating_pow(self.empty.min(3));
            self.empty += 1;
            tokio::time::sleep(wait).await;
            return Ok((None, wanted.request_state));
        }
        let responses = respond::answer_all(connection.responder(), requests).await.map_err(McpError::protocol)?;
        Ok((Some(responses), wanted.request_state))
    }
}

/// Tells the server about a task whose result nobody waits for any more.
struct CancelTaskOnDrop {
    connection: Arc<Connection>,
    id: Option<String>,
}

impl CancelTaskOnDrop {
    fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for CancelTaskOnDrop {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let connection = self.connection.clone();
        runtime.spawn(async move {
            let request = ClientRequest::CancelTaskRequest(CancelTaskRequest::new(CancelTaskParams::new(id)));
            let options = RequestOptions { silence: Duration::from_secs(5), ..Default::default() };
            if let Err(error) = connection.request(request, options).await {
                tracing::debug!(%error, "a task could not be cancelled");
            }
        });
    }
}
