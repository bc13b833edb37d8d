//! The options for access to a server over HTTP: host names, origins, authentication and TLS.

use std::path::{Path, PathBuf};

use belljar_server::{HttpOptions, OAuth, Operators, Tls, Tokens};
use belljar_sessions::SessionId;
use clap::Args;

use crate::command_error::CommandError;

/// The options for access to a server over HTTP.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Access")]
pub(crate) struct AccessOptions {
    /// Additional name of this server (Host header), such as its name behind a proxy. May be repeated.
    #[arg(long, value_name = "HOST", hide_short_help = true)]
    allow_host: Vec<String>,
    /// Web page that may send requests: `https://app.example.org`, `http://localhost:*`. May be repeated.
    #[arg(long, value_name = "ORIGIN", hide_short_help = true)]
    allow_origin: Vec<String>,
    /// File of tokens, of which every request must contain one.
    ///
    /// One token per line, sent as `Authorization: Bearer TOKEN`. A name may follow, for --quotas.
    #[arg(long, value_name = "FILE")]
    auth_token_file: Option<PathBuf>,
    /// OAuth issuer whose tokens (JWTs) are accepted. They are verified with the keys that it publishes.
    #[arg(long, value_name = "URL", requires = "oauth_audience", hide_short_help = true)]
    oauth_issuer: Option<String>,
    /// Audience of the tokens, usually the address of this server (`https://mcp.example.org/mcp`).
    #[arg(long, value_name = "AUDIENCE", requires = "oauth_issuer", hide_short_help = true)]
    oauth_audience: Option<String>,
    /// Disable authentication, even on non-loopback addresses.
    #[arg(long, hide_short_help = true)]
    insecure_no_auth: bool,
    /// Serve the console for operators on /console.
    ///
    /// Also serves the admin API on /admin/api/v1. The server must have sessions: --toolset interpreter, or all.
    /// Operators need a token. On a loopback address the server makes one and prints the console's address with it.
    #[arg(long)]
    pub(crate) console: bool,
    /// File of the tokens of operators, one per line. Tokens of users are not accepted for the console.
    #[arg(long, value_name = "FILE", requires = "console", hide_short_help = true)]
    admin_token_file: Option<PathBuf>,
    /// Scope with which a token of --oauth-issuer is one of an operator.
    #[arg(long, value_name = "SCOPE", requires = "console", default_value = "belljar:admin", hide_short_help = true)]
    admin_scope: String,
    /// TLS certificate: a PEM file with the certificate chain, starting with that of the server.
    #[arg(long, value_name = "FILE", requires = "tls_key", hide_short_help = true)]
    tls_cert: Option<PathBuf>,
    /// Private key of the TLS certificate: a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_cert", hide_short_help = true)]
    tls_key: Option<PathBuf>,
}

impl AccessOptions {
    /// Writes these options into those of a server. `is_exposed` is set if the address `host` is not a loopback
    /// address.
    pub(crate) fn apply(&self, options: &mut HttpOptions, is_exposed: bool, host: &str) -> Result<(), CommandError> {
        let access = &mut options.access;
        access.hosts.clone_from(&self.allow_host);
        access.any_host = is_exposed && self.allow_host.is_empty();
        access.origins.clone_from(&self.allow_origin);
        access.host_hint = Some("--allow-host adds a name");
        access.origin_hint = Some("--allow-origin allows an origin");
        if let Some(file) = &self.auth_token_file {
            access.tokens = read_tokens(file, "--auth-token-file")?;
        }
        if let (Some(issuer), Some(audience)) = (&self.oauth_issuer, &self.oauth_audience) {
            let oauth = OAuth::new(issuer, audience).map_err(|error| format!("--oauth-issuer: {error}"))?;
            access.oauth = Some(oauth);
        }
        if is_exposed && access.tokens.is_empty() && access.oauth.is_none() && !self.insecure_no_auth {
            return Err(CommandError::new(format!(
                "{host} is not a loopback address, and authentication is not configured: every client could run code"
            ))
            .with_hint(
                "require tokens with --auth-token-file FILE or --oauth-issuer URL, or disable authentication with \
                 --insecure-no-auth",
            ));
        }
        if self.console {
            options.access.operators = Some(self.operators(is_exposed, host)?);
        }
        if let (Some(certificates), Some(key)) = (&self.tls_cert, &self.tls_key) {
            options.tls = Some(read_certificate(certificates, key)?);
        }
        Ok(())
    }

    fn operators(&self, is_exposed: bool, host: &str) -> Result<Operators, CommandError> {
        let has_oauth = self.oauth_issuer.is_some();
        let tokens = match &self.admin_token_file {
            Some(file) => read_tokens(file, "--admin-token-file")?,
            None if has_oauth || !is_exposed => Tokens::default(),
            None => {
                return Err(CommandError::new(format!(
                    "--console: {host} is not a loopback address, and operators have no token"
                ))
                .with_hint("name a file of tokens with --admin-token-file FILE"));
            }
        };
        Ok(Operators { tokens, scope: has_oauth.then(|| self.admin_scope.clone()) })
    }

    /// Makes a token for operators if they cannot have another one. Returns it.
    pub(crate) fn make_operator_token(&self, options: &HttpOptions) -> Result<Option<String>, CommandError> {
        let Some(operators) = &options.access.operators else { return Ok(None) };
        if self.admin_token_file.is_some() || operators.scope.is_some() {
            return Ok(None);
        }
        let random = || SessionId::random().map_err(|error| format!("failed to make a token: {error}"));
        let token = format!("{}{}", random()?.as_str(), random()?.as_str());
        operators.tokens.replace_with(&Tokens::parse(&token));
        Ok(Some(token))
    }

    /// Reads the tokens and the certificate again, and has the server with `options` use them. Returns whether there
    /// are any.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or has nothing usable. The server then keeps what it has.
    pub(crate) fn reload(&self, options: &HttpOptions) -> Result<bool, CommandError> {
        let read = |file: Option<&Path>, option| file.map(|file| read_tokens(file, option)).transpose();
        let tokens = read(self.auth_token_file.as_deref(), "--auth-token-file")?;
        let of_operators = read(self.admin_token_file.as_deref(), "--admin-token-file")?;
        let certificate = match (&self.tls_cert, &self.tls_key) {
            (Some(certificates), Some(key)) => Some(read_certificate(certificates, key)?),
            _ => None,
        };
        if let Some(tokens) = &tokens {
            options.access.tokens.replace_with(tokens);
        }
        if let (Some(operators), Some(tokens)) = (&options.access.operators, &of_operators) {
            operators.tokens.replace_with(tokens);
        }
        if let (Some(tls), Some(certificate)) = (&options.tls, &certificate) {
            tls.replace_with(certificate);
        }
        Ok(tokens.is_some() || of_operators.is_some() || certificate.is_some())
    }
}

fn read_tokens(file: &Path, option: &str) -> Result<Tokens, CommandError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{option}: failed to read {}: {error}", file.display()))?;
    let tokens = Tokens::parse(&text);
    if tokens.is_empty() {
        return Err(CommandError::new(format!("{option}: {} contains no tokens", file.display()))
            .with_hint("write one token per line"));
    }
    Ok(tokens)
}

fn read_certificate(certificates: &Path, key: &Path) -> Result<Tls, CommandError> {
    Ok(Tls::from_files(certificates, key).map_err(|error| format!("--tls-cert, --tls-key: {error}"))?)
}
