//! A redirect listener on the loopback interface (RFC 8252, section 7.3).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// The time within which the user must respond.
const CONSENT_TIMEOUT: Duration = Duration::from_secs(300);

/// The limits on a browser's request: its duration and its size.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_REQUEST_BYTES: u64 = 16 * 1024;

const PATH: &str = "/callback";

/// Shows the consent page to the user and receives the redirect on a port of the loopback interface.
///
/// Without [`port`](Self::port) it listens on the port that the client was registered with, or on another free one.
///
/// ```
/// use belljar_mcp_client::oauth::{LoopbackRedirect, OAuth};
///
/// let oauth = OAuth::loopback(LoopbackRedirect::new(|url| eprintln!("visit {url}")));
/// ```
#[derive(Clone)]
pub struct LoopbackRedirect {
    port: Option<u16>,
    /// The host in the redirect URI. The listener has the address of the first.
    host: &'static str,
    show: Arc<dyn Fn(&str) + Send + Sync>,
}

impl LoopbackRedirect {
    /// Creates a redirect that shows pages with `show`, which may [open a browser](super::open_browser).
    ///
    /// ```
    /// # use belljar_mcp_client::oauth::LoopbackRedirect;
    /// let redirect = LoopbackRedirect::new(|url| eprintln!("visit {url}"));
    /// ```
    pub fn new(show: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { port: None, host: "127.0.0.1", show: Arc::new(show) }
    }

    /// Sets the port, for clients that were registered in advance at servers that insist on the registered port. The
    /// redirect URI is then `http://127.0.0.1:PORT/callback`.
    ///
    /// ```
    /// # use belljar_mcp_client::oauth::LoopbackRedirect;
    /// let redirect = LoopbackRedirect::new(|url| eprintln!("visit {url}")).port(8765);
    /// ```
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Uses the host `localhost` in the redirect URI, for clients that were registered with it.
    ///
    /// ```
    /// # use belljar_mcp_client::oauth::LoopbackRedirect;
    /// let redirect = LoopbackRedirect::new(|url| eprintln!("visit {url}")).port(8765).localhost();
    /// ```
    pub fn localhost(mut self) -> Self {
        self.host = "localhost";
        self
    }

    /// Sets the port that a client was registered with by another program, which names the host `localhost`.
    pub(super) fn set_registered_port(&mut self, port: u16) {
        if self.port.is_none() {
            self.port = Some(port);
            self.host = "localhost";
        }
    }

    /// Listens for a redirect: on the configured port, that of the registered URI, or another free one.
    pub(super) async fn listen(&self, registered: Option<&str>) -> Result<ListeningRedirect, LoopbackError> {
        let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = match self.port {
            Some(port) => bind(port).await.map_err(|error| LoopbackError::Bind { port, error })?,
            None => {
                let registered = registered.and_then(|uri| Url::parse(uri).ok()?.port());
                let first = match registered {
                    Some(port) => bind(port).await.ok(),
                    None => None,
                };
                match first {
                    Some(listener) => listener,
                    None => bind(0).await.map_err(|error| LoopbackError::Bind { port: 0, error })?,
                }
            }
        };
        let port = listener.local_addr().map_err(LoopbackError::Accept)?.port();
        Ok(ListeningRedirect { listener, port, host: self.host, show: self.show.clone() })
    }
}

/// A port that waits for one redirect.
pub(super) struct ListeningRedirect {
    listener: TcpListener,
    port: u16,
    host: &'static str,
    show: Arc<dyn Fn(&str) + Send + Sync>,
}

impl ListeningRedirect {
    pub(super) fn uri(&self) -> String {
        format!("http://{}:{}{PATH}", self.host, self.port)
    }

    /// Shows the consent page and returns the URL of the redirect.
    pub(super) async fn authorize(self, url: &str) -> Result<String, LoopbackError> {
        (self.show)(url);
        let state = query(url, "state");
        tokio::time::timeout(CONSENT_TIMEOUT, self.wait(state.as_deref())).await.map_err(|_| LoopbackError::Timeout)?
    }

    async fn wait(&self, state: Option<&str>) -> Result<String, LoopbackError> {
        loop {
            let (stream, _) = self.listener.accept().await.map_err(LoopbackError::Accept)?;
            // Browsers request other paths as well, such as an icon.
            if let Ok(Some(url)) = tokio::time::timeout(REQUEST_TIMEOUT, self.respond(stream, state)).await {
                return Ok(url);
            }
        }
    }

    /// Reads and answers one request. Returns its URL if it is the redirect of this authorization.
    async fn respond(&self, stream: TcpStream, state: Option<&str>) -> Option<String> {
        let mut stream = BufReader::new(stream.take(MAX_REQUEST_BYTES));
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let target = line.strip_prefix("GET ")?.split(' ').next()?;
        let url = format!("http://{}:{}{target}", self.host, self.port);
        let is_callback = target.strip_prefix(PATH).is_some_and(|rest| rest.starts_with('?'));
        let failed = query(&url, "error").is_some();
        // Another page of the browser could send a request as well, but it does not know the state.
        let is_redirect = is_callback && (failed || query(&url, "state").as_deref() == state);
        let (status, text) = match (is_redirect, failed) {
            (true, false) => ("200 OK", "Done. You can close this page."),
            (true, true) => ("200 OK", "The authorization failed. You can close this page."),
            (false, _) => ("404 Not Found", ""),
        };
        let response = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
            text.len()
        );
        let mut stream = stream.into_inner().into_inner();
        stream.write_all(response.as_bytes()).await.ok()?;
        stream.shutdown().await.ok()?;
        is_redirect.then_some(url)
    }
}

/// Returns a parameter of a URL's query.
fn query(url: &str, name: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// The error of a [`LoopbackRedirect`].
#[derive(Debug, thiserror::Error)]
pub(super) enum LoopbackError {
    #[error("failed to listen on port {port}: {error}")]
    Bind { port: u16, error: std::io::Error },
    #[error("failed to accept the redirect: {0}")]
    Accept(std::io::Error),
    #[error("the browser was not redirected within {} s", CONSENT_TIMEOUT.as_secs())]
    Timeout,
}

impl std::fmt::Debug for LoopbackRedirect {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LoopbackRedirect").field("port", &self.port).finish_non_exhaustive()
    }
}
