//! Accepts, serves and closes HTTP connections. Idle clients cannot exhaust the server: the number of connections is
//! bounded, and so is the time until the first request, which precedes any check of a token.
//!
//! axum's own loop (`axum::serve`) has none of these bounds and no way to set them, so that this module drives hyper.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::header::AUTHORIZATION;
use axum::http::{Method, Request};
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::service::Service as HyperService;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::arrival::{ArrivalOrder, Sender};
use crate::guard::ConnectionNumber;
use crate::http::SESSION_ID_HEADER;
use crate::os::set_unread_timeout;

/// The time in which the head of a connection's first request must arrive.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum idle time between two requests on a connection, which includes the time for the next request's head.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which a ping must be answered (HTTP/2).
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The time after which a connection is closed whose client acknowledges or accepts nothing of what was sent to it.
/// Some clients do not read while a person debugs them.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Sets the options of an accepted connection.
pub(crate) fn configure(stream: &TcpStream) {
    // Without it a message may wait for the acknowledgement of the previous one.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    // hyper has no such limit: a stream of events to a client that does not read would stay open.
    if let Err(error) = set_unread_timeout(stream, UNREAD_TIMEOUT) {
        tracing::debug!(%error, "failed to set TCP_USER_TIMEOUT");
    }
}

/// Serves up to `max_connections` connections at once until `shutdown` is cancelled; requests in flight then have
/// `grace` to end.
pub(crate) async fn serve<L: Listener>(
    mut listener: L,
    routes: Router,
    max_connections: usize,
    shutdown: CancellationToken,
    grace: Duration,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(IDLE_TIMEOUT).keep_alive_timeout(PING_TIMEOUT);
    let slots = Arc::new(Semaphore::new(max_connections));
    let mut connections = JoinSet::new();
    let order = ArrivalOrder::default();
    loop {
        let next = async {
            // The semaphore is never closed.
            let slot = slots.clone().acquire_owned().await.ok()?;
            Some((slot, listener.accept().await.0))
        };
        let (slot, io) = tokio::select! {
            next = next => match next {
                Some(next) => next,
                None => break,
            },
            () = shutdown.cancelled() => break,
        };
        let service = ConnectionService::new(routes.clone(), order.clone());
        connections.spawn(connection(builder.clone(), io, service, shutdown.clone(), slot));
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    // Dropping the set closes the connections that are left.
    let _ = tokio::time::timeout(grace, async { while connections.join_next().await.is_some() {} }).await;
}

async fn connection<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    builder: Builder<TokioExecutor>,
    io: I,
    service: ConnectionService,
    shutdown: CancellationToken,
    _slot: OwnedSemaphorePermit,
) {
    let has_request = service.has_request.clone();
    let mut connection = std::pin::pin!(builder.serve_connection_with_upgrades(TokioIo::new(io), service));
    let mut first = std::pin::pin!(tokio::time::sleep(FIRST_REQUEST_TIMEOUT));
    let (mut awaits_request, mut is_ending) = (true, false);
    loop {
        tokio::select! {
            served = connection.as_mut() => {
                if let Err(error) = served {
                    tracing::trace!(%error, "a connection ended with an error");
                }
                return;
            }
            () = first.as_mut(), if awaits_request => {
                awaits_request = false;
                if !has_request.load(Ordering::Relaxed) {
                    return;
                }
            }
            () = shutdown.cancelled(), if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The routes, as one connection uses them. It is called as soon as a request's head was read, in the order of arrival.
#[derive(Clone)]
struct ConnectionService {
    /// The number of the connection.
    number: u64,
    /// Set by the first request.
    has_request: Arc<AtomicBool>,
    order: ArrivalOrder<Sender>,
    routes: Router,
}

impl ConnectionService {
    fn new(routes: Router, order: ArrivalOrder<Sender>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), has_request: Arc::default(), order, routes }
    }

    fn sender(&self, request: &Request<Incoming>) -> Sender {
        match request.headers().get(SESSION_ID_HEADER) {
            Some(session) => Sender::McpSession(session.clone()),
            None => Sender::Connection(self.number, request.headers().get(AUTHORIZATION).cloned()),
        }
    }
}

/// hyper's trait, whose `call` runs when the head was read. An adapter from tower's trait would run it in the request's
/// task, out of order.
impl HyperService<Request<Incoming>> for ConnectionService {
    type Response = <Router as Service<Request<Incoming>>>::Response;
    type Error = <Router as Service<Request<Incoming>>>::Error;
    type Future = <Router as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.has_request.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(ConnectionNumber(self.number));
        if request.method() == Method::POST {
            let turn = self.order.enter(self.sender(&request));
            request.extensions_mut().insert(turn);
        }
        // A router is always ready.
        self.routes.clone().call(request)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connection_whose_client_does_not_read_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // The client stays connected and never reads.
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        set_unread_timeout(&stream, Duration::from_millis(100)).unwrap();
        let block = [0; 1 << 16];
        let error = loop {
            if let Err(error) = stream.write_all(&block).await {
                break error;
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
    }
}
