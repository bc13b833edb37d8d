//! Calling tools: hooks, options, rounds that want input, and what becomes of the result.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, MetaObject, RequestMetaObject, ServerResult,
};
use serde_json::{Map, Value};

use super::McpServer;
use super::connection::{Connection, RequestOptions};
use super::rounds::Rounds;
use super::session::Session;
use super::settings::ToolErrorBehavior;
use super::tasks::wants_task;
use crate::error::McpError;
use crate::handlers::{Progress, ProgressHandler};
use crate::output::{self, Mapped, Part};
use crate::run::RunContext;
use crate::toolset::{Retry, ToolOutcome};
use crate::transport::http::RunHeaders;

/// The code of an error that says which pages must be visited before a call, and how often one call may lead to visits: a
/// server that is never content must not keep the user busy.
const URL_ELICITATION_REQUIRED: i32 = -32042;
const MAX_VISITS: usize = 3;

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
/// ```
/// # use belljar_client::{CallTool, McpError, ToolOutcome};
/// # use serde_json::{Map, Value, json};
/// # async fn hook(call: CallTool<'_>, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
/// // Once more, if it did not work.
/// match call.call(name, arguments.clone()).await? {
///     ToolOutcome::Retry(_) => call.call(name, arguments).await,
///     outcome => Ok(outcome),
/// }
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct CallTool<'a> {
    server: &'a McpServer,
    run: &'a RunContext,
    /// Keeps the result of this tool.
    kept: Option<(&'a str, &'a Kept)>,
}

/// The last result of a tool, as the server gave it, with what was made of it.
pub(super) type Kept = Mutex<Option<(CallToolResult, ToolOutcome)>>;

impl<'a> CallTool<'a> {
    pub(super) fn new(server: &'a McpServer, run: &'a RunContext, kept: Option<(&'a str, &'a Kept)>) -> Self {
        Self { server, run, kept }
    }
}

impl CallTool<'_> {
    /// Calls a tool by its bare name.
    ///
    /// ```
    /// # use belljar_client::{CallTool, McpError, ToolOutcome};
    /// # use serde_json::{Map, Value, json};
    /// # async fn hook(call: CallTool<'_>, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
    /// call.call(name, arguments).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`McpServer::direct_call_tool`].
    pub async fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        self.call_with_metadata(name, arguments, Map::new()).await
    }

    /// Calls a tool by its bare name, with metadata that goes into `_meta` beside the run's.
    ///
    /// ```
    /// # use belljar_client::{CallTool, McpError, ToolOutcome};
    /// # use serde_json::{Map, Value, json};
    /// # async fn hook(call: CallTool<'_>, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
    /// call.call_with_metadata(name, arguments, Map::from_iter([("trace".into(), json!("abc"))])).await
    /// # }
    /// ```
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
        let kept = self.kept.filter(|(tool, _)| *tool == name).map(|(_, kept)| kept);
        self.server.call_tool_keeping(name, Value::Object(arguments), options, kept).await
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
    ///
    /// ```
    /// # use belljar_client::CallOptions;
    /// let options = CallOptions::new();
    /// ```
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
    ///
    /// ```
    /// # use belljar_client::CallOptions;
    /// let options = CallOptions::new().metadata("trace", "abc".into());
    /// ```
    pub fn metadata(mut self, name: impl Into<String>, value: Value) -> Self {
        self.metadata.insert(name.into(), value);
        self
    }

    /// Gets the call's progress. It must not block.
    ///
    /// ```
    /// # use belljar_client::CallOptions;
    /// let options = CallOptions::new().progress_handler(|step| eprintln!("{:?}", step.fraction()));
    /// ```
    pub fn progress_handler(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(handler));
        self
    }

    /// The longest that a request of the call may take, whether the server is silent or not. No bound unless told.
    ///
    /// ```
    /// # use belljar_client::CallOptions;
    /// let options = CallOptions::new().timeout(std::time::Duration::from_secs(30));
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(super) fn request_options(&self, server: &McpServer) -> RequestOptions {
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
        self.call_tool_keeping(name, arguments, options, None).await
    }

    /// As [`call_tool_with`](Self::call_tool_with), and keeps the answer itself where it is asked for.
    async fn call_tool_keeping(
        &self,
        name: &str,
        arguments: Value,
        options: CallOptions,
        kept: Option<&Kept>,
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
            Ok(result) => match kept {
                None => self.outcome(&session, name, result, &options).await,
                Some(kept) => {
                    let outcome = self.outcome(&session, name, result.clone(), &options).await?;
                    *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some((result, outcome.clone()));
                    Ok(outcome)
                }
            },
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
        // The steps of the call share it, whoever else holds the connection.
        let session = self.session().await?;
        if !self.is_callable(&session, bare) {
            let known = self.definitions().await?.iter().map(|tool| tool.name.clone()).collect();
            return Err(McpError::UnknownTool { name: name.to_owned(), known });
        }
        if run.app.is_some()
            && let Some(resource) = self.app_resource(bare).await?
        {
            return self.call_with_app(run, bare, arguments, resource).await;
        }
        self.call_through_hook(CallTool::new(self, run, None), bare, arguments).await
    }

    pub(super) async fn call_through_hook(
        &self,
        call: CallTool<'_>,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        match &self.inner.settings.process_tool_call {
            Some(hook) => hook.process(call.run, call, name, arguments).await,
            None => call.call(name, arguments).await,
        }
    }

    fn fails_softly(&self) -> bool {
        self.inner.settings.tool_error_behavior != ToolErrorBehavior::Error
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
        let checker = session.checkers.of(name, &tool.input_schema);
        Ok(checker.check(&Value::Object(arguments.clone())).err())
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
                ToolErrorBehavior::Failed => Ok(ToolOutcome::Failed(message)),
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

    /// A call from the first request to the result, over what the server wants first.
    pub(super) async fn call_in(
        &self,
        session: &Arc<Session>,
        name: &str,
        arguments: Option<Map<String, Value>>,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let connection = session.connection().await?;
        if connection.is_modern() {
            return self.call_in_rounds(&connection, name, arguments, options).await;
        }
        if session.wants_task(name) {
            return self.call_as_task(&connection, name, arguments, options).await;
        }
        // Only a tool that asks for something first is called a second time.
        let mut visits = 0;
        loop {
            let outcome = self.call_once(&connection, name, arguments.clone(), options).await;
            match outcome {
                Err(McpError::Protocol { code, data: Some(ref data), .. })
                    if code == URL_ELICITATION_REQUIRED && visits < MAX_VISITS =>
                {
                    visits += 1;
                    if !connection.responder().visit_all(data).await {
                        return outcome;
                    }
                }
                outcome if wants_task(&outcome) => {
                    let result = self.call_as_task(&connection, name, arguments, options).await?;
                    session.remember_task(name);
                    return Ok(result);
                }
                outcome => return outcome,
            }
        }
    }

    async fn call_once(
        &self,
        connection: &Arc<Connection>,
        name: &str,
        arguments: Option<Map<String, Value>>,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let mut params = CallToolRequestParams::new(name.to_owned());
        params.arguments = arguments;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        match connection.request(request, options.request_options(self)).await? {
            ServerResult::CallToolResult(result) => Ok(result),
            _ => Err(connection.unexpected("tools/call")),
        }
    }

    /// A call of the modern era, over rounds of input and to the end of a task.
    async fn call_in_rounds(
        &self,
        connection: &Arc<Connection>,
        name: &str,
        arguments: Option<Map<String, Value>>,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
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
                        rounds.answer(connection, wanted, "tools/call").await?;
                }
                ServerResult::CreateTaskResult(created) => {
                    return self.follow(connection, created, &watch, options).await;
                }
                _ => return Err(connection.unexpected("tools/call")),
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
