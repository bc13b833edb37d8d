//! Requests that use a kernel session which is active in another replica.

use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use belljar_sessions::{Place, SessionId, Sessions};
use tokio::time::Instant;

use super::replica_client::{ForwardError, ReplicaClient};
use super::signature::ForwardedRequest;
use super::takeover::RequestSubject;
use crate::arrival::SessionTurn;
use crate::http::SESSION_ID_HEADER;
use crate::sse::MESSAGES as SSE_MESSAGES;

/// The time for which a request waits for a replica that does not accept connections, until its lease has run out.
const MAX_WAIT: Duration = Duration::from_secs(25);
/// The interval between two attempts to reach such a replica.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The kernel session that a request uses.
#[derive(Debug, Clone)]
pub(crate) struct UsedSession(pub(crate) SessionId);

/// The run that a request names.
#[derive(Debug, Clone)]
pub(crate) struct UsedRun(pub(crate) String);

/// The state of the middleware [`forward`].
#[derive(Clone)]
pub(crate) struct Forwarder {
    pub(crate) sessions: Sessions,
    pub(crate) replica_client: ReplicaClient,
}

/// Has a request handled by the replica that has its kernel session. A session that no replica has becomes active here.
pub(crate) async fn forward(State(forwarder): State<Forwarder>, request: Request, next: Next) -> Response {
    let used = match (request.extensions().get::<UsedSession>(), request.extensions().get::<UsedRun>()) {
        (Some(UsedSession(session)), _) => Some(RequestSubject::Session(session.clone())),
        (None, Some(UsedRun(run))) => Some(RequestSubject::Run(run.clone())),
        (None, None) => None,
    };
    let Some(used) = used else { return next.run(request).await };
    let was_forwarded = request.extensions().get::<ForwardedRequest>().is_some();
    // The streams of an MCP session are here, so that the kernel session has to come here, too.
    let takes_over =
        request.headers().contains_key(SESSION_ID_HEADER) || request.uri().path().starts_with(SSE_MESSAGES);
    let deadline = Instant::now() + MAX_WAIT;
    let (mut parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else { return StatusCode::BAD_REQUEST.into_response() };
    loop {
        let session = match &used {
            RequestSubject::Session(session) => session.clone(),
            // It may end while this waits: its result is here then.
            RequestSubject::Run(run) => match forwarder.sessions.session_of_run(run).await {
                Ok(Some(session)) => session,
                Ok(None) => return next.run(Request::from_parts(parts, body.into())).await,
                Err(error) => return unavailable(&error.to_string()),
            },
        };
        let node = match forwarder.sessions.locate(&session).await {
            // The handler reports a session that does not exist.
            Ok(Place::Here | Place::Nowhere) => return next.run(Request::from_parts(parts, body.into())).await,
            Ok(Place::Elsewhere(_)) if was_forwarded && !takes_over => {
                return unavailable("the session has moved meanwhile");
            }
            Ok(Place::Elsewhere(node)) => node,
            Err(error) => return unavailable(&error.to_string()),
        };
        if Instant::now() >= deadline {
            return unavailable("it is active in another server, which does not give it up");
        }
        let passed = if takes_over {
            forwarder.replica_client.take_over(&node, &session).await.map(|()| None)
        } else {
            // The other replica has turns of its own.
            parts.extensions.remove::<SessionTurn>();
            forwarder.replica_client.forward(&node, &parts, body.clone()).await.map(Some)
        };
        match passed {
            Ok(Some(response)) => return response,
            Ok(None) => {}
            // A call that runs may end soon, and the lease of a replica that has ended runs out: nothing of the request
            // itself was sent.
            Err(error) if takes_over => {
                tracing::debug!(%error, "another replica does not give a session up");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            // Its lease may still run: until it has run out, nothing can be done.
            Err(ForwardError::NotSent(_)) if Instant::now() + RETRY_INTERVAL < deadline => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(error @ ForwardError::NotSent(_)) => return unavailable(&error.to_string()),
            Err(error) => return error.into_response(),
        }
    }
}

fn unavailable(reason: &str) -> Response {
    let text = format!("the session cannot be reached: {reason}; try again later");
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], text).into_response()
}
