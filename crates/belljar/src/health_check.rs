//! `belljar healthcheck`: whether a server on this machine answers, for containers and service managers, whose images
//! need no other HTTP client for that.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ureq::tls::TlsConfig;

/// The time within which the server must answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The options of `belljar healthcheck`.
#[derive(Debug, Args)]
pub(crate) struct HealthCheckArguments {
    /// Address of the server. Its certificate is not verified.
    #[arg(default_value = "http://127.0.0.1:3001")]
    url: String,
}

/// Requests `/healthz` of a server. The status is 0 if the server is healthy, and 1 otherwise, as Docker requires.
pub(crate) fn health_check(arguments: &HealthCheckArguments) -> ExitCode {
    // The certificate names the address by which clients know the server, and not this machine. Proxies are for other
    // machines.
    let tls = TlsConfig::builder()
        .disable_verification(true)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .build();
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).proxy(None).tls_config(tls).build();
    let url = format!("{}/healthz", arguments.url.trim_end_matches('/'));
    match ureq::Agent::from(config).get(&url).call() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("belljar: failed to request {url}: {}", reason(&error));
            ExitCode::FAILURE
        }
    }
}

/// Returns the text of an error of a request: without `io: ` in front of the system's error.
pub(crate) fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}
