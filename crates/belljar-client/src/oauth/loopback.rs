//! A redirect listener on the loopback interface (RFC 8252, section 7.3).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::AuthorizationPrompt;
use crate::error::BoxError;

/// The time within which the user must respond.
const CONSENT_TIMEOUT: Duration = Duration::from_secs(300);

/// The limits on a browser's request: its duration and its size.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_REQUEST_BYTES: u64 = 16 * 1024;

const PATH: &str = "/callback";

/// Shows the consent page to the user and receives the redirect on a loopback port.
///
/// ```
/// use belljar_client::oauth::LoopbackRedirect;
///
/// let redirect = LoopbackRedirect::new(8765, |url| eprintln!("visit {url}"));
/// assert_eq!(redirect.redirect_uri(), "http://127.0.0.1:8765/callback");
/// ```
#[derive(Clone)]
pub struct LoopbackRedirect {
    port: u16,
    show: Arc<dyn Fn(&str) + Send + Sync>,
}

impl LoopbackRedirect {
    /// Creates a prompt that listens on `port` while consent is pending and shows pages with `show`, which may open a
    /// browser.
    ///
    /// ```
    /// # use belljar_client::oauth::LoopbackRedirect;
    /// let redirect = LoopbackRedirect::new(8765, |url| eprintln!("visit {url}"));
    /// ```
    pub fn new(port: u16, show: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { port, show: Arc::new(show) }
    }

    /// Returns the URI that browsers are redirected to.
    ///
    /// ```
    /// # use belljar_client::oauth::LoopbackRedirect;
    /// assert_eq!(LoopbackRedirect::new(80, |_| {}).redirect_uri(), "http://127.0.0.1:80/callback");
    /// ```
    pub fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    async fn wait(&self, listener: TcpListener) -> Result<String, LoopbackError> {
        loop {
            let (stream, _) = listener.accept().await.map_err(LoopbackError::Accept)?;
            // Browsers request other paths as well, such as an icon.
            if let Ok(Some(target)) = tokio::time::timeout(REQUEST_TIMEOUT, respond(stream)).await {
                return Ok(format!("http://127.0.0.1:{}{target}", self.port));
            }
        }
    }
}

/// Reads and answers one request. Returns its target if it is the redirect.
async fn respond(stream: TcpStream) -> Option<String> {
    let mut stream = BufReader::new(stream.take(MAX_REQUEST_BYTES));
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?.to_owned();
    let is_callback = target.strip_prefix(PATH).is_some_and(|rest| rest.starts_with('?'));
    let (status, text) = if is_callback { ("200 OK", "Done. You can close this page.") } else { ("404 Not Found", "") };
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    let mut stream = stream.into_inner().into_inner();
    stream.write_all(response.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()?;
    is_callback.then_some(target)
}

/// The error of a [`LoopbackRedirect`].
#[derive(Debug, thiserror::Error)]
enum LoopbackError {
    #[error("failed to listen on port {port}: {source}")]
    Bind { port: u16, source: std::io::Error },
    #[error("failed to accept the redirect: {0}")]
    Accept(#[source] std::io::Error),
    #[error("the browser was not redirected within {} s", CONSENT_TIMEOUT.as_secs())]
    Timeout,
}

#[async_trait]
impl AuthorizationPrompt for LoopbackRedirect {
    async fn authorize(&self, url: String) -> Result<String, BoxError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))
            .await
            .map_err(|source| LoopbackError::Bind { port: self.port, source })?;
        (self.show)(&url);
        let redirect = tokio::time::timeout(CONSENT_TIMEOUT, self.wait(listener)).await;
        Ok(redirect.map_err(|_| LoopbackError::Timeout)??)
    }
}

impl std::fmt::Debug for LoopbackRedirect {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LoopbackRedirect").field("port", &self.port).finish_non_exhaustive()
    }
}
