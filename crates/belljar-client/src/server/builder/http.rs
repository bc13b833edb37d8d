//! Builders of servers over HTTP.

use std::sync::Arc;

use http::HeaderMap;

use super::ServerBuilder;
use crate::error::McpError;
#[cfg(feature = "oauth")]
use crate::oauth::OAuth;
use crate::transport::endpoint::{HeaderProvider, HttpEndpoint};
use crate::transport::http::StreamableHttp;
#[cfg(feature = "sse")]
use crate::transport::sse::Sse;

/// The builder of a server that uses streamable HTTP.
///
/// ```
/// use belljar_mcp_client::McpServerStreamableHttp;
///
/// # fn main() -> Result<(), belljar_mcp_client::McpError> {
/// let server = McpServerStreamableHttp::new("https://example.org/mcp")?
///     .bearer_token("secret")
///     .header("x-team", "blue")?
///     .build();
/// assert_eq!(server.label(), "https://example.org/mcp");
/// # Ok(())
/// # }
/// ```
pub type McpServerStreamableHttp = ServerBuilder<StreamableHttp>;

/// The builder of a server that uses HTTP with server-sent events, the transport of 2024.
///
/// ```
/// use belljar_mcp_client::McpServerSse;
///
/// # fn main() -> Result<(), belljar_mcp_client::McpError> {
/// let server = McpServerSse::new("http://localhost:8000/sse")?.build();
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "sse")]
pub type McpServerSse = ServerBuilder<Sse>;

/// The transports over HTTP: [`McpServerStreamableHttp`] and [`McpServerSse`]. Other types cannot implement it.
///
/// ```
/// use belljar_mcp_client::{McpError, McpServerSse, HttpServerBuilderExt, ServerBuilder};
///
/// fn with_defaults<T: HttpServerBuilderExt>(server: ServerBuilder<T>) -> Result<ServerBuilder<T>, McpError> {
///     server.bearer_token("secret").header("x-team", "blue")
/// }
///
/// # fn main() -> Result<(), McpError> {
/// let server = with_defaults(McpServerSse::new("http://localhost:8000/sse")?)?.build();
/// # Ok(())
/// # }
/// ```
pub trait HttpServerBuilderExt: sealed::Endpoint {}

impl HttpServerBuilderExt for StreamableHttp {}

#[cfg(feature = "sse")]
impl HttpServerBuilderExt for Sse {}

/// Access to the endpoint of a transport of this crate.
mod sealed {
    use super::{HttpEndpoint, StreamableHttp};
    use crate::transport::Connector;

    #[doc(hidden)]
    pub trait Endpoint: Connector {
        #[doc(hidden)]
        fn endpoint(&mut self) -> &mut HttpEndpoint;
    }

    impl Endpoint for StreamableHttp {
        fn endpoint(&mut self) -> &mut HttpEndpoint {
            &mut self.endpoint
        }
    }

    #[cfg(feature = "sse")]
    impl Endpoint for super::Sse {
        fn endpoint(&mut self) -> &mut HttpEndpoint {
            &mut self.endpoint
        }
    }
}

impl ServerBuilder<StreamableHttp> {
    /// Creates the builder of a server at this URL.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStreamableHttp;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?;
    /// assert!(McpServerStreamableHttp::new("example.org").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if this is not an `http` or `https` URL.
    pub fn new(url: impl AsRef<str>) -> Result<Self, McpError> {
        Ok(Self::over(StreamableHttp { endpoint: HttpEndpoint::new(url.as_ref())? }))
    }
}

#[cfg(feature = "sse")]
impl ServerBuilder<Sse> {
    /// Creates the builder of a server at this URL, whose path usually ends in `/sse`.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerSse;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerSse::new("https://example.org/sse")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if this is not an `http` or `https` URL.
    pub fn new(url: impl AsRef<str>) -> Result<Self, McpError> {
        Ok(Self::over(Sse { endpoint: HttpEndpoint::new(url.as_ref())? }))
    }
}

impl<T: HttpServerBuilderExt> ServerBuilder<T> {
    /// Adds a header to every request.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStreamableHttp;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.header("x-team", "blue")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if HTTP does not allow the name or value, or if the name is reserved for the
    /// protocol (`accept`, `mcp-session-id`, …).
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, McpError> {
        self.transport.endpoint().set_header(name, value)?;
        Ok(self)
    }

    /// Adds headers to every request.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStreamableHttp;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// use http::{HeaderMap, HeaderValue};
    ///
    /// let headers = HeaderMap::from_iter([("x-team".parse().unwrap(), HeaderValue::from_static("blue"))]);
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.headers(&headers)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`header`](Self::header).
    pub fn headers(mut self, headers: &HeaderMap) -> Result<Self, McpError> {
        self.transport.endpoint().add_headers(headers)?;
        Ok(self)
    }

    /// Sends `Authorization: Bearer …` with every request.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStreamableHttp;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.bearer_token("secret");
    /// # Ok(())
    /// # }
    /// ```
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.transport.endpoint().bearer = Some(token.into());
        self
    }

    /// Obtains tokens by OAuth 2.1 if the server requires authorization.
    ///
    /// ```
    /// use belljar_mcp_client::McpServerStreamableHttp;
    /// use belljar_mcp_client::oauth::OAuth;
    ///
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let oauth = OAuth::new("http://127.0.0.1:8765/callback", async |url: String| {
    ///     println!("visit {url} and paste where you were sent:");
    ///     let mut answer = String::new();
    ///     std::io::stdin().read_line(&mut answer)?;
    ///     Ok(answer.trim().to_owned())
    /// });
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.oauth(oauth).build();
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "oauth")]
    pub fn oauth(mut self, oauth: OAuth) -> Self {
        self.transport.endpoint().set_oauth(oauth);
        self
    }

    /// Sets a provider of additional headers that is called before each request, for example for short-lived tokens.
    /// One that implements [`HeaderProvider::rejected`] can renew them after status 401.
    ///
    /// ```
    /// use belljar_mcp_client::McpServerStreamableHttp;
    /// use http::{HeaderMap, HeaderValue};
    ///
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.header_provider(async || {
    ///     Ok(HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer fresh"))]))
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn header_provider(mut self, provider: impl HeaderProvider) -> Self {
        self.transport.endpoint().provider = Some(Arc::new(provider));
        self
    }

    /// Sets the HTTP client, for custom proxies, certificates or timeouts.
    ///
    /// The default client follows redirects within the same origin only, so that headers do not reach another host; a
    /// custom client should do the same.
    ///
    /// ```no_run
    /// use belljar_mcp_client::McpServerStreamableHttp;
    /// use reqwest::redirect::Policy;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // A certificate authority of a company, and a certificate of the client.
    /// let authority = reqwest::Certificate::from_pem(&std::fs::read("company-ca.pem")?)?;
    /// let identity = reqwest::Identity::from_pem(&std::fs::read("client.pem")?)?;
    /// let client = reqwest::Client::builder()
    ///     .add_root_certificate(authority)
    ///     .identity(identity)
    ///     .redirect(Policy::none())
    ///     .build()?;
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.http_client(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn http_client(mut self, client: reqwest::Client) -> Self {
        self.transport.endpoint().client = Some(client);
        self
    }
}
