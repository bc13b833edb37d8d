//! Waits on a port of this machine for the user's browser to come back.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::Visit;

/// How long the user may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long a browser may take to say what it wants, and how much.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_LIMIT: u64 = 16 * 1024;

const PATH: &str = "/callback";

/// Shows the user a page to visit, and waits on a port of this machine for the browser to come back.
///
/// ```
/// use belljar_client::oauth::Loopback;
///
/// let visit = Loopback::new(8765, |url| eprintln!("visit {url}"));
/// assert_eq!(visit.redirect_uri(), "http://127.0.0.1:8765/callback");
/// ```
#[derive(Clone)]
pub struct Loopback {
    port: u16,
    show: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Loopback {
    /// Listens on this port, while a visit is under way; shows pages with this function, which may open a browser.
    ///
    /// ```
    /// # use belljar_client::oauth::Loopback;
    /// let visit = Loopback::new(8765, |url| eprintln!("visit {url}"));
    /// ```
    pub fn new(port: u16, show: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { port, show: Arc::new(show) }
    }

    /// Where browsers are sent back to.
    ///
    /// ```
    /// # use belljar_client::oauth::Loopback;
    /// assert_eq!(Loopback::new(80, |_| {}).redirect_uri(), "http://127.0.0.1:80/callback");
    /// ```
    pub fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    async fn wait(&self, listener: TcpListener) -> Result<String, String> {
        loop {
            let (stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
            // A browser asks for more than the page that is meant: its icon, for one.
            if let Ok(Some(target)) = tokio::time::timeout(REQUEST_TIMEOUT, answer(stream)).await {
                return Ok(format!("http://127.0.0.1:{}{target}", self.port));
            }
        }
    }
}

/// Reads one request; its target if that is the page which is waited for.
async fn answer(stream: TcpStream) -> Option<String> {
    let mut stream = BufReader::new(stream.take(REQUEST_LIMIT));
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

#[async_trait]
impl Visit for Loopback {
    async fn visit(&self, url: String) -> Result<String, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))
            .await
            .map_err(|error| format!("port {} cannot be listened on: {error}", self.port))?;
        (self.show)(&url);
        tokio::time::timeout(PATIENCE, self.wait(listener))
            .await
            .map_err(|_| format!("nobody came back within {} s", PATIENCE.as_secs()))?
    }
}

impl std::fmt::Debug for Loopback {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Loopback").field("port", &self.port).finish_non_exhaustive()
    }
}
