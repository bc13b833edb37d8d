//! The URL of a server over HTTP, and the headers and credentials of its requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue};
use url::Url;

use super::IdentityHeaders;
use super::headers::{check_name, header};
use super::keep_alive::HttpClients;
use super::{error_chain, redaction};
use crate::error::{BoxError, ConfigError, McpError};
use crate::oauth::Authorizer;
#[cfg(feature = "oauth")]
use crate::oauth::{OAuth, RegisteredClient};

/// The time within which a server must accept a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which an unused connection to this machine is kept. Common servers close theirs after five seconds, and
/// a request that meets the close fails.
const LOOPBACK_IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The maximum number of redirects, all within the origin.
const MAX_REDIRECTS: usize = 10;

/// The challenge of a server that sends none.
pub(crate) const NO_CHALLENGE: &str = "the server did not send a challenge";

/// A provider of headers, called for each request.
///
/// Closures implement it: see [`header_provider`](crate::ServerBuilder::header_provider).
///
/// ```
/// use belljar_mcp_client::async_trait;
/// use belljar_mcp_client::BoxError;
/// use belljar_mcp_client::transport::HeaderProvider;
/// use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
///
/// /// Reads a token that another program refreshes.
/// struct Vault;
///
/// #[async_trait]
/// impl HeaderProvider for Vault {
///     async fn headers(&self) -> Result<HeaderMap, BoxError> {
///         let token = std::fs::read_to_string("/run/secrets/token")?;
///         let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))?;
///         Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
///     }
/// }
/// ```
#[async_trait]
pub trait HeaderProvider: Send + Sync + 'static {
    /// Returns the headers.
    ///
    /// # Errors
    ///
    /// A failure to provide them; the request is then not sent.
    async fn headers(&self) -> Result<HeaderMap, BoxError>;

    /// Renews the headers after the server rejected a request with status 401, and returns whether to send the request
    /// again with new [`headers`](Self::headers). It is called once per request. Defaults to false.
    ///
    /// # Errors
    ///
    /// A failure to renew them.
    async fn rejected(&self, challenge: &str) -> Result<bool, BoxError> {
        let _ = challenge;
        Ok(false)
    }
}

#[async_trait]
impl<F, Answer> HeaderProvider for F
where
    F: Fn() -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<HeaderMap, BoxError>> + Send,
{
    async fn headers(&self) -> Result<HeaderMap, BoxError> {
        self().await
    }
}

/// The URL of a server, and the headers and credentials of its requests.
#[doc(hidden)]
#[derive(Clone)]
pub struct HttpEndpoint {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) bearer: Option<String>,
    pub(crate) provider: Option<Arc<dyn HeaderProvider>>,
    /// The headers of the identity whose session this is.
    pub(crate) identity: Option<Arc<IdentityHeaders>>,
    pub(crate) client: Option<reqwest::Client>,
    #[cfg(feature = "oauth")]
    pub(crate) oauth: Option<OAuth>,
    /// The client that the entry of a configuration file names.
    #[cfg(feature = "oauth")]
    pub(crate) registered_client: Option<RegisteredClient>,
}

impl fmt::Debug for HttpEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpEndpoint").field("url", &redaction::url(&self.url)).finish_non_exhaustive()
    }
}

impl HttpEndpoint {
    pub(crate) fn new(url: &str) -> Result<Self, ConfigError> {
        let parsed = Url::parse(url)
            .map_err(|error| ConfigError::Url { url: redaction::invalid_url(url), reason: error.to_string() })?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(ConfigError::UrlScheme { url: redaction::invalid_url(url) });
        }
        Ok(Self {
            url: parsed,
            headers: HeaderMap::new(),
            bearer: None,
            provider: None,
            identity: None,
            client: None,
            #[cfg(feature = "oauth")]
            oauth: None,
            #[cfg(feature = "oauth")]
            registered_client: None,
        })
    }

    /// Creates the source of tokens, if OAuth is configured.
    pub(crate) async fn authorizer(&self) -> Result<Option<Arc<Authorizer>>, McpError> {
        #[cfg(feature = "oauth")]
        if let Some(oauth) = &self.oauth {
            return oauth.authorizer(&self.url).await.map(Some);
        }
        Ok(None)
    }

    /// Adds a header.
    pub(crate) fn set_header(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let (name, value) = header(name, value)?;
        self.headers.append(name, value);
        Ok(())
    }

    pub(crate) fn add_headers(&mut self, headers: &HeaderMap) -> Result<(), ConfigError> {
        for (name, value) in headers {
            check_name(name)?;
            self.headers.append(name.clone(), value.clone());
        }
        Ok(())
    }

    #[cfg(feature = "oauth")]
    pub(crate) fn set_oauth(&mut self, oauth: OAuth) {
        self.oauth = Some(match &self.registered_client {
            Some(client) => oauth.with_default_client(client),
            None => oauth,
        });
    }

    /// Lets the provider of headers renew them after the server rejected a request. Returns whether to send the request
    /// again.
    pub(crate) async fn renew_headers(&self, challenge: &str) -> Result<bool, BoxError> {
        match &self.provider {
            Some(provider) => provider.rejected(challenge).await,
            None => Ok(false),
        }
    }

    /// Returns whether a user is being asked for consent.
    pub(crate) fn waits_for_user(&self) -> bool {
        #[cfg(feature = "oauth")]
        if let Some(oauth) = &self.oauth {
            return oauth.is_waiting_for_consent();
        }
        false
    }

    /// Returns the configured client, or one that sends nothing to another origin.
    pub(crate) fn client(&self) -> Result<reqwest::Client, ConfigError> {
        match &self.client {
            Some(client) => Ok(client.clone()),
            None if is_loopback(&self.url) => build(loopback_client().pool_idle_timeout(LOOPBACK_IDLE_TIMEOUT)),
            None => build(default_client()),
        }
    }

    /// Returns the clients of streamable HTTP: for a server on this machine, which may delay responses on connections
    /// that are kept, also one that keeps none.
    pub(super) fn clients(&self) -> Result<HttpClients, ConfigError> {
        let may_delay = self.client.is_none() && is_loopback(&self.url);
        let fresh: fn() -> Option<reqwest::Client> = || build(loopback_client().pool_max_idle_per_host(0)).ok();
        Ok(HttpClients::new(self.client()?, may_delay.then_some(fresh)))
    }

    /// Returns the headers of a request: those of the server, of its provider, of the session's identity and of the
    /// run; later ones replace earlier ones.
    pub(crate) async fn headers_for(&self, run: Option<&HeaderMap>) -> Result<HeaderMap, BoxError> {
        let mut headers = self.headers.clone();
        if let Some(token) = &self.bearer {
            headers.insert(http::header::AUTHORIZATION, bearer(token)?);
        }
        if let Some(provider) = &self.provider {
            let provided = provider.headers().await?;
            for name in provided.keys() {
                check_name(name)?;
            }
            replace(&mut headers, &provided);
        }
        if let Some(identity) = &self.identity {
            replace(&mut headers, &identity.current());
        }
        if let Some(run) = run {
            replace(&mut headers, run);
        }
        Ok(headers)
    }
}

fn default_client() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .user_agent(concat!("belljar/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(same_origin())
}

/// The client for servers on this machine. A proxy elsewhere could not reach them, and would read their tokens.
fn loopback_client() -> reqwest::ClientBuilder {
    default_client().no_proxy()
}

fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, ConfigError> {
    builder.build().map_err(|error| ConfigError::HttpClient(error_chain::text(&error).into()))
}

/// Returns the value of a header that carries a token.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, ConfigError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| ConfigError::HeaderValue { name: "authorization".to_owned() })?;
    value.set_sensitive(true);
    Ok(value)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn replace(headers: &mut HeaderMap, others: &HeaderMap) {
    for (name, value) in others {
        headers.insert(name.clone(), value.clone());
    }
}

/// Follows redirects within the origin that keep method and body. Another origin would receive session and credentials.
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
