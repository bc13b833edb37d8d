//! MCP sessions of streamable HTTP in a cluster. An MCP session lives in the replica that opened it, with its streams.
//! Its ID, as clients see it, begins with the ID of that replica: `NODE.SESSION`.

use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::pass::{PassError, Passer};
use super::routes::is_of_replicas;
use super::signature::PassedOn;
use crate::arrival::SessionTurn;
use crate::http::SESSION_ID_HEADER;

/// Passes the requests of MCP sessions on to the replicas that have them. If such a replica is gone, so is the MCP
/// session, and the client opens another one. This is the outermost layer of what may pass a request on.
pub(crate) async fn affinity(State(passer): State<Passer>, mut request: Request, next: Next) -> Response {
    let was_passed_on = request.extensions().get::<PassedOn>().is_some();
    if !was_passed_on && is_of_replicas(request.uri().path()) {
        // Passed on, it would be signed as a request of this replica.
        return StatusCode::NOT_FOUND.into_response();
    }
    if let Some(session) = request.headers().get(SESSION_ID_HEADER).and_then(|value| value.to_str().ok()) {
        let not_found = || (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
        let Some((node, own)) = session.split_once('.') else { return not_found() };
        if node != passer.cluster.node() {
            if was_passed_on {
                return not_found();
            }
            let Some(node) = passer.cluster.find_node(node).await else { return not_found() };
            let (mut parts, body) = request.into_parts();
            // The other replica has turns of its own.
            parts.extensions.remove::<SessionTurn>();
            let body = match parts.method {
                // It was read, and its size checked.
                Method::POST => to_bytes(body, usize::MAX).await.unwrap_or_default(),
                _ => Bytes::new(),
            };
            return match passer.pass(&node, &parts, body).await {
                Ok(response) => response,
                // Nothing was sent, and its lease has run out: the client has to open another session.
                Err(PassError::NotSent(_)) if passer.cluster.find_node(&node.id).await.is_none() => not_found(),
                Err(error) => error.into_response(),
            };
        }
        let Ok(own) = HeaderValue::try_from(own) else { return not_found() };
        request.headers_mut().insert(SESSION_ID_HEADER, own);
    }
    let mut response = next.run(request).await;
    let opened = response.headers().get(SESSION_ID_HEADER).and_then(|value| value.to_str().ok());
    if let Some(Ok(named)) = opened.map(|session| HeaderValue::try_from(format!("{}.{session}", passer.cluster.node())))
    {
        response.headers_mut().insert(SESSION_ID_HEADER, named);
    }
    response
}
