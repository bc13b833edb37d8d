//! Where a server over HTTP is, and what goes with every request to it: headers of server and run, and credentials.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, JsonRpcMessage};
use url::Url;

use crate::error::McpError;
use crate::oauth::{Authorizer, OAuth};

/// How long a server may take to accept a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Redirects that are followed, all within the origin.
const MAX_REDIRECTS: usize = 10;

/// What stands for the challenge of a server that sends none.
pub(crate) const NO_CHALLENGE: &str = "it did not say which";

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

    /// Whether a user is being asked for consent.
    pub(crate) fn waits_for_user(&self) -> bool {
        self.oauth.as_ref().is_some_and(|oauth| oauth.is_asking())
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
pub(crate) fn shown(url: &Url) -> String {
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
fn check_name(name: &HeaderName) -> Result<(), McpError> {
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
