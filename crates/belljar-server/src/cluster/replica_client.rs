//! Forwarding of a request to another replica, and of its answer while it arrives.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use belljar_sessions::{Cluster, Node};
use futures::StreamExt as _;
use tokio::sync::Mutex;

use super::signature::{RESERVED, sign};
use crate::guard::Principal;

/// The time in which a connection to another replica must be there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval between two looks at whether a replica is alive whose answer, or the rest of it, has not arrived yet.
const ALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// The number of replicas of which it is remembered whether they are alive.
const MAX_KNOWN_NODES: usize = 10_000;

/// The headers that belong to one connection (RFC 9110, section 7.6.1), and those that the other replica does not need:
/// the client is authenticated.
const OF_CONNECTION: [HeaderName; 6] = [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE, AUTHORIZATION];

/// Sends requests to other replicas. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReplicaClient {
    pub(super) cluster: Arc<Cluster>,
    client: reqwest::Client,
    liveness: Arc<Liveness>,
}

/// Which replicas are alive. All answers that wait for one replica share one look at its lease in each interval.
struct Liveness {
    cluster: Arc<Cluster>,
    /// The time of the last look at each replica, and what it found.
    looks: Mutex<HashMap<String, (Instant, bool)>>,
}

impl Liveness {
    /// Returns whether the lease of a replica ran at most [`ALIVE_INTERVAL`] ago.
    async fn is_alive(&self, node: &str) -> bool {
        let mut looks = self.looks.lock().await;
        if let Some((at, is_alive)) = looks.get(node)
            && at.elapsed() < ALIVE_INTERVAL
        {
            return *is_alive;
        }
        let is_alive = self.cluster.is_alive(node).await;
        if looks.len() >= MAX_KNOWN_NODES {
            looks.clear();
        }
        looks.insert(node.to_owned(), (Instant::now(), is_alive));
        is_alive
    }
}

/// The reason why a request was not forwarded.
#[derive(Debug, thiserror::Error)]
pub(super) enum ForwardError {
    /// Nothing was sent: the request can be sent again, or to another replica.
    #[error("failed to connect to another replica: {0}")]
    NotSent(String),
    /// The other replica may have handled the request.
    #[error("the replica that has the session has ended before it answered: {0}. The call may have been done")]
    Unanswered(String),
    /// The request cannot be sent.
    #[error("the request cannot be forwarded: {0}")]
    Invalid(String),
}

/// Returns the innermost cause of an error, which is the only one that tells of certificates.
fn cause(error: &reqwest::Error) -> String {
    let first: &dyn std::error::Error = error;
    std::iter::successors(Some(first), |error| error.source()).last().unwrap_or(first).to_string()
}

impl IntoResponse for ForwardError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::NotSent(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unanswered(_) | Self::Invalid(_) => StatusCode::BAD_GATEWAY,
        };
        (status, self.to_string()).into_response()
    }
}

impl ReplicaClient {
    /// Creates the sender of requests to other replicas.
    ///
    /// # Errors
    /// Fails if the machine's certificates cannot be read.
    pub(crate) fn new(cluster: Arc<Cluster>) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        let liveness = Arc::new(Liveness { cluster: cluster.clone(), looks: Mutex::default() });
        Ok(Self { cluster, client, liveness })
    }

    /// Sends a request to a replica, and returns its answer, whose body is still arriving. Dropping it cancels the
    /// request there.
    pub(super) async fn forward(&self, node: &Node, parts: &Parts, body: Bytes) -> Result<Response, ForwardError> {
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut headers = parts.headers.clone();
        for name in OF_CONNECTION.iter().chain(&RESERVED) {
            headers.remove(name);
        }
        let owner = parts.extensions.get::<Principal>().map(|Principal(owner)| owner);
        sign(&self.cluster, &parts.method, path, &mut headers, owner, &body)
            .map_err(|error| ForwardError::Invalid(error.to_string()))?;
        let address = format!("{}{path}", node.address);
        let request = self.client.request(parts.method.clone(), address).headers(headers).body(body);
        let mut sent = std::pin::pin!(request.send());
        let answer = loop {
            tokio::select! {
                answer = sent.as_mut() => break answer,
                // A process that was stopped keeps its connections open.
                () = tokio::time::sleep(ALIVE_INTERVAL) => {
                    if !self.liveness.is_alive(&node.id).await {
                        self.cluster.forget_node(&node.id);
                        return Err(ForwardError::Unanswered("its lease has run out".into()));
                    }
                }
            }
        };
        let answer = match answer {
            Ok(answer) => answer,
            // A server on standard streams has an address that nothing can be sent to.
            Err(error) if error.is_builder() => {
                return Err(ForwardError::NotSent(format!("it has no address: {}", node.address)));
            }
            Err(error) => {
                if !self.liveness.is_alive(&node.id).await {
                    self.cluster.forget_node(&node.id);
                }
                return Err(match error.is_connect() {
                    true => ForwardError::NotSent(cause(&error)),
                    false => ForwardError::Unanswered(cause(&error)),
                });
            }
        };
        let (mut head, body) = axum::http::Response::<reqwest::Body>::from(answer).into_parts();
        for name in OF_CONNECTION {
            head.headers.remove(name);
        }
        Ok(Response::from_parts(head, self.watched(Body::new(body), node)))
    }

    /// Returns the body of an answer, which fails if the replica that sends it ends: one that was stopped keeps its
    /// connections open.
    fn watched(&self, body: Body, node: &Node) -> Body {
        let (liveness, node) = (self.liveness.clone(), node.id.clone());
        let state = Some((body.into_data_stream(), liveness, node));
        Body::from_stream(futures::stream::unfold(state, async |state| {
            let (mut arriving, liveness, node) = state?;
            loop {
                tokio::select! {
                    chunk = arriving.next() => {
                        let chunk = chunk?.map_err(io::Error::other);
                        let rest = chunk.is_ok().then_some((arriving, liveness, node));
                        return Some((chunk, rest));
                    }
                    () = tokio::time::sleep(ALIVE_INTERVAL) => {
                        if !liveness.is_alive(&node).await {
                            let ended = "the replica that sends the answer has ended";
                            return Some((Err(io::Error::new(io::ErrorKind::ConnectionReset, ended)), None));
                        }
                    }
                }
            }
        }))
    }
}
