//! Downloads of runtime files over HTTP, from Pyodide's CDN or a mirror of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use belljar_cache::NewEntry;
use belljar_core::Progress;
use belljar_core::progress::ProgressStep;
use rustls::crypto::aws_lc_rs::default_provider;
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};

use super::DownloadSources;
use super::error::SourceError;
use super::release::{Release, RuntimeFile};
use super::verify::{self, CopyError};

/// The time limit of name resolution and of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of redirects: a CDN redirects to another host and to the final path at most.
const MAX_REDIRECTS: u32 = 5;

/// Downloads a release's files into a new cache entry. Stops at the first failure.
pub(super) fn fetch(
    sources: &DownloadSources,
    release: &Release,
    new: &NewEntry,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let agent = agent(&sources.cdn, sources.stall_timeout)?;
    for file in RuntimeFile::ALL {
        let url = format!("{}/v{}/full/{file}", sources.cdn, release.version);
        download(&agent, &url, &new.path().join(file.name()), release, file, progress)?;
    }
    Ok(())
}

/// Creates an HTTP client. The proxy is configured by `ALL_PROXY`, `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as for
/// other programs. The trusted certificates are those in the file that `SSL_CERT_FILE` names; by default the platform's
/// or, if it does not have any, Mozilla's.
fn agent(base: &str, stall_timeout: Duration) -> Result<Agent, SourceError> {
    let mut config = Agent::config_builder()
        .user_agent(concat!("belljar/", env!("CARGO_PKG_VERSION")))
        // A redirect must not downgrade to an unencrypted connection.
        .https_only(base.starts_with("https:"))
        .max_redirects(MAX_REDIRECTS)
        .timeout_resolve(Some(CONNECT_TIMEOUT))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(stall_timeout))
        .timeout_per_read(Some(stall_timeout));
    if base.starts_with("http://127.0.0.1:") || base.starts_with("http://localhost:") {
        // A mirror on the loopback interface is not reachable through a proxy.
        config = config.proxy(None);
    }
    let roots = match std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()).map(PathBuf::from) {
        Some(path) => Some(certificates(&path).map_err(|reason| SourceError::Unreachable {
            url: base.to_owned(),
            reason: format!("failed to read SSL_CERT_FILE ({}): {reason}", path.display()),
        })?),
        None => platform_certificates(),
    };
    let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::new(default_provider()));
    if let Some(roots) = roots {
        tls = tls.root_certs(roots);
    }
    Ok(config.tls_config(tls.build()).build().new_agent())
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
    let expected = release.digest(file);
    let mut response = agent.get(url).call().map_err(|error| explain(url, error))?;
    let step = progress.start(ProgressStep::bytes(format!("downloading {file}"), expected.size));
    // Reads at most the expected size, whatever length the headers declare.
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
