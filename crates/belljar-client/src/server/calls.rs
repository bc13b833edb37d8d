//! Tool calls: requests, input that the server requires first, and conversion of results.

use std::sync::Arc;

use rmcp::model::{CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ServerResult};
use serde::Serialize;
use serde_json::{Map, Value};

use super::McpServer;
use super::connection::Connection;
use super::hook::{CallTool, LastResult};
use super::options::CallOptions;
use super::rounds::Rounds;
use super::session::Session;
use super::settings::ToolErrorBehavior;
use super::tasks::requires_task;
use crate::error::{ConfigError, McpError};
use crate::output::{self, MappedResult, Part, ToolOutput};
use crate::run_context::RunContext;
use crate::schema::InvalidValue;
use crate::toolset::{Failure, Retry, RetryReason, ToolOutcome, ToolResult};

/// The code of the error that requires the user to visit URLs before a call, and the maximum number of such rounds per
/// call, so that a server that is never satisfied cannot keep asking the user.
const URL_ELICITATION_REQUIRED: i32 = -32042;
const MAX_URL_ELICITATIONS: usize = 3;

impl McpServer {
    /// Calls a tool by its bare name, without prefix and hook. The arguments are JSON, or a value of the program that
    /// serializes to an object.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
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
    /// Errors of the connection. Errors of the call itself, a failed tool or a protocol error, are
    /// [`ToolOutcome::Retry`].
    pub async fn direct_call_tool(&self, name: &str, arguments: impl Serialize) -> Result<ToolOutcome, McpError> {
        self.call_tool_with(name, arguments, CallOptions::new()).await
    }

    /// Calls a tool by its bare name, with options.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// use belljar_mcp_client::CallOptions;
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
    /// The same as [`direct_call_tool`](Self::direct_call_tool).
    pub async fn call_tool_with(
        &self,
        name: &str,
        arguments: impl Serialize,
        options: CallOptions,
    ) -> Result<ToolOutcome, McpError> {
        self.call_tool_recording(name, to_json(name, &arguments)?, options, None).await
    }

    /// Calls a tool as [`call_tool_with`](Self::call_tool_with) does, and stores the server's result in `last_result`
    /// if given.
    pub(super) async fn call_tool_recording(
        &self,
        name: &str,
        arguments: Value,
        options: CallOptions,
        last_result: Option<&LastResult>,
    ) -> Result<ToolOutcome, McpError> {
        let options = options.started();
        let session = self.session().await?;
        let arguments = match as_object(arguments) {
            Ok(arguments) => arguments,
            Err(retry) => return Ok(retry),
        };
        if self.inner.settings.validate_arguments
            && let Some(problems) = Box::pin(self.problems(&session, name, &arguments)).await?
        {
            let message = format!("the arguments of `{name}` do not match its schema: {problems}");
            return Ok(ToolOutcome::Retry(Retry::new(message).with_reason(RetryReason::InvalidArguments)));
        }
        let call = Box::pin(self.call_in(&session, name, Some(&arguments), &options));
        match options.bounded(self, "tools/call", call).await {
            Ok(result) => {
                let result = Arc::new(result);
                let outcome = self.outcome(&session, name, &result, &options).await?;
                if let Some(last_result) = last_result {
                    *last_result.lock() = Some((result, outcome.clone()));
                }
                Ok(outcome)
            }
            Err(error @ (McpError::Protocol { .. } | McpError::Timeout { .. })) if self.failures_are_retries() => {
                error.into_outcome()
            }
            Err(error) => Err(error),
        }
    }

    /// Calls a tool by its bare name and returns the server's result in the protocol's types.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// use belljar_mcp_client::CallOptions;
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
    /// Errors of the connection, and [`McpError::Protocol`].
    pub async fn call_tool_raw(
        &self,
        name: &str,
        arguments: impl Serialize,
        options: CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let arguments = to_json(name, &arguments)?;
        let session = self.session().await?;
        let arguments = match arguments {
            Value::Object(arguments) => Some(arguments),
            Value::Null => None,
            _ => return Err(ConfigError::Arguments { tool: name.to_owned() }.into()),
        };
        let options = options.started();
        let call = Box::pin(self.call_in(&session, name, arguments.as_ref(), &options));
        options.bounded(self, "tools/call", call).await
    }

    /// Calls one of this server's tools in a run: by its prefixed name, through the hook. Errors that a model can react
    /// to are retries, unless the server is configured otherwise.
    pub(crate) async fn call_in_run(
        &self,
        run: &RunContext,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        match self.try_call_in_run(run, name, arguments).await {
            Err(error) if self.failures_are_retries() => error.into_outcome(),
            outcome => outcome,
        }
    }

    async fn try_call_in_run(
        &self,
        run: &RunContext,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        // Keeps one session for all steps of the call, even without another guard.
        let session = self.session().await?;
        let bare = match self.tool_prefix() {
            Some(prefix) => name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')),
            None => Some(name),
        };
        let Some(bare) = bare.filter(|bare| self.is_callable(&session, bare)) else {
            return Ok(ToolOutcome::unknown_tool(name, self.definitions().await?.names()));
        };
        if run.app.is_some()
            && let Some(resource) = self.app_resource(bare).await?
        {
            return self.call_with_app(run, bare, arguments, resource).await;
        }
        self.call_through_hook(CallTool::new(self, run, None), bare, arguments).await
    }

    /// Names the tools to a model if the server rejected a call of a tool that is not in its list. The server decides
    /// on such a call, because the list may be out of date.
    pub(super) async fn with_known_tools(&self, name: &str, outcome: ToolOutcome) -> ToolOutcome {
        if !matches!(outcome, ToolOutcome::Retry(_)) {
            return outcome;
        }
        let prefixed = match self.tool_prefix() {
            Some(prefix) => &format!("{prefix}_{name}"),
            None => name,
        };
        match self.definitions().await {
            Ok(tools) if tools.get(prefixed).is_none() => ToolOutcome::unknown_tool(prefixed, tools.names()),
            _ => outcome,
        }
    }

    fn failures_are_retries(&self) -> bool {
        self.inner.settings.tool_error_behavior != ToolErrorBehavior::Error
    }

    /// Returns the problems of arguments that do not match the tool's schema.
    async fn problems(
        &self,
        session: &Arc<Session>,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Option<InvalidValue>, McpError> {
        let tools = self.tools_in(session).await?;
        let Some(tool) = tools.iter().find(|tool| tool.name == name) else { return Ok(None) };
        let validator = session.validators.get(name, &tool.input_schema);
        Ok(validator.validate(&Value::Object(arguments.clone())).err())
    }

    async fn outcome(
        &self,
        session: &Arc<Session>,
        name: &str,
        result: &Arc<CallToolResult>,
        options: &CallOptions,
    ) -> Result<ToolOutcome, McpError> {
        if result.is_error == Some(true) {
            let mapping = self.inner.settings.result_mapping;
            let message =
                output::failure_message(name, result, mapping).map_err(|error| self.invalid_response(&error))?;
            let raw = Some(result.clone());
            return match self.inner.settings.tool_error_behavior {
                ToolErrorBehavior::Retry => Ok(ToolOutcome::Retry(Retry { raw, ..Retry::new(message) })),
                ToolErrorBehavior::Failed => Ok(ToolOutcome::Failed(Failure { message, raw })),
                ToolErrorBehavior::Error => Err(McpError::ToolFailed { tool: name.to_owned(), message }),
            };
        }
        let parts = match output::map_result(result, self.inner.settings.result_mapping)
            .map_err(|error| self.invalid_response(&error))?
        {
            MappedResult::Done(output) => {
                return Ok(ToolOutcome::Output(ToolResult { output, raw: Some(result.clone()) }));
            }
            MappedResult::Parts(parts) => parts,
        };
        let mut outputs = Vec::with_capacity(parts.len());
        for part in parts {
            outputs.push(match part {
                Part::Output(output) => output,
                Part::Link(uri) => Box::pin(self.read_link(session, uri, options)).await?,
            });
        }
        let output = output::unwrap_single(outputs);
        Ok(ToolOutcome::Output(ToolResult { output, raw: Some(result.clone()) }))
    }

    /// Reads the resource behind a link of a result. A link that the server cannot read, as one to a web page, stays a
    /// link: the model may know another tool for it.
    async fn read_link(
        &self,
        session: &Arc<Session>,
        uri: String,
        options: &CallOptions,
    ) -> Result<ToolOutput, McpError> {
        match self.read_in(session, &uri, options.request_options(self)).await {
            Err(error) if error.is_for_model() => {
                tracing::debug!(%error, uri, "a link of a result could not be read");
                Ok(ToolOutput::Text(uri))
            }
            output => output,
        }
    }

    pub(super) fn invalid_response(&self, error: &dyn std::error::Error) -> McpError {
        McpError::InvalidResponse { server: self.label(), reason: error.to_string() }
    }

    /// Calls a tool, including input that the server requires first and tasks. Rare and large parts are boxed: callers
    /// may have thousands of these futures at the same time.
    pub(super) async fn call_in(
        &self,
        session: &Arc<Session>,
        name: &str,
        arguments: Option<&Map<String, Value>>,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let mut retries = session.call_retries(name);
        loop {
            let connection = session.connection().await?;
            match self.call_on(&connection, session, name, arguments, options).await {
                Err(error) if retries.wait(&error).await => {}
                result => return result,
            }
        }
    }

    async fn call_on(
        &self,
        connection: &Arc<Connection>,
        session: &Arc<Session>,
        name: &str,
        arguments: Option<&Map<String, Value>>,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        if connection.is_modern() {
            return Box::pin(self.call_in_rounds(connection, name, arguments, options)).await;
        }
        if session.requires_task(name) {
            return Box::pin(self.call_as_task(connection, call_params(name, arguments), options)).await;
        }
        // A second call happens only if the tool requires something first.
        let mut visits = 0;
        loop {
            let outcome = self.call_once(connection, name, arguments, options).await;
            match outcome {
                Err(McpError::Protocol { code, data: Some(ref data), .. })
                    if code == URL_ELICITATION_REQUIRED && visits < MAX_URL_ELICITATIONS =>
                {
                    visits += 1;
                    if !Box::pin(connection.responder().elicit_urls(data, options.run.clone())).await {
                        return outcome;
                    }
                }
                outcome if requires_task(&outcome) => {
                    let call = self.call_as_task(connection, call_params(name, arguments), options);
                    let result = Box::pin(call).await?;
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
        arguments: Option<&Map<String, Value>>,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let params = call_params(name, arguments);
        match connection.request(call_request(params), options.request_options(self)).await? {
            ServerResult::CallToolResult(result) => Ok(result),
            _ => Err(connection.unexpected("tools/call")),
        }
    }

    /// Calls a tool on the modern era, including rounds of input and a task.
    async fn call_in_rounds(
        &self,
        connection: &Arc<Connection>,
        name: &str,
        arguments: Option<&Map<String, Value>>,
        options: &CallOptions,
    ) -> Result<CallToolResult, McpError> {
        let mut params = call_params(name, arguments);
        let mut rounds = Rounds::default();
        loop {
            let request = call_request(params.clone());
            let (result, watch) = connection.watched_request(request, options.request_options(self)).await?;
            match result {
                ServerResult::CallToolResult(result) => return Ok(result),
                ServerResult::InputRequiredResult(required) => {
                    (params.input_responses, params.request_state) =
                        rounds.answer(connection, required, "tools/call", options.run.as_ref()).await?;
                }
                ServerResult::CreateTaskResult(created) => {
                    return self.poll_to_completion(connection, created, &watch, options).await;
                }
                _ => return Err(connection.unexpected("tools/call")),
            }
        }
    }
}

/// Converts the arguments of a tool to JSON.
fn to_json(tool: &str, arguments: &impl Serialize) -> Result<Value, McpError> {
    serde_json::to_value(arguments).map_err(|_| ConfigError::Arguments { tool: tool.to_owned() }.into())
}

/// Returns the parameters of a `tools/call` request.
fn call_params(name: &str, arguments: Option<&Map<String, Value>>) -> CallToolRequestParams {
    let mut params = CallToolRequestParams::new(name.to_owned());
    params.arguments = arguments.cloned();
    params
}

fn call_request(params: CallToolRequestParams) -> ClientRequest {
    ClientRequest::CallToolRequest(CallToolRequest::new(params))
}

/// Returns the arguments as an object; null counts as an empty one.
fn as_object(arguments: Value) -> Result<Map<String, Value>, ToolOutcome> {
    match arguments {
        Value::Object(arguments) => Ok(arguments),
        Value::Null => Ok(Map::new()),
        other => {
            let message = format!("the arguments of a tool must be a JSON object, not `{other}`");
            Err(ToolOutcome::Retry(Retry::new(message).with_reason(RetryReason::InvalidArguments)))
        }
    }
}
