//! Accepts, serves and closes HTTP connections. Idle clients cannot exhaust the server: the number of connections is
//! bounded, and so is the time until the first request, which precedes any check of a token.
//!
//! axum's own loop (`axum::serve`) has none of these bounds and no way to set them, so that this module drives hyper.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

/// The time in which the head of a connection's first request must arrive.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum idle time between two requests on a connection, which includes the time for the next request's head.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which a ping must be answered (HTTP/2).
const PING_TIMEOUT: Duration = Duration::from_secs(20);

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
        connections.spawn(connection(builder.clone(), io, routes.clone(), shutdown.clone(), slot));
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    // Dropping the set closes the connections that are left.
    let _ = tokio::time::timeout(grace, async { while connections.join_next().await.is_some() {} }).await;
}

async fn connection<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    builder: Builder<TokioExecutor>,
    io: I,
    routes: Router,
    shutdown: CancellationToken,
    _slot: OwnedSemaphorePermit,
) {
    let has_request = Arc::new(AtomicBool::new(false));
    let service = TowerToHyperService::new(FirstRequestObserver { has_request: has_request.clone(), routes });
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

/// The routes, with a flag that is set by the first request.
#[derive(Clone)]
struct FirstRequestObserver {
    has_request: Arc<AtomicBool>,
    routes: Router,
}

impl<R> Service<R> for FirstRequestObserver
where
    Router: Service<R>,
{
    type Response = <Router as Service<R>>::Response;
    type Error = <Router as Service<R>>::Error;
    type Future = <Router as Service<R>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<R>::poll_ready(&mut self.routes, context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.has_request.store(true, Ordering::Relaxed);
        self.routes.call(request)
    }
}
