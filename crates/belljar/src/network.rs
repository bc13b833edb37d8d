//! The network that code may use: options, and the policy that they make.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use belljar_core::{ConnectionLog, ConnectionRecord, RecordedConnections, parse_size};
use belljar_network::{
    Network, NetworkError, NetworkLimits, NetworkObserver, NetworkOptions, Policy, SecretSource, Secrets,
};
use clap::Args;

use crate::command_error::CommandError;
use crate::value_parsers::seconds;

/// The options for network access.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetworkArguments {
    /// Host that code may connect to, on the ports 443 and 80 or the one that is given: api.github.com,
    /// `*.example.com:8443`, 192.0.2.7:5432.
    #[arg(long, value_name = "HOST[:PORT]", hide_short_help = true)]
    allow_net: Vec<String>,
    /// TOML file with a network policy: hosts, and rules for their HTTP requests.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    net_policy: Option<PathBuf>,
    /// Secret that code can use without knowing it: in headers of requests over TLS to these hosts.
    ///
    /// The code finds a placeholder in the environment variable NAME.
    #[arg(long = "secret", value_name = "NAME@HOST[,HOST]=env:VARIABLE|file:PATH", hide_short_help = true)]
    secrets: Vec<String>,
    /// File of certificate authorities to trust in addition to those of this machine (PEM).
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    net_ca: Vec<PathBuf>,
    /// Maximum number of connections of one run or session at the same time.
    #[arg(long, value_name = "N", default_value_t = NetworkLimits::default().connections, hide_short_help = true)]
    net_connections: usize,
    /// Maximum number of bytes that one run or cell sends, and that it receives.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1GB", hide_short_help = true)]
    net_bytes: u64,
    /// Time limit of a connection without any data.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "300", hide_short_help = true)]
    net_idle: Duration,
    /// Time limit of one connection.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "21600", hide_short_help = true)]
    net_lifetime: Duration,
    /// Time limit of all connections of one run or cell, from the beginning of the first.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "86400", hide_short_help = true)]
    net_time: Duration,
    /// Maximum number of look-ups of names by one run or cell.
    #[arg(long, value_name = "N", default_value_t = NetworkLimits::default().lookups, hide_short_help = true)]
    net_lookups: u64,
}

/// Reads the value of a secret.
fn read_secret(source: SecretSource<'_>) -> Result<String, String> {
    match source {
        SecretSource::Variable(variable) => {
            std::env::var(variable).map_err(|_| format!("the environment variable {variable} is not set"))
        }
        SecretSource::File(path) => {
            std::fs::read_to_string(path).map_err(|error| format!("failed to open {path}: {error}"))
        }
    }
}

impl NetworkArguments {
    /// Returns whether code may use the network.
    pub(crate) fn is_empty(&self) -> bool {
        self.allow_net.is_empty() && self.net_policy.is_none() && self.secrets.is_empty()
    }

    /// Returns whether [`NetworkArguments::network`] parses files.
    fn has_files(&self) -> bool {
        !self.is_empty() && (self.net_policy.is_some() || !self.net_ca.is_empty())
    }

    /// Returns the first of the given options that give code access to the network.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        let options = [
            ("--allow-net", !self.allow_net.is_empty()),
            ("--net-policy", self.net_policy.is_some()),
            ("--secret", !self.secrets.is_empty()),
        ];
        options.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// Returns the network; `None` if nothing is allowed.
    ///
    /// # Errors
    /// Returns an error if a pattern, a policy file, a secret or a file of certificate authorities is not valid.
    pub(crate) fn network(&self) -> Result<Option<Arc<Network>>, CommandError> {
        self.network_with(|| Ok(None))
    }

    /// Does the same as [`NetworkArguments::network`]. `key` returns the key of the placeholders of secrets, if code
    /// outlives this process.
    pub(crate) fn network_with(
        &self,
        key: impl FnOnce() -> Result<Option<[u8; 32]>, CommandError>,
    ) -> Result<Option<Arc<Network>>, CommandError> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut policy = match &self.net_policy {
            Some(file) => read_policy(file)?,
            None => Policy::none(),
        };
        for pattern in &self.allow_net {
            policy.allow(pattern).map_err(|error| CommandError::from_error(&error).context("--allow-net"))?;
        }
        let key = if self.secrets.is_empty() { None } else { key()? };
        let mut secrets = key.map_or_else(Secrets::new, Secrets::with_key);
        for secret in &self.secrets {
            let added = secrets.add_specification(secret, read_secret);
            added.map_err(|error| CommandError::from_error(&error).context("--secret"))?;
        }
        let mut authorities = Vec::new();
        for file in &self.net_ca {
            let text = std::fs::read(file).map_err(|error| format!("failed to open {}: {error}", file.display()))?;
            if !String::from_utf8_lossy(&text).contains("-----BEGIN CERTIFICATE-----") {
                return Err(format!("--net-ca {}: the file contains no certificates in PEM", file.display()).into());
            }
            authorities.extend(text);
            authorities.push(b'\n');
        }
        let limits = NetworkLimits {
            connections: self.net_connections,
            bytes_sent: self.net_bytes,
            bytes_received: self.net_bytes,
            lookups: self.net_lookups,
            idle: self.net_idle,
            lifetime: self.net_lifetime,
            total: self.net_time,
            ..NetworkLimits::default()
        };
        let extra_ca = (!authorities.is_empty()).then_some(authorities);
        let network = Network::new(NetworkOptions { policy, secrets, extra_ca, limits, resolver: None });
        network.map(Some).map_err(|error| match &error {
            NetworkError::Trust(_) => CommandError::from_error(&error).context("--net-ca"),
            _ => CommandError::from_error(&error),
        })
    }
}

/// The network of a command, whose files another thread reads while the command opens Python. The code that parses them
/// is not in use otherwise: with its page faults, it takes a few hundred microseconds.
pub(crate) struct NetworkReader<'a> {
    arguments: &'a NetworkArguments,
    network: OnceLock<Result<Option<Arc<Network>>, CommandError>>,
}

impl<'a> NetworkReader<'a> {
    /// Creates the network of these arguments, which has not been read.
    pub(crate) fn new(arguments: &'a NetworkArguments) -> Self {
        Self { arguments, network: OnceLock::new() }
    }

    /// Reads the files, unless another thread does or has done so. Without files there is nothing to do in advance.
    pub(crate) fn read(&self) {
        if self.arguments.has_files() {
            self.network.get_or_init(|| self.arguments.network());
        }
    }

    /// Returns the network as [`NetworkArguments::network`] does.
    ///
    /// # Errors
    /// As [`NetworkArguments::network`].
    pub(crate) fn network(&self) -> Result<Option<Arc<Network>>, CommandError> {
        self.network.get_or_init(|| self.arguments.network()).clone()
    }
}

/// Reads a file of `--net-policy`.
fn read_policy(file: &Path) -> Result<Policy, CommandError> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("failed to open {}: {error}", file.display()))?;
    Policy::from_toml(&text).map_err(|error| {
        CommandError::from_error(&error)
            .context(format!("--net-policy {}", file.display()))
            .with_hint("docs/network.md describes policy files")
    })
}

/// The connections of a command's code, which are also logged.
#[derive(Default)]
pub(crate) struct LoggedConnections(ConnectionLog);

impl LoggedConnections {
    /// Returns the connections so far, and forgets them.
    pub(crate) fn take(&self) -> RecordedConnections {
        self.0.take()
    }
}

impl NetworkObserver for LoggedConnections {
    fn on_connection(&self, record: &ConnectionRecord) {
        tracing::info!(target: "network", "{record}");
        self.0.push(record.clone());
    }
}
