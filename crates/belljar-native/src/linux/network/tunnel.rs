//! The bytes of a connection in both directions, and TLS that begins it.
//!
//! TLS to a host without rules and secrets is passed on, after its server name was checked. For other hosts it ends
//! here: the client gets a certificate of the session's authority, and `belljar-network` makes TLS to the server.

use std::io;
use std::time::Duration;

use belljar_network::TlsHandling;
use bytes::{Buf as _, BytesMut};
use rustls::server::{Accepted, Acceptor};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::StartHandshake;
use tokio_rustls::server::TlsStream;

use super::proxy::{Proxy, http_answer};
use super::request::Client;
use super::stream::ConnectionStream;

/// The time in which a client ends the handshake of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest first message of TLS, in bytes.
const MAX_CLIENT_HELLO: usize = 64 << 10;
/// The longest answer to a request for TLS to the server, in bytes.
const MAX_TLS_ANSWER: usize = 1 << 20;
/// The first byte of TLS: a record of a handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// An alert of TLS: the server name is not known (`unrecognized_name`).
const UNKNOWN_NAME_ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];

/// The first bytes of a client.
enum Beginning {
    /// A complete first message of TLS, and the number of bytes of the client's buffer that were read for it.
    Tls(Box<Accepted>, usize),
    /// Anything else, or the server has sent something first.
    Other,
}

/// The answer to a request for TLS to the server.
#[derive(Deserialize)]
struct TlsAnswer {
    error: Option<TlsError>,
}

#[derive(Deserialize)]
struct TlsError {
    kind: String,
    message: String,
}

/// Relays a request whose head was rewritten, and the response.
pub(crate) async fn forward(client: Client, mut server: ConnectionStream, head: &[u8]) {
    if server.write_all(head).await.is_ok() {
        relay_client(client, server).await;
    }
}

/// Relays a connection that was established for a client.
pub(crate) async fn run(proxy: &Proxy, mut client: Client, mut server: ConnectionStream, host: &str, port: u16) {
    let (accepted, used) = match begin(&mut client, &server).await {
        Ok(Beginning::Tls(accepted, used)) => (accepted, used),
        Ok(Beginning::Other) => return relay_client(client, server).await,
        Err(_) => return,
    };
    let hello = accepted.client_hello();
    let server_name = hello.server_name().map(str::to_owned);
    let has_protocols = hello.alpn().is_some();
    match proxy.connections.tls_handling(host, port, server_name.as_deref()) {
        Ok(TlsHandling::Pass) => {
            server.connection().pass_tls(server_name.as_deref());
            relay_client(client, server).await;
        }
        // A client sends nothing after its first message until it is answered.
        Ok(TlsHandling::Inspect) if client.buffer.len() > used => {}
        Ok(TlsHandling::Inspect) => {
            let opened = open_tls(proxy, &mut server, server_name.as_deref(), has_protocols).await;
            inspect(proxy, *accepted, client, server, server_name.as_deref().unwrap_or(host), opened).await;
        }
        // The record has the reason.
        Err(_) => {
            let _ = client.stream.write_all(&UNKNOWN_NAME_ALERT).await;
        }
    }
}

/// Waits for the first bytes of the client, or of the server.
async fn begin(client: &mut Client, server: &ConnectionStream) -> io::Result<Beginning> {
    let mut acceptor = Acceptor::default();
    let mut used = 0;
    loop {
        if client.buffer.len() == used {
            tokio::select! {
                filled = client.fill() => filled?,
                () = server.readable() => return Ok(Beginning::Other),
            }
        }
        if client.buffer.first() != Some(&TLS_HANDSHAKE) {
            return Ok(Beginning::Other);
        }
        while let Some(mut rest) = client.buffer.get(used..).filter(|rest| !rest.is_empty()) {
            used += acceptor.read_tls(&mut rest)?;
            match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => return Ok(Beginning::Tls(Box::new(accepted), used)),
                Err((error, mut alert)) => {
                    let mut bytes = Vec::new();
                    alert.write_all(&mut bytes)?;
                    client.stream.write_all(&bytes).await?;
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
        }
        if client.buffer.len() > MAX_CLIENT_HELLO {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Asks for TLS to the server. Returns the answer for the client if it cannot be established.
async fn open_tls(
    proxy: &Proxy,
    server: &mut ConnectionStream,
    server_name: Option<&str>,
    has_protocols: bool,
) -> io::Result<Result<(), Vec<u8>>> {
    let protocols: &[&str] = if has_protocols { &["http/1.1"] } else { &[] };
    let request = json!({ "server_hostname": server_name, "alpn": protocols, "verify": true, "check_hostname": true })
        .to_string();
    let length = u32::try_from(request.len()).map_err(io::Error::other)?.to_be_bytes();
    server.write_all(&[&proxy.connections.tls_token()[..], &length, request.as_bytes()].concat()).await?;
    let length = server.read_u32().await? as usize;
    if length > MAX_TLS_ANSWER {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut answer = vec![0; length];
    server.read_exact(&mut answer).await?;
    let TlsAnswer { error } = serde_json::from_slice(&answer)?;
    Ok(match error {
        None => Ok(()),
        Some(TlsError { kind, message }) if kind == "refused" => Err(http_answer(403, &message)),
        Some(TlsError { message, .. }) => Err(http_answer(502, &format!("failed to establish TLS: {message}"))),
    })
}

/// Ends the TLS of the client, and relays its plain text. A client whose server failed gets an answer by HTTP.
async fn inspect(
    proxy: &Proxy,
    accepted: Accepted,
    client: Client,
    server: ConnectionStream,
    host: &str,
    opened: io::Result<Result<(), Vec<u8>>>,
) {
    let Some(authority) = &proxy.authority else { return };
    let config = match authority.server_config(host) {
        Ok(config) => config,
        Err(error) => {
            tracing::warn!(%error, host, "failed to create a certificate for sandboxed code");
            return;
        }
    };
    // The bytes of the client's buffer were read into `accepted`.
    let handshake = StartHandshake::from_parts(accepted, client.stream).into_stream(config);
    let Ok(Ok(mut stream)) = timeout(HANDSHAKE_TIMEOUT, handshake).await else { return };
    match opened {
        Ok(Ok(())) => relay(stream, server, BytesMut::new()).await,
        Ok(Err(answer)) => {
            let answered = async {
                stream.write_all(&answer).await?;
                stream.shutdown().await
            };
            // Nothing is left to do for a client that has gone.
            let _ = timeout(HANDSHAKE_TIMEOUT, answered).await;
        }
        Err(_) => stream.reset(),
    }
}

async fn relay_client(client: Client, server: ConnectionStream) {
    relay(client.stream, server, client.buffer).await;
}

/// Relays bytes until both sides have ended. A client whose connection to the server failed sees a reset, and not the
/// end of its stream.
async fn relay<S: ClientStream>(mut client: S, mut server: ConnectionStream, mut begun: BytesMut) {
    let relayed = async {
        while begun.has_remaining() {
            server.write_buf(&mut begun).await?;
        }
        drop(begun);
        copy_bidirectional(&mut client, &mut server).await
    };
    if relayed.await.is_err() {
        client.reset();
    }
}

/// The stream of a client.
trait ClientStream: AsyncRead + AsyncWrite + Unpin {
    /// Makes the client see a reset when the stream is dropped.
    fn reset(&self);
}

impl ClientStream for TcpStream {
    fn reset(&self) {
        // It fails for a socket that has ended.
        let _ = self.set_zero_linger();
    }
}

impl ClientStream for TlsStream<TcpStream> {
    fn reset(&self) {
        self.get_ref().0.reset();
    }
}
