//! Cells: listed, run, and answered.

use std::num::NonZeroU64;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use belljar_core::kernel::CellRequest;
use belljar_sessions::SessionHandle;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::error::AdminError;
use super::views::{CellView, QuestionView, question_view, stored_cell};
use crate::arguments::MAX_CODE;
use crate::decision::Decision;

/// The number of cells of a page, by default and at most.
const PAGE_SIZE: usize = 20;
const MAX_PAGE: usize = 100;
/// The maximum length of an answer to `input()`, in bytes.
const MAX_LINE: usize = 64 << 10;
/// The maximum number of open questions in a list.
const MAX_QUESTIONS: usize = 500;

/// The page of a list of cells.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CellsQuery {
    /// Only cells with smaller numbers.
    before: Option<u64>,
    limit: Option<usize>,
}

/// A page of the cells of a session.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CellList {
    /// The cells, the oldest first
    cells: Vec<CellView>,
    /// True if the session has older cells
    has_more: bool,
}

/// Answers `GET /sessions/{handle}/cells`.
pub(super) async fn list(
    State(admin): State<Admin>,
    Path(handle): Path<String>,
    query: Result<Query<CellsQuery>, QueryRejection>,
) -> Result<Json<CellList>, AdminError> {
    let Query(CellsQuery { before, limit }) = query?;
    let found = admin.find(&handle)?;
    let limit = limit.unwrap_or(PAGE_SIZE).clamp(1, MAX_PAGE);
    let limits = *admin.sessions().limits();
    let history = admin.sessions().history().and_then(|history| history.find(&found.id));
    let mut cells = history.map(|history| history.cells()).unwrap_or_default();
    if cells.is_empty() {
        // The cells of earlier servers are in the store.
        let sessions = admin.sessions().clone();
        let stored = tokio::task::spawn_blocking(move || sessions.stored_cells(&found.id)).await;
        let stored = stored.map_err(|error| AdminError::internal(&error))??;
        let numbered = (1..).zip(&stored).filter(|(number, _)| before.is_none_or(|before| *number < before));
        let numbered: Vec<(u64, &serde_json::Value)> = numbered.collect();
        let skipped = numbered.len().saturating_sub(limit);
        let cells = numbered.into_iter().skip(skipped).map(|(number, cell)| stored_cell(number, cell)).collect();
        return Ok(Json(CellList { cells, has_more: skipped > 0 }));
    }
    cells.retain(|cell| before.is_none_or(|before| cell.number < before));
    let skipped = cells.len().saturating_sub(limit);
    let cells = cells.iter().skip(skipped).map(|cell| CellView::new(cell, &limits)).collect();
    Ok(Json(CellList { cells, has_more: skipped > 0 }))
}

/// Answers `GET /sessions/{handle}/cells/{number}`.
pub(super) async fn show(
    State(admin): State<Admin>,
    Path((handle, number)): Path<(String, u64)>,
) -> Result<Json<CellView>, AdminError> {
    let found = admin.find(&handle)?;
    let history = admin.sessions().history().and_then(|history| history.find(&found.id));
    let cell = history.and_then(|history| history.cell(number)).ok_or_else(AdminError::unknown_cell)?;
    Ok(Json(CellView::new(&cell, admin.sessions().limits())))
}

/// A cell to run.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RunCell {
    /// The code, in IPython's Python
    code: String,
    /// The time after which the code is interrupted; the server's own limit holds as well
    timeout_seconds: Option<NonZeroU64>,
}

/// A cell that was submitted.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Submitted {
    /// The number of the cell
    cell: u64,
}

/// Answers `POST /sessions/{handle}/cells`: submits a cell. Its result is in `GET /sessions/{handle}/cells/{number}`.
pub(super) async fn run(
    State(admin): State<Admin>,
    Path(handle): Path<String>,
    body: Result<Json<RunCell>, JsonRejection>,
) -> Result<(StatusCode, Json<Submitted>), AdminError> {
    let Json(RunCell { code, timeout_seconds }) = body?;
    if code.is_empty() || code.len() > MAX_CODE {
        return Err(AdminError::malformed(format!("code: {} bytes are not 1 to {MAX_CODE}", code.len())));
    }
    let (tools, id) = admin.open(&handle).await?;
    let timeout = timeout_seconds.map(|seconds| Duration::from_secs(seconds.get()));
    let cell = tools.run_for_operator(&id, CellRequest { code, timeout, ..CellRequest::default() })?;
    Ok((StatusCode::ACCEPTED, Json(Submitted { cell })))
}

/// An answer to a question: one of the two fields.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Answer {
    /// The decision about a call of a tool
    decision: Option<Decision>,
    /// The line for `input()`
    line: Option<String>,
}

/// Answers `POST /sessions/{handle}/cells/{number}/questions/{question}`.
pub(super) async fn answer(
    State(admin): State<Admin>,
    Path((handle, number, question)): Path<(String, u64, u64)>,
    body: Result<Json<Answer>, JsonRejection>,
) -> Result<StatusCode, AdminError> {
    let Json(answer) = body?;
    let found = admin.find(&handle)?;
    let history = admin.sessions().history().and_then(|history| history.find(&found.id));
    let cell = history.and_then(|history| history.cell(number)).ok_or_else(AdminError::unknown_cell)?;
    let not_asked = || AdminError::new(StatusCode::CONFLICT, "the cell does not wait for this answer any more");
    let asked = cell.questions().into_iter().find(|asked| asked.number == question).ok_or_else(not_asked)?;
    let line = match (answer.decision, answer.line, asked.is_approval) {
        (Some(Decision::Deny), None, _) => None,
        (Some(decision), None, true) => decision.line().map(str::to_owned),
        (None, Some(line), false) if line.len() <= MAX_LINE && !line.contains(['\n', '\r']) => Some(line),
        (None, Some(_), false) => return Err(AdminError::malformed("line: it is too long, or more than one line")),
        (_, _, true) => return Err(AdminError::malformed("decision: the question is about a call of a tool")),
        (_, _, false) => return Err(AdminError::malformed("line: the question is one of input()")),
    };
    if cell.answer(question, line) { Ok(StatusCode::NO_CONTENT) } else { Err(not_asked()) }
}

/// An open question, and where it is asked.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct OpenQuestion {
    /// The session
    session: String,
    /// The number of the cell
    cell: u64,
    #[serde(flatten)]
    question: QuestionView,
}

/// The open questions of all sessions, or of one.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Questions {
    /// The questions, at most 500
    questions: Vec<OpenQuestion>,
    /// True if more questions are open
    has_more: bool,
}

impl Questions {
    /// Lists the first of all open questions.
    fn first(all: impl IntoIterator<Item = OpenQuestion>) -> Self {
        let mut all = all.into_iter();
        let questions = all.by_ref().take(MAX_QUESTIONS).collect();
        Self { questions, has_more: all.next().is_some() }
    }
}

/// The questions that a list has.
#[derive(Debug, Default, Deserialize)]
pub(super) struct QuestionsQuery {
    /// Only those of the session with this handle.
    session: Option<String>,
}

/// Answers `GET /questions`.
pub(super) async fn questions(
    State(admin): State<Admin>,
    query: Result<Query<QuestionsQuery>, QueryRejection>,
) -> Result<Json<Questions>, AdminError> {
    let Query(QuestionsQuery { session }) = query?;
    let mut asking = admin.sessions().history().map(|history| history.asking()).unwrap_or_default();
    if let Some(handle) = &session {
        asking.retain(|asking| asking.handle().as_str() == handle);
    }
    let open = asking.iter().flat_map(|session| {
        let handle: &SessionHandle = session.handle();
        session.cells().into_iter().filter(|cell| !cell.has_ended()).flat_map(move |cell| {
            cell.questions().into_iter().map(move |question| OpenQuestion {
                session: handle.as_str().to_owned(),
                cell: cell.number,
                question: question_view(question),
            })
        })
    });
    Ok(Json(Questions::first(open)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_questions_shows_that_there_are_more() {
        let questions = std::iter::repeat_with(|| OpenQuestion {
            session: "8c1f0a52b7d3e964".to_owned(),
            cell: 1,
            question: QuestionView { number: 1, kind: "approval", message: "Allow it?".to_owned() },
        });
        let whole = Questions::first(questions.take(MAX_QUESTIONS));
        assert_eq!((whole.questions.len(), whole.has_more), (MAX_QUESTIONS, false));
        let page = Questions::first(questions.take(MAX_QUESTIONS + 1));
        assert_eq!((page.questions.len(), page.has_more), (MAX_QUESTIONS, true));
    }
}
