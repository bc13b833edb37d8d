//! HTTP with server-sent events, as of 2024-11-05: a stream that first names the URL for posting messages, and then
//! delivers the server's messages.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::HeaderMap;
use rmcp::RoleClient;
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::{AuthRequiredError, HttpStatusError};
use sse_stream::{Sse as Event, SseStream};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::any::AnyTransport;
use super::endpoint::{HttpEndpoint, NO_CHALLENGE, bearer};
use super::headers::{RunHeaders, run_headers};
use super::network::Network;
use super::retry_after;
use super::{
    BoxTransport, Connector, DisconnectReason, IdentityHeaders, Incoming, MAX_MESSAGE_BYTES, OpenTransport, Outgoing,
    error_chain, message, redaction,
};
use crate::error::{BoxError, McpError};
use crate::oauth::{AuthError, Authorizer, RequestTokens};

/// The time within which a server must respond to a POST, which it does before it processes the message.
const POST_TIMEOUT: Duration = Duration::from_secs(30);

/// The transport of a server that uses HTTP with server-sent events.
///
/// ```
/// # use belljar_mcp_client::{McpServerSse, ServerBuilder, transport::Sse};
/// fn with_timeout(server: McpServerSse) -> ServerBuilder<Sse> {
///     server.timeout(std::time::Duration::from_secs(60))
/// }
/// ```
#[derive(Clone)]
pub struct Sse {
    pub(crate) endpoint: HttpEndpoint,
}

impl fmt::Debug for Sse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Sse").field(&self.endpoint).finish()
    }
}

/// The errors of a POST and of opening the stream.
#[derive(Debug, thiserror::Error)]
enum SseError {
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    // Not transparent, so that the error is among the causes.
    #[error("{0}")]
    Auth(#[from] AuthRequiredError),
    #[error("{0}")]
    Token(#[from] AuthError),
    #[error("{0}")]
    Status(#[from] HttpStatusError),
    #[error(transparent)]
    Headers(BoxError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The error of an invalid `endpoint` event.
#[derive(Debug, thiserror::Error)]
enum EndpointError {
    #[error("its endpoint `{endpoint}` is not a valid URL: {source}")]
    Url { endpoint: String, source: url::ParseError },
    #[error("its endpoint is on another origin, {origin}")]
    OtherOrigin { origin: String },
}

/// Sends a request, with a token if OAuth is configured.
async fn send_authorized(
    endpoint: &HttpEndpoint,
    authorizer: Option<&Authorizer>,
    run: Option<&RunHeaders>,
    closed: &CancellationToken,
    request: impl Fn(HeaderMap) -> reqwest::RequestBuilder,
) -> Result<reqwest::Response, SseError> {
    let mut headers = endpoint.headers_for(run.map(|run| &run.0)).await.map_err(SseError::Headers)?;
    let mut has_renewed = false;
    // A run with a token of its own does not use that of the program.
    let authorizer = authorizer.filter(|_| !headers.contains_key(http::header::AUTHORIZATION));
    let mut tokens = RequestTokens::new(authorizer, closed).await?;
    loop {
        let mut all = headers.clone();
        if let Some(token) = tokens.current() {
            all.insert(http::header::AUTHORIZATION, bearer(&token).map_err(|error| SseError::Headers(error.into()))?);
        }
        let sending = request(all).send();
        let challenge = match check(sending.await?) {
            Err(SseError::Auth(challenge)) => challenge,
            result => return result,
        };
        if tokens.renew(&challenge.www_authenticate_header).await? {
            continue;
        }
        if has_renewed
            || !endpoint.renew_headers(&challenge.www_authenticate_header).await.map_err(SseError::Headers)?
        {
            return Err(SseError::Auth(challenge));
        }
        has_renewed = true;
        headers = endpoint.headers_for(run.map(|run| &run.0)).await.map_err(SseError::Headers)?;
    }
}

#[async_trait]
impl Connector for Sse {
    async fn connect(&self) -> Result<OpenTransport, McpError> {
        let label = self.label();
        let broken = |reason: String| McpError::connect(&label, reason);
        let client = self.endpoint.client()?;
        let authorizer = self.endpoint.authorizer().await?;
        let closed = CancellationToken::new();
        let response = send_authorized(&self.endpoint, authorizer.as_deref(), None, &closed, |headers| {
            client.get(self.endpoint.url.clone()).headers(headers).header(http::header::ACCEPT, "text/event-stream")
        })
        .await;
        let response = response.map_err(|error| match error {
            SseError::Auth(challenge) => McpError::Unauthorized {
                server: label.clone(),
                reason: challenge.www_authenticate_header,
                status: Some(http::StatusCode::UNAUTHORIZED.as_u16()),
            },
            SseError::Token(error) => McpError::unauthorized(&label, error_chain::text(&error)),
            SseError::Status(error) => McpError::Connect {
                server: label.clone(),
                reason: error.to_string(),
                status: Some(error.status),
                retry_after: error.retry_after.as_deref().and_then(retry_after::parse),
                source: None,
            },
            other => broken(error_chain::text(&other)),
        })?;
        let kind = response.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Err(broken(format!(
                "it responded with `{}` instead of a stream of events (a server of streamable HTTP?)",
                kind.unwrap_or("no content type")
            )));
        }
        let end_reason = Arc::new(StreamEndReason::default());
        let mut events = bounded_events(response.bytes_stream().boxed(), end_reason.clone());
        let endpoint = loop {
            match events.next().await {
                Some(Ok(event)) if event.event.as_deref() == Some("endpoint") => {
                    break self
                        .message_url(event.data.as_deref().unwrap_or_default().trim())
                        .map_err(|error| broken(error.to_string()))?;
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(broken(error.to_string())),
                None => return Err(broken("the stream ended before it named the URL for posting messages".to_owned())),
            }
        };
        let transport = SseTransport {
            events,
            client,
            messages: endpoint,
            endpoint: Arc::new(self.endpoint.clone()),
            authorizer,
            end_reason: end_reason.clone(),
            closed: closed.clone(),
        };
        Ok(OpenTransport {
            transport: BoxTransport::new(transport),
            disconnect_reason: end_reason,
            network: Network::http(&self.endpoint.url),
        }
        .cancelling(closed))
    }

    async fn connect_as(&self, headers: &Arc<IdentityHeaders>) -> Result<OpenTransport, McpError> {
        let mut identified = self.clone();
        identified.endpoint.identity = Some(headers.clone());
        identified.connect().await
    }

    fn sends_headers(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        // A server of streamable HTTP at the same URL is a different server.
        format!("sse {}", self.endpoint.url)
    }

    fn label(&self) -> String {
        redaction::url(&self.endpoint.url)
    }

    fn reconnects(&self) -> bool {
        true
    }

    fn waits_for_user(&self) -> bool {
        self.endpoint.waits_for_user()
    }

    fn to_any(&self) -> Option<AnyTransport> {
        Some(self.clone().into())
    }
}

impl Sse {
    /// Returns the URL for posting messages. It must have the origin of the configured URL, because credentials are
    /// sent there.
    fn message_url(&self, endpoint: &str) -> Result<Url, EndpointError> {
        let url = self
            .endpoint
            .url
            .join(endpoint)
            .map_err(|source| EndpointError::Url { endpoint: endpoint.to_owned(), source })?;
        if url.origin() == self.endpoint.url.origin() {
            Ok(url)
        } else {
            Err(EndpointError::OtherOrigin { origin: url.origin().ascii_serialization() })
        }
    }
}

/// Converts an unsuccessful status to an error.
fn check(response: reqwest::Response) -> Result<reqwest::Response, SseError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    if status == http::StatusCode::UNAUTHORIZED {
        let challenge = response.headers().get(http::header::WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        return Err(AuthRequiredError::new(challenge.unwrap_or(NO_CHALLENGE).to_owned()).into());
    }
    let retry_after = response.headers().get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    Err(HttpStatusError::new(status.as_u16(), retry_after.map(str::to_owned)).into())
}

type Events = BoxStream<'static, Result<Event, sse_stream::Error>>;

/// Returns the stream's events. A single event that exceeds the maximum size of a message ends the stream.
fn bounded_events(bytes: BoxStream<'static, reqwest::Result<Bytes>>, end_reason: Arc<StreamEndReason>) -> Events {
    let mut since_event = 0usize;
    let mut last = [0u8; 2];
    let bounded = bytes.take_while(move |piece| {
        let mut fits = true;
        match piece {
            Ok(piece) => {
                for byte in piece.iter().filter(|byte| **byte != b'\r') {
                    since_event += 1;
                    last = [last[1], *byte];
                    if last == *b"\n\n" {
                        since_event = 0;
                    }
                    fits &= since_event <= MAX_MESSAGE_BYTES;
                }
                if !fits {
                    end_reason.set(format!("it sent a message of more than {MAX_MESSAGE_BYTES} bytes"));
                }
            }
            Err(error) => end_reason.set(format!("the stream broke: {}", error_chain::text(error))),
        }
        futures::future::ready(fits)
    });
    SseStream::from_byte_stream(bounded).boxed()
}

struct SseTransport {
    events: Events,
    client: reqwest::Client,
    messages: Url,
    endpoint: Arc<HttpEndpoint>,
    authorizer: Option<Arc<Authorizer>>,
    end_reason: Arc<StreamEndReason>,
    /// Cancelled when the connection ends: no user is asked for it any more.
    closed: CancellationToken,
}

impl Transport<RoleClient> for SseTransport {
    type Error = SseErrorBox;

    fn send(&mut self, message: Outgoing) -> impl Future<Output = Result<(), SseErrorBox>> + Send + 'static {
        let post = Post {
            client: self.client.clone(),
            url: self.messages.clone(),
            endpoint: self.endpoint.clone(),
            authorizer: self.authorizer.clone(),
            run: run_headers(&message),
            closed: self.closed.clone(),
        };
        let message = serde_json::to_vec(&message);
        async move { post.send(message).await.map_err(SseErrorBox) }
    }

    async fn receive(&mut self) -> Option<Incoming> {
        loop {
            match self.events.next().await {
                Some(Ok(event)) if event.event.as_deref().unwrap_or("message") == "message" => {
                    match message::read(event.data.unwrap_or_default().as_bytes()) {
                        Ok(message) => return Some(message),
                        Err(error) => tracing::debug!(%error, "skipping an event that is not a message"),
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.end_reason.set(format!("the stream broke: {}", error_chain::text(&error)));
                    return None;
                }
                None => {
                    self.end_reason.set("the server ended the stream".to_owned());
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), SseErrorBox> {
        self.end_reason.set("it was closed".to_owned());
        self.events = futures::stream::empty().boxed();
        Ok(())
    }
}

/// The sending of one message.
struct Post {
    client: reqwest::Client,
    url: Url,
    endpoint: Arc<HttpEndpoint>,
    authorizer: Option<Arc<Authorizer>>,
    run: Option<Arc<RunHeaders>>,
    closed: CancellationToken,
}

impl Post {
    async fn send(self, message: serde_json::Result<Vec<u8>>) -> Result<(), SseError> {
        let message = Bytes::from(message?);
        let request = |headers| {
            self.client
                .post(self.url.clone())
                .headers(headers)
                .header(http::header::CONTENT_TYPE, "application/json")
                .timeout(POST_TIMEOUT)
                .body(message.clone())
        };
        let (authorizer, run) = (self.authorizer.as_deref(), self.run.as_deref());
        send_authorized(&self.endpoint, authorizer, run, &self.closed, request).await.map(drop)
    }
}

/// The transport's error type for `rmcp`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct SseErrorBox(#[source] SseError);

/// The reason for which the stream ended: the first one that was found.
#[derive(Default)]
struct StreamEndReason(Mutex<Option<String>>);

impl StreamEndReason {
    fn set(&self, reason: String) {
        self.0.lock().get_or_insert(reason);
    }
}

#[async_trait]
impl DisconnectReason for StreamEndReason {
    async fn reason(&self) -> Option<String> {
        self.0.lock().clone()
    }
}
