//! Connections over HTTP: taken, served and ended. Who says nothing is not kept: their number is bounded, and so is the time
//! until the first request, which comes before anybody is asked for a token.
//!
//! axum's own loop (`axum::serve`) has none of these bounds and no way to set them, so that hyper is driven here.

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

/// How long the head of a connection's first request may take.
const FIRST: Duration = Duration::from_secs(10);
/// How long a connection may lie there between two requests, and the head of a further one may take.
const QUIET: Duration = Duration::from_secs(60);
/// How long an answer to a ping may take (HTTP/2).
const PONG: Duration = Duration::from_secs(20);

/// Serves whoever connects, `most` at once, until `told` is cancelled; then requests under way have `grace` to end.
pub(crate) async fn serve<L: Listener>(
    mut listener: L,
    routes: Router,
    most: usize,
    told: CancellationToken,
    grace: Duration,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(QUIET);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(QUIET).keep_alive_timeout(PONG);
    let places = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            // The semaphore is never closed.
            let place = places.clone().acquire_owned().await.ok()?;
            Some((place, listener.accept().await.0))
        };
        let (place, io) = tokio::select! {
            next = next => match next {
                Some(next) => next,
                None => break,
            },
            () = told.cancelled() => break,
        };
        connections.spawn(connection(builder.clone(), io, routes.clone(), told.clone(), place));
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    // What is left is dropped, and with it its connections.
    let _ = tokio::time::timeout(grace, async { while connections.join_next().await.is_some() {} }).await;
}

async fn connection<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    builder: Builder<TokioExecutor>,
    io: I,
    routes: Router,
    told: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    let asked = Arc::new(AtomicBool::new(false));
    let service = TowerToHyperService::new(Noting { asked: asked.clone(), routes });
    let mut connection = std::pin::pin!(builder.serve_connection_with_upgrades(TokioIo::new(io), service));
    let mut first = std::pin::pin!(tokio::time::sleep(FIRST));
    let (mut waits, mut ends) = (true, false);
    loop {
        tokio::select! {
            served = connection.as_mut() => {
                if let Err(error) = served {
                    tracing::trace!(%error, "a connection has ended");
                }
                return;
            }
            () = first.as_mut(), if waits => {
                waits = false;
                if !asked.load(Ordering::Relaxed) {
                    return;
                }
            }
            () = told.cancelled(), if !ends => {
                ends = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The routes, and whether anything was ever asked of them.
#[derive(Clone)]
struct Noting {
    asked: Arc<AtomicBool>,
    routes: Router,
}

impl<R> Service<R> for Noting
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
        self.asked.store(true, Ordering::Relaxed);
        self.routes.call(request)
    }
}
