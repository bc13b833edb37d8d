//! Tools of any origin for an agent: the [`Toolset`] trait, the outcome of a call, and combinators.

mod combine;
mod compose;
pub(crate) mod definition;
mod guard;
pub(crate) mod outcome;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

pub use combine::CombinedToolset;
pub use compose::{
    Approval, ApprovalRequest, Approve, ApprovedToolset, FilteredToolset, PrefixedToolset, PreparedToolset,
    RenamedToolset,
};
pub use definition::ToolDefinition;
pub(crate) use guard::CloseGuard;
pub use guard::ToolsetGuard;
pub use outcome::{AppResult, Retry, ToolOutcome};

use crate::error::McpError;
use crate::run_context::RunContext;

/// Tools that an agent can use.
///
/// An [`McpServer`](crate::McpServer) is a toolset. [`ToolsetExt`] wraps toolsets: prefixed, filtered, renamed,
/// prepared, approved; [`CombinedToolset`] combines several. A program can implement the trait for its own tools:
///
/// ```
/// use async_trait::async_trait;
/// use belljar_client::{McpError, RunContext, ToolDefinition, ToolOutcome, ToolOutput, Toolset};
/// use serde_json::{Map, Value, json};
///
/// struct Dice;
///
/// #[async_trait]
/// impl Toolset for Dice {
///     fn label(&self) -> String {
///         "dice".into()
///     }
///
///     async fn tools(&self, _run: &RunContext) -> Result<Vec<ToolDefinition>, McpError> {
///         Ok(vec![ToolDefinition::new("roll", json!({"type": "object"}))])
///     }
///
///     async fn call(&self, _: &RunContext, _name: &str, _args: Map<String, Value>) -> Result<ToolOutcome, McpError> {
///         Ok(ToolOutcome::Output(ToolOutput::Json(json!(4))))
///     }
/// }
/// ```
#[async_trait]
pub trait Toolset: Send + Sync + 'static {
    /// Returns the name of the toolset in error messages.
    fn label(&self) -> String;

    /// Returns a suggestion for resolving a clash of tool names.
    fn name_clash_hint(&self) -> String {
        "give one of them a prefix, with `.prefixed(…)`".to_owned()
    }

    /// Returns the tools available in this run.
    ///
    /// # Errors
    ///
    /// Errors of the connection.
    async fn tools(&self, run: &RunContext) -> Result<Vec<ToolDefinition>, McpError>;

    /// Calls a tool by its name in [`tools`](Self::tools).
    ///
    /// # Errors
    ///
    /// Errors of the connection. A failed tool is not an error but [`ToolOutcome::Retry`].
    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError>;

    /// Returns instructions for the model on the use of the tools, if any.
    ///
    /// # Errors
    ///
    /// Errors of the connection.
    async fn instructions(&self, _run: &RunContext) -> Result<Option<String>, McpError> {
        Ok(None)
    }

    /// Opens the toolset's connections and keeps them open until the guard is dropped. Toolsets work without a guard,
    /// but then each call opens a connection; agents hold one for the duration of a run.
    ///
    /// # Errors
    ///
    /// Errors of the connection.
    async fn enter(&self) -> Result<ToolsetGuard, McpError> {
        Ok(ToolsetGuard::noop())
    }
}

#[async_trait]
impl<T: Toolset + ?Sized> Toolset for Arc<T> {
    fn label(&self) -> String {
        (**self).label()
    }

    fn name_clash_hint(&self) -> String {
        (**self).name_clash_hint()
    }

    async fn tools(&self, run: &RunContext) -> Result<Vec<ToolDefinition>, McpError> {
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
}

/// Combinators that wrap a toolset.
///
/// ```
/// use belljar_client::{Approval, ApprovalRequest, McpServerStdio, RunContext, ToolsetExt};
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

    /// Renames tools: pairs of the old and the new name.
    fn renamed<O: Into<String>, N: Into<String>>(
        self,
        names: impl IntoIterator<Item = (O, N)>,
    ) -> RenamedToolset<Self> {
        RenamedToolset::new(self, names.into_iter().map(|(old, new)| (old.into(), new.into())).collect())
    }

    /// Changes the tools' definitions before a model sees them, in each run. A tool that this removes stays callable.
    ///
    /// ```
    /// use belljar_client::{McpServerStdio, RunContext, ToolDefinition, ToolsetExt};
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

    /// Asks for approval before every call. See [`ToolsetExt`] for an example.
    fn approved<A: Approve>(self, approve: A) -> ApprovedToolset<Self, A> {
        ApprovedToolset::new(self, approve)
    }
}

impl<T: Toolset> ToolsetExt for T {}
