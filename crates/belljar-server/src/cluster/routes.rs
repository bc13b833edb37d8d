//! The requests of replicas to each other, and whether this one is ready.

use std::sync::Arc;

use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::http::request::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, body};
use belljar_sessions::{Cluster, Node, SessionId, Sessions};
use tokio_util::sync::CancellationToken;

use super::replica_client::{ForwardError, ReplicaClient};
use super::signature::ForwardedRequest;

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
    forwarded: Option<Extension<ForwardedRequest>>,
    Path(session): Path<String>,
) -> Response {
    if forwarded.is_none() {
        return StatusCode::NOT_FOUND.into_response();
    }
    let Some(session) = SessionId::parse(&session) else { return StatusCode::BAD_REQUEST.into_response() };
    match sessions.hand_over(&session).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => (StatusCode::CONFLICT, error.to_string()).into_response(),
    }
}

/// The facts that decide whether this server accepts requests.
#[derive(Clone)]
struct Readiness {
    cluster: Option<Arc<Cluster>>,
    /// Cancelled when the server begins to end.
    stopping: CancellationToken,
}

impl Readiness {
    /// Returns the reason why this server accepts no requests, or `None` if it accepts them.
    fn refusal(&self) -> Option<String> {
        match &self.cluster {
            _ if self.stopping.is_cancelled() => Some("the server is ending".to_owned()),
            Some(cluster) => cluster.refusal(),
            None => None,
        }
    }
}

/// Returns the route that says whether this server accepts requests: it is not ending, and has its lease in a cluster.
pub(crate) fn readiness(cluster: Option<Arc<Cluster>>, stopping: CancellationToken) -> Router {
    let ready = get(|State(readiness): State<Readiness>| async move {
        match readiness.refusal() {
            None => "ready\n".into_response(),
            Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
        }
    });
    Router::new().route("/readyz", ready).with_state(Readiness { cluster, stopping })
}

impl ReplicaClient {
    /// Asks a replica to give a session up.
    pub(super) async fn take_over(&self, node: &Node, session: &SessionId) -> Result<(), ForwardError> {
        let request = Request::post(format!("{HAND_OVER}{}", session.as_str())).body(());
        let (parts, ()) = request.map_err(|error| ForwardError::Invalid(error.to_string()))?.into_parts();
        let answer = self.forward(node, &parts, Default::default()).await?;
        if answer.status().is_success() {
            return Ok(());
        }
        let reason = body::to_bytes(answer.into_body(), 4096).await.unwrap_or_default();
        Err(ForwardError::Invalid(String::from_utf8_lossy(&reason).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belljar_sessions::{ClusterOptions, Durability};
    use tower_service::Service as _;

    use super::*;

    /// Asks the route, and returns the status and the text.
    async fn ask(routes: &Router) -> (u16, String) {
        let request = Request::get("/readyz").body(body::Body::empty()).unwrap();
        let answer = routes.clone().call(request).await.unwrap();
        let status = answer.status().as_u16();
        let text = body::to_bytes(answer.into_body(), 4096).await.unwrap();
        (status, String::from_utf8(text.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn replica_without_its_lease_is_not_ready() {
        let cluster = Cluster::join(ClusterOptions {
            store: "memory:///tests".parse().unwrap(),
            coordinator: "store".parse().unwrap(),
            variables: Default::default(),
            address: "http://tests".to_owned(),
            durability: Durability::Store,
            session_timeout: Duration::from_secs(60),
            run_ttl: Duration::from_secs(60),
            max_wait: Duration::from_secs(60),
        });
        let cluster = Arc::new(cluster.unwrap());
        let routes = readiness(Some(cluster.clone()), CancellationToken::new());
        assert_eq!(ask(&routes).await, (200, "ready\n".to_owned()));
        cluster.leave().await;
        let (status, text) = ask(&routes).await;
        assert_eq!(status, 503, "{text}");
        assert!(text.contains("lease"), "{text}");
    }

    #[tokio::test]
    async fn ending_server_is_not_ready() {
        let stopping = CancellationToken::new();
        let routes = readiness(None, stopping.clone());
        assert_eq!(ask(&routes).await, (200, "ready\n".to_owned()));
        stopping.cancel();
        assert_eq!(ask(&routes).await, (503, "the server is ending\n".to_owned()));
    }
}
