//! The options that say who may reach a server over HTTP, and how.

use std::path::PathBuf;

use belljar_server::{HttpOptions, OAuth, Tls, Tokens};
use clap::Args;

/// Who may reach the server, and how.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Access")]
pub(crate) struct AccessOptions {
    /// Name by which requests may address this server (the Host header); needed once for each name behind a proxy.
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Web page that may send requests: `https://app.example.org`, `http://localhost:*`.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// File of tokens, one on each line; every request must bear one (`Authorization: Bearer TOKEN`).
    #[arg(long, value_name = "FILE")]
    auth_token_file: Option<PathBuf>,
    /// Take tokens (JWTs) of this OAuth issuer, checked against the keys that it publishes.
    #[arg(long, value_name = "URL", requires = "oauth_audience")]
    oauth_issuer: Option<String>,
    /// What its tokens must be made out for: this server's own address, usually (`https://mcp.example.org/mcp`).
    #[arg(long, value_name = "AUDIENCE", requires = "oauth_issuer")]
    oauth_audience: Option<String>,
    /// Let everybody in who reaches the port, beyond this machine too.
    #[arg(long)]
    insecure_no_auth: bool,
    /// Speak TLS, with this certificate: a PEM file with the chain, the server's own first.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key: a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl AccessOptions {
    /// Writes them into a server's options. `beyond`: other machines can reach it, by the address `host`.
    pub(crate) fn apply(&self, options: &mut HttpOptions, beyond: bool, host: &str) -> Result<(), String> {
        let admission = &mut options.admission;
        admission.hosts.clone_from(&self.allow_host);
        admission.any_host = beyond && self.allow_host.is_empty();
        admission.origins.clone_from(&self.allow_origin);
        if let Some(file) = &self.auth_token_file {
            let text = std::fs::read_to_string(file)
                .map_err(|error| format!("--auth-token-file: cannot read {}: {error}", file.display()))?;
            admission.tokens = Tokens::parse(&text);
            if admission.tokens.is_empty() {
                return Err(format!("--auth-token-file: {} holds no token; write one on a line", file.display()));
            }
        }
        if let (Some(issuer), Some(audience)) = (&self.oauth_issuer, &self.oauth_audience) {
            let oauth = OAuth::new(issuer, audience).map_err(|error| format!("--oauth-issuer: {error}"))?;
            admission.oauth = Some(oauth);
        }
        if beyond && admission.tokens.is_empty() && admission.oauth.is_none() && !self.insecure_no_auth {
            return Err(format!(
                "{host} can be reached from other machines, and whoever reaches it may run code\nhint: ask for a token \
                 with --auth-token-file FILE or --oauth-issuer URL, or let everybody in with --insecure-no-auth"
            ));
        }
        if let (Some(certificates), Some(key)) = (&self.tls_cert, &self.tls_key) {
            let tls = Tls::from_files(certificates, key).map_err(|error| format!("--tls-cert, --tls-key: {error}"))?;
            options.tls = Some(tls);
        }
        Ok(())
    }
}
