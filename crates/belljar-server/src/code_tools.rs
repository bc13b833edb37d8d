//! Tools of MCP servers that code can call: their runs, and the texts about them for the model.

use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use belljar_core::Scope;
use belljar_core::kernel::{CellObserver, InputError, InputReply};
use belljar_tools::{
    Approval, ApprovalRequest, Approver, CallJournal, CallRecord, CallStatus, Detail, NoApprover, ObserverApprover,
    RequestDurations, SavedRun, SessionGrants, ToolEvents, ToolObserver, ToolRun, ToolRunContext, Tools,
};
use rmcp::model::{ErrorData, JsonObject, Tool, ToolAnnotations};
use rmcp::service::{RequestContext, SubscriptionSink};
use rmcp::{Peer, RoleServer};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::task::AbortOnDropHandle;

use crate::activity::scope_of;
use crate::arguments::{self, ArgumentError};
use crate::elicitation::{can_ask, elicit};
use crate::input_rounds::InputPrompt;
use crate::session_tools::is_modern;

/// The names of the tools that search for tools.
pub(crate) const SEARCH: &str = "search_tools";
pub(crate) const DESCRIBE: &str = "describe_tools";

/// Returns whether a tool is one of those that search.
pub(crate) fn is_search(name: &str) -> bool {
    name == SEARCH || name == DESCRIBE
}

/// The reason why a call cannot be approved, with what to do about it.
pub(crate) const CANNOT_ASK: &str = "this client cannot be asked. The option --approve of the server selects the calls that need \
     approval";
/// The maximum number of requests of clients that wait for changes.
const MAX_LISTEN_REQUESTS: usize = 1000;
/// The interval at which a task that waits for changes checks whether its client is still connected.
const CONNECTION_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The tools of MCP servers that code of a server's clients can call. Cheap to clone.
#[derive(Clone)]
pub struct CodeTools {
    tools: Arc<Tools>,
    /// The maximum length of the stubs in a description, in characters.
    max_description: usize,
    /// Limits the requests that wait for changes.
    listen_requests: Arc<Semaphore>,
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
        Self { tools, max_description, listen_requests: Arc::new(Semaphore::new(MAX_LISTEN_REQUESTS)) }
    }

    /// Returns the durations of requests to the servers.
    pub(crate) fn durations(&self) -> &RequestDurations {
        self.tools.durations()
    }

    /// Notifies a client of the legacy era whenever the tools of a server change, since the descriptions of the
    /// server's own tools change then, until it disconnects.
    pub(crate) fn notify_changes(&self, peer: Peer<RoleServer>) {
        let mut changes = self.tools.changes();
        tokio::spawn(async move {
            loop {
                match tokio::time::timeout(CONNECTION_CHECK_INTERVAL, changes.changed()).await {
                    Ok(Ok(())) if peer.notify_tool_list_changed().await.is_ok() => {}
                    Err(_) if !peer.is_transport_closed() => {}
                    _ => return,
                }
            }
        });
    }

    /// Notifies a `subscriptions/listen` request of the modern era in the same way, until the task is dropped.
    ///
    /// # Errors
    /// Returns an error if too many requests wait.
    pub(crate) fn listen(&self, sink: SubscriptionSink) -> Result<AbortOnDropHandle<()>, ErrorData> {
        let permit = self.listen_requests.clone().try_acquire_owned();
        let permit = permit.map_err(|_| ErrorData::invalid_request("too many subscriptions are open", None))?;
        let mut changes = self.tools.changes();
        Ok(AbortOnDropHandle::new(tokio::spawn(async move {
            let _permit = permit;
            while changes.changed().await.is_ok() && sink.notify_tool_list_changed().await.is_ok() {}
        })))
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

    /// Starts the calls of a run of `run_python_code` for the client of a request. Also returns the receiver of its
    /// prompts, if the client is asked between two calls.
    pub(crate) fn for_run(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> (PreparedCalls, Option<UnboundedReceiver<InputPrompt>>) {
        let mut prompts = None;
        let approver: Arc<dyn Approver> = if !can_ask(context) {
            Arc::new(NoApprover { reason: CANNOT_ASK.into() })
        } else if is_modern(context) {
            let (send, receive) = unbounded_channel();
            prompts = Some(receive);
            Arc::new(NextRoundApprover(send))
        } else {
            Arc::new(ElicitApprover(context.peer.clone()))
        };
        (PreparedCalls { tools: self.clone(), approver, runtime: Handle::current(), scope: scope_of(context) }, prompts)
    }

    /// Returns the calls of a cell whose client `observer` asks for input.
    pub(crate) fn for_cell(&self, observer: Arc<dyn CellObserver>, scope: Scope) -> (ToolRun, Arc<dyn CellObserver>) {
        let approver = Arc::new(ObserverApprover::new(observer.clone(), CANNOT_ASK));
        PreparedCalls { tools: self.clone(), approver, runtime: Handle::current(), scope }.start(observer)
    }
}

impl ClientTools {
    /// Returns the calls of a durable run, which go on from `saved`. `approver` asks the run's client.
    pub(crate) fn for_durable_run(
        &self,
        observer: Arc<dyn CellObserver>,
        approver: Arc<dyn Approver>,
        journal: Arc<dyn CallJournal>,
        saved: SavedRun,
        scope: Scope,
    ) -> (ToolRun, Arc<dyn CellObserver>) {
        let Self { code_tools, grants } = self.clone();
        let events = Arc::new(CallEvents(observer.clone()));
        let context = ToolRunContext { runtime: Handle::current(), approver, grants, events, scope };
        let run = ToolRun::restored(code_tools.tools, context, Some(journal), saved);
        let observer = Arc::new(ToolObserver::new(observer, run.clone()));
        (run, observer)
    }
}

/// The calls of a run that has not begun.
pub(crate) struct PreparedCalls {
    tools: ClientTools,
    approver: Arc<dyn Approver>,
    runtime: Handle,
    scope: Scope,
}

impl PreparedCalls {
    /// Begins the run. Also returns the observer that handles its calls.
    pub(crate) fn start(self, observer: Arc<dyn CellObserver>) -> (ToolRun, Arc<dyn CellObserver>) {
        let Self { tools: ClientTools { code_tools, grants }, approver, runtime, scope } = self;
        let events = Arc::new(CallEvents(observer.clone()));
        let run = ToolRun::new(code_tools.tools, ToolRunContext { runtime, approver, grants, events, scope });
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
        approval(elicit(&self.0, request.question()).await)
    }
}

/// Asks a client of the protocol's modern era, between two calls.
struct NextRoundApprover(UnboundedSender<InputPrompt>);

#[async_trait]
impl Approver for NextRoundApprover {
    async fn approve(&self, request: ApprovalRequest) -> Result<Approval, String> {
        let (reply, answer) = mpsc::channel();
        let prompt = InputPrompt { message: request.question(), reply };
        self.0.send(prompt).map_err(|_| InputError::Disconnected.to_string())?;
        let answer = tokio::task::spawn_blocking(move || answer.recv()).await;
        approval(answer.ok().and_then(Result::ok).unwrap_or(Err(InputError::Disconnected)))
    }
}

/// Returns the approval in a client's answer.
fn approval(answer: InputReply) -> Result<Approval, String> {
    match answer {
        Ok(answer) => Ok(Approval::from_answer(&answer)),
        Err(InputError::Declined) => Ok(Approval::Denied),
        Err(error) => Err(error.to_string()),
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
