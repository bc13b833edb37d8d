//! The HTTP client of a server: the certificates that it accepts, and whether a proxy may pass its requests on.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Proxy};

use crate::command_error::CommandError;

/// Creates the HTTP client of a server. `ca` is a file with the only certificate authorities whose certificates the
/// server may have, in place of Mozilla's.
///
/// # Errors
/// Fails if the address is not one of HTTP, or the file does not contain a certificate.
pub(super) fn agent(url: &str, ca: Option<&Path>, connect_timeout: Duration) -> Result<Agent, CommandError> {
    let address = url.parse::<Uri>().ok().filter(|address| matches!(address.scheme_str(), Some("http" | "https")));
    let address = address.ok_or_else(|| format!("--url: `{url}` is not an address with http:// or https://"))?;
    let mut tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    if let Some(file) = ca {
        tls = tls.root_certs(RootCerts::new_with_certs(&certificates(file)?));
    }
    let config = Agent::config_builder()
        .timeout_connect(Some(connect_timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(proxy(&address))
        .tls_config(tls.build())
        .build();
    Ok(config.into())
}

/// Returns the proxy that the environment names for an address. This machine has none, since a proxy elsewhere does not
/// reach it, nor have addresses without TLS: the proxy would read the operator's token.
fn proxy(address: &Uri) -> Option<Proxy> {
    let is_encrypted = address.scheme_str() == Some("https");
    let is_local = address.host().is_some_and(is_loopback);
    if is_encrypted && !is_local { Proxy::try_from_env() } else { None }
}

/// Returns whether the host of an address is this machine.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Reads the certificates of a file in PEM format.
fn certificates(file: &Path) -> Result<Vec<Certificate<'static>>, CommandError> {
    let name = file.display();
    let pem = std::fs::read(file).map_err(|error| format!("--ca: failed to read {name}: {error}"))?;
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&pem) {
        if let PemItem::Certificate(certificate) =
            item.map_err(|error| format!("--ca: failed to read {name}: {error}"))?
        {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(CommandError::new(format!("--ca: {name} does not contain a certificate in PEM format")));
    }
    Ok(certificates)
}

/// Returns the hint for a request that has failed.
pub(super) fn hint(error: &ureq::Error) -> Option<&'static str> {
    match error {
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Some("start the server with --console, or name another with --url or BELLJAR_ADMIN_URL")
        }
        ureq::Error::Io(error) => hint_for_tls(error.get_ref()?.downcast_ref()?),
        ureq::Error::Rustls(error) => hint_for_tls(error),
        _ => None,
    }
}

fn hint_for_tls(error: &rustls::Error) -> Option<&'static str> {
    use rustls::CertificateError::{BadSignature, UnknownIssuer};
    // The signature is bad if an authority of the same name has another key.
    let is_unknown = matches!(error, rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature));
    is_unknown.then_some("--ca names a file with the certificate authority of the server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_recognised() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.8.8.8", "[::1]", "[::ffff:127.0.0.1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example.org", "127.0.0.1.example.org", "10.0.0.1", "[::2]", "0.0.0.0", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
