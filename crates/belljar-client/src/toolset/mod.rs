//! Tools of any origin for an agent: the [`Toolset`] trait, the outcome of a call, and combinators.

mod approval;
mod audience;
mod budget;
mod combine;
pub(crate) mod definition;
mod filtered;
mod function;
mod guard;
mod list;
pub(crate) mod outcome;
mod prefixed;
mod prepared;
mod renamed;
mod resources;
mod searchable;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

pub use approval::{Approval, ApprovalRequest, Approve, ApprovedToolset, DeferApproval, NeedsApproval};
pub use budget::BudgetToolset;
pub use combine::{CombinedToolset, ToolsetState, ToolsetStatus};
pub use definition::ToolDefinition;
pub use filtered::{AsyncFilteredToolset, FilteredToolset};
pub use function::{ExternalToolset, FunctionToolset};
pub(crate) use guard::CloseGuard;
pub use guard::ToolsetGuard;
pub use list::ToolList;
pub use outcome::{AppResult, Deferral, DeferralKind, Failure, Retry, RetryReason, ToolOutcome, ToolResult};
pub use prefixed::PrefixedToolset;
pub use prepared::{AsyncPreparedToolset, PreparedToolset};
pub use renamed::RenamedToolset;
pub use resources::ResourceToolset;
pub use searchable::SearchToolset;

use crate::error::McpError;
use crate::run_context::RunContext;

/// Tools that an agent can use.
///
/// An [`McpServer`](crate::McpServer) is a toolset. [`ToolsetExt`] wraps toolsets: prefixed, filtered, renamed,
/// prepared, approved; [`CombinedToolset`] combines several. [`FunctionToolset`](crate::FunctionToolset) makes tools of
/// closures. A program can implement the trait for its own tools:
///
/// ```
/// use belljar_mcp_client::{McpError, RunContext, ToolDefinition, ToolList, ToolOutcome, Toolset, async_trait};
/// use serde_json::{Map, Value, json};
///
/// struct Dice(ToolList);
///
/// impl Dice {
///     fn new() -> Self {
///         Self(vec![ToolDefinition::new("roll", json!({"type": "object"}))].into())
///     }
/// }
///
/// #[async_trait]
/// impl Toolset for Dice {
///     fn label(&self) -> String {
///         "dice".into()
///     }
///
///     async fn tools(&self, _run: &RunContext) -> Result<ToolList, McpError> {
///         Ok(self.0.clone())
///     }
///
///     async fn call(&self, _: &RunContext, _name: &str, _args: Map<String, Value>) -> Result<ToolOutcome, McpError> {
///         Ok(ToolOutcome::json(4))
///     }
/// }
/// ```
///
/// A toolset that wraps another one returns it from [`inner`](Self::inner), and the methods that it does not implement
/// delegate to it:
///
/// ```
/// use belljar_mcp_client::{McpError, RunContext, ToolList, ToolOutcome, Toolset, async_trait};
/// use serde_json::{Map, Value};
///
/// /// Logs every call.
/// struct Logged<T>(T);
///
/// #[async_trait]
/// impl<T: Toolset> Toolset for Logged<T> {
///     fn inner(&self) -> Option<&dyn Toolset> {
///         Some(&self.0)
///     }
///
///     fn label(&self) -> String {
///         self.0.label()
///     }
///
///     async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
///         self.0.tools(run).await
///     }
///
///     async fn call(&self, run: &RunContext, name: &str, args: Map<String, Value>) -> Result<ToolOutcome, McpError> {
///         eprintln!("{name}");
///         self.0.call(run, name, args).await
///     }
/// }
/// ```
#[async_trait]
pub trait Toolset: Send + Sync + 'static {
    /// Returns the toolset that this one wraps, if any.
    fn inner(&self) -> Option<&dyn Toolset> {
        None
    }

    /// Returns the name of the toolset in error messages.
    fn label(&self) -> String;

    /// Returns a suggestion for resolving a clash of tool names.
    fn name_clash_hint(&self) -> String {
        "give one of them a prefix, with `.prefixed(…)`".to_owned()
    }

    /// Returns the tools available in this run. It is called before each step of an agent, and returns the same list
    /// again as long as the tools do not change.
    ///
    /// # Errors
    ///
    /// Errors of the connection.
    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError>;

    /// Calls a tool by its name in [`tools`](Self::tools). A name that the toolset does not have is
    /// [`ToolOutcome::unknown_tool`].
    ///
    /// # Errors
    ///
    /// Failures that a model cannot react to, see [`McpError::is_for_model`]. A failed tool is not an error but
    /// [`ToolOutcome::Retry`].
    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError>;

    /// Returns instructions for the model on the use of the tools, if any.
    ///
    /// # Errors
    ///
    /// Errors of the connection.
    async fn instructions(&self, run: &RunContext) -> Result<Option<String>, McpError> {
        match self.inner() {
            Some(inner) => inner.instructions(run).await,
            None => Ok(None),
        }
    }

    /// Opens the toolset's connections and keeps them open until the guard is dropped. Toolsets work without a guard,
    /// but then each call opens a connection; agents hold one for the duration of a run.
    ///
    /// # Errors
    ///
    /// Errors of the connection.
    async fn enter(&self) -> Result<ToolsetGuard, McpError> {
        match self.inner() {
            Some(inner) => inner.enter().await,
            None => Ok(ToolsetGuard::noop()),
        }
    }

    /// Returns the toolset to use for this run in place of this one, with connections and state of its own; `None` if
    /// runs share this toolset. [`ToolRunner`](crate::ToolRunner) asks once per run, before it enters the toolset.
    ///
    /// # Errors
    ///
    /// Errors of the connection.
    async fn for_run(&self, _run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        Ok(None)
    }
}

#[async_trait]
impl<T: Toolset + ?Sized> Toolset for Arc<T> {
    fn inner(&self) -> Option<&dyn Toolset> {
        (**self).inner()
    }

    fn label(&self) -> String {
        (**self).label()
    }

    fn name_clash_hint(&self) -> String {
        (**self).name_clash_hint()
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        (**self).tools(run).await
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        (**self).call(run, name, arguments).await
    }

    async fn instructions(&self, run: &RunContext) -> Result<Option<String>, McpError> {
        (**self).instructions(run).await
    }

    async fn enter(&self) -> Result<ToolsetGuard, McpError> {
        (**self).enter().await
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        (**self).for_run(run).await
    }
}

/// Combinators that wrap a toolset.
///
/// ```
/// use belljar_mcp_client::{Approval, ApprovalRequest, McpServerStdio, RunContext, ToolsetExt};
///
/// let files = McpServerStdio::new("server-filesystem").arg("/tmp").build();
/// let restricted = files
///     .filtered(|_run: &RunContext, tool| tool.name != "delete_file")
///     .renamed([("read_text_file", "read")])
///     .prefixed("files")
///     .approved(async |request: ApprovalRequest| {
///         if request.name.starts_with("files_write") { Approval::Deny("read only".into()) } else { Approval::Allow }
///     });
/// ```
pub trait ToolsetExt: Toolset + Sized {
    /// Prefixes the names of the tools: `{prefix}_{name}`.
    fn prefixed(self, prefix: impl Into<String>) -> PrefixedToolset<Self> {
        PrefixedToolset::new(self, prefix.into())
    }

    /// Keeps the tools for which `keep` returns true. The other tools cannot be called either.
    fn filtered<F>(self, keep: F) -> FilteredToolset<Self, F>
    where
        F: Fn(&RunContext, &ToolDefinition) -> bool + Send + Sync + 'static,
    {
        FilteredToolset::new(self, keep)
    }

    /// Keeps the tools for which the future of `keep` returns true, as [`filtered`](Self::filtered) does. The tools are
    /// checked at once; an error is an error of the list.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use belljar_mcp_client::{McpServerStdio, RunContext, ToolDefinition, ToolsetExt};
    ///
    /// # async fn is_allowed(user: Option<String>, tool: &str) -> bool { true }
    /// let server = McpServerStdio::new("server").build();
    /// let allowed = server.filtered_async(|run: RunContext, tool: Arc<ToolDefinition>| async move {
    ///     Ok(is_allowed(run.get_deps::<String>().cloned(), &tool.name).await)
    /// });
    /// ```
    fn filtered_async<F, Decision>(self, keep: F) -> AsyncFilteredToolset<Self, F>
    where
        F: Fn(RunContext, Arc<ToolDefinition>) -> Decision + Send + Sync + 'static,
        Decision: Future<Output = Result<bool, McpError>> + Send + 'static,
    {
        AsyncFilteredToolset::new(self, keep)
    }

    /// Keeps the tools that only read, according to their annotations: see
    /// [`ToolDefinition::is_read_only`]. Servers may lie.
    ///
    /// ```
    /// use belljar_mcp_client::{McpServerStdio, ToolsetExt};
    ///
    /// let files = McpServerStdio::new("server-filesystem").arg("/tmp").build().read_only();
    /// ```
    fn read_only(self) -> FilteredToolset<Self, fn(&RunContext, &ToolDefinition) -> bool> {
        self.filtered(|_, tool| tool.is_read_only())
    }

    /// Renames tools: pairs of the old and the new name. The old name of a tool that does not exist, and a new name
    /// that another tool has, are errors of the list.
    fn renamed<O: Into<String>, N: Into<String>>(
        self,
        names: impl IntoIterator<Item = (O, N)>,
    ) -> RenamedToolset<Self> {
        RenamedToolset::new(self, names.into_iter().map(|(old, new)| (old.into(), new.into())).collect())
    }

    /// Changes the tools' definitions before a model sees them, in each run. What it removes cannot be called; what it
    /// adds or renames is an error of the list, because the toolset could not carry it out.
    ///
    /// ```
    /// use belljar_mcp_client::{McpServerStdio, RunContext, ToolDefinition, ToolsetExt};
    ///
    /// let terse = McpServerStdio::new("server").build().prepared(|_run: &RunContext, mut tools: Vec<ToolDefinition>| {
    ///     tools.iter_mut().for_each(|tool| tool.description = None);
    ///     tools
    /// });
    /// ```
    fn prepared<F>(self, prepare: F) -> PreparedToolset<Self, F>
    where
        F: Fn(&RunContext, Vec<ToolDefinition>) -> Vec<ToolDefinition> + Send + Sync + 'static,
    {
        PreparedToolset::new(self, prepare)
    }

    /// Changes the tools' definitions as [`prepared`](Self::prepared) does, with a closure that returns a future.
    ///
    /// ```
    /// use belljar_mcp_client::{McpServerStdio, RunContext, ToolDefinition, ToolsetExt};
    ///
    /// let server = McpServerStdio::new("server").build();
    /// let few = server.prepared_async(|_run: RunContext, tools: Vec<ToolDefinition>| async move {
    ///     Ok(tools.into_iter().take(10).collect())
    /// });
    /// ```
    fn prepared_async<F, Prepared>(self, prepare: F) -> AsyncPreparedToolset<Self, F>
    where
        F: Fn(RunContext, Vec<ToolDefinition>) -> Prepared + Send + Sync + 'static,
        Prepared: Future<Output = Result<Vec<ToolDefinition>, McpError>> + Send + 'static,
    {
        AsyncPreparedToolset::new(self, prepare)
    }

    /// Shows a model only tools to search, describe and call these tools. See [`SearchToolset`].
    fn searchable(self) -> SearchToolset {
        SearchToolset::new(Arc::new(self))
    }

    /// Limits the text of each result to this number of bytes. The model reads on with the tool `read_result`; binary
    /// data and [`ToolResult::raw`] stay whole. See [`BudgetToolset`].
    fn with_result_budget(self, bytes: usize) -> BudgetToolset {
        BudgetToolset::new(Arc::new(self), bytes)
    }

    /// Asks for approval before every call. See [`ToolsetExt`] for an example.
    fn approved<A: Approve>(self, approve: A) -> ApprovedToolset<Self, A> {
        ApprovedToolset::new(self, NeedsApproval::Always, approve)
    }

    /// Asks for approval before those calls that need it.
    ///
    /// ```
    /// use belljar_mcp_client::{Approval, ApprovalRequest, McpServerStdio, NeedsApproval, ToolsetExt};
    ///
    /// let ask = async |request: ApprovalRequest| Approval::Deny(format!("{} is not allowed", request.name));
    /// let server = McpServerStdio::new("server").build().approved_if(NeedsApproval::Writes, ask);
    /// ```
    fn approved_if<A: Approve>(self, needed: NeedsApproval, approve: A) -> ApprovedToolset<Self, A> {
        ApprovedToolset::new(self, needed, approve)
    }

    /// Defers the calls that need approval: their outcome is [`ToolOutcome::Deferred`], until the program calls again
    /// with [`RunContext::approved`]. [`ToolRunner`](crate::ToolRunner) collects such calls and resumes them with the
    /// answers.
    ///
    /// ```
    /// use belljar_mcp_client::{McpServerStdio, NeedsApproval, ToolsetExt};
    ///
    /// let server = McpServerStdio::new("server").build();
    /// let careful = server.approval_required(NeedsApproval::of(|_run, tool, arguments| {
    ///     tool.may_destroy() && arguments.get("dry_run") != Some(&true.into())
    /// }));
    /// ```
    fn approval_required(self, needed: NeedsApproval) -> ApprovedToolset<Self, DeferApproval> {
        ApprovedToolset::new(self, needed, DeferApproval)
    }
}

impl<T: Toolset> ToolsetExt for T {}

/// Returns the outcome of a call of a tool that the toolset does not have.
async fn unknown(toolset: &dyn Toolset, run: &RunContext, name: &str) -> Result<ToolOutcome, McpError> {
    match toolset.tools(run).await {
        Ok(tools) => Ok(ToolOutcome::unknown_tool(name, tools.names())),
        Err(error) => error.into_outcome(),
    }
}
