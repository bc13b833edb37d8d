//! The certificate authority of a session, which only its sandbox trusts. Its key stays in the host's memory.

use std::sync::Arc;

use parking_lot::Mutex;
use pem::Pem;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};

/// The time for which certificates are valid: longer than any session.
const VALIDITY: Duration = Duration::days(3650);
/// The time before the creation of a certificate from which on it is valid, for clocks that differ.
const VALID_BEFORE: Duration = Duration::days(1);
/// The longest common name of a certificate.
const MAX_COMMON_NAME: usize = 64;
/// The number of hosts whose certificates are reused.
const MAX_HOSTS: usize = 256;

/// The settings of TLS for one host.
type HostConfig = (String, Arc<ServerConfig>);

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// The key of all hosts.
    host_key: KeyPair,
    hosts: Mutex<Vec<HostConfig>>,
}

/// A certificate that was not created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    /// A key or a certificate.
    #[error("failed to create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The settings of TLS.
    #[error("failed to use a certificate: {0}")]
    Tls(#[from] rustls::Error),
}

impl Authority {
    /// Creates an authority with a new key.
    ///
    /// # Errors
    /// Returns an error if the keys cannot be created.
    pub(crate) fn new() -> Result<Self, AuthorityError> {
        let mut params = params("Belljar session", Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.der().clone();
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, certificate, host_key: KeyPair::generate()?, hosts: Mutex::default() })
    }

    /// Returns the certificate of the authority.
    pub(crate) fn certificate_pem(&self) -> String {
        pem::encode(&Pem::new("CERTIFICATE", self.certificate.to_vec()))
    }

    /// Returns settings of TLS with a certificate for a name or an address.
    ///
    /// # Errors
    /// Returns an error if it is neither.
    pub(crate) fn server_config(&self, host: &str) -> Result<Arc<ServerConfig>, AuthorityError> {
        if let Some((_, config)) = self.hosts.lock().iter().find(|(known, _)| known == host) {
            return Ok(config.clone());
        }
        let mut params = params(host, vec![host.to_owned()])?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&self.host_key, &self.issuer)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.host_key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        // The host relays HTTP/1.1 only.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let mut hosts = self.hosts.lock();
        if hosts.len() >= MAX_HOSTS {
            hosts.remove(0);
        }
        hosts.push((host.to_owned(), config.clone()));
        Ok(config)
    }
}

/// Returns the parameters of a certificate.
fn params(common_name: &str, names: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    let mut name = DistinguishedName::new();
    let end = common_name.floor_char_boundary(MAX_COMMON_NAME);
    name.push(DnType::CommonName, common_name.get(..end).unwrap_or_default());
    params.distinguished_name = name;
    let now = OffsetDateTime::now_utc();
    params.not_before = now - VALID_BEFORE;
    params.not_after = now + VALIDITY;
    Ok(params)
}
