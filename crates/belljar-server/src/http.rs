//! The transports over HTTP: streamable HTTP on `/mcp`, with sessions and without, and server-sent events; `/healthz` and
//! `/metrics` beside them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::guard::{Admission, guard};
use crate::handler::Server;
use crate::sse;

/// How long calls in flight may take to end when the server is told to.
const GRACE: Duration = Duration::from_secs(5);

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
        }
    }
}

/// Serves until `shutdown` ends; then calls in flight get their answers, or five seconds.
///
/// # Errors
/// When connections cannot be taken.
pub async fn serve_http(
    server: Server,
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
    let stopped = told.clone();
    let serving = axum::serve(listener, routes.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async move { stopped.cancelled().await })
        .into_future();
    let result = tokio::select! {
        result = serving => result,
        () = async { told.cancelled().await; tokio::time::sleep(GRACE + Duration::from_secs(1)).await } => Ok(()),
    };
    last.end().await;
    result
}

fn routes(server: &Server, options: &HttpOptions, ending: &CancellationToken) -> Router {
    let protocol = match options.transport {
        HttpTransport::Sse => sse::routes(server.clone(), options.max_sessions, ending.clone()),
        HttpTransport::Streamable => {
            let mut sessions = LocalSessionManager::default();
            sessions.session_config.keep_alive = Some(options.idle);
            let sessions = Arc::new(sessions);
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
    let numbers = server.clone();
    let metrics = get(move || async move {
        ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], numbers.metrics())
    });
    protocol
        .route("/metrics", metrics)
        .layer(DefaultBodyLimit::max(options.max_body))
        .layer(middleware::from_fn_with_state(Arc::new(options.admission.clone()), guard))
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
    sessions: Arc<LocalSessionManager>,
    most: usize,
}

/// Refuses requests that would begin a session when there are too many, and answers those that end one.
async fn sessions_begin_and_end(State(full): State<Full>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let modern =
        headers.get("mcp-protocol-version").is_some_and(|version| version.as_bytes() >= b"2026-07-28".as_slice());
    let begins = request.method() == Method::POST && !headers.contains_key("mcp-session-id") && !modern;
    if begins && full.sessions.sessions.read().await.len() >= full.most {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open; try again later").into_response();
    }
    let ends = request.method() == Method::DELETE;
    let mut response = next.run(request).await;
    // A session that was ended has ended; some clients take "accepted" for a failure.
    if ends && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::OK;
    }
    response
}
