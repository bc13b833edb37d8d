//! TLS: a certificate with its key, and a listener that speaks it.
//!
//! axum takes any listener. This one makes the handshakes in tasks of their own: a client that begins one and falls
//! silent keeps nobody waiting.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes that are under way at once; further connections wait.
const HANDSHAKES: usize = 256;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM text.
    #[error("cannot read {path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        reason: PemError,
    },
    /// A file holds nothing of the kind that is wanted.
    #[error("{path} holds no {wanted}; PEM text is needed (-----BEGIN …)")]
    Empty {
        /// The file.
        path: PathBuf,
        /// `certificate` or `private key`.
        wanted: &'static str,
    },
    /// The two do not belong together, or are of a kind that is not supported.
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// A server's certificate and key. Cheap to clone.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Reads PEM files: the chain of certificates, the server's own first, and its private key.
    ///
    /// # Errors
    /// When they cannot be read, or do not belong together.
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
        // Named, since a second provider is in the tree and rustls would not choose.
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is nobody's business.
        f.write_str("Tls")
    }
}

/// Takes connections whose handshake is done.
pub(crate) struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
    accepting: AbortHandle,
}

impl TlsListener {
    /// Speaks TLS with all who connect to `listener`.
    pub(crate) fn new(listener: TcpListener, tls: &Tls) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(tls.0.clone());
        let (done, ready) = mpsc::channel(16);
        let accepting = tokio::spawn(accept_all(listener, acceptor, done)).abort_handle();
        Ok(Self { ready, address, accepting })
    }
}

async fn accept_all(
    mut listener: TcpListener,
    acceptor: TlsAcceptor,
    done: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    let places = Arc::new(Semaphore::new(HANDSHAKES));
    // The semaphore is never closed.
    while let Ok(place) = places.clone().acquire_owned().await {
        let (stream, from) = Listener::accept(&mut listener).await;
        let (acceptor, done) = (acceptor.clone(), done.clone());
        tokio::spawn(async move {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY cannot be set");
            }
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                // The server may have ended meanwhile.
                Ok(Ok(stream)) => drop(done.send((stream, from)).await),
                Ok(Err(error)) => tracing::debug!(%from, %error, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%from, "a TLS handshake took too long"),
            }
            drop(place);
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The task that accepts ends with this listener only.
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
