//! Reads the bodies of requests: with limits on their size, on their time, and on the memory of all of them; and gives
//! requests their turns ([`arrival`](crate::arrival)).

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, RETRY_AFTER};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use belljar_sessions::SessionId;
use futures::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::arrival::{ArrivalOrder, SenderTurn, session_use, used_run};
use crate::cluster::{ForwardedRequest, UsedRun, UsedSession, check_body};
use crate::metrics::{Refusal, Refusals};
use crate::task_transport::RequestsTask;

/// The time in which a request's body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of bytes of all bodies that are being received, apart from [`UNCOUNTED_BYTES`] of each.
const MAX_BUFFERED_BYTES: usize = 256 << 20;
/// The number of bytes of each body that the limit on all bodies does not count, so that clients with large bodies do
/// not keep others from sending small ones.
const UNCOUNTED_BYTES: usize = 64 << 10;

/// The state of the middleware [`read_body`].
#[derive(Clone)]
pub(crate) struct BodyReader {
    /// The maximum size of a body, in bytes.
    max_body: usize,
    timeout: Duration,
    /// A permit for each byte.
    buffered: Arc<Semaphore>,
    order: ArrivalOrder<SessionId>,
    refusals: Refusals,
    /// True if this server is a replica.
    is_in_cluster: bool,
}

/// The reason why a body was not read.
#[derive(Debug)]
enum BodyError {
    TooLong,
    TimedOut,
    /// The bodies of other requests take the available memory.
    Busy,
    /// The client disconnected.
    Incomplete,
}

impl BodyReader {
    pub(crate) fn new(max_body: usize, order: ArrivalOrder<SessionId>, refusals: Refusals) -> Self {
        let buffered = Arc::new(Semaphore::new(MAX_BUFFERED_BYTES));
        Self { max_body, timeout: BODY_TIMEOUT, buffered, order, refusals, is_in_cluster: false }
    }

    /// Looks for the runs that requests name.
    pub(crate) fn in_cluster(self, is_in_cluster: bool) -> Self {
        Self { is_in_cluster, ..self }
    }

    /// Reads a body. Its memory counts as buffered until the returned permit is dropped.
    async fn read(&self, headers: &HeaderMap, body: Body) -> Result<(Bytes, Option<OwnedSemaphorePermit>), BodyError> {
        let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if announced.is_some_and(|length| length > self.max_body) {
            return Err(BodyError::TooLong);
        }
        tokio::time::timeout(self.timeout, self.collect(body)).await.unwrap_or(Err(BodyError::TimedOut))
    }

    async fn collect(&self, body: Body) -> Result<(Bytes, Option<OwnedSemaphorePermit>), BodyError> {
        let mut pieces = body.into_data_stream();
        let mut bytes = Vec::new();
        let mut permit: Option<OwnedSemaphorePermit> = None;
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| BodyError::Incomplete)?;
            if bytes.len() + piece.len() > self.max_body {
                return Err(BodyError::TooLong);
            }
            bytes.extend_from_slice(&piece);
            let counted = permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let more = bytes.len().saturating_sub(UNCOUNTED_BYTES + counted);
            if more > 0 {
                let more = u32::try_from(more).map_err(|_| BodyError::TooLong)?;
                let more = self.buffered.clone().try_acquire_many_owned(more).map_err(|_| BodyError::Busy)?;
                match &mut permit {
                    Some(permit) => permit.merge(more),
                    None => permit = Some(more),
                }
            }
        }
        Ok((bytes.into(), permit))
    }

    fn refuse(&self, error: &BodyError) -> Response {
        self.refusals.count(match error {
            BodyError::TooLong => Refusal::BodyTooLong,
            BodyError::TimedOut | BodyError::Incomplete => Refusal::BodyIncomplete,
            BodyError::Busy => Refusal::BodiesFull,
        });
        match error {
            BodyError::TooLong => {
                let reason = format!("the request is longer than {} bytes", self.max_body);
                (StatusCode::PAYLOAD_TOO_LARGE, reason).into_response()
            }
            BodyError::TimedOut => {
                let reason = format!("the request did not arrive within {} s", self.timeout.as_secs_f64());
                (StatusCode::REQUEST_TIMEOUT, reason).into_response()
            }
            BodyError::Busy => {
                let reason = "the server is receiving too many bytes; try again later";
                (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "5")], reason).into_response()
            }
            BodyError::Incomplete => (StatusCode::BAD_REQUEST, "the request is incomplete").into_response(),
        }
    }
}

/// Reads the body of a POST request before the request is handled. If the request uses a session, it takes its turn
/// after the requests of the same sender whose heads arrived earlier.
pub(crate) async fn read_body(State(reader): State<BodyReader>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let sender_turn = parts.extensions.remove::<SenderTurn>();
    let (bytes, permit) = match reader.read(&parts.headers, body).await {
        Ok(read) => read,
        Err(error) => return reader.refuse(&error),
    };
    if parts.extensions.get::<ForwardedRequest>().is_some_and(|passed_on| !check_body(passed_on, &bytes)) {
        return (StatusCode::BAD_REQUEST, "the body is not the one that another replica has sent").into_response();
    }
    if let Some(session_use) = session_use(&bytes) {
        parts.extensions.insert(UsedSession(session_use.session.clone()));
        match &sender_turn {
            Some(turn) if session_use.is_interrupt => turn.wait_briefly().await,
            Some(turn) => turn.wait().await,
            None => (),
        }
        parts.extensions.insert(reader.order.enter(session_use.session));
    }
    if reader.is_in_cluster
        && let Some(run) = used_run(&bytes)
    {
        parts.extensions.insert(UsedRun(run));
    }
    if let Some(mark) = RequestsTask::parse(&bytes) {
        parts.extensions.insert(mark);
    }
    drop(sender_turn);
    let response = next.run(Request::from_parts(parts, Body::from(bytes))).await;
    drop(permit);
    response
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn reader(max_body: usize, buffered: usize, timeout: Duration) -> BodyReader {
        let buffered = Arc::new(Semaphore::new(buffered));
        let (order, refusals) = (ArrivalOrder::default(), Refusals::default());
        BodyReader { max_body, timeout, buffered, order, refusals, is_in_cluster: false }
    }

    #[tokio::test]
    async fn bodies_are_limited_in_size_and_in_sum() {
        let reader = reader(1 << 20, 100_000, BODY_TIMEOUT);
        let none = HeaderMap::new();
        let read = async |length: usize| reader.read(&none, Body::from(vec![0; length])).await;
        assert!(matches!(read((1 << 20) + 1).await, Err(BodyError::TooLong)));
        let announced = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("9999999"))]);
        assert!(matches!(reader.read(&announced, Body::empty()).await, Err(BodyError::TooLong)));
        let (bytes, held) = read(150_000).await.unwrap();
        assert_eq!(bytes.len(), 150_000);
        assert!(matches!(read(150_000).await, Err(BodyError::Busy)));
        assert!(read(UNCOUNTED_BYTES).await.is_ok());
        drop(held);
        assert!(read(150_000).await.is_ok());
    }

    #[tokio::test]
    async fn bodies_that_fail_free_their_memory() {
        let reader = reader(1 << 20, 100_000, Duration::from_millis(50));
        let none = HeaderMap::new();
        let piece = || Ok(Bytes::from(vec![0; 150_000]));
        let broken = || Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let disconnected = Body::from_stream(futures::stream::iter([piece(), broken()]));
        assert!(matches!(reader.read(&none, disconnected).await, Err(BodyError::Incomplete)));
        let stalled = futures::stream::iter([piece()]).chain(futures::stream::pending());
        assert!(matches!(reader.read(&none, Body::from_stream(stalled)).await, Err(BodyError::TimedOut)));
        let too_long = futures::stream::iter((0..10).map(move |_| piece()));
        assert!(reader.read(&none, Body::from_stream(too_long)).await.is_err());
        assert_eq!(reader.buffered.available_permits(), 100_000);
    }

    #[tokio::test]
    async fn body_that_does_not_arrive_is_given_up() {
        let reader = reader(1000, 1000, Duration::from_millis(10));
        let endless = futures::stream::pending::<Result<Bytes, std::io::Error>>();
        let read = reader.read(&HeaderMap::new(), Body::from_stream(endless)).await;
        assert!(matches!(read, Err(BodyError::TimedOut)), "{read:?}");
    }
}
