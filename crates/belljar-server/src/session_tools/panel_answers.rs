//! Decisions of users in panels of MCP Apps, about calls that a paused run waits for.
//!
//! ```text
//!  attend ─▶ paused: the questions, each with its token, in the _meta of the result ─▶ client ─▶ panel
//!  answer_question ◀─ tools/call with the token ◀─ client ◀─ the user presses Approve or Deny
//! ```
//!
//! The server cannot see who has made a request. Two things keep the model, and code that it runs, from approving its
//! own calls: clients do not let models call tools with `visibility: ["app"]`, and a token is in the `_meta` of results
//! for panels only, which clients do not show models. It is an HMAC of the run and the question with a key of the data
//! directory, so that each replica, and a server that was restarted, accepts it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_core::Party;
use belljar_sessions::{Run, RunAnswer, RunUpdate, StoreError};
use rmcp::RoleServer;
use rmcp::model::Tool;
use rmcp::service::RequestContext;
use serde_json::json;
use subtle::ConstantTimeEq;

use super::answer::object;
use super::runs::{finished, unknown_run};
use super::{SessionTools, ToolAnswer, tools};
use crate::apps::{self, PanelQuestion, PanelQuestions};
use crate::arguments::AnswerQuestion;
use crate::metrics::CallStatus;

/// The time after which an answer is confirmed although the run has no result yet.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);

impl SessionTools {
    /// Returns the tool of panels, if runs can wait for the answers of users.
    pub(crate) fn panel_tool(&self) -> Option<Tool> {
        self.sessions.are_durable().then(tools::panel_tool)
    }

    /// Returns the answer of a run that waits for an answer which its client cannot give. A panel can, if the client
    /// shows one.
    pub(super) fn paused(&self, run: &Arc<Run>, context: &RequestContext<RoleServer>) -> ToolAnswer {
        let mut fields = self.paused_fields(run);
        let questions = if apps::shows_panels(context) { self.panel_questions(run) } else { Vec::new() };
        let mut hint = fields["hint"].as_str().unwrap_or_default().to_owned();
        if !questions.is_empty() {
            let id = run.info.id.as_str();
            hint = format!(
                "The run waits for the user, who can decide in the panel of this result. Call resume_run with run_id \
                 {id} afterwards"
            );
            fields["hint"] = hint.clone().into();
        }
        let result = object(fields, Vec::new());
        let result = match questions.is_empty() {
            true => result,
            false => apps::attach(result, &PanelQuestions::new(run.info.id.as_str(), questions, hint)),
        };
        ToolAnswer { response: result.into(), status: CallStatus::InputRequired }
    }

    /// Returns the open questions of a run about calls of tools, with their tokens.
    fn panel_questions(&self, run: &Run) -> Vec<PanelQuestion> {
        let asked = run.visible_questions().into_iter().filter(|question| !Run::is_input(question.call));
        let with_token = asked.map(|question| {
            let token = self.question_token(run, question.call)?;
            Ok(PanelQuestion { number: question.call, message: question.message, token })
        });
        with_token.collect::<Result<_, StoreError>>().unwrap_or_else(|error| {
            tracing::error!(%error, "no panel can answer the questions of a run");
            Vec::new()
        })
    }

    /// Returns the token that an answer from a panel needs.
    fn question_token(&self, run: &Run, question: u64) -> Result<String, StoreError> {
        let key = self.sessions.derive_key(&format!("question {question} of {}", run.info.id.as_str()))?;
        Ok(URL_SAFE_NO_PAD.encode(key))
    }

    /// Answers a question of a run, and waits for what comes next: its result, or its next question.
    pub(super) async fn answer_question(
        &self,
        AnswerQuestion { run_id, question, token, decision }: AnswerQuestion,
        context: &RequestContext<RoleServer>,
    ) -> ToolAnswer {
        let refused = |text: &str| ToolAnswer::from_text(Err(text.to_owned()));
        let Some(run) = self.sessions.find_run(&run_id) else { return unknown_run() };
        let expected = match self.question_token(&run, question) {
            Ok(expected) => expected,
            Err(error) => return refused(&error.to_string()),
        };
        if Run::is_input(question) || !bool::from(expected.as_bytes().ct_eq(token.as_bytes())) {
            tracing::warn!("an answer to a question was refused: its token is wrong");
            return refused("token: it is not that of the question. Only the user can answer, in the panel");
        }
        let answer = decision.line().map_or(RunAnswer::Declined, |line| RunAnswer::Text(line.to_owned()));
        if run.answer(question, answer, Party::Client).is_err() {
            return refused("the run does not wait for this answer any more");
        }
        // The panel may be closed at any time: the run goes on, and keeps its result for `resume_run`.
        match tokio::time::timeout(CONFIRM_TIMEOUT, run.next_update()).await {
            Ok(RunUpdate::Completed(result)) => finished(apps::for_client(&result, context), CallStatus::Success),
            Ok(RunUpdate::Question(_)) => self.paused(&run, context),
            Err(_) => {
                let fields = json!({ "run_id": run_id, "status": "running", "success": true });
                ToolAnswer { response: object(fields, Vec::new()).into(), status: CallStatus::Success }
            }
        }
    }
}
