//! Streamable HTTP: `rmcp`'s transport over an HTTP client that adds the headers of server and run, obtains tokens, and
//! retries requests that cannot have arrived.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Error as SseError, Sse as Event};
use tokio_util::sync::CancellationToken;

use super::any::AnyTransport;
use super::endpoint::{HttpEndpoint, NO_CHALLENGE};
use super::headers::{RunHeaders, run_headers};
use super::keep_alive::HttpClients;
use super::message::unparsable;
use super::network::{Network, SessionId};
use super::redaction;
use super::{Connector, IdentityHeaders, MAX_MESSAGE_BYTES, OpenTransport};
use crate::error::{BoxError, McpError};
use crate::oauth::{Authorizer, RequestTokens};

/// The maximum number of concurrent requests per connection; more wait.
const MAX_CONCURRENT_REQUESTS: usize = 256;

/// The delays before retries of a request whose connection was refused.
const CONNECT_RETRY_DELAYS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1_600)];

/// The transport of a server that uses streamable HTTP.
///
/// ```
/// # use belljar_mcp_client::{McpServerStreamableHttp, ServerBuilder, transport::StreamableHttp};
/// fn with_timeout(server: McpServerStreamableHttp) -> ServerBuilder<StreamableHttp> {
///     server.timeout(std::time::Duration::from_secs(60))
/// }
/// ```
#[derive(Clone)]
pub struct StreamableHttp {
    pub(crate) endpoint: HttpEndpoint,
}

impl fmt::Debug for StreamableHttp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("StreamableHttp").field(&redaction::url(&self.endpoint.url)).finish()
    }
}

#[async_trait]
impl Connector for StreamableHttp {
    async fn connect(&self) -> Result<OpenTransport, McpError> {
        let authorizer = self.endpoint.authorizer().await?;
        let network = Network::http(&self.endpoint.url);
        let closed = CancellationToken::new();
        let client = HttpClient {
            clients: Arc::new(self.endpoint.clients()?),
            endpoint: Arc::new(self.endpoint.clone()),
            authorizer,
            session: network.session.clone(),
            closed: closed.clone(),
        };
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.endpoint.url.as_str())
            .max_concurrent_requests(MAX_CONCURRENT_REQUESTS);
        config.max_sse_event_size = MAX_MESSAGE_BYTES;
        config.allow_stateless = true;
        config.reinit_on_expired_session = true;
        let transport = OpenTransport::new(StreamableHttpClientTransport::with_client(client, config));
        Ok(OpenTransport { network, ..transport }.cancelling(closed))
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
        self.endpoint.url.to_string()
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

type HttpError = StreamableHttpError<reqwest::Error>;

/// The HTTP client of `rmcp`'s transport.
#[derive(Clone)]
struct HttpClient {
    clients: Arc<HttpClients>,
    endpoint: Arc<HttpEndpoint>,
    authorizer: Option<Arc<Authorizer>>,
    /// The ID of the session, for spans.
    session: SessionId,
    /// Cancelled when the connection ends: no user is asked for it any more.
    closed: CancellationToken,
}

impl HttpClient {
    /// Returns the headers of a request: those of the server and the run, and those of the protocol.
    async fn headers(
        &self,
        run: Option<&RunHeaders>,
        own: &HashMap<HeaderName, HeaderValue>,
    ) -> Result<HashMap<HeaderName, HeaderValue>, HttpError> {
        let headers = self.endpoint.headers_for(run.map(|run| &run.0)).await.map_err(header_error)?;
        let mut all: HashMap<HeaderName, HeaderValue> =
            headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
        all.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
        Ok(all)
    }

    /// Sends a request with all headers and, if OAuth is configured, a token, which is renewed if the server rejects
    /// it.
    async fn send<T, F, Sending>(
        &self,
        own: HashMap<HeaderName, HeaderValue>,
        run: Option<Arc<RunHeaders>>,
        send: F,
    ) -> Result<T, HttpError>
    where
        F: Fn(Option<String>, HashMap<HeaderName, HeaderValue>) -> Sending,
        Sending: Future<Output = Result<T, HttpError>>,
    {
        let mut all = self.headers(run.as_deref(), &own).await?;
        let mut has_renewed = false;
        // A run with a token of its own does not use that of the program.
        let is_authorized = all.contains_key(&http::header::AUTHORIZATION);
        let authorizer = self.authorizer.as_deref().filter(|_| !is_authorized);
        let mut tokens = RequestTokens::new(authorizer, &self.closed).await?;
        let mut attempt = 0;
        loop {
            let error = match send(tokens.current(), all.clone()).await {
                Ok(result) => return Ok(result),
                Err(error) => unauthorized(error),
            };
            let challenge = match &error {
                StreamableHttpError::AuthRequired(challenge) => Some(challenge.www_authenticate_header.clone()),
                StreamableHttpError::InsufficientScope(challenge) => Some(challenge.www_authenticate_header.clone()),
                _ => None,
            };
            if let Some(challenge) = challenge {
                if tokens.renew(&challenge).await? {
                    continue;
                }
                let is_401 = matches!(error, StreamableHttpError::AuthRequired(_));
                if is_401 && !has_renewed && self.endpoint.renew_headers(&challenge).await.map_err(header_error)? {
                    has_renewed = true;
                    all = self.headers(run.as_deref(), &own).await?;
                    continue;
                }
                return Err(error);
            }
            // Without a TCP connection the request cannot have arrived: it may be sent again.
            let is_refused = matches!(&error, StreamableHttpError::Client(error) if error.is_connect());
            match CONNECT_RETRY_DELAYS.get(attempt) {
                Some(wait) if is_refused => tokio::time::sleep(*wait).await,
                _ => return Err(error),
            }
            attempt += 1;
        }
    }
}

impl HttpClient {
    /// Posts a message and records the time until the first data of the response to a request.
    async fn post(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let (client, kind) = self.clients.next();
        let is_request = matches!(message, JsonRpcMessage::Request(_));
        let started = Instant::now();
        let response = client
            .post_message_with_max_sse_event_size(uri, message, session_id, token, headers, max_sse_event_size)
            .await?;
        Ok(match response {
            StreamableHttpPostResponse::Sse(events, session) if is_request => {
                let clients = self.clients.clone();
                let mut is_first = true;
                let events = events.inspect(move |_| {
                    if std::mem::take(&mut is_first) {
                        clients.record(kind, started.elapsed());
                    }
                });
                StreamableHttpPostResponse::Sse(events.boxed(), session)
            }
            response => {
                if is_request {
                    self.clients.record(kind, started.elapsed());
                }
                response
            }
        })
    }
}

/// Converts the error of a provider of headers.
fn header_error(error: BoxError) -> HttpError {
    StreamableHttpError::UnexpectedServerResponse(error.to_string().into())
}

/// Converts status 401 to an authorization error, even if the server sent no challenge.
fn unauthorized(error: HttpError) -> HttpError {
    let is_401 = match &error {
        StreamableHttpError::Client(error) => error.status() == Some(http::StatusCode::UNAUTHORIZED),
        StreamableHttpError::UnexpectedServerResponse(text) => text.starts_with("HTTP 401"),
        _ => false,
    };
    if is_401 { StreamableHttpError::AuthRequired(AuthRequiredError::new(NO_CHALLENGE.to_owned())) } else { error }
}

/// Assigns an error without an ID to the request that it responds to: some servers reject an unknown session that way,
/// instead of with status 404. A response to another request becomes an error as well, because no other response will
/// follow.
fn refusal(
    response: StreamableHttpPostResponse,
    message: &ClientJsonRpcMessage,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let JsonRpcMessage::Request(request) = message else { return Ok(response) };
    let (mut error, session) = match response {
        StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session) => (error, session),
        // Some servers echo a number as a string.
        StreamableHttpPostResponse::Json(JsonRpcMessage::Response(response), session)
            if response.id.to_string() != request.id.to_string() =>
        {
            let error = unparsable(format_args!("it belongs to request {} instead of {}", response.id, request.id));
            return Ok(StreamableHttpPostResponse::Json(
                JsonRpcMessage::error(error, Some(request.id.clone())),
                session,
            ));
        }
        other => return Ok(other),
    };
    if in_session && error.id.is_none() && error.error.message.to_lowercase().contains("session") {
        return Err(StreamableHttpError::SessionExpired);
    }
    error.id.get_or_insert_with(|| request.id.clone());
    Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session))
}

impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        self.post_message_with_max_sse_event_size(uri, message, session_id, auth, headers, MAX_MESSAGE_BYTES).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        if let Some(session) = &session_id {
            self.session.record(session);
        }
        let response = self
            .send(headers, run_headers(&message), |token, headers| {
                self.post(uri.clone(), message.clone(), session_id.clone(), token, headers, max_sse_event_size)
            })
            .await?;
        refusal(response, &message, session_id.is_some())
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        self.send(headers, None, |token, headers| {
            self.clients.next().0.delete_session(uri.clone(), session_id.clone(), token, headers)
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Event, SseError>>, HttpError> {
        self.get_stream_with_max_sse_event_size(uri, session_id, last_event_id, auth, headers, MAX_MESSAGE_BYTES).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<BoxStream<'static, Result<Event, SseError>>, HttpError> {
        self.send(headers, None, |token, headers| {
            self.clients.next().0.get_stream_with_max_sse_event_size(
                uri.clone(),
                session_id.clone(),
                last_event_id.clone(),
                token,
                headers,
                max_sse_event_size,
            )
        })
        .await
    }
}
