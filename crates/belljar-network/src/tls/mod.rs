//! TLS between the host and servers: settings, trust, and the handshake that the code asks for.

mod answer;
mod verifier;

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::policy::{Host, Policy};
use crate::tls_request::TlsRequest;
pub(crate) use answer::{failure_answer, success_answer};
pub(crate) use verifier::{Trust, VerifyFailure};
use verifier::{Verifier, is_certificate};

/// The settings that are reused by later connections. Each holds the sessions that servers resume.
const MAX_CONFIGS: usize = 16;

/// Certificate authorities that are not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The text contains no certificates.
    #[error("failed to read certificate authorities: no certificates in PEM")]
    Empty,
    /// The text is not PEM.
    #[error("failed to read certificate authorities: {0}")]
    Pem(String),
    /// A block of the text, counted from 1, is not a certificate.
    #[error("failed to read certificate authorities: block {0} is not a certificate")]
    Certificate(usize),
}

/// The settings of TLS of a network.
pub(crate) struct Tls {
    /// The algorithms, which the first connection sets up: code without connections does not wait for them.
    provider: OnceLock<Arc<CryptoProvider>>,
    extra: Vec<CertificateDer<'static>>,
    /// The trust of the host: the machine's and the extra authorities.
    trust: OnceLock<Arc<Trust>>,
    configs: Mutex<Vec<(ConfigKey, Arc<ClientConfig>)>>,
}

/// The options of the code that settings depend on.
#[derive(PartialEq, Eq, Clone, Hash)]
struct ConfigKey {
    verify: bool,
    check_hostname: bool,
    ca: Option<[u8; 32]>,
    alpn: Vec<String>,
    only_13: bool,
}

/// A handshake that failed.
pub(crate) enum TlsFailure {
    /// The certificate is not valid.
    Certificate(VerifyFailure),
    /// Another error of the protocol or of the request.
    Protocol(String),
    /// The policy refuses the name.
    Refused(String),
}

/// An established connection.
pub(crate) struct TlsConnection {
    pub(crate) stream: Box<TlsStream<TcpStream>>,
    /// The certificate is valid for the host of the connection, by the trust of the host.
    pub(crate) trusted: bool,
    /// The name of the server, if the connection is to an address.
    pub(crate) name: Option<Host>,
}

impl Tls {
    pub(crate) fn new(extra_ca: Option<Vec<u8>>) -> Result<Self, TrustError> {
        let extra = match extra_ca {
            None => Vec::new(),
            Some(pem) => certificates(&pem)?,
        };
        if let Some(index) = extra.iter().position(|der| !is_certificate(der)) {
            return Err(TrustError::Certificate(index + 1));
        }
        Ok(Self { provider: OnceLock::new(), extra, trust: OnceLock::new(), configs: Mutex::default() })
    }

    /// Returns the algorithms of TLS.
    fn provider(&self) -> &Arc<CryptoProvider> {
        self.provider.get_or_init(|| Arc::new(aws_lc_rs::default_provider()))
    }

    /// Returns the trust of the host. The first call reads the machine's trust store.
    fn trust(&self) -> &Arc<Trust> {
        self.trust.get_or_init(|| {
            let machine = rustls_native_certs::load_native_certs();
            for error in &machine.errors {
                tracing::warn!("failed to load a part of the trust store: {error}");
            }
            Arc::new(Trust::new(machine.certs, &self.extra))
        })
    }

    /// Returns the certificates of the host's trust.
    pub(crate) fn trusted_certificates(&self) -> Vec<Vec<u8>> {
        let machine = rustls_native_certs::load_native_certs().certs;
        machine.iter().chain(&self.extra).map(|certificate| certificate.to_vec()).collect()
    }

    /// Establishes TLS as the code asked for it.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        request: &TlsRequest,
        host: &Host,
        port: u16,
        policy: &Policy,
        limit: Duration,
    ) -> Result<TlsConnection, TlsFailure> {
        let server = server_name(request, host, port, policy)?;
        let config = self.config(request)?;
        let connector = TlsConnector::from(config);
        let connect = timeout(limit, connector.connect(server.clone(), stream));
        let stream = match connect.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(failure(&error)),
            Err(_) => return Err(TlsFailure::Protocol("the handshake timed out".to_owned())),
        };
        let trusted = self.is_trusted(request, &stream, host);
        let name = match (host, &server) {
            (Host::Address(_), ServerName::DnsName(name)) => Host::parse(name.as_ref()).ok(),
            _ => None,
        };
        Ok(TlsConnection { stream: Box::new(stream), trusted, name })
    }

    /// Returns whether the host trusts the server, whatever the code accepts.
    fn is_trusted(&self, request: &TlsRequest, stream: &TlsStream<TcpStream>, host: &Host) -> bool {
        if !request.verify {
            return false;
        }
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.clone()).ok(),
            Host::Address(address) => Some(ServerName::IpAddress((*address).into())),
        };
        let Some(name) = name else { return false };
        let Some([leaf, intermediates @ ..]) = stream.get_ref().1.peer_certificates() else { return false };
        self.trust().verify(self.provider(), leaf, intermediates, Some(&name)).is_ok()
    }

    /// Returns the settings for the options of the code.
    fn config(&self, request: &TlsRequest) -> Result<Arc<ClientConfig>, TlsFailure> {
        let only_13 = match request.minimum.as_deref() {
            None | Some("TLSv1" | "TLSv1.0" | "TLSv1.1" | "TLSv1.2" | "SSLv3") => false,
            Some("TLSv1.3") => true,
            Some(other) => return Err(TlsFailure::Protocol(format!("`{other}` is not a version of TLS"))),
        };
        let mut alpn: Vec<String> = request.alpn.clone();
        // The host relays HTTP/1.1 only.
        alpn.retain(|protocol| protocol != "h2" && protocol != "h3");
        if alpn.is_empty() && !request.alpn.is_empty() {
            alpn.push("http/1.1".to_owned());
        }
        let ca = request.ca.as_deref().map(digest);
        let key = ConfigKey { verify: request.verify, check_hostname: request.check_hostname, ca, alpn, only_13 };
        let mut configs = self.configs.lock();
        if let Some(index) = configs.iter().position(|(known, _)| *known == key) {
            let entry = configs.remove(index);
            let config = Arc::clone(&entry.1);
            configs.push(entry);
            return Ok(config);
        }
        let trust = match (&request.ca, request.verify) {
            (_, false) => None,
            (None, true) => Some(Arc::clone(self.trust())),
            (Some(pem), true) => {
                let certificates =
                    certificates(pem.as_bytes()).map_err(|error| TlsFailure::Protocol(error.to_string()))?;
                Some(Arc::new(Trust::new(Vec::new(), &certificates)))
            }
        };
        let verifier = Verifier::new(Arc::clone(self.provider()), trust, request.check_hostname);
        let versions: &[_] = if only_13 { &[&TLS13] } else { &[&TLS13, &TLS12] };
        let builder = ClientConfig::builder_with_provider(Arc::clone(self.provider()))
            .with_protocol_versions(versions)
            .map_err(|error| TlsFailure::Protocol(error.to_string()))?;
        let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
        config.alpn_protocols = key.alpn.iter().map(|protocol| protocol.clone().into_bytes()).collect();
        let config = Arc::new(config);
        if configs.len() >= MAX_CONFIGS {
            configs.remove(0);
        }
        configs.push((key, Arc::clone(&config)));
        Ok(config)
    }
}

/// Returns the hash of the certificate authorities of the code, which are a part of the key of settings.
fn digest(pem: &str) -> [u8; 32] {
    Sha256::digest(pem.as_bytes()).into()
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| TrustError::Pem(error.to_string()))?;
    if certificates.is_empty() { Err(TrustError::Empty) } else { Ok(certificates) }
}

/// Returns the name of the server for SNI and its certificate.
///
/// A connection to a name has that name. One to an address may have any name that the policy allows on the port.
fn server_name(
    request: &TlsRequest,
    host: &Host,
    port: u16,
    policy: &Policy,
) -> Result<ServerName<'static>, TlsFailure> {
    let asked = match &request.server_hostname {
        None => host.clone(),
        Some(name) => Host::parse(name)
            .map_err(|reason| TlsFailure::Refused(format!("invalid name of the server `{name}`: {reason}")))?,
    };
    match (host, &asked) {
        (Host::Name(_), _) if asked != *host => {
            Err(TlsFailure::Refused(format!("the name of the server {asked} is not that of the connection, {host}")))
        }
        (Host::Address(_), Host::Name(_)) if !policy.allows(&asked, Some(port)) => Err(TlsFailure::Refused(format!(
            "network access to {asked}:{port} is not allowed; allowed: {}",
            policy.summary()
        ))),
        (_, Host::Address(address)) => Ok(ServerName::IpAddress((*address).into())),
        (_, Host::Name(name)) => ServerName::try_from(name.clone())
            .map_err(|error| TlsFailure::Protocol(format!("invalid name of the server `{name}`: {error}"))),
    }
}

fn failure(error: &io::Error) -> TlsFailure {
    let source = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other))) = source
        && let Some(failure) = other.0.downcast_ref::<VerifyFailure>()
    {
        return TlsFailure::Certificate(failure.clone());
    }
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return TlsFailure::Protocol("the server closed the connection during the handshake".to_owned());
    }
    TlsFailure::Protocol(source.map_or_else(|| error.to_string(), ToString::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_set_up_before_a_connection() {
        let tls = Tls::new(None).unwrap();
        assert!(tls.provider.get().is_none() && tls.trust.get().is_none() && tls.configs.lock().is_empty());
    }

    #[test]
    fn authorities_that_are_not_certificates_are_refused() {
        let error = |text: &str| Tls::new(Some(text.as_bytes().to_vec())).err().map(|error| error.to_string());
        let refused = |reason: &str| Some(format!("failed to read certificate authorities: {reason}"));
        assert_eq!(error("not a certificate"), refused("no certificates in PEM"));
        let block = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(error(block), refused("block 1 is not a certificate"));
        assert!(error("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").is_some());
    }
}
