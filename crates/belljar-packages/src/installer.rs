//! The installer: resolves requirements and fetches wheels into the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use belljar_cache::{Entry, EntryKey, NewEntry};
use belljar_core::Progress;
use belljar_core::progress::{ProgressStep, StepProgress, Unit};
use futures::FutureExt;
use parking_lot::Mutex;

use crate::error::{GeneralHint, InstallError};
use crate::host_outage::HostOutage;
use crate::inference::{AvailableModules, Dependencies};
use crate::lookalikes;
use crate::platform::Platform;
use crate::requirement::Requirement;
use crate::resolution::{FileSource, MissingPackage, PinnedFile, Resolution};
use crate::resolution_cache::{ResolutionCache, ResolutionKey};
use crate::settings::Settings;
use crate::uv::{ResolveRequest, Worker};
use crate::wheel::Wheel;

/// The maximum number of files that are fetched at the same time.
const MAX_PARALLEL_DOWNLOADS: usize = 8;
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

/// The input of [`Installer::resolve`] and [`Installer::install`].
#[derive(Debug, Clone, Default)]
pub struct PackageRequest {
    /// Requirements that have to be met.
    pub requirements: Vec<Requirement>,
    /// Requirements that have to be met unless no package of that name exists.
    pub inferred: Vec<Requirement>,
    /// Requirements that are met if possible.
    pub optional: Vec<Requirement>,
    /// Constraints on versions, in addition to those of the settings.
    pub constraints: Vec<Requirement>,
    /// Packages that the interpreter already has, whose versions must not change.
    pub installed: Vec<InstalledPackage>,
}

/// A package that is already installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledPackage {
    /// The package's name.
    pub name: String,
    /// The installed version.
    pub version: String,
}

impl From<&Dependencies> for PackageRequest {
    fn from(dependencies: &Dependencies) -> Self {
        PackageRequest {
            requirements: dependencies.requirements.clone(),
            inferred: dependencies.inferred.iter().map(|inferred| inferred.requirement.clone()).collect(),
            optional: dependencies.optional.clone(),
            ..PackageRequest::default()
        }
    }
}

impl PackageRequest {
    /// Returns the requirements and the inferred requirements.
    fn required(&self) -> impl Iterator<Item = &Requirement> {
        self.requirements.iter().chain(&self.inferred)
    }
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

    /// Returns the installer's settings.
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

    fn fetch_until(
        &self,
        resolution: &Resolution,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<Vec<Wheel>, InstallError> {
        let mut wheels: Vec<Option<Wheel>> = Vec::new();
        let mut missing = Vec::new();
        for (index, pinned) in resolution.pinned().iter().enumerate() {
            let entry = self.settings.cache.get(&wheel_key(pinned))?;
            if entry.is_none() {
                missing.push((index, pinned));
            }
            wheels.push(entry.map(|entry| self.wheel(pinned, &entry)).transpose()?);
        }
        let results = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..missing.len().min(MAX_PARALLEL_DOWNLOADS) {
                scope.spawn(|| {
                    while let Some((index, pinned)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let outcome = self.fetch_one(pinned, progress, deadline);
                        // After a failure the remaining files are of no use.
                        if outcome.is_err() {
                            next.store(missing.len(), Ordering::Relaxed);
                        }
                        results.lock().push((*index, outcome));
                    }
                });
            }
        });
        for (index, outcome) in results.into_inner() {
            wheels[index] = Some(outcome?);
        }
        Ok(wheels.into_iter().flatten().collect())
    }

    fn fetch_one(
        &self,
        pinned: &PinnedFile,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<Wheel, InstallError> {
        let entry = self.settings.cache.get_or_create(&wheel_key(pinned), progress, |new: &NewEntry| {
            let doing = format!("downloading {}", pinned.filename);
            let step: Arc<Box<dyn StepProgress>> = Arc::new(progress.start(match pinned.size {
                Some(size) => ProgressStep::bytes(doing.clone(), size),
                None => ProgressStep { unit: Unit::Bytes, ..ProgressStep::indeterminate(doing.clone()) },
            }));
            let path = new.path().join(&pinned.filename);
            let (download_step, pinned) = (Arc::clone(&step), pinned.clone());
            self.worker.run(&doing, remaining(deadline), move |engine| {
                async move { engine.download(&pinned, &path, &|bytes| download_step.advance(bytes)).await }
                    .boxed_local()
            })?;
            if let Some(step) = Arc::into_inner(step) {
                step.finish();
            }
            Ok::<_, InstallError>(())
        })?;
        self.wheel(pinned, &entry)
    }

    fn wheel(&self, pinned: &PinnedFile, entry: &Entry) -> Result<Wheel, InstallError> {
        Ok(Wheel {
            name: pinned.name.clone(),
            version: pinned.version.clone(),
            filename: pinned.filename.clone(),
            sha256: pinned.sha256.clone(),
            kind: pinned.kind,
            path: entry.file(&pinned.filename)?,
            platform: self.platform.clone(),
        })
    }

    fn resolution_key(&self, request: &PackageRequest) -> ResolutionKey {
        ResolutionKey::new(self.key_parts(request).iter().map(String::as_str))
    }

    /// Returns the key of a request that is resolved without Pyodide's files.
    fn index_key(&self, request: &PackageRequest) -> ResolutionKey {
        let parts = self.key_parts(request);
        ResolutionKey::new(std::iter::once("without pyodide").chain(parts.iter().map(String::as_str)))
    }

    /// Returns everything that the resolution of a request depends on, except for the content of indexes.
    fn key_parts(&self, request: &PackageRequest) -> Vec<String> {
        let mut parts = self.fingerprint.clone();
        parts.extend(self.settings.find_links.iter().map(|location| listing(location)));
        for (name, list) in [
            ("requirements", &request.requirements),
            ("inferred", &request.inferred),
            ("optional", &request.optional),
            ("constraints", &request.constraints),
        ] {
            parts.push(format!("{name} {}", list.len()));
            let mut texts: Vec<_> = list.iter().map(|r| format!("{r} {}", r.hashes.join(" "))).collect();
            texts.sort();
            parts.extend(texts);
        }
        parts.extend(request.installed.iter().map(|installed| format!("{}=={}", installed.name, installed.version)));
        parts
    }
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Returns whether the error is a failure of the file's server rather than of the file.
fn is_server_failure(error: &InstallError) -> bool {
    matches!(error, InstallError::Network { .. } | InstallError::MissingFile { .. } | InstallError::Offline { .. })
}

/// Returns the key of a file in the cache.
fn wheel_key(pinned: &PinnedFile) -> EntryKey {
    EntryKey::new("wheel").part("sha256", &pinned.sha256).part("file", &pinned.filename)
}

/// Returns the parts of the platform and the settings that a resolution depends on. Being offline is not among them: it
/// changes which resolutions can be computed, but not their content.
fn fingerprint(platform: &Platform, settings: &Settings) -> Vec<String> {
    let mut parts = vec![platform.fingerprint(), settings.policy.fingerprint()];
    parts.push(format!("index {:?} {}", settings.index_url, settings.no_index));
    parts.push(format!("extra {:?}", settings.extra_index_urls));
    parts.push(format!("links {:?}", settings.find_links));
    parts.push(format!("newer {:?}", settings.exclude_newer));
    parts.extend(settings.constraints.iter().map(|constraint| format!("constraint {constraint}")));
    if let Some(source) = &settings.pyodide {
        // Hashing the lock would cost more than the rest. A lock that is changed in place has a new modification time.
        let stamp = std::fs::metadata(&source.lock).map(|metadata| (metadata.len(), metadata.modified().ok()));
        parts.push(format!("pyodide {:?} {} {:?}", source.lock, source.base_url, stamp.ok()));
    }
    parts
}

/// Returns the names, sizes and times of the files in a directory of wheels, so that a change gives another key.
fn listing(location: &str) -> String {
    let Ok(files) = std::fs::read_dir(location) else { return String::new() };
    let mut names: Vec<String> = files
        .flatten()
        .map(|file| {
            let stamp = file.metadata().map(|metadata| (metadata.len(), metadata.modified().ok())).ok();
            format!("{:?} {stamp:?}", file.file_name())
        })
        .collect();
    names.sort();
    names.join("\n")
}
