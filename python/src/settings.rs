//! The settings of a sandbox, and the CPython that sandboxes with the same files share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use belljar_core::kernel::BoxError;
use belljar_core::{Limits, NoProgress, Progress, parse_size};
use belljar_network::{Network, NetworkLimits, NetworkOptions, Policy, Secrets};
use belljar_packages::{InstallError, Installer, Requirement, Settings as PackageSettings};
use belljar_python::install::{InstallerSource, PrepareOptions};
use belljar_python::{Options, Python as Runtime, PythonRuntime, RuntimeLoader};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::error::{Error, ErrorKind};

/// The settings of a sandbox.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    bundle: Option<PathBuf>,
    cache: Option<PathBuf>,
    #[serde(default)]
    offline: bool,
    #[serde(default)]
    packages: Vec<String>,
    /// False if nothing may be installed besides `packages`.
    #[serde(default)]
    install: bool,
    index_url: Option<String>,
    #[serde(default)]
    find_links: Vec<String>,
    #[serde(default)]
    limits: LimitSettings,
    network: Option<NetworkSettings>,
}

/// The network that code may use.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkSettings {
    policy: serde_json::Value,
    /// The name, the hosts and the value of each secret.
    secrets: Vec<(String, Vec<String>, String)>,
    /// Certificate authorities in addition to those of the machine: PEM.
    authorities: Option<String>,
    #[serde(default)]
    limits: NetworkLimitSettings,
}

/// The limits of the network, as `limits=` has them with `net_` before each name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkLimitSettings {
    connections: Option<usize>,
    bytes: Option<Size>,
    idle: Option<f64>,
    lifetime: Option<f64>,
    time: Option<f64>,
    lookups: Option<u64>,
}

/// The limits, as `limits=` has them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitSettings {
    timeout: Option<f64>,
    cpu: Option<f64>,
    memory: Option<Size>,
    output: Option<Size>,
    disk: Option<Size>,
    files: Option<u32>,
    value: Option<Size>,
}

/// A number of bytes, or a text such as `512MB`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Size {
    Bytes(u64),
    Text(String),
}

impl Size {
    pub(crate) fn bytes(&self, name: &str) -> Result<u64, Error> {
        match self {
            Self::Bytes(bytes) => Ok(*bytes),
            Self::Text(text) => parse_size(text).map_err(|error| argument(format!("limits[{name:?}]: {error}"))),
        }
    }
}

fn argument(message: String) -> Error {
    Error::new(ErrorKind::Argument, message)
}

/// The default limit of a value, in bytes: it may contain arrays.
const DEFAULT_VALUE: u64 = 256 << 20;

/// Returns a time that is a limit.
fn seconds(value: Option<f64>, name: &str) -> Result<Option<Duration>, Error> {
    let Some(value) = value else { return Ok(None) };
    let duration = Duration::try_from_secs_f64(value).ok().filter(|duration| !duration.is_zero());
    let invalid = || argument(format!("limits[{name:?}]: {value} is not a positive number of seconds"));
    duration.map(Some).ok_or_else(invalid)
}

impl NetworkLimitSettings {
    fn limits(&self) -> Result<NetworkLimits, Error> {
        let defaults = NetworkLimits::default();
        let bytes = self.bytes.as_ref().map(|bytes| bytes.bytes("net_bytes")).transpose()?;
        Ok(NetworkLimits {
            connections: self.connections.unwrap_or(defaults.connections),
            bytes_sent: bytes.unwrap_or(defaults.bytes_sent),
            bytes_received: bytes.unwrap_or(defaults.bytes_received),
            idle: seconds(self.idle, "net_idle")?.unwrap_or(defaults.idle),
            lifetime: seconds(self.lifetime, "net_lifetime")?.unwrap_or(defaults.lifetime),
            total: seconds(self.time, "net_time")?.unwrap_or(defaults.total),
            lookups: self.lookups.unwrap_or(defaults.lookups),
            ..defaults
        })
    }
}

impl LimitSettings {
    fn limits(&self) -> Result<Limits, Error> {
        let defaults = Limits { value: DEFAULT_VALUE, ..Limits::default() };
        let size = |size: &Option<Size>, name, default| size.as_ref().map_or(Ok(default), |size| size.bytes(name));
        Ok(Limits {
            wall_time: seconds(self.timeout, "timeout")?,
            cpu_time: seconds(self.cpu, "cpu")?,
            memory: size(&self.memory, "memory", defaults.memory)?,
            output: size(&self.output, "output", defaults.output)?,
            disk: size(&self.disk, "disk", defaults.disk)?,
            files: self.files.unwrap_or(defaults.files),
            value: size(&self.value, "value", defaults.value)?,
            ..defaults
        })
    }
}

impl Settings {
    /// Parses the settings of the Python code.
    pub(crate) fn parse(json: &str) -> Result<Self, Error> {
        serde_json::from_str(json).map_err(|error| argument(error.to_string()))
    }

    /// Returns the limits of each piece of code.
    pub(crate) fn limits(&self) -> Result<Limits, Error> {
        self.limits.limits()
    }

    /// Returns the network of all code; `None` if it may not use any.
    pub(crate) fn network(&self) -> Result<Option<Arc<Network>>, Error> {
        let Some(settings) = &self.network else { return Ok(None) };
        let policy = Policy::from_json(&settings.policy).map_err(|error| argument(format!("network: {error}")))?;
        let mut secrets = Secrets::new();
        for (name, hosts, value) in &settings.secrets {
            let added = secrets.add(name, hosts, value.clone());
            added.map_err(|error| argument(format!("secrets[{name:?}]: {error}")))?;
        }
        let extra_ca = settings.authorities.clone().map(String::into_bytes);
        let limits = settings.limits.limits()?;
        let options = NetworkOptions { policy, secrets, extra_ca, limits, resolver: None };
        Network::new(options).map(Some).map_err(|error| argument(format!("network: {error}")))
    }

    /// Returns the loader of the runtime, which loads it when it is first needed.
    pub(crate) fn loader(&self) -> Result<RuntimeLoader, Error> {
        let parse = |text: &String| Requirement::parse(text).map_err(|error| argument(format!("packages: {error}")));
        let requirements = self.packages.iter().map(parse).collect::<Result<_, _>>()?;
        let options = PrepareOptions { requirements, ..PrepareOptions::default() };
        let settings = self.clone();
        Ok(RuntimeLoader::new(move |progress| {
            let python = settings.open(progress)?;
            let source = Source { python: python.clone(), settings: settings.clone(), installer: OnceLock::new() };
            Ok(PythonRuntime { python, options: options.clone(), installer: Arc::new(source) })
        }))
    }

    /// Returns the CPython of these settings, which sandboxes share.
    fn open(&self, progress: &dyn Progress) -> Result<Runtime, BoxError> {
        type Key = (Option<PathBuf>, Option<PathBuf>, bool);
        static OPEN: Mutex<Option<HashMap<Key, Runtime>>> = Mutex::new(None);
        let key = (self.bundle.clone(), self.cache.clone(), self.offline);
        // Held while loading: concurrent callers wait for the first.
        let mut open = OPEN.lock();
        let open = open.get_or_insert_default();
        if let Some(python) = open.get(&key) {
            return Ok(python.clone());
        }
        let options = Options {
            cache: self.cache.clone(),
            bundle: self.bundle.clone(),
            offline: self.offline,
            ..Options::default()
        };
        let python = Runtime::open(&options, progress)?;
        open.insert(key, python.clone());
        Ok(python)
    }
}

/// A source that creates the installer when it is first needed.
struct Source {
    python: Runtime,
    settings: Settings,
    installer: OnceLock<Arc<Installer>>,
}

impl InstallerSource for Source {
    fn installer(&self) -> Result<Arc<Installer>, InstallError> {
        if let Some(installer) = self.installer.get() {
            return Ok(installer.clone());
        }
        let Settings { offline, install, index_url, find_links, .. } = &self.settings;
        let mut settings = PackageSettings::from_environment(self.python.cache().clone())?;
        settings.offline |= offline;
        settings.no_install = !install;
        if index_url.is_some() {
            settings.index_url.clone_from(index_url);
        }
        if !find_links.is_empty() {
            settings.find_links.clone_from(find_links);
        }
        settings.pyodide = match self.python.pyodide_source(&NoProgress) {
            Ok(source) => Some(source),
            Err(error) => {
                tracing::warn!(%error, "failed to open Pyodide's lock file: its wheels are not available");
                None
            }
        };
        let installer = Arc::new(Installer::new(self.python.platform(), settings));
        Ok(self.installer.get_or_init(|| installer).clone())
    }
}
