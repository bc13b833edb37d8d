//! The verification of certificates, with the numbers and texts of OpenSSL for what is wrong.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A certificate that is not valid: the number and the text of OpenSSL (`X509_V_ERR_…`), which Python shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerifyFailure {
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl fmt::Display for VerifyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for VerifyFailure {}

/// Certificate authorities.
#[derive(Debug)]
pub(crate) struct Trust {
    roots: RootCertStore,
    /// Certificates that were given by name: a server that presents one of them is trusted as with OpenSSL, although it
    /// is its own authority.
    exact: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// Creates the trust in the roots and in the certificates that were given.
    pub(crate) fn new(machine: Vec<CertificateDer<'static>>, given: &[CertificateDer<'static>]) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(machine);
        roots.add_parsable_certificates(given.iter().cloned());
        let is_own_authority = |der: &&CertificateDer<'static>| is_self_signed(der);
        Self { roots, exact: given.iter().filter(is_own_authority).cloned().collect() }
    }

    /// Verifies a certificate, for the name if one is given.
    pub(crate) fn verify(
        &self,
        provider: &CryptoProvider,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: Option<&ServerName<'_>>,
    ) -> Result<(), VerifyFailure> {
        self.verify_at(provider, leaf, intermediates, name, UnixTime::now())
    }

    fn verify_at(
        &self,
        provider: &CryptoProvider,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: Option<&ServerName<'_>>,
        now: UnixTime,
    ) -> Result<(), VerifyFailure> {
        let describe = |error: &Error| describe(error, leaf, intermediates, name);
        let parsed = ParsedCertificate::try_from(leaf).map_err(|error| describe(&error))?;
        if self.exact.iter().any(|known| known.as_ref() == leaf.as_ref()) {
            check_validity(leaf, now)?;
        } else {
            let algorithms = provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)
                .map_err(|error| describe(&error))?;
        }
        match name {
            Some(name) => verify_server_name(&parsed, name).map_err(|error| describe(&error)),
            None => Ok(()),
        }
    }
}

/// The verifier of the connections of one set of options.
#[derive(Debug)]
pub(crate) struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None` accepts every certificate.
    trust: Option<Arc<Trust>>,
    check_hostname: bool,
}

impl Verifier {
    pub(crate) fn new(provider: Arc<CryptoProvider>, trust: Option<Arc<Trust>>, check_hostname: bool) -> Self {
        Self { provider, trust, check_hostname }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(trust) = &self.trust {
            let name = self.check_hostname.then_some(server_name);
            trust
                .verify_at(&self.provider, end_entity, intermediates, name, now)
                .map_err(|failure| Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(failure)))))?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns OpenSSL's description of an error.
fn describe(
    error: &Error,
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    name: Option<&ServerName<'_>>,
) -> VerifyFailure {
    let (code, message) = match error {
        Error::InvalidCertificate(error) => match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => expired(),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => not_yet_valid(),
            CertificateError::Revoked => (23, "certificate revoked".to_owned()),
            CertificateError::BadSignature => (7, "certificate signature failure".to_owned()),
            CertificateError::UnhandledCriticalExtension => (34, "unhandled critical extension".to_owned()),
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                (26, "unsuitable certificate purpose".to_owned())
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => mismatch(name),
            CertificateError::UnknownIssuer => unknown_issuer(leaf, intermediates),
            // An authority that is used as a server.
            CertificateError::Other(_) if is_self_signed(leaf) => unknown_issuer(leaf, intermediates),
            other => (1, format!("unspecified certificate verification error: {other}")),
        },
        other => (1, format!("unspecified certificate verification error: {other}")),
    };
    VerifyFailure { code, message }
}

fn expired() -> (i32, String) {
    (10, "certificate has expired".to_owned())
}

fn not_yet_valid() -> (i32, String) {
    (9, "certificate is not yet valid".to_owned())
}

fn mismatch(name: Option<&ServerName<'_>>) -> (i32, String) {
    match name {
        Some(ServerName::IpAddress(address)) => {
            let address = std::net::IpAddr::from(*address);
            (64, format!("IP address mismatch, certificate is not valid for '{address}'."))
        }
        Some(name) => (62, format!("Hostname mismatch, certificate is not valid for '{}'.", name.to_str())),
        None => (62, "hostname mismatch".to_owned()),
    }
}

fn unknown_issuer(leaf: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> (i32, String) {
    if is_self_signed(leaf) {
        (18, "self-signed certificate".to_owned())
    } else if intermediates.iter().any(|certificate| is_self_signed(certificate)) {
        (19, "self-signed certificate in certificate chain".to_owned())
    } else {
        (20, "unable to get local issuer certificate".to_owned())
    }
}

/// Returns whether the bytes are a certificate.
pub(super) fn is_certificate(der: &[u8]) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(rest, _)| rest.is_empty())
}

fn is_self_signed(der: &[u8]) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(_, certificate)| certificate.subject() == certificate.issuer())
}

fn check_validity(der: &[u8], now: UnixTime) -> Result<(), VerifyFailure> {
    let fail = |(code, message)| Err(VerifyFailure { code, message });
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return fail((1, "unspecified certificate verification error".to_owned()));
    };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now > certificate.validity().not_after.timestamp() {
        fail(expired())
    } else if now < certificate.validity().not_before.timestamp() {
        fail(not_yet_valid())
    } else {
        Ok(())
    }
}
