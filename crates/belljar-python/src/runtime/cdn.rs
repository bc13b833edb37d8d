//! Runtime files by HTTP, from Pyodide's CDN or a mirror of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_cache::NewEntry;
use belljar_core::progress::{Progress, Step};
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};

use super::Upstream;
use super::error::SourceError;
use super::release::{Release, RuntimeFile};
use super::verify::{self, CopyError};

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A CDN moves a file at most from one host to another and to its final path.
const MAX_REDIRECTS: u32 = 5;

/// Downloads a release's files into a new cache entry. Stops at the first that fails.
pub(super) fn fetch(
    upstream: &Upstream,
    release: &Release,
    new: &NewEntry,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let agent = agent(&upstream.cdn, upstream.stall_timeout)?;
    for file in RuntimeFile::ALL {
        let url = format!("{}/v{}/full/{file}", upstream.cdn, release.version);
        download(&agent, &url, &new.path().join(file.name()), release, file, progress)?;
    }
    Ok(())
}

/// The proxy comes from `ALL_PROXY`, `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as with other programs. Trusted are the
/// certificates in the file that `SSL_CERT_FILE` names, else the platform's, else, if it has none, Mozilla's.
fn agent(base: &str, stall_timeout: Duration) -> Result<Agent, SourceError> {
    let mut config = Agent::config_builder()
        .user_agent(concat!("belljar/", env!("CARGO_PKG_VERSION")))
        // A redirect must not leave encryption behind.
        .https_only(base.starts_with("https:"))
        .max_redirects(MAX_REDIRECTS)
        .timeout_resolve(Some(CONNECT_TIMEOUT))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(stall_timeout))
        .timeout_per_read(Some(stall_timeout));
    if base.starts_with("http://127.0.0.1:") || base.starts_with("http://localhost:") {
        // No proxy can reach a mirror on this machine.
        config = config.proxy(None);
    }
    let roots = match std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()).map(PathBuf::from) {
        Some(path) => Some(certificates(&path).map_err(|reason| SourceError::Unreachable {
            url: base.to_owned(),
            reason: format!("SSL_CERT_FILE ({}) cannot be used: {reason}", path.display()),
        })?),
        None => platform_certificates(),
    };
    if let Some(roots) = roots {
        config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
    }
    Ok(config.build().new_agent())
}

fn platform_certificates() -> Option<RootCerts> {
    let found = rustls_native_certs::load_native_certs().certs;
    let certificates: Vec<Certificate> = found.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    (!certificates.is_empty()).then(|| RootCerts::new_with_certs(&certificates))
}

fn certificates(path: &Path) -> Result<RootCerts, ureq::Error> {
    let pem = std::fs::read(path)?;
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item? {
            certificates.push(certificate);
        }
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

fn download(
    agent: &Agent,
    url: &str,
    path: &Path,
    release: &Release,
    file: RuntimeFile,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let expected = release.fingerprint(file);
    let mut response = agent.get(url).call().map_err(|error| explain(url, error))?;
    let step = progress.start(Step::bytes(format!("downloading {file}"), expected.size));
    // Whatever the headers say of its length, no more than the expected size is read.
    let mut body = response.body_mut().as_reader();
    verify::copy_to_file(&mut body, path, expected, step.as_ref()).map_err(|error| match error {
        CopyError::Read(source) => SourceError::Interrupted { from: url.to_owned(), source },
        CopyError::Mismatch(mismatch) => SourceError::Mismatch { from: url.to_owned(), mismatch },
        CopyError::Write(error) => SourceError::Cache(error),
    })?;
    step.finish();
    Ok(())
}

fn explain(url: &str, error: ureq::Error) -> SourceError {
    let url = url.to_owned();
    match error {
        ureq::Error::StatusCode(status) => SourceError::Status { url, status },
        ureq::Error::TooManyRedirects
        | ureq::Error::RedirectFailed
        | ureq::Error::Protocol(_)
        | ureq::Error::Http(_)
        | ureq::Error::LargeResponseHeader(..) => SourceError::BadAnswer { url, reason: error.to_string() },
        error => SourceError::Unreachable { url, reason: error.to_string() },
    }
}
