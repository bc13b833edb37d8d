//! The part of an agent's loop between the model and the tools, shared by all loops and adapters.

mod call;
mod deferred;
mod retries;
mod step;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;

pub use call::{ToolCall, ToolMessage, ToolReturn};
pub use deferred::{DeferredAnswer, DeferredAnswers, DeferredCall, DeferredCalls};
pub use retries::RetryLimitBehavior;
pub use step::Step;

use crate::error::McpError;
use crate::run_context::RunContext;
use crate::schema::Validator;
use crate::toolset::{Approve, Toolset, ToolsetGuard};

/// The number of calls of one step that run at the same time, by default.
const CONCURRENT_CALLS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);

/// The tools of one run of an agent: lists them again at each step, checks names and arguments, counts retries, asks
/// for approval, makes the calls of a step at once, and turns results into messages.
///
/// A runner belongs to one run. Each turn of the model is a [`step`](Self::step):
///
/// ```
/// use belljar_mcp_client::{McpError, RunContext, ToolCall, ToolMessage, ToolRunner, Toolset};
///
/// # enum Turn { Calls(Vec<ToolCall>), Answer(String) }
/// # async fn model(tools: &belljar_mcp_client::ToolList, results: &[ToolMessage]) -> Turn { Turn::Answer(String::new()) }
/// async fn answer(toolset: impl Toolset) -> Result<String, McpError> {
///     let run = RunContext::new();
///     let runner = ToolRunner::new(toolset);
///     let connections = runner.enter(&run).await?;
///     let mut results = Vec::new();
///     let answer = loop {
///         let step = runner.step(&run).await?;
///         match model(step.tools(), &results).await {
///             Turn::Answer(answer) => break answer,
///             Turn::Calls(calls) => {
///                 results.extend(step.call_all(calls).await?.iter().map(|result| result.message()));
///             }
///         }
///     };
///     connections.close().await?;
///     Ok(answer)
/// }
/// ```
#[derive(Clone)]
pub struct ToolRunner {
    toolset: Arc<dyn Toolset>,
    max_retries: u32,
    retry_limit: RetryLimitBehavior,
    validates: bool,
    concurrent_calls: NonZeroUsize,
    approve: Option<Arc<dyn Approve>>,
    state: Arc<State>,
}

/// A schema and its validator.
type CompiledSchema = (Arc<Value>, Arc<Validator>);

/// The state of a run, shared by the clones of its runner.
#[derive(Default)]
struct State {
    /// The toolset of this run, from [`Toolset::for_run`].
    for_run: OnceCell<Arc<dyn Toolset>>,
    failures: retries::Failures,
    /// The validators of the tools by name, with the schemas that they were compiled from.
    validators: Mutex<HashMap<String, CompiledSchema>>,
}

impl ToolRunner {
    /// Creates the runner of one run.
    ///
    /// ```
    /// use belljar_mcp_client::{McpServerStdio, ToolRunner};
    ///
    /// let runner = ToolRunner::new(McpServerStdio::new("server").build());
    /// ```
    pub fn new(toolset: impl Toolset) -> Self {
        Self {
            toolset: Arc::new(toolset),
            max_retries: 1,
            retry_limit: RetryLimitBehavior::default(),
            validates: true,
            concurrent_calls: CONCURRENT_CALLS,
            approve: None,
            state: Arc::default(),
        }
    }

    /// Sets the number of times that a model may retry a tool, for tools that do not have a number of their own.
    /// Defaults to 1. Only failures in a row count: a successful call resets the number.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServerStdio, ToolRunner};
    /// let runner = ToolRunner::new(McpServerStdio::new("server").build()).max_retries(3);
    /// ```
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// Sets the treatment of a tool whose retries are used up. By default the model sees that it failed.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServerStdio, RetryLimitBehavior, ToolRunner};
    /// let runner = ToolRunner::new(McpServerStdio::new("server").build()).retry_limit(RetryLimitBehavior::Error);
    /// ```
    pub fn retry_limit(mut self, behavior: RetryLimitBehavior) -> Self {
        self.retry_limit = behavior;
        self
    }

    /// Sets whether to validate arguments against the schema of their tool before the call. Defaults to true.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServerStdio, ToolRunner};
    /// let runner = ToolRunner::new(McpServerStdio::new("server").build()).validate_arguments(false);
    /// ```
    pub fn validate_arguments(mut self, validate: bool) -> Self {
        self.validates = validate;
        self
    }

    /// Sets the number of calls of one step that run at the same time. Defaults to 16; 1 makes them one after the
    /// other.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServerStdio, ToolRunner};
    /// # use std::num::NonZeroUsize;
    /// let runner = ToolRunner::new(McpServerStdio::new("server").build()).concurrent_calls(NonZeroUsize::MIN);
    /// ```
    pub fn concurrent_calls(mut self, calls: NonZeroUsize) -> Self {
        self.concurrent_calls = calls;
        self
    }

    /// Sets who decides on calls that a toolset [defers for
    /// approval](crate::ToolsetExt::approval_required). Without it these calls stay deferred.
    ///
    /// ```
    /// use belljar_mcp_client::{Approval, ApprovalRequest, McpServerStdio, NeedsApproval, ToolRunner, ToolsetExt};
    ///
    /// let server = McpServerStdio::new("server").build().approval_required(NeedsApproval::Writes);
    /// let runner = ToolRunner::new(server).approver(async |request: ApprovalRequest| {
    ///     println!("{}?", request.name);
    ///     Approval::Allow
    /// });
    /// ```
    pub fn approver(mut self, approve: impl Approve) -> Self {
        self.approve = Some(Arc::new(approve));
        self
    }

    /// Opens the connections of the run's tools and keeps them open until the guard is dropped.
    ///
    /// ```no_run
    /// # use belljar_mcp_client::{McpError, RunContext, ToolRunner};
    /// # async fn run(runner: ToolRunner) -> Result<(), McpError> {
    /// let connections = runner.enter(&RunContext::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connections.
    pub async fn enter(&self, run: &RunContext) -> Result<ToolsetGuard, McpError> {
        self.toolset_for(run).await?.enter().await
    }

    /// Lists the tools for the next turn of the model.
    ///
    /// ```no_run
    /// # use belljar_mcp_client::{McpError, RunContext, ToolRunner};
    /// # async fn run(runner: ToolRunner) -> Result<(), McpError> {
    /// let step = runner.step(&RunContext::new()).await?;
    /// println!("{} tools", step.tools().len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connections.
    pub async fn step(&self, run: &RunContext) -> Result<Step, McpError> {
        let toolset = self.toolset_for(run).await?;
        let (tools, instructions) = futures::future::try_join(toolset.tools(run), toolset.instructions(run)).await?;
        Ok(Step::new(self.clone(), toolset, run.clone(), tools, instructions))
    }

    /// Returns the toolset of this run.
    async fn toolset_for(&self, run: &RunContext) -> Result<Arc<dyn Toolset>, McpError> {
        let toolset = self.state.for_run.get_or_try_init(async || {
            Ok::<_, McpError>(self.toolset.for_run(run).await?.unwrap_or_else(|| self.toolset.clone()))
        });
        toolset.await.cloned()
    }

    /// Returns the validator of a tool, compiled again only if the schema changed.
    fn validator(&self, name: &str, schema: &Arc<Value>) -> Arc<Validator> {
        let mut validators = self.state.validators.lock();
        if let Some((_, validator)) = validators.get(name).filter(|(known, _)| Arc::ptr_eq(known, schema)) {
            return validator.clone();
        }
        let validator = Arc::new(Validator::new(schema));
        validators.insert(name.to_owned(), (schema.clone(), validator.clone()));
        validator
    }
}

impl std::fmt::Debug for ToolRunner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ToolRunner").field("toolset", &self.toolset.label()).finish_non_exhaustive()
    }
}
