//! Builders of servers behind URLs.

use std::sync::Arc;

use http::HeaderMap;

use super::{ServerBuilder, Settings};
use crate::error::McpError;
use crate::oauth::OAuth;
use crate::transport::endpoint::{HeaderProvider, HttpEndpoint};
use crate::transport::http::StreamableHttp;
use crate::transport::sse::Sse;

/// A server behind a URL that speaks streamable HTTP.
///
/// ```
/// use belljar_client::McpServerStreamableHttp;
///
/// # fn main() -> Result<(), belljar_client::McpError> {
/// let server = McpServerStreamableHttp::new("https://example.org/mcp")?
///     .bearer_token("secret")
///     .header("x-team", "blue")?
///     .build();
/// assert_eq!(server.label(), "https://example.org/mcp");
/// # Ok(())
/// # }
/// ```
pub type McpServerStreamableHttp = ServerBuilder<StreamableHttp>;

/// A server behind a URL that speaks HTTP with server-sent events, the transport of 2024.
///
/// ```
/// use belljar_client::McpServerSse;
///
/// # fn main() -> Result<(), belljar_client::McpError> {
/// let server = McpServerSse::new("http://localhost:8000/sse")?.build();
/// # Ok(())
/// # }
/// ```
pub type McpServerSse = ServerBuilder<Sse>;

/// What [`McpServerStreamableHttp`] and [`McpServerSse`] share.
///
/// ```
/// use belljar_client::{McpError, McpServerSse, OverHttp, ServerBuilder};
///
/// fn ours<T: OverHttp>(server: ServerBuilder<T>) -> Result<ServerBuilder<T>, McpError> {
///     server.bearer_token("secret").header("x-team", "blue")
/// }
///
/// # fn main() -> Result<(), McpError> {
/// let server = ours(McpServerSse::new("http://localhost:8000/sse")?)?.build();
/// # Ok(())
/// # }
/// ```
pub trait OverHttp {
    #[doc(hidden)]
    fn endpoint(&mut self) -> &mut HttpEndpoint;
}

impl OverHttp for StreamableHttp {
    fn endpoint(&mut self) -> &mut HttpEndpoint {
        &mut self.endpoint
    }
}

impl OverHttp for Sse {
    fn endpoint(&mut self) -> &mut HttpEndpoint {
        &mut self.endpoint
    }
}

impl ServerBuilder<StreamableHttp> {
    /// A server behind this URL.
    ///
    /// ```
    /// # use belljar_client::McpServerStreamableHttp;
    /// # fn main() -> Result<(), belljar_client::McpError> {
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?;
    /// assert!(McpServerStreamableHttp::new("example.org").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`McpError::Config`] if this is no `http` or `https` URL.
    pub fn new(url: impl AsRef<str>) -> Result<Self, McpError> {
        let endpoint = HttpEndpoint::new(url.as_ref())?;
        Ok(Self { transport: StreamableHttp { endpoint }, settings: Settings::default() })
    }
}

impl ServerBuilder<Sse> {
    /// A server behind this URL, whose path by custom ends in `/sse`.
    ///
    /// ```
    /// # use belljar_client::McpServerSse;
    /// # fn main() -> Result<(), belljar_client::McpError> {
    /// let server = McpServerSse::new("https://example.org/sse")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`McpError::Config`] if this is no `http` or `https` URL.
    pub fn new(url: impl AsRef<str>) -> Result<Self, McpError> {
        Ok(Self { transport: Sse { endpoint: HttpEndpoint::new(url.as_ref())? }, settings: Settings::default() })
    }
}

impl<T: OverHttp> ServerBuilder<T> {
    /// Adds a header to every request.
    ///
    /// ```
    /// # use belljar_client::McpServerStreamableHttp;
    /// # fn main() -> Result<(), belljar_client::McpError> {
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.header("x-team", "blue")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`McpError::Config`] if the name or value is none of HTTP, or the name is the protocol's own (`accept`,
    /// `mcp-session-id`, …).
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, McpError> {
        let (name, value) = crate::transport::endpoint::header(name, value)?;
        self.transport.endpoint().add_header(name, value)?;
        Ok(self)
    }

    /// Adds headers to every request.
    ///
    /// ```
    /// # use belljar_client::McpServerStreamableHttp;
    /// # fn main() -> Result<(), belljar_client::McpError> {
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
    /// As [`header`](Self::header).
    pub fn headers(mut self, headers: &HeaderMap) -> Result<Self, McpError> {
        for (name, value) in headers {
            self.transport.endpoint().add_header(name.clone(), value.clone())?;
        }
        Ok(self)
    }

    /// Sends `Authorization: Bearer …` with every request.
    ///
    /// ```
    /// # use belljar_client::McpServerStreamableHttp;
    /// # fn main() -> Result<(), belljar_client::McpError> {
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.bearer_token("secret");
    /// # Ok(())
    /// # }
    /// ```
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.transport.endpoint().bearer = Some(token.into());
        self
    }

    /// Gets tokens by OAuth 2.1 when the server asks for them.
    ///
    /// ```
    /// use belljar_client::McpServerStreamableHttp;
    /// use belljar_client::oauth::OAuth;
    ///
    /// # fn main() -> Result<(), belljar_client::McpError> {
    /// let oauth = OAuth::new("http://127.0.0.1:8765/callback", async |url: String| {
    ///     println!("visit {url} and paste where you were sent:");
    ///     let mut answer = String::new();
    ///     std::io::stdin().read_line(&mut answer).map_err(|error| error.to_string())?;
    ///     Ok(answer.trim().to_owned())
    /// });
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.oauth(oauth).build();
    /// # Ok(())
    /// # }
    /// ```
    pub fn oauth(mut self, oauth: OAuth) -> Self {
        self.transport.endpoint().oauth = Some(Arc::new(oauth));
        self
    }

    /// Asks for further headers before each request: tokens that grow old, for one.
    ///
    /// ```
    /// use belljar_client::McpServerStreamableHttp;
    /// use http::{HeaderMap, HeaderValue};
    ///
    /// # fn main() -> Result<(), belljar_client::McpError> {
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

    /// Uses this HTTP client: for proxies, certificates, timeouts of your own.
    ///
    /// The crate's own client follows redirects within the same origin only, so that headers reach no other host; a client
    /// of yours should do so too.
    ///
    /// ```
    /// # use belljar_client::McpServerStreamableHttp;
    /// # fn main() -> Result<(), belljar_client::McpError> {
    /// let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    /// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.http_client(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn http_client(mut self, client: reqwest::Client) -> Self {
        self.transport.endpoint().client = Some(client);
        self
    }
}
