//! MCP sessions of streamable HTTP in a cluster. An MCP session lives in the replica that opened it, with its streams.
//! Its ID, as clients see it, begins with the ID of that replica: `NODE.SESSION`.

use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::replica_client::{ForwardError, ReplicaClient};
use super::routes::is_of_replicas;
use super::signature::ForwardedRequest;
use crate::arrival::SessionTurn;
use crate::http::SESSION_ID_HEADER;

/// Passes the requests of MCP sessions on to the replicas that have them. If such a replica is gone, so is the MCP
/// session, and the client opens another one. This is the outermost layer of what may pass a request on.
pub(crate) async fn affinity(
    State(replica_client): State<ReplicaClient>,
    mut request: Request,
    next: Next,
) -> Response {
    let was_forwarded = request.extensions().get::<ForwardedRequest>().is_some();
    if !was_forwarded && is_of_replicas(request.uri().path()) {
        // Passed on, it would be signed as a request of this replica.
        return StatusCode::NOT_FOUND.into_response();
    }
    if let Some(session) = request.headers().get(SESSION_ID_HEADER).and_then(|value| value.to_str().ok()) {
        let not_found = || (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
        let Some((node, own)) = session.split_once('.') else { return not_found() };
        if node != replica_client.cluster.node() {
            if was_forwarded {
                return not_found();
            }
            let Some(node) = replica_client.cluster.find_node(node).await else { return not_found() };
            let (mut parts, body) = request.into_parts();
            // The other replica has turns of its own.
            parts.extensions.remove::<SessionTurn>();
            let body = match parts.method {
                // It was read, and its size checked.
                Method::POST => to_bytes(body, usize::MAX).await.unwrap_or_default(),
                _ => Bytes::new(),
            };
            return match replica_client.forward(&node, &parts, body).await {
                Ok(response) => response,
                // Nothing was sent, and its lease has run out: the client has to open another session.
                Err(ForwardError::NotSent(_)) if replica_client.cluster.find_node(&node.id).await.is_none() => {
                    not_found()
                }
                Err(error) => error.into_response(),
            };
        }
        let Ok(own) = HeaderValue::try_from(own) else { return not_found() };
        request.headers_mut().insert(SESSION_ID_HEADER, own);
    }
    let mut response = next.run(request).await;
    let opened = response.headers().get(SESSION_ID_HEADER).and_then(|value| value.to_str().ok());
    if let Some(Ok(named)) =
        opened.map(|session| HeaderValue::try_from(format!("{}.{session}", replica_client.cluster.node())))
    {
        response.headers_mut().insert(SESSION_ID_HEADER, named);
    }
    response
}
