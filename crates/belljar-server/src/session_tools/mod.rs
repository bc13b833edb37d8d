//! The session tools: they run cells in sessions and offer the sessions' files as resources.
//!
//! | file | subject |
//! | --- | --- |
//! | `tools` | the definitions of the tools |
//! | `answer` | their results |
//! | `execute` | a cell that is run for one call |
//! | `client_io` | the client of a cell: output, progress and input |
//! | `runs` | cells that outlast their calls |
//! | `listed_runs` | the list of these |
//! | `live_runs` | those that have not ended: their clients and their calls |
//! | `panel_answers` | decisions of users in panels |
//! | `operator` | operations of operators on the sessions of clients |
//! | `programs` | code of `run_python_code` that does |
//! | `resources` | files as resources |
//! | `subscriptions` | subscriptions to changes of files |
//! | `tasks` | runs as tasks of the protocol |

mod answer;
mod client_io;
mod execute;
mod listed_runs;
mod live_runs;
mod operator;
mod panel_answers;
mod programs;
mod resources;
mod runs;
mod subscriptions;
mod tasks;
mod tools;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belljar_core::Activity;
use belljar_core::NETWORK_KEY;
use belljar_sessions::{Cluster, Owner, SessionError, SessionId, Sessions, Tenant};
use parking_lot::Mutex;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ProtocolVersion, Tool};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio_util::task::AbortOnDropHandle;

use crate::activity::scope_of;
use crate::apps;
use crate::arguments::{self, ArgumentError, ExecuteCode, SessionOnly, UploadFile};
use crate::arrival::{SessionTurn, in_turn, turn_of};
use crate::code_tools::ClientTools;
use crate::description::SandboxDescription;
use crate::handler::tool_error;
use crate::input_rounds::{PendingInputs, RunningCode};
use crate::metrics::CallStatus;
use crate::notifier::ClientNotifier;
use crate::report::{self, Recording};
use answer::failed;
pub(crate) use answer::text_or_types;
use client_io::CellClient;
use execute::not_run;
use live_runs::LiveRuns;
pub(crate) use operator::OPERATOR_PROTOCOL;
pub(crate) use programs::ProgramAnswers;
use subscriptions::Subscribers;
pub(crate) use tools::{EXECUTE, INTERRUPT};

/// The maximum interval between two searches for expired sessions.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// The interval between two looks at the commands for runs, and at runs that may sleep.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) const INSTRUCTIONS: &str = "Runs Python in sessions that keep variables and files between calls. Pass the \
     session_id of the first result to later calls. Files that code writes are resources: kernel://{session_id}/{filename}.";

/// One client's view of the sessions.
#[derive(Clone)]
pub(crate) struct SessionTools {
    pub(crate) sessions: Sessions,
    /// Set if results contain the HTML of tables and other values that have plain text.
    html: bool,
    /// The sessions that this client has created or used: it cannot list those of other clients.
    visible_sessions: Arc<Mutex<BTreeSet<SessionId>>>,
    /// The subscriptions of all clients.
    subscribers: Arc<Subscribers>,
    /// The URIs that this client has subscribed to.
    subscribed: Arc<Mutex<BTreeSet<String>>>,
    /// Cells that wait for input, of all clients.
    pending_inputs: PendingInputs,
    /// The tools of MCP servers that cells of this client can call.
    tools: Option<ClientTools>,
    /// The sessions of this client's programs that have not ended: see `programs`.
    visible_programs: Arc<Mutex<BTreeSet<SessionId>>>,
    program_answers: ProgramAnswers,
    /// The runs of all clients, if cells can wait on the disk.
    live: LiveRuns,
    activity: Activity,
    /// True if this client is the only one, and may list the runs of earlier ones.
    lists_all: bool,
}

/// The answer to a call, and its status for the metrics.
pub(crate) struct ToolAnswer {
    pub(crate) response: CallToolResponse,
    pub(crate) status: CallStatus,
}

impl ToolAnswer {
    pub(crate) fn success(result: CallToolResult) -> Self {
        Self { response: result.into(), status: CallStatus::Success }
    }

    /// Creates an answer of text, or of an error for the model.
    pub(crate) fn from_text(text: Result<String, String>) -> Self {
        match text {
            Ok(text) => Self::success(CallToolResult::success(vec![ContentBlock::text(text)])),
            Err(error) => Self { response: tool_error(error).into(), status: CallStatus::Invalid },
        }
    }

    /// Creates the answer to a call with an invalid argument.
    pub(crate) fn invalid(error: ArgumentError) -> Self {
        Self { response: tool_error(error.to_string()).into(), status: CallStatus::Invalid }
    }
}

/// The client of a call, for notifications of changes, and the call's turn.
#[derive(Clone)]
struct Caller {
    peer: Peer<RoleServer>,
    modern: bool,
    turn: Option<SessionTurn>,
}

/// Returns whether a tool runs code.
pub(crate) fn runs_code(name: &str) -> bool {
    name == EXECUTE || name == crate::tool::NAME
}

/// Returns whether the results of a tool are those of code.
pub(crate) fn shows_code(name: &str) -> bool {
    runs_code(name) || name == tools::RESUME_RUN
}

/// Returns whether a request belongs to the protocol's modern era.
pub(crate) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

impl SessionTools {
    pub(crate) fn new(sessions: Sessions, html: bool, activity: Activity) -> Self {
        sessions.set_activity(activity.clone());
        Self {
            activity,
            sessions,
            html,
            visible_sessions: Arc::default(),
            subscribers: Arc::default(),
            subscribed: Arc::default(),
            pending_inputs: PendingInputs::default(),
            tools: None,
            visible_programs: Arc::default(),
            program_answers: ProgramAnswers::default(),
            live: LiveRuns::default(),
            lists_all: true,
        }
    }

    /// Returns the tools for another client, with empty per-client state.
    pub(crate) fn for_new_client(&self, owner: Option<Owner>, tenant: Tenant) -> Self {
        let sessions = self.sessions.for_owner(owner).for_tenant(tenant);
        let (visible_sessions, visible_programs, subscribed) = (Arc::default(), Arc::default(), Arc::default());
        Self { sessions, visible_sessions, visible_programs, subscribed, lists_all: false, ..self.clone() }
    }

    /// Sets the format of the results of `run_python_code`.
    #[must_use]
    pub(crate) fn with_program_answers(self, program_answers: ProgramAnswers) -> Self {
        Self { program_answers, ..self }
    }

    /// Lets cells call the tools of MCP servers.
    #[must_use]
    pub(crate) fn with_code_tools(self, tools: Option<ClientTools>) -> Self {
        Self { tools, ..self }
    }

    /// Continues the runs of the data directory, and starts tasks that evict expired and idle sessions periodically,
    /// for as long as the runtime exists.
    pub(crate) fn start_sweeping(&self) {
        let sessions = self.sessions.clone();
        if sessions.are_durable() {
            self.resume_stored_runs();
            let (this, sessions) = (self.clone(), sessions.clone());
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(MAINTENANCE_INTERVAL).await;
                    let sessions = sessions.clone();
                    if let Err(error) = tokio::task::spawn_blocking(move || sessions.maintain_runs()).await {
                        tracing::error!(%error, "failed to look after runs");
                    }
                    this.follow_adopted();
                }
            });
        }
        // Idle sessions hibernate sooner than they expire.
        let belljar_sessions::SessionOptions { timeout, sleep_after, .. } = *sessions.options();
        let max_interval = sessions.cluster().map_or(MAX_SWEEP_INTERVAL, |_| Cluster::ADOPTION_INTERVAL);
        let interval = max_interval.min(timeout / 2).min(sleep_after).max(Duration::from_millis(100));
        if sessions.cluster().is_some() {
            // Apart from the rest: it may take minutes.
            let sessions = sessions.clone();
            tokio::spawn(async move { sessions.clean_up_store().await });
        }
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(interval) => {}
                    () = sessions.memory_is_scarce() => {}
                }
                sessions.evict_idle().await;
            }
        });
    }

    /// Follows the runs that have come from other replicas.
    pub(crate) fn follow_adopted(&self) {
        self.follow_stored(self.sessions.take_adopted_runs());
    }

    /// Notes that the server is about to end the calls in flight: their clients do not cancel them.
    pub(crate) fn begin_shutdown(&self) {
        self.live.is_ending.store(true, Ordering::Relaxed);
    }

    /// Hibernates the sessions, so that those in a persistent store survive.
    pub(crate) async fn hibernate_all(&self) {
        self.sessions.hibernate_all().await;
    }

    /// Returns the definitions of the tools, whose descriptions state the settings of `sandbox`.
    pub(crate) fn tools(&self, sandbox: &SandboxDescription) -> Vec<Tool> {
        let have_folders = self.sessions.have_folders();
        let execute_description = sandbox.execute_code(self.sessions.options().timeout, have_folders);
        let mut all = tools::all(execute_description, self.sessions.supports_fork(), have_folders);
        if self.sessions.are_durable() {
            all.extend(tools::run_tools());
        }
        all
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// Fails if an argument is invalid.
    pub(crate) async fn call(
        &self,
        request: CallToolRequestParams,
        notifier: ClientNotifier,
        context: &RequestContext<RoleServer>,
    ) -> Result<ToolAnswer, ArgumentError> {
        let CallToolRequestParams { name, arguments: given, input_responses, request_state, .. } = request;
        let resumes_run = name == tools::RESUME_RUN;
        if (name == EXECUTE || resumes_run)
            && let Some(state) = request_state
        {
            let (given, responses) = (given.as_ref(), input_responses.as_ref());
            if state.contains('.') || resumes_run {
                return self.answer_run(&state, given, responses, notifier, context).await;
            }
            return self.pending_inputs.resume(&state, given, responses, notifier).await;
        }
        let caller = &Caller { peer: context.peer.clone(), modern: is_modern(context), turn: turn_of(context) };
        let answer = match &*name {
            EXECUTE => {
                let (mut cell, session) = arguments::parse::<ExecuteCode>(given.clone())?.into_cell();
                cell.network = context.meta.0.0.get(NETWORK_KEY).cloned();
                cell.scope = scope_of(context);
                let wanted = report::requested(context)?;
                let recording = wanted.is_some().then(Arc::<Recording>::default);
                let is_durable = wanted.is_none() && self.sessions.are_durable();
                if let Some(wanted) = wanted {
                    cell.exchange = report::exchange(wanted, self.sessions.supports_exchange())?;
                }
                let (client, prompts) = CellClient::new(notifier, context, recording);
                if is_durable {
                    let begun = self.begin_run(cell, session, given, &client, caller.clone(), false).await;
                    return Ok(match begun {
                        Ok(run) => self.attend(&run, &client, context).await,
                        Err(error) => not_run(&error),
                    });
                }
                let (this, caller, cell_client) = (self.clone(), caller.clone(), client.clone());
                let work = async move { this.execute(cell, session, cell_client, caller).await };
                match prompts {
                    // The cell may outlast this call.
                    Some(prompts) => {
                        let task = AbortOnDropHandle::new(tokio::spawn(work));
                        let running = RunningCode { arguments: given, client: Arc::new(client), prompts, task };
                        return Ok(self.pending_inputs.answer(running).await);
                    }
                    None => Box::pin(work).await,
                }
            }
            tools::LIST => {
                let SessionOnly { session_id } = arguments::parse(given)?;
                match self.on_session(&session_id, caller, |id| self.sessions.list(id)).await {
                    Ok((id, files)) => ToolAnswer::success(answer::files(&id, &files)),
                    Err(error) => failed(&error),
                }
            }
            tools::CLEAR => {
                let SessionOnly { session_id } = arguments::parse(given)?;
                let cleared = self.on_session(&session_id, caller, |id| self.sessions.clear(id)).await;
                if let Ok((id, ())) = &cleared {
                    self.notify(id, true, &[], caller).await;
                    self.visible_sessions.lock().remove(id);
                }
                let files =
                    if self.sessions.have_folders() { "its files stay in its folder" } else { "all files deleted" };
                answer::done(cleared, |(id, ())| format!("Session {} cleared and {files}", id.as_str()))
            }
            tools::UPLOAD => {
                let upload: UploadFile = arguments::parse(given)?;
                let bytes = upload.bytes()?;
                let UploadFile { session_id, name, .. } = upload;
                match self.on_session(&session_id, caller, |id| self.sessions.upload(id, name, bytes)).await {
                    Ok((id, file)) => {
                        self.notify(&id, true, &[file.path.as_str()], caller).await;
                        ToolAnswer::success(answer::uploaded(&id, &file))
                    }
                    Err(error) => failed(&error),
                }
            }
            INTERRUPT => {
                let SessionOnly { session_id } = arguments::parse(given)?;
                if let Some(turn) = &caller.turn {
                    turn.wait_briefly().await;
                }
                let interrupted = self.find(&session_id).and_then(|id| self.sessions.interrupt(&id));
                answer::done(interrupted, |ran| {
                    if *ran { "The running code was interrupted".into() } else { "Nothing was running".into() }
                })
            }
            tools::RESTART => {
                let SessionOnly { session_id } = arguments::parse(given)?;
                let restarted = self.on_session(&session_id, caller, |id| self.sessions.restart(id)).await;
                answer::done(restarted, |_| "The session has a fresh interpreter; its files are kept".into())
            }
            tools::FORK => {
                let SessionOnly { session_id } = arguments::parse(given)?;
                match self.fork(&session_id, caller).await {
                    Ok((id, forked)) => {
                        self.visible_sessions.lock().insert(forked.clone());
                        ToolAnswer::success(answer::forked(&id, &forked))
                    }
                    Err(error) => failed(&error),
                }
            }
            tools::LIST_RUNS if self.sessions.are_durable() => self.list_runs(&arguments::parse(given)?).await,
            tools::RESUME_RUN if self.sessions.are_durable() => {
                self.resume_run(arguments::parse(given)?, notifier, context).await
            }
            tools::ANSWER_QUESTION if self.sessions.are_durable() && apps::shows_panels(context) => {
                self.answer_question(arguments::parse(given)?, context).await
            }
            _ => return Err(ArgumentError::UnknownTool(name.into_owned())),
        };
        Ok(answer)
    }

    /// Finds a session and, when it is the call's turn, queues an operation on it with `queue`. Waits for the result.
    async fn on_session<T, F: Future<Output = Result<T, SessionError>>>(
        &self,
        name: &str,
        caller: &Caller,
        queue: impl FnOnce(&SessionId) -> F,
    ) -> Result<(SessionId, T), SessionError> {
        let queued = in_turn(caller.turn.clone(), || -> Result<_, SessionError> {
            let id = self.find(name)?;
            let result = queue(&id);
            Ok((id, result))
        });
        let (id, result) = queued.await?;
        Ok((id, result.await?))
    }

    fn find(&self, name: &str) -> Result<SessionId, SessionError> {
        let id = self.sessions.find(name)?;
        self.visible_sessions.lock().insert(id.clone());
        Ok(id)
    }
}
