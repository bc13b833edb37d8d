//! Toolsets that wrap another one: prefixed, filtered, renamed, prepared, approved.

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::{ToolDefinition, ToolOutcome, Toolset, ToolsetGuard};
use crate::error::McpError;
use crate::run_context::RunContext;

/// Implements [`Toolset`] for a wrapper: the given methods are its own, the others delegate to the inner toolset.
macro_rules! over_inner {
    ([$($generics:tt)*] $type:ty { $($own:tt)* }) => {
        #[async_trait]
        impl<$($generics)*> Toolset for $type {
            fn label(&self) -> String {
                self.inner.label()
            }

            async fn instructions(&self, run: &RunContext) -> Result<Option<String>, McpError> {
                self.inner.instructions(run).await
            }

            async fn enter(&self) -> Result<ToolsetGuard, McpError> {
                self.inner.enter().await
            }

            $($own)*
        }
    };
}

/// A toolset with prefixed tool names, from [`ToolsetExt::prefixed`](super::ToolsetExt::prefixed).
///
/// ```
/// # use belljar_client::{McpServer, PrefixedToolset, ToolsetExt};
/// fn git_tools(server: McpServer) -> PrefixedToolset<McpServer> {
///     server.prefixed("git")
/// }
/// ```
#[derive(Debug, Clone)]
pub struct PrefixedToolset<T> {
    inner: T,
    prefix: String,
}

impl<T> PrefixedToolset<T> {
    pub(super) fn new(inner: T, prefix: String) -> Self {
        Self { inner, prefix: format!("{prefix}_") }
    }
}

over_inner! {[T: Toolset] PrefixedToolset<T> {
    async fn tools(&self, run: &RunContext) -> Result<Vec<ToolDefinition>, McpError> {
        let mut tools = self.inner.tools(run).await?;
        for tool in &mut tools {
            tool.name.insert_str(0, &self.prefix);
        }
        Ok(tools)
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        match name.strip_prefix(&self.prefix) {
            Some(bare) => self.inner.call(run, bare, arguments).await,
            None => Err(unknown(self, run, name).await),
        }
    }
}}

/// A toolset without some of its tools, from [`ToolsetExt::filtered`](super::ToolsetExt::filtered).
///
/// ```
/// # use belljar_client::{McpServer, RunContext, ToolDefinition, Toolset, ToolsetExt};
/// fn safe(server: McpServer) -> impl Toolset {
///     server.filtered(|_run: &RunContext, tool: &ToolDefinition| tool.name != "delete")
/// }
/// ```
#[derive(Debug, Clone)]
pub struct FilteredToolset<T, F> {
    inner: T,
    keep: F,
}

impl<T, F> FilteredToolset<T, F> {
    pub(super) fn new(inner: T, keep: F) -> Self {
        Self { inner, keep }
    }
}

over_inner! {[T: Toolset, F: Fn(&RunContext, &ToolDefinition) -> bool + Send + Sync + 'static] FilteredToolset<T, F> {
    async fn tools(&self, run: &RunContext) -> Result<Vec<ToolDefinition>, McpError> {
        let mut tools = self.inner.tools(run).await?;
        tools.retain(|tool| (self.keep)(run, tool));
        Ok(tools)
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        // A model may call a tool that was not shown to it.
        if self.tools(run).await?.iter().any(|tool| tool.name == name) {
            self.inner.call(run, name, arguments).await
        } else {
            Err(unknown(self, run, name).await)
        }
    }
}}

/// A toolset with renamed tools, from [`ToolsetExt::renamed`](super::ToolsetExt::renamed).
///
/// ```
/// # use belljar_client::{McpServer, RenamedToolset, ToolsetExt};
/// fn shorter(server: McpServer) -> RenamedToolset<McpServer> {
///     server.renamed([("read_text_file", "read")])
/// }
/// ```
#[derive(Debug, Clone)]
pub struct RenamedToolset<T> {
    inner: T,
    /// Pairs of the old and the new name.
    names: Vec<(String, String)>,
}

impl<T> RenamedToolset<T> {
    pub(super) fn new(inner: T, names: Vec<(String, String)>) -> Self {
        Self { inner, names }
    }
}

over_inner! {[T: Toolset] RenamedToolset<T> {
    async fn tools(&self, run: &RunContext) -> Result<Vec<ToolDefinition>, McpError> {
        let mut tools = self.inner.tools(run).await?;
        for tool in &mut tools {
            if let Some((_, new)) = self.names.iter().find(|(old, _)| *old == tool.name) {
                tool.name.clone_from(new);
            }
        }
        Ok(tools)
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        match self.names.iter().find(|(_, new)| new == name) {
            Some((old, _)) => self.inner.call(run, old, arguments).await,
            // The old name is not valid any more.
            None if self.names.iter().any(|(old, _)| old == name) => Err(unknown(self, run, name).await),
            None => self.inner.call(run, name, arguments).await,
        }
    }
}}

/// A toolset with changed definitions, from [`ToolsetExt::prepared`](super::ToolsetExt::prepared).
///
/// ```
/// # use belljar_client::{McpServer, RunContext, ToolDefinition, Toolset, ToolsetExt};
/// fn first_ten(server: McpServer) -> impl Toolset {
///     server.prepared(|_run: &RunContext, tools: Vec<ToolDefinition>| tools.into_iter().take(10).collect())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct PreparedToolset<T, F> {
    inner: T,
    prepare: F,
}

impl<T, F> PreparedToolset<T, F> {
    pub(super) fn new(inner: T, prepare: F) -> Self {
        Self { inner, prepare }
    }
}

over_inner! {[
    T: Toolset,
    F: Fn(&RunContext, Vec<ToolDefinition>) -> Vec<ToolDefinition> + Send + Sync + 'static
] PreparedToolset<T, F> {
    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        self.inner.call(run, name, arguments).await
    }

    async fn tools(&self, run: &RunContext) -> Result<Vec<ToolDefinition>, McpError> {
        Ok((self.prepare)(run, self.inner.tools(run).await?))
    }
}}

/// The decision on a call.
///
/// ```
/// # use belljar_client::Approval;
/// # use serde_json::{Map, json};
/// let dry_run = Approval::AllowWith(Map::from_iter([("dry_run".into(), json!(true))]));
/// let denied = Approval::Deny("the user declined".into());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Approval {
    /// The call is allowed.
    Allow,
    /// The call is allowed with these arguments instead.
    AllowWith(Map<String, Value>),
    /// The call is denied; the model sees the reason.
    Deny(String),
}

/// A call that awaits approval.
///
/// ```
/// # use belljar_client::{Approval, ApprovalRequest};
/// async fn decide(request: ApprovalRequest) -> Approval {
///     println!("{} with {:?}?", request.name, request.arguments);
///     Approval::Allow
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The run that the call belongs to.
    pub run: RunContext,
    /// The name of the tool, as the model sees it.
    pub name: String,
    /// The arguments of the call.
    pub arguments: Map<String, Value>,
}

/// Decides on calls. Closures implement it as well: see [`ToolsetExt`](super::ToolsetExt).
///
/// ```
/// use async_trait::async_trait;
/// use belljar_client::{Approval, ApprovalRequest, Approve};
///
/// /// Allows reading only.
/// struct ReadOnly;
///
/// #[async_trait]
/// impl Approve for ReadOnly {
///     async fn approve(&self, request: ApprovalRequest) -> Approval {
///         if request.name.starts_with("read") { Approval::Allow } else { Approval::Deny("reading only".into()) }
///     }
/// }
/// ```
#[async_trait]
pub trait Approve: Send + Sync + 'static {
    /// Decides on one call, usually by asking the user.
    async fn approve(&self, request: ApprovalRequest) -> Approval;
}

#[async_trait]
impl<F, Decision> Approve for F
where
    F: Fn(ApprovalRequest) -> Decision + Send + Sync + 'static,
    Decision: Future<Output = Approval> + Send,
{
    async fn approve(&self, request: ApprovalRequest) -> Approval {
        self(request).await
    }
}

/// A toolset whose calls need approval, from [`ToolsetExt::approved`](super::ToolsetExt::approved).
///
/// ```
/// # use belljar_client::{Approval, ApprovalRequest, McpServer, Toolset, ToolsetExt};
/// fn deny_all(server: McpServer) -> impl Toolset {
///     server.approved(async |_request: ApprovalRequest| Approval::Deny("calls are disabled".into()))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct ApprovedToolset<T, A> {
    inner: T,
    approve: A,
}

impl<T, A> ApprovedToolset<T, A> {
    pub(super) fn new(inner: T, approve: A) -> Self {
        Self { inner, approve }
    }
}

over_inner! {[T: Toolset, A: Approve] ApprovedToolset<T, A> {
    async fn tools(&self, run: &RunContext) -> Result<Vec<ToolDefinition>, McpError> {
        self.inner.tools(run).await
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        let request = ApprovalRequest { run: run.clone(), name: name.to_owned(), arguments: arguments.clone() };
        match self.approve.approve(request).await {
            Approval::Allow => self.inner.call(run, name, arguments).await,
            Approval::AllowWith(arguments) => self.inner.call(run, name, arguments).await,
            Approval::Deny(reason) => Ok(ToolOutcome::Denied(reason)),
        }
    }
}}

/// Returns the error for a name that the toolset does not have.
pub(super) async fn unknown(toolset: &dyn Toolset, run: &RunContext, name: &str) -> McpError {
    match toolset.tools(run).await {
        Ok(tools) => {
            McpError::UnknownTool { name: name.to_owned(), known: tools.into_iter().map(|tool| tool.name).collect() }
        }
        Err(error) => error,
    }
}
