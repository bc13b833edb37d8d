//! One step of a run: the tools for one turn of the model, and the calls that the model makes.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use serde_json::{Map, Value};

use super::{DeferredAnswers, DeferredCalls, ToolCall, ToolReturn, ToolRunner};
use crate::error::McpError;
use crate::run_context::RunContext;
use crate::toolset::{
    Approval, ApprovalRequest, Deferral, DeferralKind, Retry, RetryReason, ToolDefinition, ToolList, ToolOutcome,
    Toolset,
};

/// The tools for one turn of a model, from [`ToolRunner::step`].
///
/// ```no_run
/// use belljar_mcp_client::{McpError, RunContext, ToolCall, ToolRunner};
/// use serde_json::json;
///
/// # async fn run(runner: ToolRunner) -> Result<(), McpError> {
/// let step = runner.step(&RunContext::new()).await?;
/// let result = step.call(&ToolCall::new("call_1", "echo", json!({"message": "hi"}))).await?;
/// println!("{}", result.message().text());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Step {
    runner: ToolRunner,
    toolset: Arc<dyn Toolset>,
    run: RunContext,
    tools: ToolList,
    instructions: Option<String>,
}

impl Step {
    pub(super) fn new(
        runner: ToolRunner,
        toolset: Arc<dyn Toolset>,
        run: RunContext,
        tools: ToolList,
        instructions: Option<String>,
    ) -> Self {
        Self { runner, toolset, run, tools, instructions }
    }

    /// Returns the tools to show to the model.
    ///
    /// ```no_run
    /// # fn show(step: belljar_mcp_client::Step) {
    /// for tool in step.tools() {
    ///     println!("{}", tool.name);
    /// }
    /// # }
    /// ```
    pub fn tools(&self) -> &ToolList {
        &self.tools
    }

    /// Returns the instructions of the toolset for the model, if any.
    ///
    /// ```no_run
    /// # fn show(step: belljar_mcp_client::Step) {
    /// println!("{}", step.instructions().unwrap_or_default());
    /// # }
    /// ```
    pub fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// Makes the calls of a turn, several at the same time, and returns the results in the order of the calls. Calls
    /// that wait for an answer are [`ToolOutcome::Deferred`], see [`DeferredCalls::of`].
    ///
    /// ```no_run
    /// # use belljar_mcp_client::{McpError, Step, ToolCall};
    /// # async fn run(step: Step, calls: Vec<ToolCall>) -> Result<(), McpError> {
    /// for result in step.call_all(calls).await? {
    ///     println!("{}: {}", result.id, result.message().text());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The first failure that the model cannot react to; the other calls are then cancelled. See
    /// [`McpError::is_for_model`].
    pub async fn call_all(&self, calls: impl IntoIterator<Item = ToolCall>) -> Result<Vec<ToolReturn>, McpError> {
        let calls: Vec<ToolCall> = calls.into_iter().collect();
        self.each(calls.iter().map(|call| (call, false)).collect()).await
    }

    /// Makes calls, each with the mark whether it is approved, and preserves their order.
    async fn each(&self, calls: Vec<(&ToolCall, bool)>) -> Result<Vec<ToolReturn>, McpError> {
        let calls = calls.into_iter().map(|(call, is_approved)| self.make(call, is_approved));
        futures::stream::iter(calls).buffered(self.runner.concurrent_calls.get()).try_collect().await
    }

    /// Makes one call.
    ///
    /// ```no_run
    /// # use belljar_mcp_client::{McpError, Step, ToolCall};
    /// # async fn run(step: Step) -> Result<(), McpError> {
    /// let result = step.call(&ToolCall::new("call_1", "now", serde_json::json!({}))).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`call_all`](Self::call_all).
    pub async fn call(&self, call: &ToolCall) -> Result<ToolReturn, McpError> {
        self.make(call, false).await
    }

    /// Makes the calls that were deferred in an earlier step, or in an earlier process, according to the answers.
    /// Returns the results in the order of the calls; a call without an answer stays deferred.
    ///
    /// ```no_run
    /// # use belljar_mcp_client::{DeferredAnswers, DeferredCalls, McpError, Step};
    /// # async fn run(step: Step, stored: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let deferred: DeferredCalls = serde_json::from_str(stored)?;
    /// let answers = DeferredAnswers::new().approve("call_1").deny("call_2", "too expensive");
    /// let results = step.resume(&deferred, answers).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`call_all`](Self::call_all); [`McpError::Config`] for an answer to a call that was not deferred.
    pub async fn resume(
        &self,
        deferred: &DeferredCalls,
        answers: DeferredAnswers,
    ) -> Result<Vec<ToolReturn>, McpError> {
        let answered = answers.apply(deferred)?;
        let resumed = answered.into_iter().map(|answer| async move {
            match answer {
                Ok(call) => self.make(&call, true).await,
                Err(result) => Ok(*result),
            }
        });
        futures::stream::iter(resumed).buffered(self.runner.concurrent_calls.get()).try_collect().await
    }

    async fn make(&self, call: &ToolCall, is_approved: bool) -> Result<ToolReturn, McpError> {
        let limit = self.tools.get(&call.name).and_then(|tool| tool.max_retries).unwrap_or(self.runner.max_retries);
        let failures = &self.runner.state.failures;
        if let Some(refusal) = failures.refusal(&call.name, limit) {
            return Ok(ToolReturn::new(call, refusal));
        }
        let outcome = self.outcome(call, is_approved).await?;
        let outcome = failures.record(&call.name, outcome, limit, self.runner.retry_limit)?;
        Ok(ToolReturn::new(call, outcome))
    }

    async fn outcome(&self, call: &ToolCall, is_approved: bool) -> Result<ToolOutcome, McpError> {
        let Some(tool) = self.tools.get(&call.name) else {
            return Ok(ToolOutcome::unknown_tool(&call.name, self.tools.names()));
        };
        let arguments = match call.object() {
            Ok(arguments) => arguments,
            Err(retry) => return Ok(retry),
        };
        if let Some(retry) = self.problems(tool, &arguments) {
            return Ok(retry);
        }
        let mut run = self.run.clone().approved(is_approved);
        run.retry = self.runner.state.failures.of(&call.name);
        run.tool_call_id = Some(call.id.clone());
        let outcome = self.toolset.call(&run, &call.name, arguments.clone()).await?;
        match (&outcome, &self.runner.approve) {
            (ToolOutcome::Deferred(Deferral { kind: DeferralKind::Approval, .. }), Some(approve)) => {
                let arguments = match approve.approve(ApprovalRequest::new(&run, tool, &arguments)).await {
                    Approval::Allow => arguments,
                    Approval::AllowWith(arguments) => arguments,
                    Approval::Deny(reason) => return Ok(ToolOutcome::Denied(reason)),
                    Approval::Defer(_) => return Ok(outcome),
                };
                self.toolset.call(&run.approved(true), &call.name, arguments).await
            }
            _ => Ok(outcome),
        }
    }

    /// Returns the retry for arguments that do not match the schema of the tool.
    fn problems(&self, tool: &ToolDefinition, arguments: &Map<String, Value>) -> Option<ToolOutcome> {
        if !self.runner.validates {
            return None;
        }
        let validator = self.runner.validator(&tool.name, &tool.input_schema);
        let problems = validator.validate(&Value::Object(arguments.clone())).err()?;
        let message = format!("the arguments of `{}` do not match its schema: {problems}", tool.name);
        Some(ToolOutcome::Retry(Retry::new(message).with_reason(RetryReason::InvalidArguments)))
    }
}

impl std::fmt::Debug for Step {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Step").field("tools", &self.tools).finish_non_exhaustive()
    }
}
