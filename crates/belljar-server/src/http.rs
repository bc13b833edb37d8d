//! The transports over HTTP: streamable HTTP on `/mcp`, with sessions and without, and server-sent events; `/healthz` and
//! `/metrics` beside them.

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
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::connections;
use crate::guard::{Admission, Gate, Owner, guard};
use crate::resumable::ResumableSessions;
use crate::served::Served;
use crate::sse;
use crate::tls::{Tls, TlsListener};

/// How long calls in flight may take to end when the server is told to.
const GRACE: Duration = Duration::from_secs(5);

/// Connections that are open at once, beside those that sessions have.
const CONNECTIONS: usize = 64;

const SESSION: &str = "mcp-session-id";

/// Which of the transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpTransport {
    /// Streamable HTTP; clients of the legacy era have sessions.
    Streamable,
    /// Streamable HTTP in which every request stands for itself.
    StreamableStateless,
    /// Server-sent events: `/sse` and `/messages/`.
    Sse,
}

/// How a server is reached over HTTP.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Which transport.
    pub transport: HttpTransport,
    /// Who is let in.
    pub admission: Admission,
    /// Longest request, in bytes.
    pub max_body: usize,
    /// Sessions that may be open; one more is refused.
    pub max_sessions: usize,
    /// A session in which nothing happens for so long ends.
    pub idle: Duration,
    /// The server's certificate; without one it speaks plain HTTP.
    pub tls: Option<Tls>,
}

impl HttpOptions {
    /// For clients on this machine.
    pub fn new(transport: HttpTransport) -> Self {
        Self {
            transport,
            admission: Admission::default(),
            max_body: 16 << 20,
            max_sessions: 1000,
            idle: Duration::from_secs(300),
            tls: None,
        }
    }
}

/// Serves until `shutdown` ends; then calls in flight get their answers, or five seconds.
///
/// # Errors
/// When connections cannot be taken.
pub async fn serve_http<S: Served>(
    server: S,
    listener: TcpListener,
    options: HttpOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let ending = CancellationToken::new();
    server.begin();
    let last = server.clone();
    let routes = routes(&server, &options, &ending);
    let told = CancellationToken::new();
    let tell = told.clone();
    tokio::spawn(async move {
        shutdown.await;
        // Calls first, then the streams that would keep connections open for ever.
        tell.cancel();
        let deadline = tokio::time::Instant::now() + GRACE;
        while server.calls_in_flight() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ending.cancel();
    });
    // A client of streamable HTTP has a stream open beside its requests.
    let most = options.max_sessions.saturating_mul(4).saturating_add(CONNECTIONS).min(Semaphore::MAX_PERMITS);
    let grace = GRACE + Duration::from_secs(1);
    match &options.tls {
        Some(tls) => connections::serve(TlsListener::new(listener, tls)?, routes, most, told, grace).await,
        None => {
            let listener = listener.tap_io(|stream| {
                // A message is not to wait until the one before it was acknowledged.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY cannot be set");
                }
            });
            connections::serve(listener, routes, most, told, grace).await;
        }
    }
    last.end().await;
    Ok(())
}

fn routes<S: Served>(server: &S, options: &HttpOptions, ending: &CancellationToken) -> Router {
    let protocol = match options.transport {
        HttpTransport::Sse => sse::routes(server.clone(), options.max_sessions, ending.clone()),
        HttpTransport::Streamable => {
            let sessions = Arc::new(ResumableSessions::new(options.idle));
            tokio::spawn(ResumableSessions::watch(Arc::downgrade(&sessions), options.idle));
            let full = Full { sessions: sessions.clone(), most: options.max_sessions };
            let config = config(options, ending).with_legacy_session_mode(true);
            let factory = server.clone();
            let service = StreamableHttpService::new(move || Ok(factory.session()), sessions, config);
            Router::new()
                .route_service("/mcp", service)
                .layer(middleware::from_fn_with_state(full, sessions_begin_and_end))
        }
        HttpTransport::StreamableStateless => {
            let config = config(options, ending).with_legacy_session_mode(false).with_json_response(true);
            let factory = server.clone();
            let sessions = Arc::new(NeverSessionManager::default());
            let service = StreamableHttpService::new(move || Ok(factory.session()), sessions, config);
            Router::new().route_service("/mcp", service)
        }
    };
    let gate = Gate {
        admission: options.admission.clone(),
        scheme: if options.tls.is_some() { "https" } else { "http" },
        path: if options.transport == HttpTransport::Sse { "/sse" } else { "/mcp" },
    };
    let numbers = server.clone();
    let metrics = get(move || async move {
        ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], numbers.metrics())
    });
    protocol
        .route("/metrics", metrics)
        .layer(DefaultBodyLimit::max(options.max_body))
        .fallback(|| async { StatusCode::NOT_FOUND })
        .layer(middleware::from_fn_with_state(Arc::new(gate), guard))
        .route("/healthz", get(|| async { "ok\n" }))
}

fn config(options: &HttpOptions, ending: &CancellationToken) -> StreamableHttpServerConfig {
    // `guard` checks Host and Origin, for all transports alike.
    StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(options.max_body)
        .with_cancellation_token(ending.child_token())
}

#[derive(Clone)]
struct Full {
    sessions: Arc<ResumableSessions>,
    most: usize,
}

/// Refuses requests that would begin a session when there are too many, and those in another's session; answers those
/// that end one.
async fn sessions_begin_and_end(State(full): State<Full>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let modern =
        headers.get("mcp-protocol-version").is_some_and(|version| version.as_bytes() >= b"2026-07-28".as_slice());
    let session = headers.get(SESSION).and_then(|session| session.to_str().ok());
    let begins = request.method() == Method::POST && session.is_none() && !modern;
    if begins && full.sessions.count().await >= full.most {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open; try again later").into_response();
    }
    let owner = request.extensions().get::<Owner>().cloned();
    if let (Some(session), Some(Owner(owner))) = (session, &owner)
        && !full.sessions.is_of(session, owner)
    {
        // Not even that it exists is another's business.
        return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
    }
    let ends = request.method() == Method::DELETE;
    let mut response = next.run(request).await;
    let opened = response.headers().get(SESSION).and_then(|session| session.to_str().ok());
    if let (true, Some(session), Some(Owner(owner))) = (begins, opened, &owner) {
        full.sessions.opened(session, owner);
    }
    // A session that was ended has ended; some clients take "accepted" for a failure.
    if ends && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::OK;
    }
    response
}
