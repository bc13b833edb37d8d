//! Calling tools: what a server wants before it answers, and what becomes of the result.

use std::sync::{Arc, PoisonError};

use rmcp::model::{CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ServerResult};
use serde_json::{Map, Value};

use super::McpServer;
use super::connection::Connection;
use super::hook::{CallTool, Kept};
use super::options::CallOptions;
use super::rounds::Rounds;
use super::session::Session;
use super::settings::ToolErrorBehavior;
use super::tasks::wants_task;
use crate::error::McpError;
use crate::output::{self, Mapped, Part};
use crate::run::RunContext;
use crate::toolset::{Retry, ToolOutcome};

/// The code of an error that says which pages must be visited before a call, and how often one call may lead to visits: a
/// server that is never content must not keep the user busy.
const URL_ELICITATION_REQUIRED: i32 = -32042;
const MAX_VISITS: usize = 3;

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
    pub(super) async fn call_tool_keeping(
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
