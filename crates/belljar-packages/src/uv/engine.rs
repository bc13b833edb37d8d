//! The engine: uv's cache, HTTP clients and platform description, set up once.

use std::io::Write as _;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use uv_cache::{Cache, Refresh};
use uv_client::{BaseClientBuilder, Certificates, Connectivity, RegistryClient, RegistryClientBuilder};
use uv_configuration::TrustedHost;
use uv_distribution_types::{ExcludeNewerValue, Index, IndexLocations, RequiresPython};
use uv_pep508::MarkerEnvironment;
use uv_platform_tags::Tags;
use uv_resolver::{ExcludeNewer, PythonRequirement};

use super::indexes;
use crate::atomic_file::write_atomically;
use crate::error::{InstallError, Setting};
use crate::platform::Platform;
use crate::pyodide::PyodideLock;
use crate::settings::Settings;

/// The maximum number of files and pages that are fetched at the same time, as in uv.
const MAX_CONCURRENT_DOWNLOADS: usize = 50;
/// The time limit for connecting to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for connecting to Pyodide's server, which the index can replace.
const PYODIDE_CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// The state that all resolutions and downloads share.
pub(crate) struct Engine {
    pub(super) platform: Platform,
    pub(super) settings: Settings,
    pub(super) cache: Cache,
    pub(super) locations: IndexLocations,
    pub(super) client: RegistryClient,
    /// A client with a shorter timeout and fewer retries, for Pyodide's server.
    pub(super) pyodide_client: RegistryClient,
    pub(super) markers: MarkerEnvironment,
    pub(super) tags: Tags,
    pub(super) python: PythonRequirement,
    pub(super) requires_python: RequiresPython,
    pub(super) exclude_newer: ExcludeNewer,
    pub(super) lock: Option<Arc<PyodideLock>>,
    /// A page of links to the lock's wheels.
    pub(super) lock_page: Option<Index>,
    pub(super) downloads: Arc<Semaphore>,
}

impl Engine {
    pub(super) async fn new(
        platform: &Platform,
        settings: &Settings,
        lock: Option<Arc<PyodideLock>>,
    ) -> Result<Self, InstallError> {
        let root = settings.cache.root();
        // Refreshes what is older than the engine.
        let refresh = Refresh::from_args(settings.refreshed_since.map(|_| true), Vec::new());
        let cache = Cache::from_path(root.join("uv"))
            .with_refresh(refresh)
            .init()
            .await
            .map_err(|error| InstallError::Internal { reason: format!("uv's cache: {}", error_chain(&error)) })?;
        let locations = indexes::locations(settings)?;
        let markers = platform.markers()?;
        let lock_page = lock.as_ref().map(|lock| write_page(&root.join("pyodide"), lock)).transpose()?;
        let client = |builder: BaseClientBuilder<'_>| {
            RegistryClientBuilder::new(builder, cache.clone())
                .index_locations(locations.clone())
                .markers(&markers)
                .build()
                .map_err(|error| InstallError::Internal { reason: format!("uv's client: {}", error_chain(&error)) })
        };
        let base = base_client(settings)?;
        let python = uv_pep440::Version::new([u64::from(platform.python.0), u64::from(platform.python.1)]);
        let requires_python = RequiresPython::greater_than_equal_version(&python);
        Ok(Engine {
            client: client(base.clone().connect_timeout(CONNECT_TIMEOUT))?,
            pyodide_client: client(base.connect_timeout(PYODIDE_CONNECT_TIMEOUT).retries(1))?,
            python: PythonRequirement::from_marker_environment(&markers, requires_python.clone()),
            requires_python,
            tags: platform.tags()?,
            exclude_newer: exclude_newer(settings)?,
            downloads: Arc::new(Semaphore::new(MAX_CONCURRENT_DOWNLOADS)),
            platform: platform.clone(),
            settings: settings.clone(),
            cache,
            locations,
            markers,
            lock,
            lock_page,
        })
    }
}

/// Returns the common configuration of both clients. Proxies are those of the environment.
fn base_client(settings: &Settings) -> Result<BaseClientBuilder<'static>, InstallError> {
    let connectivity = if settings.offline { Connectivity::Offline } else { Connectivity::Online };
    let hosts = settings
        .insecure_hosts
        .iter()
        .map(|host| {
            TrustedHost::from_str(host).map_err(|error| InstallError::Setting {
                setting: Setting::InsecureHost,
                value: host.clone(),
                reason: error.to_string(),
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let base = BaseClientBuilder::default()
        .connectivity(connectivity)
        .with_system_certs(settings.system_certificates && platform_has_certificates())
        .allow_insecure_host(hosts);
    let certificates = match (Certificates::from_env(), &settings.certificates) {
        (Some(certificates), _) => Some(certificates),
        (None, Some(file)) => Some(Certificates::from_file(file).map_err(|error| InstallError::Setting {
            setting: Setting::Certificates,
            value: file.display().to_string(),
            reason: error.to_string(),
        })?),
        (None, None) => None,
    };
    Ok(match certificates {
        Some(certificates) => base.custom_certificates(certificates),
        None => base,
    })
}

/// Returns whether the platform has certificates to trust. Small containers often have none.
fn platform_has_certificates() -> bool {
    // Other platforms verify certificates themselves instead of listing the trusted ones.
    !cfg!(target_os = "linux") || !rustls_native_certs::load_native_certs().certs.is_empty()
}

fn exclude_newer(settings: &Settings) -> Result<ExcludeNewer, InstallError> {
    let Some(text) = &settings.exclude_newer else { return Ok(ExcludeNewer::default()) };
    let value = ExcludeNewerValue::from_str(text).map_err(|reason| InstallError::Setting {
        setting: Setting::ExcludeNewer,
        value: text.clone(),
        reason,
    })?;
    Ok(ExcludeNewer::global(value))
}

/// Writes the page of links to a lock's wheels, unless it exists.
fn write_page(directory: &Path, lock: &PyodideLock) -> Result<Index, InstallError> {
    let path = directory.join(format!("links-{}.html", lock.digest));
    if !path.is_file() {
        let failed = |error| InstallError::Io { action: "write", path: path.clone(), source: error };
        std::fs::create_dir_all(directory).map_err(failed)?;
        write_atomically(&path, |file| file.write_all(lock.links_page().as_bytes())).map_err(failed)?;
    }
    indexes::page(&path)
}

/// Returns the messages of an error and all its causes on one line, since uv's outermost message is rarely specific.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |cause| cause.source()) {
        let cause = cause.to_string();
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}
