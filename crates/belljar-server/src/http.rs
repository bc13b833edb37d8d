//! The transports over HTTP: streamable HTTP on `/mcp`, with sessions and without, and server-sent events; also
//! `/monty`, `/healthz`, `/metrics`, the code-execution protocol on `/sessions`, and for operators `/admin` and
//! `/console`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use belljar_sessions::Sessions;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::arrival::ArrivalOrder;
use crate::bodies::{BodyReader, read_body};
use crate::cluster::{self, Forwarder, ReplicaClient, affinity, forward};
use crate::code_execution::describe_errors;
use crate::connections;
use crate::guard::{AccessControl, AccessPolicy, Principal, current_owner, guard};
use crate::metrics::{Refusal, Refusals};
use crate::monty::{self, MontyWorkers};
use crate::resumable::ResumableSessions;
use crate::service::McpService;
use crate::sse;
use crate::tls::{Tls, TlsListener};

/// The time that calls in flight have to end after a shutdown was requested.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The number of connections that may be open at once in addition to those of sessions.
const EXTRA_CONNECTIONS: usize = 64;

/// The type of metrics.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) const SESSION_ID_HEADER: &str = "mcp-session-id";

/// A transport of MCP over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpTransport {
    /// Streamable HTTP; clients of the legacy era have sessions.
    Streamable,
    /// Streamable HTTP without sessions: every request is independent.
    StreamableStateless,
    /// Server-sent events: `/sse` and `/messages/`.
    Sse,
}

/// The options of a server over HTTP.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// The transport.
    pub transport: HttpTransport,
    /// The rules by which requests are accepted.
    pub access: AccessPolicy,
    /// The maximum size of a request, in bytes.
    pub max_body: usize,
    /// The maximum number of open sessions. Requests for more are rejected.
    pub max_sessions: usize,
    /// The time without activity after which a session is closed.
    pub idle: Duration,
    /// Set if the code-execution protocol is served, too. The server must have sessions.
    pub code_execution: bool,
    /// The server's certificate; with `None` it speaks plain HTTP.
    pub tls: Option<Tls>,
    /// The workers of Monty's protocol on `/monty`, if it is served.
    pub monty: Option<MontyWorkers>,
    /// The time in which a replica of a cluster stores its sessions when it ends, after the calls in flight. Without a
    /// cluster there is no limit.
    pub drain: Option<Duration>,
}

impl HttpOptions {
    /// Creates options for clients on this machine.
    pub fn new(transport: HttpTransport) -> Self {
        Self {
            transport,
            access: AccessPolicy::default(),
            max_body: 16 << 20,
            max_sessions: 1000,
            idle: Duration::from_secs(300),
            code_execution: false,
            tls: None,
            monty: None,
            drain: None,
        }
    }
}

/// Serves until `shutdown` completes; calls in flight then have five seconds to end.
///
/// # Errors
/// Fails if the listener has no local address, or the machine's certificates cannot be read.
pub async fn serve_http<S: McpService>(
    server: S,
    listener: TcpListener,
    options: HttpOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let ending = CancellationToken::new();
    let served = server.clone();
    let stopping = CancellationToken::new();
    // Before the start, which continues runs: operators see them, too.
    let routes = routes(&server, &options, &ending, &stopping)?;
    server.start();
    let monty = options.monty.clone();
    let stop = stopping.clone();
    let drained = tokio::spawn(async move {
        shutdown.await;
        // First wait for calls, then end the streams, which would keep connections open for ever.
        stop.cancel();
        let deadline = tokio::time::Instant::now() + SHUTDOWN_GRACE;
        while server.calls_in_flight() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.begin_shutdown();
        ending.cancel();
        if let Some(monty) = monty {
            monty.drain(deadline).await;
        }
    });
    // A client of streamable HTTP has an open stream in addition to its requests.
    let max_connections =
        options.max_sessions.saturating_mul(4).saturating_add(EXTRA_CONNECTIONS).min(Semaphore::MAX_PERMITS);
    let grace = SHUTDOWN_GRACE + Duration::from_secs(1);
    match &options.tls {
        Some(tls) => {
            connections::serve(TlsListener::new(listener, tls)?, routes, max_connections, stopping, grace).await
        }
        None => {
            let listener = listener.tap_io(|stream| connections::configure(stream));
            connections::serve(listener, routes, max_connections, stopping, grace).await;
        }
    }
    // The HTTP server does not wait for WebSockets. Ignore errors: the task does not panic.
    let _ = drained.await;
    match options.drain {
        Some(drain) => {
            if tokio::time::timeout(drain, served.shutdown()).await.is_err() {
                tracing::warn!("not all sessions are stored in time: other replicas take the rest over");
            }
        }
        None => served.shutdown().await,
    }
    Ok(())
}

/// Returns all routes. `stopping` is cancelled when the server begins to end, and `ending` when its streams have to.
fn routes<S: McpService>(
    server: &S,
    options: &HttpOptions,
    ending: &CancellationToken,
    stopping: &CancellationToken,
) -> std::io::Result<Router> {
    let protocol = match options.transport {
        HttpTransport::Sse => sse::routes(server.clone(), options.max_sessions, ending.clone()),
        HttpTransport::Streamable => {
            let sessions = Arc::new(ResumableSessions::new(options.idle, server.session_durations()));
            tokio::spawn(ResumableSessions::watch(Arc::downgrade(&sessions), options.idle));
            let limit =
                SessionLimit { sessions: sessions.clone(), max: options.max_sessions, refusals: server.refusals() };
            let config = config(options, ending).with_legacy_session_mode(true);
            let factory = server.clone();
            let service =
                StreamableHttpService::new(move || Ok(factory.for_client(current_owner()?)), sessions, config);
            Router::new().route_service("/mcp", service).layer(middleware::from_fn_with_state(limit, limit_sessions))
        }
        HttpTransport::StreamableStateless => {
            let config = config(options, ending).with_legacy_session_mode(false).with_json_response(true);
            let factory = server.clone();
            let sessions = Arc::new(NeverSessionManager::default());
            let service =
                StreamableHttpService::new(move || Ok(factory.for_client(current_owner()?)), sessions, config);
            Router::new().route_service("/mcp", service)
        }
    };
    let protocol = match options.monty.clone() {
        Some(workers) => {
            let (max, body, refusals) = (options.max_sessions, options.max_body, server.refusals());
            protocol.route("/monty", monty::route(workers, max, body, refusals, server.sessions()))
        }
        None => protocol,
    };
    let access_control = AccessControl {
        policy: options.access.clone(),
        scheme: if options.tls.is_some() { "https" } else { "http" },
        path: if options.transport == HttpTransport::Sse { "/sse" } else { "/mcp" },
        refusals: server.refusals(),
        cluster: server.sessions().and_then(|sessions| sessions.cluster().cloned()),
    };
    let cluster = access_control.cluster.clone();
    let readiness = cluster::readiness(cluster.clone(), stopping.clone());
    let bodies = BodyReader::new(options.max_body, ArrivalOrder::default(), server.refusals());
    let bodies = bodies.in_cluster(cluster.is_some());
    let metrics_source = server.clone();
    let metrics = get(async move || {
        let text = tokio::task::spawn_blocking(move || metrics_source.metrics()).await;
        let text = text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        Ok::<_, StatusCode>(([(CONTENT_TYPE, METRICS_TYPE)], text))
    });
    let code_execution = options.code_execution.then(|| server.code_execution()).flatten();
    let has_code_execution = code_execution.is_some();
    let admin = options.access.operators.as_ref().and_then(|_| server.admin(ending.child_token()));
    let routes =
        protocol.merge(code_execution.unwrap_or_default()).merge(admin.unwrap_or_default()).route("/metrics", metrics);
    let routes = match (server.sessions(), cluster) {
        (Some(sessions), Some(cluster)) => {
            in_cluster(routes, sessions, ReplicaClient::new(cluster).map_err(std::io::Error::other)?)
        }
        _ => routes,
    };
    let routes = routes
        .layer(DefaultBodyLimit::max(options.max_body))
        .fallback(|| async { StatusCode::NOT_FOUND })
        .layer(middleware::from_fn_with_state(bodies, read_body))
        .layer(middleware::from_fn_with_state(Arc::new(access_control), guard));
    let routes = if has_code_execution { routes.layer(middleware::from_fn(describe_errors)) } else { routes };
    Ok(routes.merge(readiness).route("/healthz", get(|| async { "ok\n" })))
}

/// Adds what makes the routes those of a replica.
fn in_cluster(routes: Router, sessions: Sessions, replica_client: ReplicaClient) -> Router {
    let forwarder = Forwarder { sessions: sessions.clone(), replica_client: replica_client.clone() };
    routes
        .merge(cluster::routes(sessions))
        .layer(middleware::from_fn_with_state(forwarder, forward))
        .layer(middleware::from_fn_with_state(replica_client, affinity))
}

fn config(options: &HttpOptions, ending: &CancellationToken) -> StreamableHttpServerConfig {
    // `guard` checks Host and Origin, for all transports alike.
    StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(options.max_body)
        .with_cancellation_token(ending.child_token())
}

#[derive(Clone)]
struct SessionLimit {
    sessions: Arc<ResumableSessions>,
    max: usize,
    refusals: Refusals,
}

/// Rejects requests that would open one session too many, and requests in the session of another principal; replaces
/// the status of successful requests that close a session.
async fn limit_sessions(State(limit): State<SessionLimit>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let modern =
        headers.get("mcp-protocol-version").is_some_and(|version| version.as_bytes() >= b"2026-07-28".as_slice());
    let session = headers.get(SESSION_ID_HEADER).and_then(|session| session.to_str().ok());
    let begins = request.method() == Method::POST && session.is_none() && !modern;
    if begins && limit.sessions.count().await >= limit.max {
        limit.refusals.count(Refusal::HttpSessionsFull);
        return (StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open; try again later").into_response();
    }
    let owner = request.extensions().get::<Principal>().cloned();
    if let (Some(session), Some(Principal(owner))) = (session, &owner)
        && !limit.sessions.is_owned_by(session, owner)
    {
        limit.refusals.count(Refusal::ForeignSession);
        // The same answer as for an unknown session, so that it does not reveal that the session exists.
        return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
    }
    let ends = request.method() == Method::DELETE;
    let mut response = next.run(request).await;
    let opened = response.headers().get(SESSION_ID_HEADER).and_then(|session| session.to_str().ok());
    if let (true, Some(session), Some(Principal(owner))) = (begins, opened, &owner) {
        limit.sessions.set_owner(session, owner);
    }
    // The session is closed now. Some clients treat 202 ("accepted") as a failure.
    if ends && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::OK;
    }
    response
}
