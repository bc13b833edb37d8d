//! Resolution of requirements to pinned files with uv's resolver.

use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use url::Url;
use uv_client::FlatIndexClient;
use uv_configuration::Constraints;
use uv_distribution_filename::WheelFilename;
use uv_distribution_types::{
    BuiltDist, DependencyMetadata, Dist, Index, Name, RegistryBuiltWheel, Requirement as UvRequirement,
    Resolution as UvResolution, ResolvedDist, StaticMetadata,
};
use uv_normalize::PackageName;
use uv_pypi_types::{Conflicts, HashAlgorithm, ResolverMarkerEnvironment};
use uv_requirements_txt::{RequirementEntry, RequirementsTxtRequirement};
use uv_resolver::{
    AllowedYanks, DependencyMode, FlatIndex, Manifest, OptionsBuilder, Preference, Preferences, ResolveError, Resolver,
    ResolverEnvironment, ResolverOutput,
};
use uv_types::{BuildContext as _, EmptyInstalledPackages, HashStrategy};

use super::build_context::{WheelOnlyBuildContext, build_options};
use super::engine::{Engine, error_chain};
use super::explain;
use super::provider::{Provider, SharedIndex};
use super::python_only::PlaceholderWheels;
use crate::error::{GeneralHint, InstallError};
use crate::pyodide::{EntryKind, PyodideLock};
use crate::requirement::Requirement;
use crate::resolution::{FileKind, FileSource, MissingPackage, PinnedFile, Resolution};

/// The input of a resolution.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResolveRequest {
    /// Requirements that have to be met.
    pub(crate) requirements: Vec<Requirement>,
    /// Requirements that have to be met unless no package of that name exists.
    pub(crate) inferred: Vec<Requirement>,
    /// Requirements that are met if possible.
    pub(crate) optional: Vec<Requirement>,
    /// Constraints on versions.
    pub(crate) constraints: Vec<Requirement>,
    /// If true, the constraints exclude old releases, so that a failure is about the newest ones.
    pub(crate) is_recent_only: bool,
    /// If true, Pyodide's files are not used, because their server is out of order or lacks a file.
    pub(crate) without_pyodide: bool,
}

impl ResolveRequest {
    /// Returns all requirements.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Requirement> {
        self.requirements.iter().chain(&self.inferred).chain(&self.optional)
    }
}

impl Engine {
    /// Resolves a request. Leaves out inferred requirements whose packages do not exist, and optional ones that cannot
    /// be met.
    pub(crate) async fn resolve(&self, request: &ResolveRequest) -> Result<Resolution, InstallError> {
        let mut required = request.requirements.clone();
        required.extend(request.inferred.iter().cloned());
        let mut missing = Vec::new();
        loop {
            let error = match self.resolve_required(request, &required).await {
                Ok(resolution) => return Ok(resolution.with_missing(missing)),
                Err(error) => error,
            };
            let InstallError::UnknownPackage { name, .. } = &error else { return Err(error) };
            let count = required.len();
            required.retain(|requirement| requirement.name() != name || request.requirements.contains(requirement));
            if required.len() == count {
                return Err(error);
            }
            let reason = error.with_general_hint();
            missing.push(MissingPackage { name: name.clone(), reason, is_lookalike: false });
        }
    }

    /// Resolves the required packages, and those of the optional ones that are compatible with them.
    async fn resolve_required(
        &self,
        request: &ResolveRequest,
        required: &[Requirement],
    ) -> Result<Resolution, InstallError> {
        let index = SharedIndex::default();
        if request.optional.is_empty() {
            return self.attempt(request, required, &index).await;
        }
        let mut requirements = required.to_vec();
        requirements.extend(request.optional.iter().cloned());
        if let Ok(resolution) = self.attempt(request, &requirements, &index).await {
            return Ok(resolution);
        }
        let mut accepted = required.to_vec();
        let mut best = self.attempt(request, &accepted, &index).await?;
        for optional in &request.optional {
            accepted.push(optional.clone());
            match self.attempt(request, &accepted, &SharedIndex::default()).await {
                Ok(resolution) => best = resolution,
                Err(error) => {
                    tracing::debug!(requirement = %optional, %error, "an optional requirement is left out");
                    accepted.pop();
                }
            }
        }
        Ok(best)
    }

    /// Resolves these requirements of a request. Packages that they name without a version are not resolved to old
    /// releases.
    async fn attempt(
        &self,
        request: &ResolveRequest,
        requirements: &[Requirement],
        index: &SharedIndex,
    ) -> Result<Resolution, InstallError> {
        let mut resolution = self.attempt_any_age(request, requirements, index).await?;
        let mut request = request.clone();
        // Each round excludes the old releases of one more package.
        while let Some(old) = self.old_release(requirements, &request.constraints, &resolution).await {
            request.constraints.push(old.recent.clone());
            request.is_recent_only = true;
            match self.attempt_any_age(&request, requirements, index).await {
                Ok(recent) => resolution = recent,
                Err(reason) => return Err(old.error(reason)),
            }
        }
        Ok(resolution)
    }

    async fn attempt_any_age(
        &self,
        request: &ResolveRequest,
        requirements: &[Requirement],
        index: &SharedIndex,
    ) -> Result<Resolution, InstallError> {
        let mut without_placeholders;
        let mut index = index;
        let mut placeholders: Vec<PlaceholderWheels> = Vec::new();
        let output = loop {
            let error = match self.solve(request, requirements, index, &placeholders).await {
                Ok(output) => break output,
                Err(SolveError::Other(error)) => return Err(error),
                Err(SolveError::Resolver(error)) => explain::install_error(self, request, requirements, *error).await,
            };
            // Offline, the index is unavailable, but a directory may have a usable wheel.
            let (InstallError::NoWheel { name, .. } | InstallError::Offline { name }) = &error else {
                return Err(error);
            };
            if placeholders.iter().any(|existing| existing.is_for(name)) {
                return Err(error);
            }
            let Some(more) = self.placeholder_wheels(name).await? else { return Err(error) };
            placeholders.push(more);
            // The old in-memory index remembers that the package has no compatible wheel.
            without_placeholders = SharedIndex::default();
            index = &without_placeholders;
        };
        let resolution = UvResolution::from(output);
        let mut pinned = Vec::new();
        for dist in resolution.distributions() {
            pinned.push(self.pin(dist, index, &placeholders)?);
        }
        for file in &pinned {
            check_hash(file, requirements.iter().chain(&request.constraints))?;
            if let Some(violation) = self.settings.policy.violation(&file.name) {
                let required_by = explain::required_by(&resolution, &file.name);
                return Err(InstallError::Denied { name: file.name.clone(), violation, required_by });
            }
        }
        if let Some(lock) = &self.lock {
            pinned.extend(lock.shared_libraries(pinned.iter()).into_iter().collect::<Vec<_>>());
        }
        Ok(Resolution::new(&self.platform, pinned))
    }

    async fn solve(
        &self,
        request: &ResolveRequest,
        requirements: &[Requirement],
        index: &SharedIndex,
        placeholders: &[PlaceholderWheels],
    ) -> Result<ResolverOutput, SolveError> {
        let env = ResolverEnvironment::specific(ResolverMarkerEnvironment::from(self.markers.clone()));
        let (preferences, metadata) = self.lock.as_deref().map(known_versions).unwrap_or_default();
        // The lock's metadata describes Pyodide's wheels. The index's wheels have metadata of their own.
        let mut metadata = if request.without_pyodide { Vec::new() } else { metadata };
        metadata.extend(placeholders.iter().flat_map(|placeholders| placeholders.metadata.iter().cloned()));
        let context = WheelOnlyBuildContext::new(
            self.cache.clone(),
            self.locations.clone(),
            DependencyMetadata::from_entries(metadata),
        );
        let page = self.lock_page.as_ref().filter(|_| !request.without_pyodide);
        let placeholder_indexes = placeholders.iter().map(PlaceholderWheels::index).collect::<Result<Vec<_>, _>>()?;
        let links = FlatIndexClient::new(self.client.cached_client(), self.client.connectivity(), &self.cache)
            .fetch_all(
                page.into_iter().chain(self.locations.flat_indexes()).chain(&placeholder_indexes).map(Index::url),
            )
            .await
            .map_err(|error| SolveError::Other(InstallError::Network { cause: error_chain(&error) }))?;
        let hasher = HashStrategy::default();
        let links = FlatIndex::from_entries(links, Some(&self.tags), &hasher, &build_options());
        let manifest = Manifest::new(
            requirements.iter().map(to_uv).collect(),
            Constraints::from_requirements(self.settings.constraints.iter().chain(&request.constraints).map(to_uv)),
            uv_configuration::Overrides::default(),
            uv_configuration::Excludes::default(),
            Preferences::from_iter(preferences, &env),
            None,
            BTreeSet::new(),
            uv_resolver::Exclusions::default(),
            Vec::new(),
        );
        let options =
            OptionsBuilder::new().exclude_newer(self.exclude_newer.clone()).build_options(build_options()).build();
        let yanks = AllowedYanks::from_manifest(&manifest, &env, DependencyMode::Transitive);
        let lock = self.lock.as_deref().filter(|_| !request.without_pyodide);
        let provider = Provider {
            engine: self,
            default: self.provider(&context, &links, yanks.clone(), &hasher),
            shared: index,
            yanks,
            hasher: &hasher,
            is_linked: Box::new(|name| {
                let is_named = |wheels: &PlaceholderWheels| wheels.is_for(name.as_ref());
                self.has_wheels_beside_the_index(lock, name) || placeholders.iter().any(is_named)
            }),
        };
        Resolver::new_custom_io(
            manifest,
            options,
            &hasher,
            env,
            &self.markers,
            Some(self.tags.clone()),
            &self.python,
            Conflicts::empty(),
            &index.index,
            context.git(),
            context.capabilities(),
            context.locations(),
            provider,
            EmptyInstalledPackages,
        )
        .resolve()
        .await
        .map_err(|error| SolveError::Resolver(Box::new(error)))
    }

    /// Returns the pinned file of a resolved package.
    fn pin(
        &self,
        dist: &ResolvedDist,
        index: &SharedIndex,
        placeholders: &[PlaceholderWheels],
    ) -> Result<PinnedFile, InstallError> {
        let unexpected = || InstallError::Internal { reason: format!("`{}` was not resolved to a wheel", dist.name()) };
        let ResolvedDist::Installable { dist, .. } = dist else { return Err(unexpected()) };
        let Dist::Built(BuiltDist::Registry(built)) = dist.as_ref() else { return Err(unexpected()) };
        let wheel = built.best_wheel();
        let name = &wheel.filename.name;
        let real_wheel = |placeholders: &PlaceholderWheels| placeholders.real_wheel(&wheel.file.filename).cloned();
        let placeholders = placeholders.iter().find(|placeholders| placeholders.is_for(name.as_ref()));
        if let Some(real_wheel) =
            placeholders.and_then(real_wheel).or_else(|| index.with_placeholders(name, real_wheel).flatten())
        {
            return Ok(real_wheel);
        }
        let url = wheel.file.url.to_url().map_err(|error| InstallError::Internal { reason: error.to_string() })?;
        let mut url = Url::from(url);
        let filename = wheel.file.filename.to_string();
        let sha256 = match (sha256_of(wheel), url.to_file_path()) {
            (Some(sha256), _) => sha256,
            // A directory of wheels lists no hashes, so the file's current content is pinned.
            (None, Ok(path)) => hash_file(&path)?,
            (None, Err(())) => return Err(InstallError::NoHash { file: filename }),
        };
        url.set_fragment(None);
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Ok(PinnedFile {
            name: wheel.filename.name.to_string(),
            version: wheel.filename.version.to_string(),
            filename,
            sha256,
            size: wheel.file.size,
            kind: FileKind::Wheel,
            source: self.source_of(wheel),
            url: url.to_string(),
        })
    }

    /// Returns whether Pyodide's lock or a directory of the settings may have a wheel of a package.
    fn has_wheels_beside_the_index(&self, lock: Option<&PyodideLock>, name: &PackageName) -> bool {
        let has_entry = lock.is_some_and(|lock| lock.wheels().any(|(package, _)| package == name.as_ref()));
        has_entry || self.settings.find_links.iter().any(|location| may_have_wheels(Path::new(location), name))
    }

    fn source_of(&self, wheel: &RegistryBuiltWheel) -> FileSource {
        if self.lock_page.as_ref().is_some_and(|page| *page.url() == wheel.index) {
            FileSource::Pyodide
        } else if self.locations.flat_indexes().any(|location| *location.url() == wheel.index) {
            FileSource::FindLinks
        } else {
            FileSource::Index
        }
    }
}

enum SolveError {
    Resolver(Box<ResolveError>),
    Other(InstallError),
}

impl From<InstallError> for SolveError {
    fn from(error: InstallError) -> Self {
        SolveError::Other(error)
    }
}

/// Returns whether a directory has a wheel of a package. A location that is not a directory may have one.
fn may_have_wheels(directory: &Path, name: &PackageName) -> bool {
    let Ok(files) = std::fs::read_dir(directory) else { return true };
    files.flatten().any(|file| {
        let wheel = WheelFilename::from_str(&file.file_name().to_string_lossy());
        wheel.is_ok_and(|wheel| wheel.name == *name)
    })
}

fn to_uv(requirement: &Requirement) -> UvRequirement {
    UvRequirement::from(requirement.to_uv())
}

/// Returns the lock's versions as preferences, and the dependencies of its compiled wheels, so that the wheels do not
/// have to be fetched for their metadata.
fn known_versions(lock: &PyodideLock) -> (Vec<Preference>, Vec<StaticMetadata>) {
    let mut preferences = Vec::new();
    let mut metadata = Vec::new();
    for (name, entry) in lock.wheels() {
        let (Ok(exact), Ok(package), Ok(version)) = (
            Requirement::exact(name, &entry.version),
            PackageName::from_str(name),
            uv_pep440::Version::from_str(&entry.version),
        ) else {
            tracing::debug!(package = name, version = entry.version, "the lock's name or version is not valid");
            continue;
        };
        let entry_of_file =
            RequirementEntry { requirement: RequirementsTxtRequirement::Named(exact.to_uv()), hashes: Vec::new() };
        preferences.extend(Preference::from_entry(entry_of_file).ok().flatten());
        if entry.kind == EntryKind::Compiled {
            let requires = lock.required_packages(entry).filter_map(Requirement::any_version);
            metadata.push(StaticMetadata {
                name: package,
                version: Some(version),
                requires_dist: requires.map(|requirement| requirement.to_uv()).collect(),
                requires_python: None,
                provides_extra: Box::default(),
            });
        }
    }
    (preferences, metadata)
}

fn sha256_of(wheel: &RegistryBuiltWheel) -> Option<String> {
    let digest = wheel.file.hashes.iter().find(|digest| digest.algorithm() == HashAlgorithm::Sha256)?;
    Some(digest.digest.to_ascii_lowercase())
}

pub(super) fn hash_file(path: &Path) -> Result<String, InstallError> {
    let failed = |source| InstallError::Io { action: "read", path: path.to_path_buf(), source };
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut digest = Sha256::new();
    std::io::copy(&mut file, &mut digest).map_err(failed)?;
    Ok(hex::encode(digest.finalize()))
}

/// Checks a pinned file against the hashes that requirements give for its package.
fn check_hash<'a>(file: &PinnedFile, requirements: impl Iterator<Item = &'a Requirement>) -> Result<(), InstallError> {
    let mut accepted: BTreeSet<&str> = BTreeSet::new();
    for requirement in requirements.filter(|requirement| requirement.name() == file.name) {
        accepted.extend(requirement.hashes.iter().filter_map(|digest| digest.strip_prefix("sha256:")));
    }
    if accepted.is_empty() || accepted.contains(file.sha256.as_str()) {
        return Ok(());
    }
    Err(InstallError::HashMismatch {
        file: file.filename.clone(),
        expected: accepted.into_iter().collect::<Vec<_>>().join(" or "),
        actual: file.sha256.clone(),
    })
}
