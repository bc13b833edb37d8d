//! The builder of a server whose transport is known only at run time.

#[cfg(feature = "stdio")]
use std::ffi::OsStr;
#[cfg(feature = "http")]
use std::sync::Arc;

#[cfg(feature = "http")]
use http::HeaderMap;

use super::{ServerBuilder, Settings};
#[cfg(any(feature = "http", feature = "stdio"))]
use crate::error::{ConfigError, McpError};
#[cfg(feature = "oauth")]
use crate::oauth::OAuth;
#[cfg(all(feature = "config", feature = "oauth"))]
use crate::oauth::RegisteredClient;
#[cfg(feature = "stdio")]
use crate::transport::ChildStderr;
#[cfg(feature = "http")]
use crate::transport::endpoint::{HeaderProvider, HttpEndpoint};
#[cfg(feature = "http")]
use crate::transport::http::StreamableHttp;
#[cfg(feature = "sse")]
use crate::transport::sse::Sse;
#[cfg(feature = "stdio")]
use crate::transport::stdio::ChildProcess;
use crate::transport::{AnyTransport, Connector};

/// The builder of a server with any transport: of a [`ConfigFile`](crate::ConfigFile), of
/// [`McpServer::from_url`](crate::McpServer::from_url), or of a server that was built.
///
/// It has the methods of all builders. Those that concern HTTP, or a child process, are errors with the other kind of
/// transport.
///
/// ```
/// use belljar_mcp_client::{AnyServerBuilder, McpError, McpServer};
///
/// fn equip(server: AnyServerBuilder) -> Result<McpServer, McpError> {
///     let server = server.timeout(std::time::Duration::from_secs(60));
///     Ok(if server.is_http() { server.bearer_token("secret")? } else { server }.build())
/// }
///
/// # fn main() -> Result<(), McpError> {
/// let server = equip(McpServer::from_url("https://example.org/mcp")?)?;
/// # Ok(())
/// # }
/// ```
pub type AnyServerBuilder = ServerBuilder<AnyTransport>;

impl<T: Connector + Into<AnyTransport>> ServerBuilder<T> {
    /// Converts this builder to one of the type that all transports share.
    ///
    /// ```
    /// use belljar_mcp_client::{AnyServerBuilder, McpServerStdio};
    ///
    /// let server: AnyServerBuilder = McpServerStdio::new("server").into_any();
    /// ```
    pub fn into_any(self) -> AnyServerBuilder {
        ServerBuilder { transport: self.transport.into(), settings: self.settings }
    }
}

impl AnyServerBuilder {
    pub(in crate::server) fn with_settings(transport: AnyTransport, settings: Settings) -> Self {
        Self { transport, settings }
    }

    /// Returns the time within which the server must start: for an entry of a configuration file that of the entry, if
    /// it sets one.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # use std::time::Duration;
    /// assert_eq!(McpServerStdio::new("server").into_any().configured_timeout(), Duration::from_secs(5));
    /// ```
    pub fn configured_timeout(&self) -> std::time::Duration {
        self.settings.timeout
    }

    /// Returns the configured ID: for an entry of a configuration file its name.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// assert_eq!(McpServerStdio::new("server").id("files").into_any().configured_id(), Some("files"));
    /// ```
    pub fn configured_id(&self) -> Option<&str> {
        self.settings.id.as_deref()
    }
}

#[cfg(feature = "http")]
impl AnyServerBuilder {
    pub(in crate::server) fn from_url(url: &str) -> Result<Self, McpError> {
        let endpoint = HttpEndpoint::new(url)?;
        #[cfg(feature = "sse")]
        if endpoint.url.path().trim_end_matches('/').ends_with("/sse") {
            return Ok(Self::over(Sse { endpoint }.into()));
        }
        Ok(Self::over(StreamableHttp { endpoint }.into()))
    }

    /// Returns whether the server is reached over HTTP.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// assert!(!McpServerStdio::new("server").into_any().is_http());
    /// ```
    pub fn is_http(&self) -> bool {
        self.transport.endpoint().is_some()
    }

    /// Sets the OAuth client that the entry of a configuration file names.
    #[cfg(all(feature = "config", feature = "oauth"))]
    pub(crate) fn registered_client(mut self, client: RegisteredClient) -> Self {
        if let Some(endpoint) = self.transport.endpoint_mut() {
            endpoint.registered_client = Some(client);
        }
        self
    }

    fn http(
        mut self,
        option: &'static str,
        set: impl FnOnce(&mut HttpEndpoint) -> Result<(), ConfigError>,
    ) -> Result<Self, McpError> {
        set(self.transport.endpoint_mut().ok_or(ConfigError::NotHttp { option })?)?;
        Ok(self)
    }

    /// Adds a header to every request.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServer, McpServerStdio};
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServer::from_url("https://example.org/mcp")?.header("x-team", "blue")?;
    /// assert!(McpServerStdio::new("server").into_any().header("x-team", "blue").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if HTTP does not allow the name or value, if the name is reserved for the protocol,
    /// or if the server is not reached over HTTP.
    pub fn header(self, name: &str, value: &str) -> Result<Self, McpError> {
        self.http("header", |endpoint| endpoint.set_header(name, value))
    }

    /// Adds headers to every request.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServer;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServer::from_url("https://example.org/mcp")?.headers(&http::HeaderMap::new())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`header`](Self::header).
    pub fn headers(self, headers: &HeaderMap) -> Result<Self, McpError> {
        self.http("headers", |endpoint| endpoint.add_headers(headers))
    }

    /// Sends `Authorization: Bearer …` with every request.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServer;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServer::from_url("https://example.org/mcp")?.bearer_token("secret")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the server is not reached over HTTP.
    pub fn bearer_token(self, token: impl Into<String>) -> Result<Self, McpError> {
        self.http("bearer_token", |endpoint| {
            endpoint.bearer = Some(token.into());
            Ok(())
        })
    }

    /// Obtains tokens by OAuth 2.1 if the server requires authorization. A client that the server's entry in a
    /// configuration file names is used, unless `oauth` names one.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServer, oauth::{LoopbackRedirect, OAuth}};
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let oauth = OAuth::loopback(LoopbackRedirect::new(|url| eprintln!("visit {url}")));
    /// let server = McpServer::from_url("https://example.org/mcp")?.oauth(oauth)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the server is not reached over HTTP.
    #[cfg(feature = "oauth")]
    pub fn oauth(self, oauth: OAuth) -> Result<Self, McpError> {
        self.http("oauth", |endpoint| {
            endpoint.set_oauth(oauth);
            Ok(())
        })
    }

    /// Sets a provider of additional headers that is called before each request.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServer;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServer::from_url("https://example.org/mcp")?.header_provider(async || Ok(http::HeaderMap::new()))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the server is not reached over HTTP.
    pub fn header_provider(self, provider: impl HeaderProvider) -> Result<Self, McpError> {
        self.http("header_provider", |endpoint| {
            endpoint.provider = Some(Arc::new(provider));
            Ok(())
        })
    }

    /// Sets the HTTP client, for custom proxies, certificates or timeouts.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServer;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    /// let server = McpServer::from_url("https://example.org/mcp")?.http_client(client)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the server is not reached over HTTP.
    pub fn http_client(self, client: reqwest::Client) -> Result<Self, McpError> {
        self.http("http_client", |endpoint| {
            endpoint.client = Some(client);
            Ok(())
        })
    }
}

#[cfg(feature = "stdio")]
impl AnyServerBuilder {
    /// Returns whether the server is a child process.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// assert!(McpServerStdio::new("server").into_any().is_child_process());
    /// ```
    pub fn is_child_process(&self) -> bool {
        self.transport.child_process().is_some()
    }

    fn child(mut self, option: &'static str, set: impl FnOnce(&mut ChildProcess)) -> Result<Self, McpError> {
        set(self.transport.child_process_mut().ok_or(ConfigError::NotChildProcess { option })?);
        Ok(self)
    }

    /// Adds an argument to the command of a child process.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStdio::new("server").into_any().arg("--verbose")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the server is not a child process.
    pub fn arg(self, argument: impl AsRef<OsStr>) -> Result<Self, McpError> {
        self.child("arg", |process| process.args.push(argument.as_ref().to_owned()))
    }

    /// Sets a variable of a child's environment.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStdio::new("server").into_any().env("API_KEY", "secret")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the server is not a child process.
    pub fn env(self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Result<Self, McpError> {
        self.child("env", |process| process.env.push((name.as_ref().to_owned(), value.as_ref().to_owned())))
    }

    /// Lets a child inherit all environment variables of the program.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStdio::new("server").into_any().inherit_env()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the server is not a child process.
    pub fn inherit_env(self) -> Result<Self, McpError> {
        self.child("inherit_env", |process| process.inherits_env = true)
    }

    /// Sets the destination of a child's standard error.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServerStdio, transport::ChildStderr};
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStdio::new("server").into_any().stderr(ChildStderr::Inherit)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the server is not a child process.
    pub fn stderr(self, destination: ChildStderr) -> Result<Self, McpError> {
        self.child("stderr", |process| process.stderr = destination)
    }

    /// Sets the directory to start a child in.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # fn main() -> Result<(), belljar_mcp_client::McpError> {
    /// let server = McpServerStdio::new("server").into_any().cwd("/tmp")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`McpError::Config`] if the server is not a child process.
    pub fn cwd(self, directory: impl Into<std::path::PathBuf>) -> Result<Self, McpError> {
        self.child("cwd", |process| process.cwd = Some(directory.into()))
    }
}
