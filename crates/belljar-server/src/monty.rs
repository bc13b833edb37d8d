//! Monty's worker protocol on `/monty`: a WebSocket for each session, whose binary messages are requests and events.
//!
//! A session has no thread of its own: requests run as jobs of a pool. Code that calls its parent without `await` holds
//! its thread until the answer arrives.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any};
use belljar_monty::{Link, OpenFeedView, ParentEnd, Worker, WorkerOptions};
use belljar_sessions::{CallTicket, GuestThreadPool, Owner, Sessions, Tenant, TenantKey, WorkRefusal};
use futures::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::guard::{ConnectionNumber, Principal};
use crate::metrics::Refusals;
use crate::monty_feeds::open_views;

/// The maximum length of a message to a client, in bytes.
const MAX_EVENT: usize = 256 << 20;
/// The interval of the messages that keep an idle connection alive.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The interval at which a shutdown checks whether connections have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The maximum length of the reason in a close frame, in bytes.
const MAX_CLOSE_REASON: usize = 120;
/// The time that connections have to close.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The workers of `/monty`. Cheap to clone.
#[derive(Clone)]
pub struct MontyWorkers(Arc<Shared>);

struct Shared {
    options: WorkerOptions,
    pool: Arc<GuestThreadPool>,
    /// The number of open connections.
    connections: AtomicUsize,
    /// Cancelled when the next request of each session is its last.
    draining: CancellationToken,
    /// Cancelled when connections end.
    ending: CancellationToken,
}

impl fmt::Debug for MontyWorkers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MontyWorkers").finish_non_exhaustive()
    }
}

impl MontyWorkers {
    /// Creates workers whose code runs on the threads of `pool`.
    pub fn new(options: WorkerOptions, pool: Arc<GuestThreadPool>) -> Self {
        let (draining, ending) = (CancellationToken::new(), CancellationToken::new());
        Self(Arc::new(Shared { options, pool, connections: AtomicUsize::new(0), draining, ending }))
    }

    /// Lets requests end, answers the next one of each session with the session's state, and ends connections at the
    /// deadline.
    pub(crate) async fn drain(&self, deadline: Instant) {
        self.0.draining.cancel();
        let count = || self.0.connections.load(Ordering::Relaxed);
        while count() > 0 && Instant::now() < deadline {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        self.0.ending.cancel();
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while count() > 0 && Instant::now() < deadline {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// The state of the route.
#[derive(Clone)]
struct Route {
    workers: MontyWorkers,
    /// The connections that may be opened.
    connections: Arc<Semaphore>,
    max_message: usize,
    refusals: Refusals,
    /// Shows feeds to operators, if the server has sessions.
    view: Option<OpenFeedView>,
}

/// Returns the route. Operators see feeds in the history of `sessions`, if it is recorded.
pub(crate) fn route<S: Clone + Send + Sync + 'static>(
    workers: MontyWorkers,
    max_connections: usize,
    max_message: usize,
    refusals: Refusals,
    sessions: Option<Sessions>,
) -> MethodRouter<S> {
    let connections = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    let view = sessions.map(open_views);
    any(upgrade).with_state(Route { workers, connections, max_message, refusals, view })
}

async fn upgrade(
    State(route): State<Route>,
    principal: Option<Extension<Principal>>,
    connection: Option<Extension<ConnectionNumber>>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => return rejection.into_response(),
    };
    let Ok(permit) = route.connections.clone().try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open; try again later").into_response();
    };
    let principal = principal.map(|Extension(principal)| principal);
    let key = match (&principal, connection) {
        (Some(Principal(owner)), _) => TenantKey::Owner(owner),
        (None, Some(Extension(ConnectionNumber(number)))) => TenantKey::Connection(number),
        (None, None) => TenantKey::Local,
    };
    let tenant = route.workers.0.pool.tenants().find(key);
    let slot = match tenant.check_memory().and_then(|()| route.workers.0.pool.tenants().begin_session(&tenant)) {
        Ok(slot) => slot,
        Err(refusal) => {
            route.refusals.count((&refusal).into());
            return (StatusCode::TOO_MANY_REQUESTS, refusal.to_string()).into_response();
        }
    };
    let upgrade = upgrade.max_message_size(route.max_message).max_frame_size(route.max_message);
    upgrade.on_upgrade(async move |socket| {
        let connections = &route.workers.0.connections;
        connections.fetch_add(1, Ordering::Relaxed);
        serve(socket, &route, principal, tenant).await;
        connections.fetch_sub(1, Ordering::Relaxed);
        drop(slot);
        drop(permit);
    })
}

/// Waits until `deadline`, or forever.
async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A session, between its requests.
struct Session {
    workers: MontyWorkers,
    /// The owner whose quotas the session counts for.
    tenant: Tenant,
    /// The client, with authentication.
    owner: Option<Owner>,
    refusals: Refusals,
    /// The reason why the session ended, if it was refused.
    refusal: Mutex<Option<String>>,
    /// The request that waits for a thread, or waited last.
    waiting: Mutex<Option<WaitingRequest>>,
    /// `None` while a job has it, and after it has ended.
    worker: Mutex<Option<Worker>>,
    state: Mutex<Progress>,
    ended: CancellationToken,
}

/// A request that waits for a thread.
struct WaitingRequest {
    /// Dropping it gives the request up.
    call: CallTicket,
    deadline: Option<Instant>,
}

/// The progress of a session.
#[derive(Default)]
struct Progress {
    is_running: bool,
    is_suspended: bool,
}

async fn serve(socket: WebSocket, route: &Route, principal: Option<Principal>, tenant: Tenant) {
    let shared = &route.workers.0;
    let (mut sink, mut messages) = socket.split();
    let (events, mut waiting) = mpsc::unbounded_channel::<Vec<u8>>();
    let (link, parent) = Link::new(move |event| event.len() <= MAX_EVENT && events.send(event).is_ok());
    let mut options = route.workers.0.options.clone();
    options.view.clone_from(&route.view);
    if let Some(Principal(owner)) = principal {
        options.dump_key = options.dump_key.for_owner(&owner);
        options.owner = Some(owner);
    }
    let (ended, owner) = (CancellationToken::new(), options.owner.clone());
    let session = Arc::new(Session {
        workers: route.workers.clone(),
        tenant,
        owner,
        refusals: route.refusals.clone(),
        refusal: Mutex::default(),
        waiting: Mutex::default(),
        worker: Mutex::new(Some(Worker::new(options, link))),
        state: Mutex::default(),
        ended: ended.clone(),
    });
    let mut ping = tokio::time::interval(PING_INTERVAL);
    ping.reset();
    let mut is_draining = false;
    loop {
        tokio::select! {
            event = waiting.recv() => {
                let Some(event) = event else { break };
                if sink.send(Message::Binary(event.into())).await.is_err() {
                    break;
                }
            }
            message = messages.next() => match message {
                Some(Ok(Message::Binary(request))) => {
                    if !parent.send(request.into()) {
                        break;
                    }
                    session.clone().schedule(&parent);
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                // Texts are not part of the protocol.
                Some(Ok(Message::Text(_) | Message::Close(_)) | Err(_)) | None => break,
            },
            () = sleep_until(session.deadline()) => session.check_deadline(&parent),
            _ = ping.tick() => {
                if sink.send(Message::Ping(Vec::new().into())).await.is_err() {
                    break;
                }
            }
            () = shared.draining.cancelled(), if !is_draining => {
                is_draining = true;
                parent.drain();
            }
            () = shared.ending.cancelled() => break,
            () = ended.cancelled() => {
                while let Ok(event) = waiting.try_recv() {
                    if sink.send(Message::Binary(event.into())).await.is_err() {
                        break;
                    }
                }
                break;
            }
        }
    }
    parent.close();
    let refusal = session.refusal.lock().take();
    let frame = refusal.map(|reason| CloseFrame { code: close_code::AGAIN, reason: reason.into() });
    // Ignore errors: the client may be gone.
    let _ = sink.send(Message::Close(frame)).await;
    drop(session);
}

impl Session {
    /// Has a job handle the requests that have arrived, unless one does already.
    fn schedule(self: Arc<Self>, parent: &ParentEnd) {
        let is_suspended = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.is_running, true) {
                return;
            }
            state.is_suspended
        };
        let (session, pool) = (self.clone(), self.workers.0.pool.clone());
        if is_suspended {
            // It was admitted before.
            pool.resume_for(&self.tenant, move |_permit| session.run());
        } else if let Err(reason) = self.submit(session, &pool) {
            self.refuse(&reason, parent);
        }
    }

    /// Submits a job that handles the requests, in the turn of the owner.
    fn submit(&self, session: Arc<Self>, pool: &GuestThreadPool) -> Result<(), String> {
        let admitted = pool.admit(&self.tenant);
        let (call, job) = admitted.inspect_err(|refusal| self.count(refusal)).map_err(|refusal| refusal.to_string())?;
        let submitted = pool.submit_for(&self.tenant, move |_permit| {
            if job.begin() {
                session.run();
            }
        });
        submitted.map_err(|full| full.to_string())?;
        let deadline = pool.tenants().queue_timeout().map(|timeout| Instant::now() + timeout);
        *self.waiting.lock() = Some(WaitingRequest { call, deadline });
        Ok(())
    }

    /// Returns the time until which the request that arrived last may wait.
    fn deadline(&self) -> Option<Instant> {
        self.waiting.lock().as_ref().and_then(|waiting| waiting.deadline)
    }

    /// Ends the session if its request has waited for too long.
    fn check_deadline(&self, parent: &ParentEnd) {
        let waiting = self.waiting.lock().take();
        if let Some(refusal) = waiting.and_then(|waiting| waiting.call.expire()) {
            self.count(&refusal);
            self.refuse(&refusal.to_string(), parent);
        }
    }

    fn count(&self, refusal: &WorkRefusal) {
        self.refusals.count_for(refusal.into(), self.owner.as_deref());
    }

    /// Ends the session, whose client learns the reason.
    fn refuse(&self, reason: &str, parent: &ParentEnd) {
        tracing::warn!(reason, "a Monty session ended, since its request was refused");
        let end = reason.floor_char_boundary(MAX_CLOSE_REASON);
        *self.refusal.lock() = Some(reason[..end].to_owned());
        self.ended.cancel();
        parent.close();
    }

    fn run(&self) {
        loop {
            let Some(mut worker) = self.worker.lock().take() else { break };
            let goes_on = worker.serve_arrived();
            if !goes_on {
                self.ended.cancel();
                break;
            }
            let is_suspended = worker.is_suspended();
            *self.worker.lock() = Some(worker);
            let mut state = self.state.lock();
            state.is_suspended = is_suspended;
            // A request that arrives from here on finds that no job runs.
            let has_more = self.worker.lock().as_ref().is_some_and(Worker::has_arrived);
            if !has_more {
                state.is_running = false;
                break;
            }
        }
    }
}
