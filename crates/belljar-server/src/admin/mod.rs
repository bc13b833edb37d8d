//! The admin API on `/admin/api/v1`, and the console on `/console`: operators see all sessions, and act in place of
//! their clients.
//!
//! ```text
//!  browser ── /console (files without data) ─┐
//!  belljar admin ────────────────────────────┼─▶ guard: operator's token ─▶ operations ─▶ Sessions, History
//!  other programs ── /admin/api/v1 ──────────┘                                 └─▶ openapi.json, from the same table
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `operations` | the table of operations, from which the routes and the OpenAPI document are made |
//! | `openapi` | the OpenAPI document |
//! | `views` | the JSON of sessions and cells |
//! | `sessions` | listing sessions, and operations on them |
//! | `cells` | cells: listing and running them, answering their questions |
//! | `files`, `variables` | the files and variables of a session |
//! | `events` | streams of events |
//! | `frames` | HTML of code, for a frame of the console |
//! | `error` | errors |
//!
//! Sessions are named by their handles: an ID is a secret that gives access to its session.

mod cells;
mod error;
mod events;
mod files;
mod frames;
mod openapi;
mod operations;
mod sessions;
mod variables;
mod views;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use belljar_audit::{Details, Event, Identifier, owner_name};
use belljar_core::Activity;
use belljar_sessions::{Place, SessionActivity, SessionHandle, SessionId, SessionOverview, Sessions};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::console;
use crate::guard::Principal;
use crate::handler::Server;
use crate::session_tools::{OPERATOR_PROTOCOL, SessionTools};
use error::AdminError;
use frames::Frames;

/// The path below which the operations of the API are.
pub(crate) const API_PATH: &str = "/admin/api/v1";
/// The maximum number of open streams of events.
const MAX_STREAMS: usize = 200;

/// The state of the API.
#[derive(Clone)]
pub(crate) struct Admin {
    server: Server,
    tools: SessionTools,
    frames: Arc<Frames>,
    streams: Arc<Semaphore>,
    /// Cancelled when streams end.
    ending: CancellationToken,
}

/// Returns the routes of the API and of the console, if the server has sessions. Streams end with `ending`.
pub(crate) fn routes(server: &Server, ending: CancellationToken) -> Option<Router> {
    let tools = server.session_tools.clone()?;
    tools.sessions.record_history();
    let streams = Arc::new(Semaphore::new(MAX_STREAMS));
    let admin = Admin { server: server.clone(), tools, frames: Arc::default(), streams, ending };
    let mut api = Router::new();
    for operation in operations::all() {
        let mut handler = (operation.handler)();
        if operation.is_recorded() {
            let activity = server.runner.activity().clone();
            let recorder = OperationRecorder { activity, sessions: admin.sessions().clone(), id: operation.id };
            handler = handler.layer(middleware::from_fn_with_state(recorder, record_operation));
        }
        api = api.route(&format!("{API_PATH}{}", operation.path), handler);
    }
    let frames = Router::new().route("/console/frame/{ticket}", get(frames::show));
    Some(api.merge(frames).with_state(admin).layer(middleware::from_fn(forbid_storing)).merge(console::routes()))
}

/// Keeps caches from storing answers, which contain what code has written.
async fn forbid_storing(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Writes an operation into the audit log.
#[derive(Clone)]
struct OperationRecorder {
    activity: Activity,
    sessions: Sessions,
    id: &'static str,
}

impl OperationRecorder {
    /// Returns the digest of the session that the path of a request names, if it exists.
    fn session(&self, parameters: &RawPathParams) -> Option<Identifier> {
        let (_, handle) = parameters.iter().find(|(name, _)| *name == "handle")?;
        let found = self.sessions.overview_of(&SessionHandle::parse(handle)?)?;
        Some(Identifier::for_secret(found.id.as_str()))
    }
}

async fn record_operation(
    State(recorder): State<OperationRecorder>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let line = format!("{} {}", request.method(), request.uri());
    let operator: Option<Arc<str>> =
        request.extensions().get::<Principal>().map(|Principal(operator)| owner_name(operator).into());
    // Found before the operation, which may end the session.
    let session = parameters.ok().filter(|_| recorder.activity.is_on()).and_then(|found| recorder.session(&found));
    let begin = Instant::now();
    let response = next.run(request).await;
    recorder.activity.record(Event::OperatorAction, || Details {
        protocol: Some(OPERATOR_PROTOCOL),
        owner: operator,
        session,
        name: Some(recorder.id.into()),
        arguments: Some(line),
        outcome: Some(response.status().as_str().to_owned().into()),
        by: Some("operator"),
        duration: Some(begin.elapsed()),
        ..Details::default()
    });
    response
}

impl Admin {
    fn sessions(&self) -> &Sessions {
        &self.tools.sessions
    }

    /// Finds a session by its handle, also one that has ended.
    fn find(&self, handle: &str) -> Result<SessionOverview, AdminError> {
        let parsed = SessionHandle::parse(handle).ok_or_else(AdminError::unknown_session)?;
        self.sessions().overview_of(&parsed).ok_or_else(AdminError::unknown_session)
    }

    /// Finds a session whose files can be read now: reading waits for the call that runs.
    async fn open_idle(&self, handle: &str) -> Result<(SessionTools, SessionId), AdminError> {
        let found = self.find(handle)?;
        match found.activity {
            _ if found.is_feeds => self.open(handle).await,
            SessionActivity::Running | SessionActivity::Waiting => Err(AdminError::busy()),
            SessionActivity::Idle | SessionActivity::Asleep | SessionActivity::Away | SessionActivity::Completed => {
                self.open(handle).await
            }
        }
    }

    /// Finds a session that has not ended, and returns the tools for acting in place of its client. One that is in the
    /// cluster's store becomes active here.
    async fn open(&self, handle: &str) -> Result<(SessionTools, SessionId), AdminError> {
        let found = self.find(handle)?;
        match found.activity {
            SessionActivity::Completed => return Err(AdminError::ended()),
            _ if found.is_run => return Err(AdminError::runs_once()),
            _ if found.is_feeds => return Err(AdminError::runs_feeds()),
            SessionActivity::Away => match self.sessions().locate(&found.id).await? {
                Place::Here => {}
                Place::Elsewhere(_) => return Err(AdminError::elsewhere()),
                Place::Nowhere => return Err(AdminError::ended()),
            },
            SessionActivity::Running | SessionActivity::Waiting | SessionActivity::Idle | SessionActivity::Asleep => {}
        }
        Ok((self.tools.for_operator(found.owner), found.id))
    }
}
