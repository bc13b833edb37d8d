//! Tools of MCP servers that code can call: their runs, and the texts about them for the model.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use belljar_core::kernel::CellObserver;
use belljar_tools::{
    Approval, ApprovalRequest, Approver, CallRecord, CallStatus, Detail, NoApprover, ObserverApprover, SessionGrants,
    ToolEvents, ToolObserver, ToolRun, ToolRunContext, Tools,
};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::runtime::Handle;

use crate::arguments::{self, ArgumentError};
use crate::session_tools::{elicit, is_modern};

/// The names of the tools that search for tools.
pub(crate) const SEARCH: &str = "search_tools";
pub(crate) const DESCRIBE: &str = "describe_tools";

/// Returns whether a tool is one of those that search.
pub(crate) fn is_search(name: &str) -> bool {
    name == SEARCH || name == DESCRIBE
}

/// The reason why a call cannot be approved, with what to do about it.
const CANNOT_ASK: &str = "this client cannot be asked. The option --approve of the server selects the calls that need \
     approval";
const CANNOT_ASK_BETWEEN_CALLS: &str = "a call of run_python_code cannot ask this client, but a cell of execute_code \
     can. The option --approve of the server selects the calls that need approval";

/// The tools of MCP servers that code of a server's clients can call. Cheap to clone.
#[derive(Clone)]
pub struct CodeTools {
    tools: Arc<Tools>,
    /// The maximum length of the stubs in a description, in characters.
    max_description: usize,
}

impl fmt::Debug for CodeTools {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CodeTools").field("servers", &self.tools.server_names()).finish_non_exhaustive()
    }
}

impl CodeTools {
    /// Creates the tools. Their stubs are part of the descriptions of the server's tools if they are at most
    /// `max_description` characters long.
    pub fn new(tools: Arc<Tools>, max_description: usize) -> Self {
        Self { tools, max_description }
    }

    /// Returns the text about the tools for the descriptions of the server's tools, and whether it lacks the stubs, so
    /// that the model has to search.
    pub(crate) async fn description(&self) -> (String, bool) {
        let stubs = self.tools.stubs_at_once().await;
        let names = self.tools.server_names().join(", ");
        let usage = "They are async functions with keyword arguments: `await server.tool(name=1)`, several at once with \
             asyncio.gather. Failures raise tools.ToolException.";
        if stubs.chars().count() <= self.max_description {
            return (format!("\n\nThe code can import these functions from `tools`. {usage}\n\n{stubs}"), false);
        }
        let text = format!(
            "\n\nThe code can call the tools of the MCP servers {names}: `from tools import {}`. {usage} Find them with \
             {SEARCH} and {DESCRIBE}, or in code with tools.search(\"words\") and tools.describe(\"server.tool\").",
            self.tools.server_names().first().unwrap_or(&"server"),
        );
        (text, true)
    }

    /// Returns the definitions of the tools that search.
    pub(crate) fn search_tools() -> [Tool; 2] {
        let tool = |name, title: &str, about, schema: Arc<JsonObject>| {
            let mut tool = Tool::new(name, about, schema);
            tool.title = Some(title.into());
            tool.annotations =
                Some(ToolAnnotations::from_raw(Some(title.into()), Some(true), Some(false), Some(true), Some(false)));
            tool
        };
        [
            tool(
                SEARCH,
                "Search tools",
                "Search for functions of the module `tools` that Python code can call, by relevance.",
                arguments::schema::<SearchArguments>(),
            ),
            tool(
                DESCRIBE,
                "Describe tools",
                "Return the Python signatures, types and docstrings of functions of the module `tools`.",
                arguments::schema::<DescribeArguments>(),
            ),
        ]
    }

    /// Calls a tool that searches. Returns its text; an `Err` inside is one for the model.
    pub(crate) async fn call_search(
        &self,
        name: &str,
        given: Option<JsonObject>,
    ) -> Result<Result<String, String>, ArgumentError> {
        if name == SEARCH {
            let SearchArguments { query, limit, detail } = arguments::parse(given)?;
            let detail = match detail {
                SearchDetail::Names => Detail::Names,
                SearchDetail::Summary => Detail::Summary,
                SearchDetail::Full => Detail::Full,
            };
            return Ok(Ok(self.tools.search_text(&query, limit.into(), detail).await));
        }
        let DescribeArguments { names } = arguments::parse(given)?;
        Ok(self.tools.describe(&names).await.map_err(|failure| failure.to_string()))
    }
}

/// The arguments of `search_tools`.
#[derive(Debug, Deserialize, JsonSchema)]
struct SearchArguments {
    /// Words to search for; empty to list all
    query: String,
    /// Maximum number of results
    #[serde(default = "default_limit")]
    limit: u8,
    /// Detail of the results: names, summary (signatures) or full (stubs)
    #[serde(default)]
    detail: SearchDetail,
}

fn default_limit() -> u8 {
    10
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum SearchDetail {
    Names,
    #[default]
    Summary,
    Full,
}

/// The arguments of `describe_tools`.
#[derive(Debug, Deserialize, JsonSchema)]
struct DescribeArguments {
    /// Names such as `server.tool`
    names: Vec<String>,
}

/// The tools for the code of one client, with the client's grants.
#[derive(Clone)]
pub(crate) struct ClientTools {
    pub(crate) code_tools: CodeTools,
    grants: Arc<SessionGrants>,
}

impl ClientTools {
    /// Creates the tools of a new client, without grants.
    pub(crate) fn new(code_tools: CodeTools) -> Self {
        Self { code_tools, grants: Arc::default() }
    }

    /// Starts the calls of a run of `run_python_code` for the client of a request.
    pub(crate) fn for_run(&self, context: &RequestContext<RoleServer>) -> PreparedCalls {
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        let can_ask = elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
        let approver: Arc<dyn Approver> = match can_ask {
            true if !is_modern(context) => Arc::new(ElicitApprover(context.peer.clone())),
            true => Arc::new(NoApprover { reason: CANNOT_ASK_BETWEEN_CALLS.into() }),
            false => Arc::new(NoApprover { reason: CANNOT_ASK.into() }),
        };
        PreparedCalls { tools: self.clone(), approver, runtime: Handle::current() }
    }

    /// Returns the calls of a cell whose client `observer` asks for input.
    pub(crate) fn for_cell(&self, observer: Arc<dyn CellObserver>) -> (ToolRun, Arc<dyn CellObserver>) {
        let approver = Arc::new(ObserverApprover::new(observer.clone(), CANNOT_ASK));
        PreparedCalls { tools: self.clone(), approver, runtime: Handle::current() }.start(observer)
    }
}

/// The calls of a run that has not begun.
pub(crate) struct PreparedCalls {
    tools: ClientTools,
    approver: Arc<dyn Approver>,
    runtime: Handle,
}

impl PreparedCalls {
    /// Begins the run. Also returns the observer that handles its calls.
    pub(crate) fn start(self, observer: Arc<dyn CellObserver>) -> (ToolRun, Arc<dyn CellObserver>) {
        let Self { tools: ClientTools { code_tools, grants }, approver, runtime } = self;
        let events = Arc::new(CallEvents(observer.clone()));
        let run = ToolRun::new(code_tools.tools, ToolRunContext { runtime, approver, grants, events });
        let observer = Arc::new(ToolObserver::new(observer, run.clone()));
        (run, observer)
    }
}

/// The calls of a run, which are cancelled when this is dropped.
pub(crate) struct CancelOnDrop(pub(crate) ToolRun);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel_all();
    }
}

/// Asks a client of the protocol's legacy era, during the call.
struct ElicitApprover(Peer<RoleServer>);

#[async_trait]
impl Approver for ElicitApprover {
    async fn approve(&self, request: ApprovalRequest) -> Result<Approval, String> {
        match elicit(&self.0, request.question()).await {
            Ok(answer) => Ok(Approval::from_answer(&answer)),
            Err(belljar_core::kernel::InputError::Declined) => Ok(Approval::Denied),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Passes calls to the client as lines of the log and as progress.
struct CallEvents(Arc<dyn CellObserver>);

impl ToolEvents for CallEvents {
    fn on_call(&self, call: &CallRecord) {
        let name = format!("{}.{}", call.server, call.tool);
        let line = match (call.status, &call.error) {
            (CallStatus::Running, _) => format!("{name}({})", call.arguments),
            (_, Some(error)) => format!("{name} failed after {} ms: {error}", call.duration_ms),
            (CallStatus::Ok, None) => {
                format!("{name} returned {} bytes after {} ms", call.result_bytes, call.duration_ms)
            }
            (_, None) => format!("{name} was cancelled after {} ms", call.duration_ms),
        };
        self.0.on_tool_call(&line);
    }
}
