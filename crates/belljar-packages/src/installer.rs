//! The installer: resolves requirements and fetches wheels into the cache.
//!
//! | file | subject |
//! | --- | --- |
//! | `request` | the packages that a caller wants |
//! | `keys` | the keys of cached resolutions |
//! | `fetch` | fetching the files of a resolution |

mod fetch;
mod keys;
mod request;

use std::time::{Duration, Instant};

use belljar_core::Progress;
use belljar_core::progress::ProgressStep;
use futures::FutureExt;

use crate::error::{GeneralHint, InstallError};
use crate::host_outage::HostOutage;
use crate::inference::AvailableModules;
use crate::lookalikes;
use crate::platform::Platform;
use crate::requirement::Requirement;
use crate::resolution::{FileSource, MissingPackage, Resolution};
use crate::resolution_cache::{ResolutionCache, ResolutionKey};
use crate::settings::Settings;
use crate::uv::{ResolveRequest, Worker};
use crate::wheel::Wheel;
use fetch::wheel_key;
use keys::fingerprint;
pub use request::{InstalledPackage, PackageRequest};

/// The time for which a refusal is remembered that a failure of Pyodide's server caused: with the server the request
/// may be met.
const OUTAGE_REFUSAL_TTL: Duration = Duration::from_secs(60);

/// Resolves requirements and fetches wheels for one platform under one set of [`Settings`].
///
/// An installer can be used by any number of threads. Creating one is cheap; its first use of the network sets up uv.
pub struct Installer {
    platform: Platform,
    settings: Settings,
    resolution_cache: ResolutionCache,
    worker: Worker,
    /// The circuit breaker for Pyodide's server.
    pyodide_outage: Option<HostOutage>,
    /// The part of every [`ResolutionKey`] that depends on the platform and the settings.
    fingerprint: Vec<String>,
}

impl Installer {
    /// Creates an installer, without reading files or using the network.
    pub fn new(platform: Platform, settings: Settings) -> Self {
        let fingerprint = fingerprint(&platform, &settings);
        Installer {
            resolution_cache: ResolutionCache::new(&settings),
            worker: Worker::new(platform.clone(), settings.clone()),
            pyodide_outage: settings.pyodide.as_ref().map(|source| HostOutage::new(&source.base_url, &settings.cache)),
            fingerprint,
            platform,
            settings,
        }
    }

    /// Returns the platform that wheels are chosen for.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Returns the settings, which the installer does not change.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the modules of this platform's interpreter, for [`Dependencies::from_code`]: the standard library, and
    /// the modules that packages of Pyodide's lock provide.
    pub fn available_modules(&self) -> Result<AvailableModules, InstallError> {
        Ok(AvailableModules::new(&self.platform).with_lock(self.worker.lock()?))
    }

    /// Returns the files that satisfy a request.
    ///
    /// A request that was resolved recently is answered from the cache, and so is any earlier request while offline.
    /// While Pyodide's server is out of order, its wheels are chosen only if no other source has the package.
    ///
    /// Packages that are only inferred from imports and whose names resemble well-known ones are among the missing ones
    /// of the resolution.
    pub fn resolve(&self, request: &PackageRequest, progress: &dyn Progress) -> Result<Resolution, InstallError> {
        let (request, lookalikes) = self.without_lookalikes(request)?;
        Ok(self.resolve_until(&request, progress, self.deadline())?.and_missing(lookalikes))
    }

    /// Returns the error for installing a package, given by its normalised name, only because an import hints at it, if
    /// its name resembles a well-known one. The operator can allow the package, or provide its wheel in a directory.
    ///
    /// # Errors
    /// Returns an error if Pyodide's lock file is not valid.
    pub fn lookalike(&self, name: &str) -> Result<Option<InstallError>, InstallError> {
        if self.settings.no_install {
            return Ok(None);
        }
        let suggestions = lookalikes::resembled(name, self.worker.lock()?.as_deref());
        let chosen = || self.settings.no_index || self.settings.policy.names(name) || self.has_wheel_in_directory(name);
        Ok((!suggestions.is_empty() && !chosen())
            .then(|| InstallError::Lookalike { name: name.to_owned(), suggestions }))
    }

    /// Returns whether one of the operator's directories of wheels has a wheel of a package.
    fn has_wheel_in_directory(&self, name: &str) -> bool {
        let is_of_package = |file: std::fs::DirEntry| {
            let file = file.file_name();
            let package = file.to_str().and_then(|file| file.strip_suffix(".whl")?.split('-').next());
            package.and_then(Requirement::any_version).is_some_and(|package| package.name() == name)
        };
        let mut directories = self.settings.find_links.iter().filter_map(|location| std::fs::read_dir(location).ok());
        directories.any(|files| files.flatten().any(is_of_package))
    }

    /// Returns a request without inferred packages whose names resemble well-known ones, and the reasons.
    fn without_lookalikes(
        &self,
        request: &PackageRequest,
    ) -> Result<(PackageRequest, Vec<MissingPackage>), InstallError> {
        let mut request = request.clone();
        let mut missing = Vec::new();
        let requirements = request.requirements.clone();
        for inferred in [&mut request.inferred, &mut request.optional] {
            for requirement in std::mem::take(inferred) {
                let is_declared = requirements.iter().any(|declared| declared.name() == requirement.name());
                match if is_declared { None } else { self.lookalike(requirement.name())? } {
                    Some(error) => missing.push(MissingPackage {
                        name: requirement.name().to_owned(),
                        reason: error.with_general_hint(),
                        is_lookalike: true,
                    }),
                    None => inferred.push(requirement),
                }
            }
        }
        Ok((request, missing))
    }

    /// Returns the files of a resolution in the resolution's order, from the cache or from their URLs. Each file is
    /// verified against its hash.
    pub fn fetch(&self, resolution: &Resolution, progress: &dyn Progress) -> Result<Vec<Wheel>, InstallError> {
        self.fetch_until(resolution, progress, self.deadline())
    }

    /// Resolves a request and fetches its files.
    ///
    /// If Pyodide's server fails or lacks a file, the wheels of the index are used instead, if it has any. The
    /// resolution then differs from the one that [`Installer::resolve`] returned before, and replaces it in the cache.
    pub fn install(
        &self,
        request: &PackageRequest,
        progress: &dyn Progress,
    ) -> Result<(Resolution, Vec<Wheel>), InstallError> {
        let deadline = self.deadline();
        let (request, lookalikes) = self.without_lookalikes(request)?;
        let (resolution, wheels) = self.install_until(&request, progress, deadline)?;
        Ok((resolution.and_missing(lookalikes), wheels))
    }

    fn install_until(
        &self,
        request: &PackageRequest,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<(Resolution, Vec<Wheel>), InstallError> {
        let resolution = self.resolve_until(request, progress, deadline)?;
        let uses_pyodide = self.needs_pyodide_download(&resolution)?;
        if uses_pyodide
            && let Some(refusal) = self.resolution_cache.refusal(&self.index_key(request), OUTAGE_REFUSAL_TTL)
        {
            return Err(refusal);
        }
        let outage = self.pyodide_outage.as_ref().filter(|_| uses_pyodide);
        match self.fetch_until(&resolution, progress, deadline) {
            Ok(wheels) => {
                outage.inspect(|outage| outage.record_success());
                Ok((resolution, wheels))
            }
            Err(error) if is_server_failure(&error) && uses_pyodide => {
                tracing::info!(%error, "failed to fetch Pyodide's wheels; using the index's");
                if matches!(error, InstallError::Network { .. }) {
                    outage.inspect(|outage| outage.record_failure());
                }
                self.install_from_index(request, progress, deadline)
            }
            Err(error) => {
                // Resolve again next time, since a file of this resolution cannot be fetched.
                if !matches!(error, InstallError::Offline { .. } | InstallError::Timeout { .. }) {
                    self.resolution_cache.remove(&self.resolution_key(request));
                }
                Err(error)
            }
        }
    }

    /// Resolves and fetches without Pyodide's files, and caches the resolution or the refusal.
    fn install_from_index(
        &self,
        request: &PackageRequest,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<(Resolution, Vec<Wheel>), InstallError> {
        let resolve_request = ResolveRequest { without_pyodide: true, ..self.resolve_request(request)? };
        let resolution = self.resolve_uncached(resolve_request, progress, deadline);
        if let Err(error) = &resolution {
            self.resolution_cache.put(&self.index_key(request), Err(error));
        }
        let resolution = resolution?;
        let wheels = self.fetch_until(&resolution, progress, deadline)?;
        self.resolution_cache.put(&self.resolution_key(request), Ok(&resolution));
        Ok((resolution, wheels))
    }

    /// Returns whether Pyodide's server has recently failed or cannot be resolved.
    fn is_pyodide_unavailable(&self) -> bool {
        let Some(outage) = self.pyodide_outage.as_ref().filter(|_| !self.settings.offline) else { return false };
        if outage.is_open() {
            return true;
        }
        let is_unresolvable = outage.is_unresolvable();
        if is_unresolvable {
            outage.record_failure();
        }
        is_unresolvable
    }

    /// Returns whether a file of the resolution has to be fetched from Pyodide's server.
    fn needs_pyodide_download(&self, resolution: &Resolution) -> Result<bool, InstallError> {
        for pinned in resolution.pinned().iter().filter(|pinned| pinned.source == FileSource::Pyodide) {
            if self.settings.cache.get(&wheel_key(pinned))?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.settings.timeout
    }

    fn resolve_until(
        &self,
        request: &PackageRequest,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<Resolution, InstallError> {
        if request.required().next().is_none() && request.optional.is_empty() {
            return Ok(Resolution::new(&self.platform, Vec::new()));
        }
        if self.settings.no_install {
            return self.resolve_without_installing(request);
        }
        for requirement in request.required() {
            if let Some(violation) = self.settings.policy.violation(requirement.name()) {
                return Err(InstallError::Denied { name: requirement.name().to_owned(), violation, required_by: None });
            }
        }
        let key = self.resolution_key(request);
        if let Some(resolution) = self.resolution_cache.get(&key, self.settings.offline)? {
            return Ok(resolution);
        }
        let resolve_request = self.resolve_request(request)?;
        let without_pyodide = if self.is_pyodide_unavailable() {
            self.resolve_without_pyodide(&key, &resolve_request, progress, deadline)?
        } else {
            None
        };
        let resolution = match without_pyodide {
            Some(resolution) => Ok(resolution),
            None => self.resolve_uncached(resolve_request, progress, deadline),
        };
        self.resolution_cache.put(&key, resolution.as_ref());
        resolution
    }

    /// Resolves while Pyodide's server is unavailable: returns the cached resolution if all its files of Pyodide have
    /// been fetched, else a resolution with files of other sources, or `None` if those do not suffice.
    fn resolve_without_pyodide(
        &self,
        key: &ResolutionKey,
        resolve_request: &ResolveRequest,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<Option<Resolution>, InstallError> {
        if let Some(cached) = self.resolution_cache.get(key, true)?
            && !self.needs_pyodide_download(&cached)?
        {
            return Ok(Some(cached));
        }
        let resolve_request = ResolveRequest { without_pyodide: true, ..resolve_request.clone() };
        // On failure, the caller resolves with Pyodide's files, which may be the only ones.
        Ok(self.resolve_uncached(resolve_request, progress, deadline).ok())
    }

    fn resolve_request(&self, request: &PackageRequest) -> Result<ResolveRequest, InstallError> {
        let mut constraints = request.constraints.clone();
        for installed in &request.installed {
            constraints.push(Requirement::exact(&installed.name, &installed.version)?);
        }
        let is_allowed = |requirement: &&Requirement| self.settings.policy.violation(requirement.name()).is_none();
        Ok(ResolveRequest {
            requirements: request.requirements.clone(),
            inferred: request.inferred.clone(),
            optional: request.optional.iter().filter(is_allowed).cloned().collect(),
            constraints,
            is_recent_only: false,
            without_pyodide: false,
        })
    }

    /// Resolves while installing is disabled. Requirements are errors. Inferred ones are reported as missing instead,
    /// since the code may find their modules in a mounted directory or in a file that it writes.
    fn resolve_without_installing(&self, request: &PackageRequest) -> Result<Resolution, InstallError> {
        let disabled = |requirements: &[Requirement]| InstallError::InstallDisabled {
            packages: requirements.iter().map(ToString::to_string).collect(),
        };
        if !request.requirements.is_empty() {
            return Err(disabled(&request.requirements));
        }
        let missing = |inferred: &Requirement| MissingPackage {
            name: inferred.name().to_owned(),
            reason: disabled(std::slice::from_ref(inferred)).with_general_hint(),
            is_lookalike: false,
        };
        let missing = request.inferred.iter().map(missing).collect();
        Ok(Resolution::new(&self.platform, Vec::new()).with_missing(missing))
    }

    fn resolve_uncached(
        &self,
        request: ResolveRequest,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<Resolution, InstallError> {
        let names: Vec<_> = request.all().map(Requirement::name).collect();
        let doing = format!("resolving {}", names.join(", "));
        let step = progress.start(ProgressStep::indeterminate(doing.clone()));
        let resolution = self.worker.run(&doing, remaining(deadline), move |engine| {
            async move { engine.resolve(&request).await }.boxed_local()
        })?;
        step.finish();
        Ok(resolution)
    }
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Returns whether the error is a failure of the file's server rather than of the file.
fn is_server_failure(error: &InstallError) -> bool {
    matches!(error, InstallError::Network { .. } | InstallError::MissingFile { .. } | InstallError::Offline { .. })
}
