//! HTTP with server-sent events, as of 2024-11-05: a stream that says first where messages are to be posted, and then
//! brings the server's.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::HeaderMap;
use rmcp::RoleClient;
use rmcp::transport::Transport;
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::{AuthRequiredError, HttpStatusError};
use sse_stream::{Sse as Event, SseStream};
use url::Url;

use super::endpoint::{HttpEndpoint, NO_CHALLENGE, RunHeaders, bearer, run_headers};
use super::{BoxTransport, Connected, Connector, Diagnosis, Incoming, MAX_MESSAGE_BYTES, Outgoing, message};
use crate::error::McpError;
use crate::oauth::{Authorizer, RequestTokens};

/// How long a server may take to answer a POST, which it does before it works on the message.
const POST_TIMEOUT: Duration = Duration::from_secs(30);

/// A server that speaks HTTP with server-sent events.
///
/// ```
/// # use belljar_client::{McpServerSse, ServerBuilder, transport::Sse};
/// fn patient(server: McpServerSse) -> ServerBuilder<Sse> {
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

/// What can go wrong with a POST or with opening the stream.
#[derive(Debug, thiserror::Error)]
enum SseError {
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    #[error(transparent)]
    Auth(#[from] AuthRequiredError),
    #[error(transparent)]
    Token(#[from] AuthError),
    #[error(transparent)]
    Status(#[from] HttpStatusError),
    #[error("{0}")]
    Headers(String),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Sends a request, with a token where that is wanted.
async fn send_authorized(
    authorizer: Option<&Authorizer>,
    headers: HeaderMap,
    request: impl Fn(HeaderMap) -> reqwest::RequestBuilder,
) -> Result<reqwest::Response, SseError> {
    let mut tokens = RequestTokens::of(authorizer).await?;
    loop {
        let mut headers = headers.clone();
        if let Some(token) = tokens.current() {
            headers.insert(http::header::AUTHORIZATION, bearer(&token).map_err(SseError::Headers)?);
        }
        let sending = request(headers).send();
        match check(sending.await?) {
            Err(SseError::Auth(challenge)) if tokens.renew(&challenge.www_authenticate_header).await? => {}
            result => return result,
        }
    }
}

#[async_trait]
impl Connector for Sse {
    async fn connect(&self) -> Result<Connected, McpError> {
        let label = self.label();
        let broken = |reason: String| McpError::Connect { server: label.clone(), reason, source: None };
        let client = self.endpoint.client()?;
        let authorizer = self.endpoint.authorizer().await?;
        let headers = self.endpoint.headers_for(None).await.map_err(&broken)?;
        let response = send_authorized(authorizer.as_deref(), headers, |headers| {
            client.get(self.endpoint.url.clone()).headers(headers).header(http::header::ACCEPT, "text/event-stream")
        })
        .await;
        let response = response.map_err(|error| match error {
            SseError::Auth(challenge) => {
                McpError::Unauthorized { server: label.clone(), reason: challenge.www_authenticate_header }
            }
            SseError::Token(error) => McpError::Unauthorized { server: label.clone(), reason: error.to_string() },
            other => broken(words(&other)),
        })?;
        let kind = response.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Err(broken(format!(
                "it answered with `{}` instead of a stream of events; is it a server of streamable HTTP?",
                kind.unwrap_or("no content type")
            )));
        }
        let ended = Arc::new(Ended::default());
        let mut events = bounded_events(response.bytes_stream().boxed(), ended.clone());
        let endpoint = loop {
            match events.next().await {
                Some(Ok(event)) if event.event.as_deref() == Some("endpoint") => {
                    break self.message_url(event.data.as_deref().unwrap_or_default().trim()).map_err(&broken)?;
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(broken(error.to_string())),
                None => return Err(broken("the stream ended before it said where to send messages".to_owned())),
            }
        };
        let transport = SseTransport {
            events,
            client,
            messages: endpoint,
            endpoint: Arc::new(self.endpoint.clone()),
            authorizer,
            ended: ended.clone(),
        };
        Ok(Connected { transport: BoxTransport::new(transport), diagnosis: ended })
    }

    fn identity(&self) -> String {
        // Of the same URL, it is another server than one of streamable HTTP.
        format!("sse {}", self.endpoint.url)
    }

    fn label(&self) -> String {
        let mut url = self.endpoint.url.clone();
        url.set_query(None);
        url.to_string()
    }

    fn reconnects(&self) -> bool {
        true
    }

    fn waits_for_user(&self) -> bool {
        self.endpoint.waits_for_user()
    }
}

impl Sse {
    /// Where messages are posted: only to the origin that was connected to, as headers with credentials go there.
    fn message_url(&self, said: &str) -> Result<Url, String> {
        let url = self.endpoint.url.join(said).map_err(|error| format!("its endpoint `{said}` is no URL: {error}"))?;
        if url.origin() == self.endpoint.url.origin() {
            Ok(url)
        } else {
            Err(format!(
                "it wants messages sent to another origin, {}, which is refused",
                url.origin().ascii_serialization()
            ))
        }
    }
}

/// Turns a status that is none of success into an error.
fn check(response: reqwest::Response) -> Result<reqwest::Response, SseError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    if status == http::StatusCode::UNAUTHORIZED {
        let challenge = response.headers().get(http::header::WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        return Err(AuthRequiredError::new(challenge.unwrap_or(NO_CHALLENGE).to_owned()).into());
    }
    Err(HttpStatusError::new(status.as_u16(), None).into())
}

/// An error with its causes.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        let text = current.to_string();
        if !words.contains(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
        cause = current.source();
    }
    words
}

type Events = BoxStream<'static, Result<Event, sse_stream::Error>>;

/// The stream's events. A single one that is larger than a message may be ends it.
fn bounded_events(bytes: BoxStream<'static, reqwest::Result<Bytes>>, ended: Arc<Ended>) -> Events {
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
                    ended.set(format!("it sent a message of more than {MAX_MESSAGE_BYTES} bytes"));
                }
            }
            Err(error) => ended.set(format!("the stream broke: {}", words(error))),
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
    ended: Arc<Ended>,
}

impl Transport<RoleClient> for SseTransport {
    type Error = SseErrorBox;

    fn send(&mut self, message: Outgoing) -> impl Future<Output = Result<(), SseErrorBox>> + Send + 'static {
        let post = post(
            self.client.clone(),
            self.messages.clone(),
            self.endpoint.clone(),
            self.authorizer.clone(),
            run_headers(&message),
            serde_json::to_vec(&message),
        );
        async move { post.await.map_err(SseErrorBox) }
    }

    async fn receive(&mut self) -> Option<Incoming> {
        loop {
            match self.events.next().await {
                Some(Ok(event)) if event.event.as_deref().unwrap_or("message") == "message" => {
                    match message::read(event.data.unwrap_or_default().as_bytes()) {
                        Ok(message) => return Some(message),
                        Err(error) => tracing::debug!(%error, "an event is no message"),
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.ended.set(format!("the stream broke: {}", words(&error)));
                    return None;
                }
                None => {
                    self.ended.set("the server ended the stream".to_owned());
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), SseErrorBox> {
        self.ended.set("it was closed".to_owned());
        self.events = futures::stream::empty().boxed();
        Ok(())
    }
}

/// Posts a message.
async fn post(
    client: reqwest::Client,
    url: Url,
    endpoint: Arc<HttpEndpoint>,
    authorizer: Option<Arc<Authorizer>>,
    run: Option<Arc<RunHeaders>>,
    message: serde_json::Result<Vec<u8>>,
) -> Result<(), SseError> {
    let message = Bytes::from(message?);
    let headers = endpoint.headers_for(run.as_deref().map(|run| &run.0)).await.map_err(SseError::Headers)?;
    let request = |headers| {
        client
            .post(url.clone())
            .headers(headers)
            .header(http::header::CONTENT_TYPE, "application/json")
            .timeout(POST_TIMEOUT)
            .body(message.clone())
    };
    send_authorized(authorizer.as_deref(), headers, request).await.map(drop)
}

/// The error as `rmcp` sees it.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct SseErrorBox(SseError);

/// Why the stream is over: the first reason that was found.
#[derive(Default)]
struct Ended(Mutex<Option<String>>);

impl Ended {
    fn set(&self, reason: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
    }
}

#[async_trait]
impl Diagnosis for Ended {
    async fn closed(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
