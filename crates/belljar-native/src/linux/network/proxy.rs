//! The proxy: accepts connections of the code, and makes connections to servers under the policy of the session.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use belljar_network::{Connections, Refusal, RefusalKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::authority::Authority;
use super::request::{Client, ProxyRequest, RequestError};
use super::socks::Reply;
use super::stream::ConnectionStream;
use super::tunnel;

/// The time in which a client sends its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which the socket is used again when it failed: the process has too many descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The number of clients that may wait for an answer, in addition to those with a connection.
const MAX_WAITING_CLIENTS: usize = 64;
/// The time for which a client may read an answer, and the bytes of its request that are read meanwhile.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_DRAINED: u64 = 1 << 20;
/// The longest text in the first line of an answer, which HTTP libraries show in errors.
const MAX_REASON: usize = 600;

/// The proxy of a session.
pub(crate) struct Proxy {
    pub(crate) connections: Arc<Connections>,
    pub(crate) authority: Option<Arc<Authority>>,
}

/// A connection that was not made.
enum ConnectError {
    /// The policy or a limit refuses it.
    Refused(Refusal),
    /// It failed.
    Failed(io::Error),
}

impl Proxy {
    /// Serves clients until the task is aborted, which closes all of their connections.
    pub(crate) async fn run(self, listener: TcpListener) {
        let proxy = Arc::new(self);
        let slots =
            Arc::new(Semaphore::new(proxy.connections.limits().connections.saturating_add(MAX_WAITING_CLIENTS)));
        let mut clients = JoinSet::new();
        loop {
            // Further clients wait in the queue of the socket, whose length the system limits.
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let proxy = proxy.clone();
                    clients.spawn(async move {
                        proxy.serve(stream).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection of sandboxed code");
                    sleep(ACCEPT_RETRY_INTERVAL).await;
                }
            }
            while clients.try_join_next().is_some() {}
        }
    }

    /// Serves one client.
    async fn serve(&self, stream: TcpStream) {
        // Errors are ignored: it is a matter of speed.
        let _ = stream.set_nodelay(true);
        let mut client = Client::new(stream);
        let request = match timeout(REQUEST_TIMEOUT, client.request()).await {
            Ok(Ok(request)) => request,
            Ok(Err(RequestError::Http(status, reason))) => return answer(client, status, &reason).await,
            Ok(Err(RequestError::Socks(reply))) => return reply_socks(client, reply).await,
            Ok(Err(RequestError::Closed)) | Err(_) => return,
        };
        let (host, port) = match &request {
            ProxyRequest::Connect { host, port }
            | ProxyRequest::Socks { host, port }
            | ProxyRequest::Forward { host, port, .. } => (host.clone(), *port),
        };
        let server = match self.connect(&host, port).await {
            Ok(server) => server,
            Err(error) if matches!(request, ProxyRequest::Socks { .. }) => {
                return reply_socks(client, error.reply()).await;
            }
            Err(error) => return answer(client, error.status(), &error.text(&host, port)).await,
        };
        let established: &[u8] = match request {
            ProxyRequest::Forward { head, .. } => return tunnel::forward(client, server, &head).await,
            ProxyRequest::Connect { .. } => b"HTTP/1.1 200 Connection established\r\n\r\n",
            ProxyRequest::Socks { .. } => &Reply::Succeeded.to_bytes(),
        };
        if client.stream.write_all(established).await.is_ok() {
            tunnel::run(self, client, server, &host, port).await;
        }
    }

    /// Makes a connection and waits until it is established.
    async fn connect(&self, host: &str, port: u16) -> Result<ConnectionStream, ConnectError> {
        let addresses = self.connections.resolve_for_port(host, Some(port)).map_err(ConnectError::Refused)?;
        let address = addresses.first().ok_or_else(|| ConnectError::Failed(io::ErrorKind::NotFound.into()))?;
        let connected = self.connections.connect(SocketAddr::new(*address, port));
        let stream = ConnectionStream::new(connected.map_err(ConnectError::Refused)?);
        stream.connected().await.map_err(ConnectError::Failed)?;
        Ok(stream)
    }
}

impl ConnectError {
    /// Returns the status of the answer by HTTP.
    fn status(&self) -> u16 {
        match self {
            Self::Refused(refusal) => match refusal.kind() {
                RefusalKind::Policy => 403,
                RefusalKind::Name => 400,
                RefusalKind::Limit => 503,
                _ => 500,
            },
            Self::Failed(error) => match error.kind() {
                io::ErrorKind::PermissionDenied => 403,
                io::ErrorKind::TimedOut => 504,
                _ => 502,
            },
        }
    }

    /// Returns the reply by SOCKS5.
    fn reply(&self) -> Reply {
        match self {
            Self::Refused(refusal) => match refusal.kind() {
                RefusalKind::Policy => Reply::NotAllowed,
                RefusalKind::Name => Reply::HostUnreachable,
                _ => Reply::Failed,
            },
            Self::Failed(error) => match error.kind() {
                io::ErrorKind::PermissionDenied => Reply::NotAllowed,
                io::ErrorKind::TimedOut => Reply::TimedOut,
                io::ErrorKind::ConnectionRefused => Reply::Refused,
                io::ErrorKind::NotFound | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    Reply::HostUnreachable
                }
                _ => Reply::Failed,
            },
        }
    }

    fn text(&self, host: &str, port: u16) -> String {
        match self {
            Self::Refused(refusal) => refusal.to_string(),
            Self::Failed(error) if error.kind() == io::ErrorKind::PermissionDenied => error.to_string(),
            Self::Failed(error) => format!("failed to connect to {host}:{port}: {error}"),
        }
    }
}

/// Returns an answer by HTTP, after which the connection ends. The text is its body, and in its first line.
pub(crate) fn http_answer(status: u16, text: &str) -> Vec<u8> {
    let is_plain = |c: char| c == ' ' || c.is_ascii_graphic();
    let reason: String =
        text.replace('…', "...").chars().map(|c| if is_plain(c) { c } else { '?' }).take(MAX_REASON).collect();
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}\n",
        text.len() + 1
    )
    .into_bytes()
}

async fn answer(client: Client, status: u16, text: &str) {
    finish(client, &http_answer(status, text)).await;
}

async fn reply_socks(client: Client, reply: Reply) {
    finish(client, &reply.to_bytes()).await;
}

/// Writes the last bytes to a client. Reads the rest of its request: closing a socket with unread data would reset the
/// connection, and the client would not see the answer.
async fn finish(mut client: Client, bytes: &[u8]) {
    let write = async {
        client.stream.write_all(bytes).await?;
        client.stream.shutdown().await?;
        tokio::io::copy(&mut (&mut client.stream).take(MAX_DRAINED), &mut tokio::io::sink()).await
    };
    // Nothing is left to do for a client that has gone.
    let _ = timeout(ANSWER_TIMEOUT, write).await;
}
