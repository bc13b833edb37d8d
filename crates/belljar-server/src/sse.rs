//! HTTP with server-sent events, the transport of 2024-11-05, which many clients still speak.
//!
//! `GET /sse` opens a stream whose first event, `endpoint`, names the address for the client's messages; each POST to it
//! is answered 202, and what the server has to say comes as `message` events. The stream is the session: they end together.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures::StreamExt;
use rmcp::ServiceExt;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard, PollSender};

use crate::guard::Owner;
use crate::served::Served;

/// Messages that wait in one direction of a session.
const QUEUE: usize = 64;
/// How long a client's message waits for room in its session's queue.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a comment shows that the stream lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The sessions, by their ids.
struct Sessions<S> {
    server: S,
    most: usize,
    open: Mutex<HashMap<String, Open>>,
    shutdown: CancellationToken,
}

/// A session that is open.
struct Open {
    queue: mpsc::Sender<ClientJsonRpcMessage>,
    /// Who opened it, where that is known.
    owner: Option<Owner>,
}

impl<S> Sessions<S> {
    fn open(&self) -> MutexGuard<'_, HashMap<String, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The routes. Sessions end when `shutdown` is cancelled.
pub(crate) fn routes<S: Served>(server: S, most: usize, shutdown: CancellationToken) -> Router {
    let sessions = Sessions { server, most, open: Mutex::default(), shutdown };
    Router::new().route("/sse", get(stream::<S>)).route("/messages/", post(message::<S>)).with_state(Arc::new(sessions))
}

/// Ends a session when its stream is dropped.
struct Session<S> {
    id: String,
    sessions: Arc<Sessions<S>>,
    _cancel: DropGuard,
}

impl<S> Drop for Session<S> {
    fn drop(&mut self) {
        self.sessions.open().remove(&self.id);
    }
}

async fn stream<S: Served>(State(sessions): State<Arc<Sessions<S>>>, owner: Option<Extension<Owner>>) -> Response {
    let mut random = [0; 16];
    if getrandom::fill(&mut random).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let id = format!("{:032x}", u128::from_be_bytes(random));
    let (to_server, from_client) = mpsc::channel(QUEUE);
    let (to_client, from_server) = mpsc::channel::<ServerJsonRpcMessage>(QUEUE);
    {
        let mut open = sessions.open();
        if open.len() >= sessions.most {
            return (StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open; try again later").into_response();
        }
        open.insert(id.clone(), Open { queue: to_server, owner: owner.map(|Extension(owner)| owner) });
    }
    let cancel = sessions.shutdown.child_token();
    let session = Session { id: id.clone(), sessions: sessions.clone(), _cancel: cancel.clone().drop_guard() };
    let server = sessions.server.session();
    tokio::spawn(async move {
        let transport = (PollSender::new(to_client), ReceiverStream::new(from_client));
        match server.serve_with_ct(transport, cancel).await {
            Ok(running) => drop(running.waiting().await),
            Err(error) => tracing::debug!(%error, "a session did not begin"),
        }
    });
    let endpoint = Event::default().event("endpoint").data(format!("/messages/?session_id={id}"));
    let messages = ReceiverStream::new(from_server).filter_map(move |message| {
        let _lives_with_the_stream = &session;
        let event = serde_json::to_string(&message).map(|text| Event::default().event("message").data(text));
        std::future::ready(event.map_err(|error| tracing::error!(%error, "a message cannot be written")).ok())
    });
    let events = futures::stream::iter([endpoint]).chain(messages).map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

#[derive(Deserialize)]
struct Address {
    session_id: String,
}

async fn message<S: Served>(
    State(sessions): State<Arc<Sessions<S>>>,
    Query(address): Query<Address>,
    owner: Option<Extension<Owner>>,
    body: Bytes,
) -> Response {
    let owner = owner.map(|Extension(owner)| owner);
    let queue =
        sessions.open().get(&address.session_id).filter(|open| open.owner == owner).map(|open| open.queue.clone());
    let Some(queue) = queue else {
        // Not even that it exists is another's business.
        return (StatusCode::NOT_FOUND, "no such session; it may have ended").into_response();
    };
    let message = match serde_json::from_slice(&body) {
        Ok(message) => message,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("not a message: {error}")).into_response(),
    };
    match queue.send_timeout(message, PATIENCE).await {
        Ok(()) => (StatusCode::ACCEPTED, "Accepted").into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the session takes no more messages").into_response(),
    }
}
