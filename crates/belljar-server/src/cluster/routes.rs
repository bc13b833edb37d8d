//! The requests of replicas to each other, and whether this one is ready.

use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::http::request::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, body};
use belljar_sessions::{Node, SessionId, Sessions};

use super::pass::{PassError, Passer};
use super::signature::PassedOn;

/// The path at which a replica gives a session up.
const HAND_OVER: &str = "/cluster/hand-over/";

/// Returns whether a path is one for other replicas only.
pub(super) fn is_of_replicas(path: &str) -> bool {
    path.starts_with("/cluster/")
}

/// Returns the routes for other replicas.
pub(crate) fn routes(sessions: Sessions) -> Router {
    Router::new().route("/cluster/hand-over/{session}", post(hand_over)).with_state(sessions)
}

/// Puts a session to sleep once its calls have ended, so that another replica can have it.
async fn hand_over(
    State(sessions): State<Sessions>,
    passed_on: Option<Extension<PassedOn>>,
    Path(session): Path<String>,
) -> Response {
    if passed_on.is_none() {
        return StatusCode::NOT_FOUND.into_response();
    }
    let Some(session) = SessionId::parse(&session) else { return StatusCode::BAD_REQUEST.into_response() };
    match sessions.hand_over(&session).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => (StatusCode::CONFLICT, error.to_string()).into_response(),
    }
}

/// Returns the route that says whether this replica accepts sessions.
pub(crate) fn readiness(sessions: Sessions) -> Router {
    let ready = get(|State(sessions): State<Sessions>| async move {
        match sessions.readiness() {
            Ok(()) => "ready\n".into_response(),
            Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
        }
    });
    Router::new().route("/readyz", ready).with_state(sessions)
}

impl Passer {
    /// Asks a replica to give a session up.
    pub(super) async fn take_over(&self, node: &Node, session: &SessionId) -> Result<(), PassError> {
        let request = Request::post(format!("{HAND_OVER}{}", session.as_str())).body(());
        let (parts, ()) = request.map_err(|error| PassError::Invalid(error.to_string()))?.into_parts();
        let answer = self.pass(node, &parts, Default::default()).await?;
        if answer.status().is_success() {
            return Ok(());
        }
        let reason = body::to_bytes(answer.into_body(), 4096).await.unwrap_or_default();
        Err(PassError::Invalid(String::from_utf8_lossy(&reason).into_owned()))
    }
}
