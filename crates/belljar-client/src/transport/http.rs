//! Streamable HTTP: `rmcp`'s transport over an HTTP client of ours, which adds headers of server and run, gets tokens, and
//! tries again where a request cannot have arrived.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, GetExtensions, JsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Error as SseError, Sse as Event};
use url::Url;

use super::message::UNREADABLE;
use super::{Connected, Connector, MAX_MESSAGE_BYTES};
use crate::error::McpError;
use crate::oauth::{Authorizer, OAuth, RequestTokens};

/// Requests of one connection that may be on their way at a time; more wait.
const MAX_CONCURRENT_REQUESTS: usize = 256;

/// How long a server may take to accept a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits before a request is sent again that found nobody to accept it.
const CONNECT_RETRIES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1_600)];

/// What stands for the challenge of a server that sends none.
pub(crate) const NO_CHALLENGE: &str = "it did not say which";

/// Redirects that are followed, all within the origin.
const MAX_REDIRECTS: usize = 10;

/// Gives headers for requests, anew for each.
///
/// Closures are such: see [`header_provider`](crate::ServerBuilder::header_provider).
///
/// ```
/// use async_trait::async_trait;
/// use belljar_client::transport::HeaderProvider;
/// use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
///
/// /// Tokens that somebody else refreshes.
/// struct Vault;
///
/// #[async_trait]
/// impl HeaderProvider for Vault {
///     async fn headers(&self) -> Result<HeaderMap, String> {
///         let token = std::fs::read_to_string("/run/secrets/token").map_err(|error| error.to_string())?;
///         let value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|error| error.to_string())?;
///         Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
///     }
/// }
/// ```
#[async_trait]
pub trait HeaderProvider: Send + Sync + 'static {
    /// The headers.
    ///
    /// # Errors
    ///
    /// What went wrong; the request is then not sent.
    async fn headers(&self) -> Result<HeaderMap, String>;
}

#[async_trait]
impl<F, Answer> HeaderProvider for F
where
    F: Fn() -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<HeaderMap, String>> + Send,
{
    async fn headers(&self) -> Result<HeaderMap, String> {
        self().await
    }
}

/// Where a server is, and what goes with every request to it.
#[doc(hidden)]
#[derive(Clone)]
pub struct HttpEndpoint {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) bearer: Option<String>,
    pub(crate) provider: Option<Arc<dyn HeaderProvider>>,
    pub(crate) client: Option<reqwest::Client>,
    pub(crate) oauth: Option<Arc<OAuth>>,
}

impl fmt::Debug for HttpEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpEndpoint").field("url", &shown(&self.url)).finish_non_exhaustive()
    }
}

impl HttpEndpoint {
    pub(crate) fn new(url: &str) -> Result<Self, McpError> {
        let parsed = Url::parse(url).map_err(|error| McpError::Config(format!("`{url}` is no URL: {error}")))?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(McpError::Config(format!("`{url}` is no http or https URL")));
        }
        Ok(Self { url: parsed, headers: HeaderMap::new(), bearer: None, provider: None, client: None, oauth: None })
    }

    /// Where tokens come from, if that is wanted.
    pub(crate) async fn authorizer(&self) -> Result<Option<Arc<Authorizer>>, McpError> {
        match &self.oauth {
            Some(oauth) => oauth.authorizer(&self.url).await.map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn add_header(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), McpError> {
        check_name(&name)?;
        self.headers.append(name, value);
        Ok(())
    }

    /// The client that was given, or one that sends nothing to another origin.
    pub(crate) fn client(&self) -> Result<reqwest::Client, McpError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("belljar/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(same_origin());
        if is_this_machine(&self.url) {
            // Connecting costs little here, and a server that does not switch Nagle's algorithm off (axum's do not, unless
            // told) delays each answer on a connection that was used before by 40 ms.
            builder = builder.pool_max_idle_per_host(0);
        }
        builder.build().map_err(|error| McpError::Config(format!("no HTTP client could be made: {error}")))
    }

    /// All headers of a request: those of the server, of its provider, of the run; the later in place of the earlier.
    pub(crate) async fn headers_for(&self, run: Option<&HeaderMap>) -> Result<HeaderMap, String> {
        let mut headers = self.headers.clone();
        if let Some(token) = &self.bearer {
            headers.insert(http::header::AUTHORIZATION, bearer(token)?);
        }
        if let Some(provider) = &self.provider {
            let provided = provider.headers().await?;
            for name in provided.keys() {
                check_name(name).map_err(|error| error.to_string())?;
            }
            replace(&mut headers, &provided);
        }
        if let Some(run) = run {
            replace(&mut headers, run);
        }
        Ok(headers)
    }
}

/// The value of a header that carries a token.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| "the bearer token has characters that HTTP does not allow".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// A URL without what may be secret in it.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Neither can fail for a URL with a host.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    if url.query().is_some() {
        url.set_query(Some("…"));
    }
    url.to_string()
}

fn replace(headers: &mut HeaderMap, others: &HeaderMap) {
    for (name, value) in others {
        headers.insert(name.clone(), value.clone());
    }
}

/// Reads a header as programs give it. Values may be secret and are kept out of logs.
///
/// # Errors
///
/// [`McpError::Config`] if the name or value is none of HTTP, or the name is the protocol's own.
pub(crate) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), McpError> {
    let bad = |what: &str| McpError::Config(format!("the header `{name}` has a {what} that HTTP does not allow"));
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("name"))?;
    check_name(&header)?;
    let mut value = HeaderValue::from_str(value).map_err(|_| bad("value"))?;
    value.set_sensitive(true);
    Ok((header, value))
}

/// Refuses names that are the protocol's own.
pub(crate) fn check_name(name: &HeaderName) -> Result<(), McpError> {
    let own = name.as_str();
    let reserved = ["accept", "content-type", "content-length", "host", "last-event-id"].contains(&own);
    if reserved || own.starts_with("mcp-") {
        return Err(McpError::Config(format!("the header `{own}` is the protocol's own and cannot be set")));
    }
    Ok(())
}

/// Redirects within the origin that keep method and body. Another origin would get session and credentials.
fn same_origin() -> reqwest::redirect::Policy {
    reqwest::redirect::Policy::custom(|attempt| {
        let keeps_body = matches!(attempt.status().as_u16(), 307 | 308);
        let stays = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
        if !keeps_body || !stays {
            attempt.stop()
        } else if attempt.previous().len() > MAX_REDIRECTS {
            attempt.error("too many redirects")
        } else {
            attempt.follow()
        }
    })
}

/// A server that speaks streamable HTTP.
///
/// ```
/// # use belljar_client::{McpServerStreamableHttp, ServerBuilder, transport::StreamableHttp};
/// fn patient(server: McpServerStreamableHttp) -> ServerBuilder<StreamableHttp> {
///     server.timeout(std::time::Duration::from_secs(60))
/// }
/// ```
#[derive(Clone)]
pub struct StreamableHttp {
    pub(crate) endpoint: HttpEndpoint,
}

impl fmt::Debug for StreamableHttp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("StreamableHttp").field(&shown(&self.endpoint.url)).finish()
    }
}

#[async_trait]
impl Connector for StreamableHttp {
    async fn connect(&self) -> Result<Connected, McpError> {
        let authorizer = self.endpoint.authorizer().await?;
        let client =
            HttpClient { client: self.endpoint.client()?, endpoint: Arc::new(self.endpoint.clone()), authorizer };
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.endpoint.url.as_str())
            .max_concurrent_requests(MAX_CONCURRENT_REQUESTS);
        config.max_sse_event_size = MAX_MESSAGE_BYTES;
        config.allow_stateless = true;
        config.reinit_on_expired_session = true;
        Ok(Connected::new(StreamableHttpClientTransport::with_client(client, config)))
    }

    fn identity(&self) -> String {
        self.endpoint.url.to_string()
    }

    fn label(&self) -> String {
        shown(&self.endpoint.url)
    }

    fn reconnects(&self) -> bool {
        true
    }
}

/// Headers that belong to one run.
#[derive(Clone, Debug)]
pub(crate) struct RunHeaders(pub(crate) HeaderMap);

/// Headers of a run, as a request carries them past `rmcp`. They are not part of the message.
#[derive(Clone, Debug)]
pub(crate) struct SentHeaders(pub(crate) Arc<RunHeaders>);

/// The headers that a message's run adds.
pub(crate) fn run_headers(message: &ClientJsonRpcMessage) -> Option<Arc<RunHeaders>> {
    match message {
        JsonRpcMessage::Request(request) => {
            request.request.extensions().get::<SentHeaders>().map(|headers| headers.0.clone())
        }
        _ => None,
    }
}

type HttpError = StreamableHttpError<reqwest::Error>;

/// Sends `rmcp`'s requests.
#[derive(Clone)]
struct HttpClient {
    client: reqwest::Client,
    endpoint: Arc<HttpEndpoint>,
    authorizer: Option<Arc<Authorizer>>,
}

impl HttpClient {
    /// Sends with all headers and, where that is wanted, a token: one that is there, one that is fetched when the server asks.
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
        let headers = self
            .endpoint
            .headers_for(run.as_deref().map(|run| &run.0))
            .await
            .map_err(|reason| StreamableHttpError::UnexpectedServerResponse(reason.into()))?;
        let mut all: HashMap<HeaderName, HeaderValue> =
            headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
        all.extend(own);
        let mut tokens = RequestTokens::of(self.authorizer.as_deref()).await?;
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
                return Err(error);
            }
            // Nobody took the connection, so nobody got the request: it may be sent again.
            let nobody_there = matches!(&error, StreamableHttpError::Client(error) if error.is_connect());
            match CONNECT_RETRIES.get(attempt) {
                Some(wait) if nobody_there => tokio::time::sleep(*wait).await,
                _ => return Err(error),
            }
            attempt += 1;
        }
    }
}

/// Makes of status 401 what it is, also where the server does not say what it wants.
fn unauthorized(error: HttpError) -> HttpError {
    let is_401 = match &error {
        StreamableHttpError::Client(error) => error.status() == Some(http::StatusCode::UNAUTHORIZED),
        StreamableHttpError::UnexpectedServerResponse(text) => text.starts_with("HTTP 401"),
        _ => false,
    };
    if is_401 { StreamableHttpError::AuthRequired(AuthRequiredError::new(NO_CHALLENGE.to_owned())) } else { error }
}

/// Makes of an error that answers a request by name of nobody an answer to that request: some servers refuse so what comes
/// with a session that they do not know, instead of by status 404. An answer to another request is no answer either: no
/// other comes.
fn refusal(
    response: StreamableHttpPostResponse,
    message: &ClientJsonRpcMessage,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let JsonRpcMessage::Request(request) = message else { return Ok(response) };
    let (mut error, session) = match response {
        StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session) => (error, session),
        // Some make a string of a number.
        StreamableHttpPostResponse::Json(JsonRpcMessage::Response(response), session)
            if response.id.to_string() != request.id.to_string() =>
        {
            let words = format!("{UNREADABLE}it answers request {} instead of {}", response.id, request.id);
            let error = ErrorData::new(ErrorCode::PARSE_ERROR, words, None);
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
        let response = self
            .send(headers, run_headers(&message), |token, headers| {
                self.client.post_message_with_max_sse_event_size(
                    uri.clone(),
                    message.clone(),
                    session_id.clone(),
                    token,
                    headers,
                    max_sse_event_size,
                )
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
            self.client.delete_session(uri.clone(), session_id.clone(), token, headers)
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
            self.client.get_stream_with_max_sse_event_size(
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
