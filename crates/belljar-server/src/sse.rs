//! HTTP with server-sent events: the transport of protocol version 2024-11-05, which many clients still use.
//!
//! `GET /sse` opens a stream whose first event, `endpoint`, names the address for the client's messages. Each POST to
//! it is answered with 202; the server's messages arrive as `message` events. A session ends together with its
//! stream.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures::StreamExt;
use parking_lot::{Mutex, MutexGuard};
use rmcp::ServiceExt;
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, JsonRpcMessage};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::arrival::SessionTurn;
use crate::guard::Principal;
use crate::metrics::{McpSessionRecord, McpTransport, Refusal};
use crate::service::McpService;
use crate::sse_transport::{SseTransport, UnreadMemory, UnreadMessage, UnreadMessages};
use crate::stdio::describe_start_error;
use crate::task_transport::{RequestsTask, TaskTransport};

/// The path of the messages of clients.
pub(crate) const MESSAGES: &str = "/messages/";

/// The capacity of a session's queue of messages from its client.
const QUEUE_CAPACITY: usize = 64;
/// The time for which a client's message waits for room in its session's queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval of the comments that keep a stream alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The state of the transport.
struct Sessions<S> {
    server: S,
    max_sessions: usize,
    open: Mutex<HashMap<String, OpenSession>>,
    unread: UnreadMemory,
    shutdown: CancellationToken,
}

/// An open session.
struct OpenSession {
    queue: mpsc::Sender<ClientJsonRpcMessage>,
    /// The principal that opened it, if authentication is enabled.
    owner: Option<Principal>,
}

impl<S> Sessions<S> {
    fn open(&self) -> MutexGuard<'_, HashMap<String, OpenSession>> {
        self.open.lock()
    }
}

/// Returns the transport's routes. Sessions end when `shutdown` is cancelled.
pub(crate) fn routes<S: McpService>(server: S, max_sessions: usize, shutdown: CancellationToken) -> Router {
    let sessions = Sessions { server, max_sessions, open: Mutex::default(), unread: UnreadMemory::default(), shutdown };
    Router::new().route("/sse", get(stream::<S>)).route(MESSAGES, post(message::<S>)).with_state(Arc::new(sessions))
}

/// A guard owned by a session's stream: it ends the session when dropped.
struct Session<S> {
    id: String,
    sessions: Arc<Sessions<S>>,
    _cancel: DropGuard,
    _record: McpSessionRecord,
}

impl<S> Drop for Session<S> {
    fn drop(&mut self) {
        self.sessions.open().remove(&self.id);
    }
}

async fn stream<S: McpService>(
    State(sessions): State<Arc<Sessions<S>>>,
    owner: Option<Extension<Principal>>,
) -> Response {
    let mut random = [0; 16];
    if getrandom::fill(&mut random).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let id = format!("{:032x}", u128::from_be_bytes(random));
    let (to_server, from_client) = mpsc::channel(QUEUE_CAPACITY);
    let (to_client, from_server) = mpsc::unbounded_channel();
    let owner = owner.map(|Extension(owner)| owner);
    {
        let mut open = sessions.open();
        if open.len() >= sessions.max_sessions {
            sessions.server.refusals().count(Refusal::HttpSessionsFull);
            return (StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open; try again later").into_response();
        }
        open.insert(id.clone(), OpenSession { queue: to_server, owner: owner.clone() });
    }
    let cancel = sessions.shutdown.child_token();
    let session = Session {
        id: id.clone(),
        sessions: sessions.clone(),
        _cancel: cancel.clone().drop_guard(),
        _record: sessions.server.session_durations().begin(McpTransport::Tcp),
    };
    let server = sessions.server.for_client(owner.map(|Principal(owner)| owner));
    let unread = UnreadMessages::new(from_server);
    let transport = SseTransport::new(from_client, to_client, unread.clone(), sessions.unread.clone(), cancel.clone());
    let ended = id.clone();
    let transport = TaskTransport(transport);
    tokio::spawn(async move {
        match server.serve_with_ct(transport, cancel).await {
            Ok(running) => drop(running.waiting().await),
            Err(error) => tracing::debug!(reason = describe_start_error(&error), "failed to start a session"),
        }
        // The stream of a client that does not read is dropped only when its connection ends.
        sessions.open().remove(&ended);
    });
    let endpoint = Event::default().event("endpoint").data(format!("{MESSAGES}?session_id={id}"));
    let messages = unread.stream().map(move |message: UnreadMessage| {
        let _owned_by_the_stream = &session;
        Event::default().event("message").data(message.text)
    });
    let events = futures::stream::iter([endpoint]).chain(messages).map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL)).into_response()
}

#[derive(Deserialize)]
struct MessageQuery {
    session_id: String,
}

async fn message<S: McpService>(
    State(sessions): State<Arc<Sessions<S>>>,
    Query(query): Query<MessageQuery>,
    owner: Option<Extension<Principal>>,
    turn: Option<Extension<SessionTurn>>,
    task: Option<Extension<RequestsTask>>,
    body: Bytes,
) -> Response {
    let owner = owner.map(|Extension(owner)| owner);
    let queue =
        sessions.open().get(&query.session_id).filter(|open| open.owner == owner).map(|open| open.queue.clone());
    let Some(queue) = queue else {
        // The same answer for a session of another principal, so that it does not reveal that the session exists.
        return (StatusCode::NOT_FOUND, "unknown session; it may have ended").into_response();
    };
    let mut message: ClientJsonRpcMessage = match serde_json::from_slice(&body) {
        Ok(message) => message,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("invalid message: {error}")).into_response(),
    };
    if let JsonRpcMessage::Request(request) = &mut message {
        let extensions = request.request.extensions_mut();
        if let Some(Extension(turn)) = turn {
            extensions.insert(turn);
        }
        if let Some(Extension(mark)) = task {
            extensions.insert(mark);
        }
    }
    match queue.send_timeout(message, QUEUE_TIMEOUT).await {
        Ok(()) => (StatusCode::ACCEPTED, "Accepted").into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the session's queue of messages is full").into_response(),
    }
}
