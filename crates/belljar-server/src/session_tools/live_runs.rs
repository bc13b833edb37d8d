//! The runs that have not ended: their clients and their calls of tools, which go on after a restart.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use belljar_core::kernel::CellObserver;
use belljar_core::{Activity, Party, Scope};
use belljar_sessions::{ResumedCalls, Run, RunAnswer, RunCalls, RunResumer};
use belljar_tools::{Approval, ApprovalRequest, Approver, CallJournal, SavedRun, ToolRun};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::client_io::CellClient;
use crate::code_tools::{CANNOT_ASK, ClientTools};
use crate::input_rounds::MAX_SUSPENDED;
use crate::metrics::CallStatus;

/// The runs of all clients: what the server knows of them beyond [`Sessions`].
#[derive(Clone)]
pub(super) struct LiveRuns {
    pub(super) runs: Arc<Mutex<HashMap<String, LiveRun>>>,
    /// The permits for cells that hold a thread while they wait for an answer between two calls.
    pub(super) inputs: Arc<Semaphore>,
    /// A random number of this server process.
    pub(super) process: u32,
    /// Set once the server ends the calls in flight, which their clients have not cancelled.
    pub(super) is_ending: Arc<AtomicBool>,
}

/// A run that has not ended.
#[derive(Clone)]
pub(super) struct LiveRun {
    pub(super) client: CellClient,
    pub(super) calls: Arc<ServerCalls>,
    pub(super) end: Arc<RunEnd>,
}

/// The end of a run.
#[derive(Default)]
pub(super) struct RunEnd {
    /// The status of the answer, once there is one.
    pub(super) status: OnceLock<CallStatus>,
    /// True once the client has cancelled the run's task.
    pub(super) is_cancelled: AtomicBool,
    /// Locked while the run ends, and while its client leaves: a run that a client has left stores its result.
    pub(super) leaving: Mutex<()>,
}

impl LiveRun {
    pub(super) fn new(client: CellClient, calls: Arc<ServerCalls>) -> Self {
        Self { client, calls, end: Arc::default() }
    }

    /// Returns whether the client has cancelled the run's task.
    pub(super) fn is_cancelled(&self) -> bool {
        self.end.is_cancelled.load(Ordering::Relaxed)
    }
}

impl Default for LiveRuns {
    fn default() -> Self {
        let mut random = [0; 4];
        // Without a random number, keys of questions are those of an earlier process at worst.
        let _ = getrandom::fill(&mut random);
        let inputs = Arc::new(Semaphore::new(MAX_SUSPENDED));
        Self { runs: Arc::default(), inputs, process: u32::from_be_bytes(random), is_ending: Arc::default() }
    }
}

impl LiveRuns {
    pub(super) fn get(&self, run: &Run) -> Option<LiveRun> {
        self.runs.lock().get(run.info.id.as_str()).cloned()
    }

    pub(super) fn insert(&self, run: &Run, live: LiveRun) {
        self.runs.lock().insert(run.info.id.as_str().to_owned(), live);
    }
}

/// The calls of tools of a run, if its code can make any.
pub(super) struct ServerCalls {
    pub(super) tools: Option<ToolRun>,
}

impl Drop for ServerCalls {
    fn drop(&mut self) {
        if let Some(tools) = &self.tools {
            tools.cancel_all();
        }
    }
}

impl RunCalls for ServerCalls {
    fn save(&self) -> Value {
        let saved = self.tools.as_ref().map(ToolRun::save);
        serde_json::to_value(saved).unwrap_or_default()
    }

    fn count(&self) -> Option<u64> {
        self.tools.as_ref().map(|tools| tools.log().count())
    }

    fn has_active_calls(&self) -> bool {
        self.tools.as_ref().is_some_and(ToolRun::has_active_calls)
    }

    fn suspend(&self) {
        if let Some(tools) = &self.tools {
            tools.suspend();
        }
    }
}

/// Asks the client of a run, whichever call that is then.
struct RunApprover {
    run: Arc<Run>,
    client: CellClient,
}

#[async_trait]
impl Approver for RunApprover {
    async fn approve(&self, request: ApprovalRequest) -> Result<Approval, String> {
        self.answer(request).await.map(|(approval, _)| approval)
    }

    async fn answer(&self, request: ApprovalRequest) -> Result<(Approval, Party), String> {
        // A panel of the client can ask, and operators can answer, in place of a client that cannot.
        if !self.client.can_ask() && !self.client.shows_panel() && !self.run.has_operators() {
            return Err(CANNOT_ASK.into());
        }
        let (answer, by) = self.run.ask(request.call, request.question(), false).await;
        let approval = match answer {
            RunAnswer::Text(line) => Approval::from_answer(&line),
            RunAnswer::Declined => Approval::Denied,
        };
        Ok((approval, by))
    }
}

/// The journal of a run's calls.
struct Journal(Arc<Run>);

impl CallJournal for Journal {
    fn before_sending(&self, call: u64, is_repeatable: bool, record: &dyn Fn()) -> io::Result<()> {
        self.0.before_sending(call, is_repeatable, record)
    }
}

/// Continues the calls of runs whose interpreter was on the disk.
pub(super) struct Resumer {
    pub(super) tools: Option<ClientTools>,
    pub(super) live: LiveRuns,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) activity: Activity,
}

impl RunResumer for Resumer {
    fn resume(&self, run: &Arc<Run>, calls: &Value, sent: &[(u64, bool)]) -> Result<ResumedCalls, String> {
        let _runtime = self.runtime.enter();
        let client = self.live.get(run).map_or_else(CellClient::absent, |live| live.client);
        client.set_run(run.clone(), Some(self.live.inputs.clone()));
        let saved: Option<SavedRun> = serde_json::from_value(calls.clone()).map_err(|error| error.to_string())?;
        let mut saved = saved.unwrap_or_default();
        sent.iter().for_each(|(call, is_repeatable)| saved.set_sent(*call, *is_repeatable));
        let operations = saved.take_operations();
        let (calls, observer) = calls_of(run, &client, self.tools.as_ref(), saved, &run.resumed_scope(&self.activity));
        let end = self.live.get(run).map(|live| live.end).unwrap_or_default();
        self.live.insert(run, LiveRun { client, calls: calls.clone(), end });
        let tools = calls.tools.clone();
        let start = Box::new(move |replies: &belljar_core::ReplySender| {
            if let Some(tools) = tools {
                tools.resume(operations, replies);
            }
        });
        Ok(ResumedCalls { observer, calls, start })
    }
}

/// Returns the calls of a run, and the observer that handles them.
pub(super) fn calls_of(
    run: &Arc<Run>,
    client: &CellClient,
    tools: Option<&ClientTools>,
    saved: SavedRun,
    scope: &Scope,
) -> (Arc<ServerCalls>, Arc<dyn CellObserver>) {
    let Some(tools) = tools else { return (Arc::new(ServerCalls { tools: None }), client.observer()) };
    let approver = Arc::new(RunApprover { run: run.clone(), client: client.clone() });
    let (tool_run, observer) =
        tools.for_durable_run(client.observer(), approver, Arc::new(Journal(run.clone())), saved, scope.clone());
    (Arc::new(ServerCalls { tools: Some(tool_run) }), observer)
}
