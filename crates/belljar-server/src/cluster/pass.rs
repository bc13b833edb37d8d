//! Passing a request on to another replica, and its answer back while it arrives.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use belljar_sessions::{Cluster, Node};

use super::signature::{RESERVED, sign};
use crate::guard::Principal;

/// The time in which a connection to another replica must be there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval between two looks at whether a replica that has not answered yet is alive.
const ALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// The headers that belong to one connection (RFC 9110, section 7.6.1), and those that the other replica does not need:
/// the client is authenticated.
const OF_CONNECTION: [HeaderName; 6] = [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE, AUTHORIZATION];

/// Passes requests on. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Passer {
    pub(super) cluster: Arc<Cluster>,
    client: reqwest::Client,
}

/// The reason why a request was not passed on.
#[derive(Debug, thiserror::Error)]
pub(super) enum PassError {
    /// Nothing was sent: the request can be sent again, or to another replica.
    #[error("failed to connect to another replica: {0}")]
    NotSent(String),
    /// The other replica may have handled the request.
    #[error("the replica that has the session has ended before it answered: {0}. The call may have been done")]
    Unanswered(String),
    /// The request cannot be sent.
    #[error("the request cannot be passed on: {0}")]
    Invalid(String),
}

/// Returns the innermost cause of an error, which is the only one that tells of certificates.
fn cause(error: &reqwest::Error) -> String {
    let first: &dyn std::error::Error = error;
    std::iter::successors(Some(first), |error| error.source()).last().unwrap_or(first).to_string()
}

impl IntoResponse for PassError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::NotSent(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unanswered(_) | Self::Invalid(_) => StatusCode::BAD_GATEWAY,
        };
        (status, self.to_string()).into_response()
    }
}

impl Passer {
    /// Creates the sender of requests to other replicas.
    ///
    /// # Errors
    /// When the machine's certificates cannot be read.
    pub(crate) fn new(cluster: Arc<Cluster>) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        Ok(Self { cluster, client })
    }

    /// Sends a request to a replica, and returns its answer, whose body is still arriving. Dropping it cancels the
    /// request there.
    pub(super) async fn pass(&self, node: &Node, parts: &Parts, body: Bytes) -> Result<Response, PassError> {
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut headers = parts.headers.clone();
        for name in OF_CONNECTION.iter().chain(&RESERVED) {
            headers.remove(name);
        }
        let owner = parts.extensions.get::<Principal>().map(|Principal(owner)| owner);
        sign(&self.cluster, &parts.method, path, &mut headers, owner, &body)
            .map_err(|error| PassError::Invalid(error.to_string()))?;
        let address = format!("{}{path}", node.address);
        let request = self.client.request(parts.method.clone(), address).headers(headers).body(body);
        let mut sent = std::pin::pin!(request.send());
        let answer = loop {
            tokio::select! {
                answer = sent.as_mut() => break answer,
                // A process that was stopped keeps its connections open.
                () = tokio::time::sleep(ALIVE_INTERVAL) => {
                    if !self.cluster.is_alive(&node.id).await {
                        return Err(PassError::Unanswered("its lease has run out".into()));
                    }
                }
            }
        };
        let answer = answer.map_err(|error| match error.is_connect() {
            true => PassError::NotSent(cause(&error)),
            false => PassError::Unanswered(cause(&error)),
        })?;
        let (mut head, body) = axum::http::Response::<reqwest::Body>::from(answer).into_parts();
        for name in OF_CONNECTION {
            head.headers.remove(name);
        }
        Ok(Response::from_parts(head, Body::new(body)))
    }
}
