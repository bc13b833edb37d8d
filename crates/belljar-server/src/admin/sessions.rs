//! Sessions: listed, filtered and paged, and operations on them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use belljar_sessions::{SessionActivity, SessionHandle, SessionOverview};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::error::AdminError;
use super::views::{SessionView, owner_name};
use crate::description::SandboxKind;

/// The number of sessions of a page, by default and at most.
const PAGE_SIZE: usize = 100;
const MAX_PAGE: usize = 1000;
/// The time that the end of a session waits for a call that is still running.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The server's settings.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ServerView {
    /// The version of Belljar
    version: &'static str,
    /// The version of Python
    python: String,
    /// wasm, native or none
    sandbox: &'static str,
    /// True if sessions and waiting cells survive the server
    is_durable: bool,
    /// True if sessions can be forked
    can_fork: bool,
    /// True if code can call tools of MCP servers
    has_tools: bool,
    /// The time without use after which a session sleeps, in seconds
    sleep_after: u64,
    /// The time without use after which a session ends, in seconds
    session_timeout: u64,
    /// The maximum number of sessions
    max_sessions: usize,
}

/// Answers `GET /server`.
pub(super) async fn server(State(admin): State<Admin>) -> Json<ServerView> {
    let (options, sandbox) = (*admin.sessions().options(), &admin.server.options.sandbox);
    Json(ServerView {
        version: env!("CARGO_PKG_VERSION"),
        python: sandbox.python.clone(),
        sandbox: match sandbox.kind {
            SandboxKind::Wasm => "wasm",
            SandboxKind::Native => "native",
            SandboxKind::Unsandboxed => "none",
        },
        is_durable: admin.sessions().are_durable(),
        can_fork: admin.sessions().supports_fork(),
        has_tools: admin.server.options.tools.is_some(),
        sleep_after: options.sleep_after.as_secs(),
        session_timeout: options.timeout.as_secs(),
        max_sessions: options.max_sessions,
    })
}

/// The filters of a list of sessions.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ListQuery {
    /// Words that the handle, the owner or the code must all contain.
    #[serde(default)]
    q: String,
    /// States, separated by commas.
    #[serde(default)]
    state: String,
    /// Only sessions with open questions.
    #[serde(default)]
    asking: bool,
    #[serde(default)]
    sort: Sort,
    /// The number of matching sessions before the page.
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
}

/// An order of sessions; the first has the greatest value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    LastUsed,
    Created,
    Cells,
    Memory,
}

/// A page of a list of sessions.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SessionList {
    /// The sessions of the page
    sessions: Vec<SessionView>,
    /// The number of sessions that match the filter
    matching: usize,
    /// The number of all sessions
    total: usize,
    /// The number of all sessions in each state
    states: BTreeMap<&'static str, usize>,
    /// The number of all sessions with open questions
    asking: usize,
}

/// Answers `GET /sessions`.
pub(super) async fn list(
    State(admin): State<Admin>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<SessionList>, AdminError> {
    let Query(query) = query?;
    let listed = tokio::task::spawn_blocking(move || page(admin.sessions().overview(), &query)).await;
    Ok(Json(listed.map_err(|error| AdminError::internal(&error))??))
}

fn page(mut all: Vec<SessionOverview>, query: &ListQuery) -> Result<SessionList, AdminError> {
    let mut states: BTreeMap<&'static str, usize> =
        SessionActivity::ALL.into_iter().map(|state| (state.name(), 0)).collect();
    let mut asking = 0;
    for session in &all {
        *states.entry(session.activity.name()).or_default() += 1;
        asking += usize::from(session.questions > 0);
    }
    let total = all.len();
    let wanted: Vec<&str> = query.state.split(',').filter(|state| !state.is_empty()).collect();
    if let Some(unknown) = wanted.iter().find(|state| !states.contains_key(*state)) {
        let unknown: String = unknown.chars().take(40).collect();
        let known: Vec<&str> = SessionActivity::ALL.into_iter().map(SessionActivity::name).collect();
        let known = known.join(", ");
        return Err(AdminError::malformed(format!("state: `{unknown}` is not a state; the states are {known}")));
    }
    let words: Vec<String> = query.q.to_lowercase().split_whitespace().map(str::to_owned).collect();
    all.retain(|session| {
        (wanted.is_empty() || wanted.contains(&session.activity.name()))
            && (!query.asking || session.questions > 0)
            && words.iter().all(|word| matches(session, word))
    });
    // Sessions that ask come first: they wait for the reader.
    let key = |session: &SessionOverview| {
        let last_used = session.last_used.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let value = match query.sort {
            Sort::LastUsed => last_used,
            Sort::Created => session.created.unwrap_or_default(),
            Sort::Cells => session.cells,
            Sort::Memory => session.memory.unwrap_or_default(),
        };
        (session.questions > 0, value, session.handle.clone())
    };
    all.sort_by_cached_key(|session| std::cmp::Reverse(key(session)));
    let matching = all.len();
    let limit = query.limit.unwrap_or(PAGE_SIZE).min(MAX_PAGE);
    let sessions = all.into_iter().skip(query.offset).take(limit).map(SessionView::new).collect();
    Ok(SessionList { sessions, matching, total, states, asking })
}

fn matches(session: &SessionOverview, word: &str) -> bool {
    session.handle.as_str().contains(word)
        || session.last_code.to_lowercase().contains(word)
        || session.owner.as_deref().is_some_and(|owner| owner_name(owner).to_lowercase().contains(word))
}

/// Answers `GET /sessions/{handle}`.
pub(super) async fn show(
    State(admin): State<Admin>,
    Path(handle): Path<String>,
) -> Result<Json<SessionView>, AdminError> {
    admin.find(&handle).map(|found| Json(SessionView::new(found)))
}

/// A session that was created.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Created {
    /// The name of the session for operators
    handle: String,
}

/// Answers `POST /sessions`: creates a session for operators, whose ID no client has.
pub(super) async fn create(State(admin): State<Admin>) -> Result<(StatusCode, Json<Created>), AdminError> {
    let id = admin.sessions().for_operator(None).create()?;
    Ok((StatusCode::CREATED, Json(Created { handle: SessionHandle::from_id(&id).as_str().to_owned() })))
}

/// The result of an operation that may have had nothing to do.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Done {
    /// False if there was nothing to do: no code ran, or the session cannot sleep now, or this server does not have it
    done: bool,
}

/// Answers `POST /sessions/{handle}/interrupt`.
pub(super) async fn interrupt(
    State(admin): State<Admin>,
    Path(handle): Path<String>,
) -> Result<Json<Done>, AdminError> {
    let found = admin.find(&handle)?;
    if found.is_run || found.is_feeds {
        let run = admin.sessions().history().and_then(|history| history.find(&found.id));
        return Ok(Json(Done { done: run.is_some_and(|run| run.stop()) }));
    }
    let (tools, id) = admin.open(&handle).await?;
    Ok(Json(Done { done: tools.sessions.interrupt(&id)? }))
}

/// Answers `POST /sessions/{handle}/restart`.
pub(super) async fn restart(State(admin): State<Admin>, Path(handle): Path<String>) -> Result<StatusCode, AdminError> {
    let (tools, id) = admin.open(&handle).await?;
    tools.sessions.restart(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers `POST /sessions/{handle}/fork`.
pub(super) async fn fork(
    State(admin): State<Admin>,
    Path(handle): Path<String>,
) -> Result<(StatusCode, Json<Created>), AdminError> {
    let (tools, id) = admin.open(&handle).await?;
    let forked = tools.fork_for_operator(&id).await?;
    Ok((StatusCode::CREATED, Json(Created { handle: SessionHandle::from_id(&forked).as_str().to_owned() })))
}

/// Answers `POST /sessions/{handle}/sleep`.
pub(super) async fn sleep(State(admin): State<Admin>, Path(handle): Path<String>) -> Result<Json<Done>, AdminError> {
    if admin.find(&handle)?.activity == SessionActivity::Away {
        return Ok(Json(Done { done: false }));
    }
    let (tools, id) = admin.open(&handle).await?;
    Ok(Json(Done { done: tools.sessions.sleep(&id).await? }))
}

/// Answers `DELETE /sessions/{handle}`: interrupts what the session runs, and ends it.
pub(super) async fn end(State(admin): State<Admin>, Path(handle): Path<String>) -> Result<StatusCode, AdminError> {
    let (tools, id) = admin.open(&handle).await?;
    // Ignore errors: a session that has ended meanwhile runs nothing.
    let _ = tools.sessions.interrupt(&id);
    match tokio::time::timeout(END_TIMEOUT, tools.sessions.clear(&id)).await {
        Ok(cleared) => cleared?,
        // Its code does not stop. No call finds the session any more, and it ends with its code.
        Err(_) => return Ok(StatusCode::ACCEPTED),
    }
    Ok(StatusCode::NO_CONTENT)
}
