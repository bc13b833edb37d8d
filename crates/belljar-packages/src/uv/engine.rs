//! uv, set up once: its cache, its client for the network, the platform in its terms.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use uv_cache::Cache;
use uv_client::{BaseClientBuilder, Certificates, Connectivity, RegistryClient, RegistryClientBuilder};
use uv_configuration::TrustedHost;
use uv_distribution_types::{ExcludeNewerValue, Index, IndexLocations, RequiresPython};
use uv_pep508::MarkerEnvironment;
use uv_platform_tags::Tags;
use uv_resolver::{ExcludeNewer, PythonRequirement};

use super::indexes;
use crate::error::InstallError;
use crate::platform::Platform;
use crate::pyodide::PyodideLock;
use crate::settings::Settings;

/// Files and pages fetched at once, as in uv.
const CONCURRENT_DOWNLOADS: usize = 50;
/// A server that cannot be connected to in this time counts as not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for Pyodide's wheels, which the index can stand in for.
const PYODIDE_CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Everything that resolutions and downloads share.
pub(crate) struct Engine {
    pub(super) platform: Platform,
    pub(super) settings: Settings,
    pub(super) cache: Cache,
    pub(super) locations: IndexLocations,
    pub(super) client: RegistryClient,
    /// Gives up sooner, for servers that can be done without.
    pub(super) impatient_client: RegistryClient,
    pub(super) markers: MarkerEnvironment,
    pub(super) tags: Tags,
    pub(super) python: PythonRequirement,
    pub(super) exclude_newer: ExcludeNewer,
    pub(super) lock: Option<Arc<PyodideLock>>,
    /// The lock's wheels as a page of links.
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
        let cache = Cache::from_path(root.join("uv"))
            .init()
            .await
            .map_err(|error| InstallError::Internal { what: format!("uv's cache: {}", chain(&error)) })?;
        let locations = indexes::locations(settings)?;
        let markers = platform.markers()?;
        let lock_page = lock.as_ref().map(|lock| write_page(root.join("pyodide"), lock)).transpose()?;
        let client = |builder: BaseClientBuilder<'_>| {
            RegistryClientBuilder::new(builder, cache.clone())
                .index_locations(locations.clone())
                .markers(&markers)
                .build()
                .map_err(|error| InstallError::Internal { what: format!("uv's client: {}", chain(&error)) })
        };
        let base = base_client(settings)?;
        let python = uv_pep440::Version::new([u64::from(platform.python.0), u64::from(platform.python.1)]);
        Ok(Engine {
            client: client(base.clone().connect_timeout(CONNECT_TIMEOUT))?,
            impatient_client: client(base.connect_timeout(PYODIDE_CONNECT_TIMEOUT).retries(1))?,
            python: PythonRequirement::from_marker_environment(
                &markers,
                RequiresPython::greater_than_equal_version(&python),
            ),
            tags: platform.tags()?,
            exclude_newer: exclude_newer(settings)?,
            downloads: Arc::new(Semaphore::new(CONCURRENT_DOWNLOADS)),
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

/// What both clients have in common. Proxies come from the environment, as everywhere.
fn base_client(settings: &Settings) -> Result<BaseClientBuilder<'static>, InstallError> {
    let connectivity = if settings.offline { Connectivity::Offline } else { Connectivity::Online };
    let hosts = settings
        .insecure_hosts
        .iter()
        .map(|host| {
            TrustedHost::from_str(host).map_err(|error| InstallError::Setting {
                setting: format!("the insecure host `{host}`"),
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
            setting: format!("the certificates {}", file.display()),
            reason: error.to_string(),
        })?),
        (None, None) => None,
    };
    Ok(match certificates {
        Some(certificates) => base.custom_certificates(certificates),
        None => base,
    })
}

/// Whether the platform has certificates to trust. Small containers often have none.
fn platform_has_certificates() -> bool {
    // Elsewhere the platform itself is asked whether it trusts a certificate.
    !cfg!(target_os = "linux") || !rustls_native_certs::load_native_certs().certs.is_empty()
}

fn exclude_newer(settings: &Settings) -> Result<ExcludeNewer, InstallError> {
    let Some(text) = &settings.exclude_newer else { return Ok(ExcludeNewer::default()) };
    let value = ExcludeNewerValue::from_str(text)
        .map_err(|reason| InstallError::Setting { setting: format!("--exclude-newer {text}"), reason })?;
    Ok(ExcludeNewer::global(value))
}

/// Writes the page of links that stands for a lock, unless it is there.
fn write_page(directory: PathBuf, lock: &PyodideLock) -> Result<Index, InstallError> {
    let path = directory.join(format!("links-{}.html", lock.digest));
    if !path.is_file() {
        let failed = |error| InstallError::Io { action: "write", path: path.clone(), source: error };
        std::fs::create_dir_all(&directory).map_err(failed)?;
        let file = tempfile::NamedTempFile::new_in(&directory).map_err(failed)?;
        std::fs::write(file.path(), lock.links_page()).map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
    }
    indexes::page(&path)
}

/// An error with all its causes, on one line: the outermost alone rarely says what happened.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
