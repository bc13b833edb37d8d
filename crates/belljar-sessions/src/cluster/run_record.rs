//! The content of the record of a run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::SessionId;
use crate::runs::{Question, Run, RunId, RunInfo, RunOutcome};
use crate::store::StoredRun;

/// The maximum number of characters of code in a record.
const MAX_CODE: usize = 4_000;
/// The maximum number of questions in a record.
const MAX_QUESTIONS: usize = 32;
/// The maximum number of characters of a question in a record.
const MAX_QUESTION: usize = 2_000;

/// The record of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RunRecord {
    pub(super) session: String,
    /// The replica that has the run, or had it last.
    pub(super) node: String,
    pub(super) owner: Option<String>,
    code: String,
    began: u64,
    is_new_session: bool,
    is_program: bool,
    /// True if the code waits, as far as the record knows: it is not written when the code goes on.
    pub(super) is_waiting: bool,
    pub(super) questions: Vec<Question>,
    /// The end, if the run has ended without a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<RecordedEnd>,
}

/// The end of a run, whose result waits for a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordedEnd {
    /// The time, in milliseconds since 1970.
    pub(super) ended: u64,
    /// True once a client has polled the result.
    pub(super) is_fetched: bool,
    /// The outcome, unless an earlier build has written the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<RunOutcome>,
    /// The number of calls, if the code could make any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) call_count: Option<u64>,
    pub(super) result: RecordedResult,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedResult {
    /// In the record.
    Here(Value),
    /// In a content of the record with this name and size, in bytes.
    Content { name: String, size: usize },
}

impl RunRecord {
    fn new(node: &str, session: &SessionId, owner: Option<&str>, info: &RunInfo, questions: &[Question]) -> Self {
        let question = |question: &Question| {
            let message = question.message.chars().take(MAX_QUESTION).collect();
            Question { call: question.call, message }
        };
        Self {
            session: session.as_str().to_owned(),
            node: node.to_owned(),
            owner: owner.map(str::to_owned),
            code: info.code.chars().take(MAX_CODE).collect(),
            began: info.began,
            is_new_session: info.is_new_session,
            is_program: info.is_program,
            is_waiting: true,
            questions: questions.iter().take(MAX_QUESTIONS).map(question).collect(),
            end: None,
        }
    }

    /// Returns the record of a run that is saved, at the replica `node`.
    pub(super) fn from_saved(node: &str, session: &SessionId, owner: Option<&str>, run: &StoredRun) -> Self {
        Self::new(node, session, owner, &run.info, &run.questions)
    }

    /// Returns the record of a run as it is now, at the replica `node`.
    pub(super) fn from_run(node: &str, run: &Run) -> Self {
        let record = Self::new(node, &run.session, run.owner(), &run.info, &run.visible_questions());
        Self { is_waiting: run.state().is_waiting(), ..record }
    }

    /// Parses a record. Returns `None` for an empty one, which is being removed, and for one of another version.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Returns the facts about the run. The code may be its beginning only, and the arguments are missing.
    pub(super) fn info(&self, id: &RunId) -> RunInfo {
        let Self { code, began, is_new_session, is_program, .. } = self;
        RunInfo {
            id: id.clone(),
            code: code.clone(),
            arguments: Value::Null,
            began: *began,
            is_new_session: *is_new_session,
            is_program: *is_program,
        }
    }

    /// Returns whether a part of the record is in a content.
    pub(super) fn has_content(&self) -> bool {
        matches!(&self.end, Some(RecordedEnd { result: RecordedResult::Content { .. }, .. }))
    }
}
