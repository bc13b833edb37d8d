//! otari's code-execution protocol, contract version 1: sessions that clients use with plain HTTP requests.
//!
//! ```text
//!  POST   /sessions               ─▶ a session, with a lifetime   (lifetime)
//!  POST   /sessions/ID/exec       ─▶ code, a command or an edit   (exec, text_editor)
//!  DELETE /sessions/ID            ─▶ the session ends
//!  GET    /sessions/ID/files/list ─▶ paths and sizes              (files)
//!  GET    /sessions/ID/files      ─▶ a file's bytes
//!  POST   /sessions/ID/files      ─▶ a file is written
//! ```
//!
//! The sessions are those of the session tools, with the same owners and limits. The protocol is that of
//! `docs/code-execution-protocol.md` in the repository mozilla-ai/otari.

mod error;
mod exec;
mod files;
mod lifetime;
mod result_block;
mod text_editor;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use belljar_sessions::{SessionId, Sessions};

use serde::Serialize;

use crate::guard::{current_owner, tenant_key};
use crate::handler::Server;
use crate::metrics::CallStatus;
use error::ApiError;
pub(crate) use error::describe_errors;
use lifetime::Lifetime;
use text_editor::UndoHistories;

/// The time that the end of a session waits for a call that is still running. The call is interrupted; a session whose
/// code does not stop ends later.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The server that answers the requests.
#[derive(Clone)]
struct CodeExecution {
    server: Server,
    /// The sessions of all clients.
    sessions: Sessions,
    histories: Arc<UndoHistories>,
}

/// Returns the routes of the protocol, if the server has sessions.
pub(crate) fn routes(server: &Server) -> Option<Router> {
    let sessions = server.session_tools.as_ref()?.sessions.clone();
    let state = CodeExecution { server: server.clone(), sessions, histories: Arc::default() };
    let routes = Router::new()
        .route("/sessions", post(create))
        .route("/sessions/{id}", delete(destroy))
        .route("/sessions/{id}/exec", post(exec::execute))
        .route("/sessions/{id}/files", get(files::read).post(files::write))
        .route("/sessions/{id}/files/list", get(files::list))
        .with_state(state);
    Some(routes)
}

impl CodeExecution {
    /// Returns the sessions as the client of the current request sees them.
    fn client_sessions(&self) -> Result<Sessions, ApiError> {
        let owner = current_owner().map_err(|error| ApiError::internal(&error))?;
        let tenant = self.server.runner.find_tenant(tenant_key(owner.as_ref()));
        Ok(self.sessions.for_owner(owner).for_tenant(tenant))
    }

    /// Finds a session of the client of the current request.
    fn find(&self, id: &str) -> Result<(Sessions, SessionId), ApiError> {
        let sessions = self.client_sessions()?;
        let id = sessions.find(id)?;
        Ok((sessions, id))
    }
}

/// The handle of a session.
#[derive(Debug, Serialize)]
struct SessionHandle {
    session_id: String,
    idle_timeout_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_lifetime_seconds: Option<u64>,
    created_at: f64,
    last_activity_at: f64,
}

/// Answers `POST /sessions`.
async fn create(State(state): State<CodeExecution>, body: Bytes) -> Result<impl IntoResponse, ApiError> {
    let sessions = state.client_sessions()?;
    let lifetime = Lifetime::parse(&body, sessions.options().timeout)?;
    let id = sessions.create().inspect_err(|error| {
        if let CallStatus::Refused(reason) = CallStatus::from(error) {
            state.server.refusals().count(reason);
        }
    })?;
    let now = lifetime::seconds_since_1970();
    let handle = SessionHandle {
        session_id: id.as_str().to_owned(),
        idle_timeout_seconds: lifetime.idle.as_secs(),
        max_lifetime_seconds: lifetime.max.map(|max| max.as_secs()),
        created_at: now,
        last_activity_at: now,
    };
    lifetime.watch(sessions, id);
    Ok((StatusCode::CREATED, axum::Json(handle)))
}

/// Answers `DELETE /sessions/ID`. A session that does not exist, for this client, has ended already.
async fn destroy(State(state): State<CodeExecution>, Path(id): Path<String>) -> Result<StatusCode, ApiError> {
    let Ok((sessions, id)) = state.find(&id) else { return Ok(StatusCode::NO_CONTENT) };
    state.histories.forget(&id);
    end_session(&sessions, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Interrupts what a session runs, and ends the session.
async fn end_session(sessions: &Sessions, id: &SessionId) -> Result<(), ApiError> {
    // Ignore errors: a session that has ended meanwhile runs nothing.
    let _ = sessions.interrupt(id);
    // From here on, no call finds the session.
    let cleared = sessions.clear(id);
    match tokio::time::timeout(END_TIMEOUT, cleared).await {
        Ok(Err(belljar_sessions::SessionError::Expired { .. })) | Err(_) => Ok(()),
        Ok(cleared) => Ok(cleared?),
    }
}
