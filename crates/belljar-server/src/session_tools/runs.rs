//! Cells of persistent sessions as runs: a cell that waits outlasts the call, the client and the server.
//!
//! ```text
//!  execute_code ─▶ begin_run ──▶ task: the cell, its result ─▶ Sessions::complete_run
//!                      │                     │ questions
//!  resume_run ─────────┴──▶ attend ◀─────────┘  asks this call's client, until there is a result
//!  requestState ─▶ answer ─▶ attend
//! ```
//!
//! `tasks` has the same for clients that support tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belljar_core::Party;
use belljar_core::kernel::{CellRequest, InputError};
use belljar_sessions::{
    CellReport, NoSuchQuestion, Question, ResumedReport, Run, RunAnswer, RunCalls as _, RunOutcome, RunUpdate,
    SessionError, SessionId, StoredRuns,
};
use belljar_tools::{SavedRun, ToolRun};
use rmcp::model::{CallToolResult, InputResponses, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};

use super::answer::{ExecuteCodeResult, object};
use super::client_io::CellClient;
use super::live_runs::{LiveRun, Resumer, ServerCalls, calls_of};
use super::{Caller, SessionTools, ToolAnswer, is_modern, tasks};
use crate::apps;
use crate::arguments::{ArgumentError, ResumeRun};
use crate::arrival::in_turn;
use crate::elicitation::{can_ask, elicit};
use crate::handler::tool_error;
use crate::input_rounds::{CodeClient as _, input_required, parse_response, prompt_result, response};
use crate::metrics::CallStatus;
use crate::notifier::ClientNotifier;

/// The time after which a run whose client has gone is cancelled if it does not wait.
const SHORT_STEP: Duration = Duration::from_millis(300);
/// The interval at which a run is looked at that has ended, until its result is stored.
const RESULT_INTERVAL: Duration = Duration::from_millis(50);
/// The result of a run whose process ended while its code ran.
const LOST: &str = "the server ended while the code ran. The session continues from before it; its calls of tools may \
     have been done";

/// The result of code in an interpreter of its own that was lost in that way.
const LOST_PROGRAM: &str = "the server ended while the code ran. Its calls of tools may have been done";

impl SessionTools {
    /// Begins to continue the runs of the data directory. Must be called once, on the runtime that serves.
    pub(super) fn resume_stored_runs(&self) {
        let (tools, live) = (self.tools.clone(), self.live.clone());
        let runtime = tokio::runtime::Handle::current();
        self.sessions.set_run_resumer(Arc::new(Resumer { tools, live, runtime, activity: self.activity.clone() }));
        self.follow_stored(self.sessions.resume_stored_runs());
    }

    /// Completes runs that go on, or that were lost, without clients.
    pub(super) fn follow_stored(&self, StoredRuns { waiting, lost }: StoredRuns) {
        for run in lost {
            let lost = if run.info.is_program { LOST_PROGRAM } else { LOST };
            let error = SessionError::Kernel(belljar_core::kernel::KernelError::Failed(lost.into()));
            let result = match run.info.is_program {
                true => tool_error(error.to_string()),
                false => ExecuteCodeResult::from_error(&error).result(),
            };
            self.sessions.complete_run(&run, serde_json::to_value(result).unwrap_or_default(), RunOutcome::Error);
        }
        for (run, report) in waiting {
            self.follow(run, report);
        }
    }

    /// Completes a run without a client once it has a report.
    pub(super) fn follow(&self, run: Arc<Run>, report: ResumedReport) {
        let (client, calls) = (CellClient::absent(), Arc::new(ServerCalls { tools: None }));
        self.live.insert(&run, LiveRun::new(client, calls));
        self.complete_later(run, report, None);
    }

    /// Forks a session. If its cell waits, that of the new session waits, too.
    pub(super) async fn fork(&self, name: &str, caller: &Caller) -> Result<(SessionId, SessionId), SessionError> {
        enum Forked<F> {
            Waiting(SessionId),
            Later(F),
        }
        let queue = |id: &SessionId| match self.sessions.fork_run(id) {
            Ok(Some((new, run, report))) => {
                self.follow(run, report);
                Forked::Waiting(new)
            }
            Ok(None) => Forked::Later(self.sessions.fork(id)),
            Err(error) => {
                tracing::warn!(%error, "a session is forked after its waiting cell");
                Forked::Later(self.sessions.fork(id))
            }
        };
        let wait = |forked| async move {
            match forked {
                Forked::Waiting(new) => Ok(new),
                Forked::Later(fork) => fork.await,
            }
        };
        self.on_session(name, caller, |id| wait(queue(id))).await
    }

    /// Begins a run that no call waits for, as a task.
    pub(super) async fn begin_unattended(
        &self,
        cell: CellRequest,
        session: Option<String>,
        arguments: Option<JsonObject>,
        client: CellClient,
        caller: Caller,
    ) -> Result<Arc<Run>, SessionError> {
        let run = self.begin_run(cell, session, arguments, &client, caller, true).await?;
        client.detach();
        self.sessions.publish_run(&run).await;
        Ok(run)
    }

    /// Begins a run, which no call waits for if `is_task` is set.
    pub(super) async fn begin_run(
        &self,
        cell: CellRequest,
        session: Option<String>,
        arguments: Option<JsonObject>,
        client: &CellClient,
        caller: Caller,
        is_task: bool,
    ) -> Result<Arc<Run>, SessionError> {
        let is_new = session.is_none();
        let arguments = arguments.map_or(Value::Null, Value::Object);
        let queued = in_turn(caller.turn.clone(), || -> Result<_, SessionError> {
            let id = match session {
                Some(name) => self.find(&name)?,
                None => self.sessions.create()?,
            };
            let run = self.sessions.create_run(&id, &cell.code, arguments, is_new)?;
            cell.scope.set_session(id.as_str());
            cell.scope.set_run(run.info.id.as_str());
            if is_task {
                run.detach();
            }
            client.set_run(run.clone(), (is_task || caller.modern).then(|| self.live.inputs.clone()));
            let cell = CellRequest { tools: self.tools.is_some(), ..cell };
            let (calls, observer) = calls_of(&run, client, self.tools.as_ref(), SavedRun::default(), &cell.scope);
            self.live.insert(&run, LiveRun::new(client.clone(), calls.clone()));
            let report = self.sessions.execute_run(&run, cell, observer, calls);
            Ok((run, report))
        });
        let (run, report) = queued.await.inspect_err(|_| client.detach())?;
        self.visible_sessions.lock().insert(run.session.clone());
        self.complete_later(run.clone(), report, Some(caller));
        Ok(run)
    }

    /// Ends a run once its cell has a report.
    pub(super) fn complete_later(
        &self,
        run: Arc<Run>,
        report: impl Future<Output = Result<CellReport, SessionError>> + Send + 'static,
        caller: Option<Caller>,
    ) {
        let this = self.clone();
        tokio::spawn(async move {
            let report = report.await;
            // Boxed: a run may wait for days, and takes no memory for its end meanwhile.
            Box::pin(this.complete(&run, report, caller.as_ref())).await;
        });
    }

    /// Ends a run with the result of its cell.
    async fn complete(&self, run: &Run, report: Result<CellReport, SessionError>, caller: Option<&Caller>) {
        let live = self.live.get(run);
        let (result, status) = match report {
            report if run.info.is_program => {
                let log = live.as_ref().and_then(|live| live.calls.tools.as_ref()).map(ToolRun::log);
                self.program_answers.answer(report, live.as_ref().map(|live| &live.client), log)
            }
            Ok(report) => {
                if let Some(caller) = caller {
                    let changed: Vec<&str> = report.files.iter().map(|change| change.file.path.as_str()).collect();
                    self.notify(&run.session, report.list_changed, &changed, caller).await;
                }
                let status = CallStatus::from(&report.status);
                let calls = live.as_ref().and_then(|live| live.calls.tools.as_ref()).map(ToolRun::log);
                let connections = live.as_ref().map(|live| live.client.take_connections()).unwrap_or_default();
                let shows_panel = live.as_ref().is_some_and(|live| live.client.shows_panel());
                let is_new = run.info.is_new_session;
                (self.answer(&run.session, is_new, report, calls, connections, shows_panel), status)
            }
            Err(error) => {
                // Remove a new session that failed to start.
                if run.info.is_new_session && self.sessions.clear(&run.session).await.is_ok() {
                    self.visible_sessions.lock().remove(&run.session);
                }
                (ExecuteCodeResult::from_error(&error).result(), CallStatus::from(&error))
            }
        };
        let mut result = serde_json::to_value(result).unwrap_or_default();
        let outcome = RunOutcome::from_end(!matches!(status, CallStatus::Success));
        if let Some(live) = &live {
            if let Some(calls) = live.calls.count() {
                run.set_call_count(Some(calls));
            }
            let _ = live.end.status.set(status);
            live.client.detach();
        }
        {
            let _leaving = live.as_ref().map(|live| live.end.leaving.lock());
            if live.as_ref().is_some_and(LiveRun::is_cancelled) {
                tasks::mark_cancelled(&mut result);
            }
            self.sessions.complete_run(run, result, outcome);
        }
        self.live.runs.lock().remove(run.info.id.as_str());
        self.sessions.limit_results(run);
        if run.info.is_program {
            if !run.is_detached() {
                self.visible_programs.lock().remove(&run.session);
            }
            if let Err(error) = self.sessions.end_program(run).await {
                tracing::debug!(%error, "the session of a program has ended before");
            }
        }
    }

    /// Lets a run go on without its call. Returns false if it has ended.
    pub(super) fn leave(&self, run: &Run) -> bool {
        self.unless_ended(run, |live| {
            run.detach();
            live.client.detach();
        })
    }

    /// Interrupts the code of a run, whose task is cancelled from now on. Returns false if the run has ended.
    pub(super) fn cancel_task_of(&self, run: &Run) -> bool {
        let is_cancelled = self.unless_ended(run, |live| {
            run.detach();
            live.end.is_cancelled.store(true, Ordering::Relaxed);
        });
        if is_cancelled {
            run.cancel();
        }
        is_cancelled
    }

    /// Does something with a run that has not ended, and does not end meanwhile. Returns false if it has ended.
    fn unless_ended(&self, run: &Run, work: impl FnOnce(&LiveRun)) -> bool {
        let Some(live) = self.live.get(run) else { return false };
        let _leaving = live.end.leaving.lock();
        if run.result().is_some() {
            return false;
        }
        work(&live);
        true
    }

    /// Waits for the result of a run. Asks the client of this call what the run asks.
    pub(super) async fn attend(
        &self,
        run: &Arc<Run>,
        client: &CellClient,
        context: &RequestContext<RoleServer>,
    ) -> ToolAnswer {
        let end = self.live.get(run).map(|live| live.end);
        let mut leaving = Leaving { run, peer: &context.peer, is_ending: &self.live.is_ending, stays: false };
        let accepts_task = tasks::accepts_task(context);
        loop {
            let update = tokio::select! {
                biased;
                update = run.next_update() => Some(update),
                () = tasks::has_waited(run), if accepts_task => None,
            };
            if let Some(RunUpdate::Completed(result)) = &update {
                leaving.stays = true;
                let status = end.as_ref().and_then(|end| end.status.get().copied());
                let result = apps::for_client(result, context);
                return finished(result, status.unwrap_or(CallStatus::Success));
            }
            // Another client's question is not for a client that cannot be asked.
            if accepts_task && (update.is_none() || can_ask(context)) {
                if self.leave(run) {
                    leaving.stays = true;
                    self.sessions.publish_run(run).await;
                    return self.created_task(run, context);
                }
                // It has ended. In a cluster, its result may be on its way to the store.
                if run.result().is_none() {
                    tokio::time::sleep(RESULT_INTERVAL).await;
                }
                continue;
            }
            let Some(RunUpdate::Question(Question { call, message })) = update else { continue };
            if !can_ask(context) || is_modern(context) {
                leaving.stays = true;
                run.detach();
                client.detach();
                self.sessions.publish_run(run).await;
                if !can_ask(context) {
                    return self.paused(run, context);
                }
                return input_required(prompt_result(message, format!("{}.{call}", run.info.id.as_str())));
            }
            let reply = tokio::select! {
                reply = elicit(&context.peer, message) => reply,
                () = run.answered(call) => {
                    // An operator has answered. The client may have left: a transport reports that seconds later.
                    self.unless_ended(run, |_| run.detach());
                    continue;
                }
            };
            let answer = match reply {
                Ok(line) => RunAnswer::Text(line),
                Err(InputError::Declined) => RunAnswer::Declined,
                Err(error) => {
                    tracing::debug!(%error, "the client of a run did not answer");
                    leaving.stays = true;
                    run.detach();
                    client.detach();
                    self.sessions.publish_run(run).await;
                    return self.paused(run, context);
                }
            };
            // Another client may have answered in the meantime.
            let (Ok(()) | Err(NoSuchQuestion)) = run.answer(call, answer, Party::Client);
        }
    }

    /// Answers a question of a run, which the state of an earlier result names, and waits for the run.
    ///
    /// # Errors
    /// Fails if the run does not wait for this answer, or the arguments are not those of the first call.
    pub(crate) async fn answer_run(
        &self,
        state: &str,
        arguments: Option<&JsonObject>,
        responses: Option<&InputResponses>,
        notifier: ClientNotifier,
        context: &RequestContext<RoleServer>,
    ) -> Result<ToolAnswer, ArgumentError> {
        let (id, call) = state.split_once('.').ok_or(ArgumentError::NoWaitingCell)?;
        let call: u64 = call.parse().map_err(|_| ArgumentError::NoWaitingCell)?;
        let run = self.sessions.find_run(id).ok_or(ArgumentError::NoWaitingCell)?;
        // The question may be that of a `resume_run`, whose argument names the run.
        let named = arguments.and_then(|arguments| arguments.get("run_id")).and_then(Value::as_str);
        if run.info.arguments.as_object() != arguments && named != Some(id) {
            return Err(ArgumentError::OtherArguments);
        }
        if let Some(given) = response(responses) {
            let answer = answer_in(given);
            self.attach(&run, notifier);
            run.answer(call, answer, Party::Client).map_err(|NoSuchQuestion| ArgumentError::NoWaitingCell)?;
        } else {
            // The client may have restarted in between and lost the question.
            self.attach(&run, notifier);
        }
        let client = self.live.get(&run).map_or_else(CellClient::absent, |live| live.client);
        Ok(self.attend(&run, &client, context).await)
    }

    /// Makes a call the receiver of a run's notifications.
    fn attach(&self, run: &Run, notifier: ClientNotifier) {
        if let Some(live) = self.live.get(run) {
            live.client.attach(notifier);
        }
    }

    /// Waits for a run, as the call that began it would.
    pub(super) async fn resume_run(
        &self,
        ResumeRun { run_id }: ResumeRun,
        notifier: ClientNotifier,
        context: &RequestContext<RoleServer>,
    ) -> ToolAnswer {
        let Some(run) = self.sessions.find_run(&run_id) else { return unknown_run() };
        self.attach(&run, notifier);
        let client = self.live.get(&run).map_or_else(CellClient::absent, |live| live.client);
        self.attend(&run, &client, context).await
    }
}

/// Decides what becomes of a run whose call ends without its result.
struct Leaving<'a> {
    run: &'a Arc<Run>,
    peer: &'a Peer<RoleServer>,
    is_ending: &'a AtomicBool,
    /// Set once the run goes on without the call, or has ended.
    stays: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let (run, has_gone) = (self.run.clone(), self.peer.is_transport_closed());
        // A client that has gone may come back for a run that waits, and that of a server that ends, too.
        if run.state().is_waiting() && (has_gone || self.is_ending.load(Ordering::Relaxed)) {
            return run.detach();
        }
        // A client that cancels its call ends the run. If it has gone, the run may be in a short step just now.
        let runtime = tokio::runtime::Handle::try_current().ok().filter(|_| has_gone);
        let Some(runtime) = runtime else { return run.cancel() };
        runtime.spawn(async move {
            tokio::time::sleep(SHORT_STEP).await;
            if run.state().is_waiting() { run.detach() } else { run.cancel() }
        });
    }
}

/// Returns the answer in a client's response to a question. Any other content declines the question.
pub(super) fn answer_in(response: &Value) -> RunAnswer {
    match parse_response(response) {
        Ok(line) => RunAnswer::Text(line),
        Err(_) => RunAnswer::Declined,
    }
}

/// Returns the answer to a call that names no run.
pub(super) fn unknown_run() -> ToolAnswer {
    let text = "no run has this ID: it has ended and its result was delivered, or its time is over";
    let mut result = object(json!({ "success": false, "error": text }), Vec::new());
    result.is_error = Some(true);
    ToolAnswer { response: result.into(), status: CallStatus::Invalid }
}

/// Returns the answer with the result of a run.
pub(super) fn finished(result: Value, status: CallStatus) -> ToolAnswer {
    match serde_json::from_value::<CallToolResult>(result) {
        Ok(result) => ToolAnswer { response: result.into(), status },
        Err(error) => ToolAnswer::from_text(Err(format!("the result of the run cannot be read: {error}"))),
    }
}
