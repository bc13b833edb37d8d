//! TLS: a certificate with its key, and a listener for TLS connections.
//!
//! The listener performs each handshake in a task of its own, so that a client that starts a handshake and then
//! stalls does not delay other clients.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use parking_lot::RwLock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::connections;

/// The time in which a handshake must complete.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of concurrent handshakes; further connections wait.
const MAX_HANDSHAKES: usize = 256;

/// The reason why a certificate was rejected.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read, or is not PEM text.
    #[error("failed to read {path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the PEM reader.
        reason: PemError,
    },
    /// A file does not contain an item of the expected kind.
    #[error("{path} does not contain a {wanted} in PEM format (-----BEGIN …)")]
    Empty {
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key`.
        wanted: &'static str,
    },
    /// The certificate and the key do not match, or are of an unsupported kind.
    #[error("failed to use the certificate and its key: {0}")]
    Unusable(#[from] rustls::Error),
}

/// A server's certificate and key. Clones share them, so that a running server uses those that replace them.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

impl Tls {
    /// Reads PEM files: the chain of certificates, which starts with the server's own, and its private key.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or the certificate and the key do not match.
    pub fn from_files(certificates: &Path, key: &Path) -> Result<Self, TlsError> {
        let cannot_read = |path: &Path, wanted, reason| match reason {
            PemError::NoItemsFound => TlsError::Empty { path: path.into(), wanted },
            reason => TlsError::File { path: path.into(), reason },
        };
        let chain = CertificateDer::pem_file_iter(certificates)
            .and_then(|items| items.collect::<Result<Vec<_>, _>>())
            .map_err(|reason| cannot_read(certificates, "certificate", reason))?;
        if chain.is_empty() {
            return Err(TlsError::Empty { path: certificates.into(), wanted: "certificate" });
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(|reason| cannot_read(key, "private key", reason))?;
        // Explicit, since the dependency tree contains a second provider and rustls would not choose one.
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(RwLock::new(Arc::new(config)))))
    }

    /// Uses the certificate and the key of `other` for new connections.
    pub fn replace_with(&self, other: &Self) {
        let config = other.config();
        *self.0.write() = config;
    }

    fn config(&self) -> Arc<ServerConfig> {
        self.0.read().clone()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The private key must not appear in logs.
        f.write_str("Tls")
    }
}

/// A listener that returns connections after their TLS handshake.
pub(crate) struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
    accepting: AbortHandle,
}

impl TlsListener {
    /// Starts a task that performs a TLS handshake with each connection of `listener`.
    pub(crate) fn new(listener: TcpListener, tls: &Tls) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (done, ready) = mpsc::channel(16);
        let accepting = tokio::spawn(accept_all(listener, tls.clone(), done)).abort_handle();
        Ok(Self { ready, address, accepting })
    }
}

async fn accept_all(mut listener: TcpListener, tls: Tls, done: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>) {
    let slots = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    // The semaphore is never closed.
    while let Ok(slot) = slots.clone().acquire_owned().await {
        let (stream, from) = Listener::accept(&mut listener).await;
        let (acceptor, done) = (TlsAcceptor::from(tls.config()), done.clone());
        tokio::spawn(async move {
            connections::configure(&stream);
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                // Sending fails when the server has ended in the meantime.
                Ok(Ok(stream)) => drop(done.send((stream, from)).await),
                Ok(Err(error)) => tracing::debug!(%from, %error, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%from, "a TLS handshake timed out"),
            }
            drop(slot);
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The accepting task ends only when this listener is dropped.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
