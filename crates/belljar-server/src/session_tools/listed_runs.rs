//! The list of runs, and the fields of a run in it.

use std::sync::Arc;

use belljar_sessions::{Question, Run, RunCalls as _, RunInfo, RunOutcome, RunState, SessionId};
use belljar_tools::{CallLog, SavedRun};
use serde_json::{Value, json};

use super::answer::object;
use super::{SessionTools, ToolAnswer};
use crate::answer::MAX_CALL_LOG;
use crate::arguments::ListRuns;

/// The maximum length of the code in the list of runs, in characters.
const MAX_LISTED_CODE: usize = 200;

impl SessionTools {
    /// Returns the result of `list_runs`.
    pub(super) async fn list_runs(&self, ListRuns { session_id }: &ListRuns) -> ToolAnswer {
        let is_listed = |run: &Arc<Run>| match session_id {
            Some(session) => run.session.as_str() == session,
            None => self.may_list(&run.session, &run.info, run.has_owner()),
        };
        // The result of a task that its client has polled is of no use to the model.
        let runs = self.sessions.runs();
        let listed = runs.iter().filter(|run| is_listed(run) && !run.is_fetched());
        let mut runs: Vec<Value> = listed.map(|run| self.run_fields(run)).collect();
        let elsewhere = self.sessions.remote_runs().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to list the runs of other replicas");
            Vec::new()
        });
        let elsewhere = elsewhere.iter().filter(|run| match session_id {
            Some(session) => run.session.as_str() == session,
            None => self.may_list(&run.session, &run.info, run.owner.is_some()),
        });
        runs.extend(elsewhere.map(|run| {
            let mut fields = fields(&run.info, &run.session, run.state, &run.questions);
            add_progress(&mut fields, run.outcome, run.call_count);
            fields
        }));
        ToolAnswer::success(object(json!({ "runs": runs }), Vec::new()))
    }

    /// Returns the fields of a run that waits for an answer which its client cannot give.
    pub(super) fn paused_fields(&self, run: &Run) -> Value {
        let id = run.info.id.as_str();
        let mut fields = self.run_fields(run);
        fields["status"] = "paused".into();
        fields["hint"] = format!(
            "The run waits. Call resume_run with run_id {id} later, or let the user run: belljar runs show {id}"
        )
        .into();
        let log = self.log_of(run).map(|log| serde_json::to_value(log.within(MAX_CALL_LOG)).unwrap_or_default());
        if let (Some(fields), Some(Value::Object(log))) = (fields.as_object_mut(), log) {
            fields.extend(log);
        }
        fields
    }

    /// Returns the calls of a run that has not ended, if its code can make any.
    fn log_of(&self, run: &Run) -> Option<CallLog> {
        if let Some(tools) = &self.live.get(run)?.calls.tools {
            return Some(tools.log());
        }
        // The run waits on the disk since this server was started.
        let saved: Option<SavedRun> = serde_json::from_value(self.sessions.saved_calls(run)?).ok()?;
        saved.map(|saved| saved.log().clone())
    }

    /// Returns the entry of a run in the list.
    fn run_fields(&self, run: &Run) -> Value {
        let mut fields = fields(&run.info, &run.session, run.state(), &run.questions());
        let calls = self.live.get(run).and_then(|live| live.calls.count()).or_else(|| run.call_count());
        add_progress(&mut fields, run.outcome(), calls);
        if let Some(reason) = run.not_durable() {
            let note = format!("the run does not survive the end of the server while it holds its thread: {reason}");
            fields["note"] = note.into();
        }
        fields
    }

    /// Returns whether the client may list a run whose session it does not name.
    pub(super) fn may_list(&self, session: &SessionId, run: &RunInfo, has_owner: bool) -> bool {
        let seen = if run.is_program { &self.visible_programs } else { &self.visible_sessions };
        self.lists_all || has_owner || seen.lock().contains(session)
    }
}

/// Returns the fields that the entry of each run in the list has.
fn fields(run: &RunInfo, session: &SessionId, state: RunState, questions: &[Question]) -> Value {
    let status = match state {
        RunState::Pending => "pending",
        RunState::Running => "running",
        RunState::Waiting | RunState::Asleep => "waiting",
        RunState::Completed => "completed",
    };
    let code: String = run.code.chars().take(MAX_LISTED_CODE).collect();
    let question = |question: &Question| json!({ "question": question.call, "message": question.message });
    let pending: Vec<Value> = questions.iter().map(question).collect();
    let mut fields = json!({
        "run_id": run.id.as_str(),
        "session_id": session.as_str(),
        "status": status,
        "began": run.began,
        "code": code,
        "pending": pending,
    });
    if run.is_program
        && let Some(fields) = fields.as_object_mut()
    {
        // Its session is of no use to a client.
        fields.remove("session_id");
    }
    fields
}

/// Adds what a run has come to, as far as it is known, to its entry in the list.
fn add_progress(fields: &mut Value, outcome: Option<RunOutcome>, calls: Option<u64>) {
    if let Some(outcome) = outcome {
        fields["outcome"] = outcome.name().into();
    }
    if let Some(calls) = calls {
        fields["call_count"] = calls.into();
    }
}
