//! Toolsets whose calls need approval: which calls do, who decides, and calls that wait for the decision.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Deferral, DeferralKind, ToolDefinition, ToolList, ToolOutcome, Toolset};
use crate::error::McpError;
use crate::run_context::RunContext;

/// The decision on a call.
///
/// ```
/// # use belljar_mcp_client::Approval;
/// # use serde_json::{Map, json};
/// let dry_run = Approval::AllowWith(Map::from_iter([("dry_run".into(), json!(true))]));
/// let denied = Approval::Deny("the user declined".into());
/// assert_eq!(serde_json::to_value(denied).unwrap(), json!({"deny": "the user declined"}));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Approval {
    /// The call is allowed.
    Allow,
    /// The call is allowed with these arguments instead.
    AllowWith(Map<String, Value>),
    /// The call is denied; the model sees the reason.
    Deny(String),
    /// The decision comes later: the outcome is [`ToolOutcome::Deferred`], with this metadata for the program.
    Defer(Map<String, Value>),
}

/// A call that awaits approval.
///
/// In JSON, [`run`](Self::run) has only the ID of the call and the number of its failures: the rest is credentials, and
/// values and handlers of the program.
///
/// ```
/// # use belljar_mcp_client::{Approval, ApprovalRequest};
/// async fn decide(request: ApprovalRequest) -> Approval {
///     println!("{} with {:?}? {:?}", request.name, request.arguments, request.definition.description);
///     if request.definition.may_destroy() { Approval::Deny("too risky".into()) } else { Approval::Allow }
/// }
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The run that the call belongs to.
    #[serde(default, with = "stored_run")]
    pub run: RunContext,
    /// The name of the tool, as the model sees it.
    pub name: String,
    /// The arguments of the call.
    pub arguments: Map<String, Value>,
    /// The definition of the tool. Its annotations are claims of the server.
    pub definition: Arc<ToolDefinition>,
}

impl ApprovalRequest {
    pub(crate) fn new(run: &RunContext, definition: &Arc<ToolDefinition>, arguments: &Map<String, Value>) -> Self {
        let (name, arguments) = (definition.name.clone(), arguments.clone());
        Self { run: run.clone(), name, arguments, definition: definition.clone() }
    }
}

/// The run of a request in JSON.
mod stored_run {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::run_context::RunContext;

    /// The part of a run that concerns the call alone.
    #[derive(Serialize, Deserialize)]
    struct StoredRun {
        #[serde(default)]
        retry: u32,
        tool_call_id: Option<String>,
    }

    pub(super) fn serialize<S: Serializer>(run: &RunContext, serializer: S) -> Result<S::Ok, S::Error> {
        StoredRun { retry: run.retry, tool_call_id: run.tool_call_id.clone() }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RunContext, D::Error> {
        let StoredRun { retry, tool_call_id } = StoredRun::deserialize(deserializer)?;
        let mut run = RunContext::new().retry(retry);
        run.tool_call_id = tool_call_id;
        Ok(run)
    }
}

/// Decides on calls. Closures implement it as well: see [`ToolsetExt`](super::ToolsetExt).
///
/// ```
/// use belljar_mcp_client::{Approval, ApprovalRequest, Approve, async_trait};
///
/// /// Allows reading only.
/// struct ReadOnly;
///
/// #[async_trait]
/// impl Approve for ReadOnly {
///     async fn approve(&self, request: ApprovalRequest) -> Approval {
///         if request.definition.is_read_only() { Approval::Allow } else { Approval::Deny("reading only".into()) }
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

/// Defers every decision, for [`ToolsetExt::approval_required`](super::ToolsetExt::approval_required).
///
/// ```
/// use belljar_mcp_client::{ApprovedToolset, DeferApproval, McpServer, NeedsApproval, ToolsetExt};
///
/// fn careful(server: McpServer) -> ApprovedToolset<McpServer, DeferApproval> {
///     server.approval_required(NeedsApproval::Writes)
/// }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct DeferApproval;

#[async_trait]
impl Approve for DeferApproval {
    async fn approve(&self, _request: ApprovalRequest) -> Approval {
        Approval::Defer(Map::new())
    }
}

/// A condition of the program's own on calls.
type Condition = Arc<dyn Fn(&RunContext, &ToolDefinition, &Map<String, Value>) -> bool + Send + Sync>;

/// The calls that need approval.
///
/// The presets use the annotations of the tools. A server that the program does not trust may claim anything: use
/// [`Always`](Self::Always) for it.
///
/// ```
/// use belljar_mcp_client::NeedsApproval;
///
/// let writes = NeedsApproval::Writes;
/// let expensive = NeedsApproval::of(|_run, tool, arguments| tool.name == "buy" && arguments["price"].as_f64() > Some(10.0));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum NeedsApproval {
    /// Every call.
    Always,
    /// Calls of tools that are not [read-only](ToolDefinition::is_read_only).
    Writes,
    /// Calls of tools that [may destroy](ToolDefinition::may_destroy) something.
    Destructive,
    /// Calls that a condition of the program selects, see [`of`](Self::of).
    If(Condition),
}

impl NeedsApproval {
    /// Selects calls by the run, the definition of the tool and the arguments.
    ///
    /// ```
    /// # use belljar_mcp_client::NeedsApproval;
    /// let needed = NeedsApproval::of(|run, tool, _arguments| tool.may_destroy() && run.get_deps::<bool>() == Some(&true));
    /// ```
    pub fn of(
        condition: impl Fn(&RunContext, &ToolDefinition, &Map<String, Value>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::If(Arc::new(condition))
    }

    /// Returns whether a call needs approval.
    ///
    /// ```
    /// use belljar_mcp_client::{NeedsApproval, RunContext, ToolDefinition};
    /// use serde_json::{Map, json};
    ///
    /// let tool = ToolDefinition::new("now", json!({"type": "object"}));
    /// assert!(NeedsApproval::Writes.applies(&RunContext::new(), &tool, &Map::new()));
    /// ```
    pub fn applies(&self, run: &RunContext, tool: &ToolDefinition, arguments: &Map<String, Value>) -> bool {
        match self {
            Self::Always => true,
            Self::Writes => !tool.is_read_only(),
            Self::Destructive => tool.may_destroy(),
            Self::If(condition) => condition(run, tool, arguments),
        }
    }
}

impl std::fmt::Debug for NeedsApproval {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Always => "Always",
            Self::Writes => "Writes",
            Self::Destructive => "Destructive",
            Self::If(_) => "If(…)",
        })
    }
}

/// A toolset whose calls need approval, from [`ToolsetExt::approved`](super::ToolsetExt::approved),
/// [`approved_if`](super::ToolsetExt::approved_if) and [`approval_required`](super::ToolsetExt::approval_required).
///
/// ```
/// # use belljar_mcp_client::{Approval, ApprovalRequest, McpServer, Toolset, ToolsetExt};
/// fn deny_all(server: McpServer) -> impl Toolset {
///     server.approved(async |_request: ApprovalRequest| Approval::Deny("calls are disabled".into()))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct ApprovedToolset<T, A> {
    inner: T,
    needed: NeedsApproval,
    approve: Arc<A>,
}

impl<T, A> ApprovedToolset<T, A> {
    pub(super) fn new(inner: T, needed: NeedsApproval, approve: A) -> Self {
        Self { inner, needed, approve: Arc::new(approve) }
    }
}

#[async_trait]
impl<T: Toolset, A: Approve> Toolset for ApprovedToolset<T, A> {
    fn inner(&self) -> Option<&dyn Toolset> {
        Some(&self.inner)
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    fn name_clash_hint(&self) -> String {
        self.inner.name_clash_hint()
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        self.inner.tools(run).await
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        // The decision is about a definition, so a tool without one cannot be approved.
        let tools = match self.inner.tools(run).await {
            Ok(tools) => tools,
            Err(error) => return error.into_outcome(),
        };
        let Some(definition) = tools.get(name).cloned() else {
            return Ok(ToolOutcome::unknown_tool(name, tools.names()));
        };
        if run.is_approved() || !self.needed.applies(run, &definition, &arguments) {
            return self.inner.call(run, name, arguments).await;
        }
        match self.approve.approve(ApprovalRequest::new(run, &definition, &arguments)).await {
            Approval::Allow => self.inner.call(run, name, arguments).await,
            Approval::AllowWith(arguments) => self.inner.call(run, name, arguments).await,
            Approval::Deny(reason) => Ok(ToolOutcome::Denied(reason)),
            Approval::Defer(metadata) => Ok(ToolOutcome::Deferred(Deferral { kind: DeferralKind::Approval, metadata })),
        }
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        let inner = self.inner.for_run(run).await?;
        let with = |inner| ApprovedToolset { inner, needed: self.needed.clone(), approve: self.approve.clone() };
        Ok(inner.map(|inner| Arc::new(with(inner)) as Arc<dyn Toolset>))
    }
}
