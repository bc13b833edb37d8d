//! One resolution: from requirements to pinned files.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use url::Url;
use uv_client::FlatIndexClient;
use uv_configuration::Constraints;
use uv_distribution::DistributionDatabase;
use uv_distribution_types::{
    BuiltDist, DependencyMetadata, Dist, Index, Name, RegistryBuiltWheel, Requirement as UvRequirement,
    Resolution as UvResolution, ResolvedDist, StaticMetadata,
};
use uv_normalize::PackageName;
use uv_pypi_types::{Conflicts, HashAlgorithm, ResolverMarkerEnvironment};
use uv_requirements_txt::{RequirementEntry, RequirementsTxtRequirement};
use uv_resolver::{
    FlatIndex, InMemoryIndex, Manifest, OptionsBuilder, Preference, Preferences, ResolveError, Resolver,
    ResolverEnvironment, ResolverOutput,
};
use uv_types::{EmptyInstalledPackages, HashStrategy};

use super::build_context::{WheelsOnly, build_options};
use super::engine::{Engine, chain};
use super::explain;
use super::python_only::StandIns;
use crate::error::InstallError;
use crate::pyodide::{Form, PyodideLock};
use crate::requirement::Requirement;
use crate::resolution::{Absent, Kind, Pinned, Resolution, Source, hexadecimal};

/// What is to be resolved.
#[derive(Debug, Clone, Default)]
pub(crate) struct Demand {
    /// What must be there.
    pub(crate) requirements: Vec<Requirement>,
    /// What must be there if a package of that name exists at all.
    pub(crate) inferred: Vec<Requirement>,
    /// What is taken along if it can be had.
    pub(crate) optional: Vec<Requirement>,
    /// Versions to keep to.
    pub(crate) constraints: Vec<Requirement>,
    /// Pyodide's own files are not to be used: their server does not answer, or lacks one.
    pub(crate) without_pyodide: bool,
}

impl Demand {
    /// All that it names.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Requirement> {
        self.requirements.iter().chain(&self.inferred).chain(&self.optional)
    }
}

impl Engine {
    /// Resolves a demand. Inferred requirements of which no package exists are left out, and so are optional ones
    /// that cannot be met, alone or with the rest.
    pub(crate) async fn resolve(&self, demand: &Demand) -> Result<Resolution, InstallError> {
        let mut required = demand.requirements.clone();
        required.extend(demand.inferred.iter().cloned());
        let mut absent = Vec::new();
        loop {
            let error = match self.resolve_required(demand, &required).await {
                Ok(resolution) => return Ok(resolution.without(absent)),
                Err(error) => error,
            };
            let InstallError::Unknown { name, .. } = &error else { return Err(error) };
            let count = required.len();
            required.retain(|requirement| requirement.name() != name || demand.requirements.contains(requirement));
            if required.len() == count {
                return Err(error);
            }
            absent.push(Absent { name: name.clone(), reason: error.to_string() });
        }
    }

    /// Resolves what is required, with those of the optional requirements that can be met beside it.
    async fn resolve_required(&self, demand: &Demand, required: &[Requirement]) -> Result<Resolution, InstallError> {
        let index = InMemoryIndex::default();
        if demand.optional.is_empty() {
            return self.attempt(demand, required, &index).await;
        }
        let mut requirements = required.to_vec();
        requirements.extend(demand.optional.iter().cloned());
        if let Ok(resolution) = self.attempt(demand, &requirements, &index).await {
            return Ok(resolution);
        }
        let mut taken = required.to_vec();
        let mut best = self.attempt(demand, &taken, &index).await?;
        for optional in &demand.optional {
            taken.push(optional.clone());
            match self.attempt(demand, &taken, &InMemoryIndex::default()).await {
                Ok(resolution) => best = resolution,
                Err(error) => {
                    tracing::debug!(requirement = %optional, %error, "an optional requirement is left out");
                    taken.pop();
                }
            }
        }
        Ok(best)
    }

    async fn attempt(
        &self,
        demand: &Demand,
        requirements: &[Requirement],
        index: &InMemoryIndex,
    ) -> Result<Resolution, InstallError> {
        let mut index = index.clone();
        let mut stand_ins: Vec<StandIns> = Vec::new();
        let output = loop {
            let error = match self.solve(demand, requirements, &index, &stand_ins).await {
                Ok(output) => break output,
                Err(Failed::Otherwise(error)) => return Err(error),
                Err(Failed::Resolving(error)) => explain::failure(self, demand, requirements, *error).await,
            };
            // Offline, a directory may hold what the index cannot be asked for.
            let (InstallError::NoWheel { name, .. } | InstallError::Offline { what: name }) = &error else {
                return Err(error);
            };
            if stand_ins.iter().any(|known| known.is_for(name)) {
                return Err(error);
            }
            let Some(more) = self.stand_ins(name).await? else { return Err(error) };
            stand_ins.push(more);
            // The index in memory has forgotten nothing, of what was not there either.
            index = InMemoryIndex::default();
        };
        let resolution = UvResolution::from(output);
        let mut pinned = Vec::new();
        for dist in resolution.distributions() {
            pinned.push(self.pin(dist, &stand_ins)?);
        }
        for file in &pinned {
            check_hash(file, requirements.iter().chain(&demand.constraints))?;
            if let Some(rule) = self.settings.policy.objection(&file.name) {
                let required_by = explain::required_by(&resolution, &file.name);
                return Err(InstallError::Refused { name: file.name.clone(), rule, required_by });
            }
        }
        if let Some(lock) = &self.lock {
            pinned.extend(lock.shared_libraries(pinned.iter()).into_iter().collect::<Vec<_>>());
        }
        Ok(Resolution::new(&self.platform, pinned))
    }

    async fn solve(
        &self,
        demand: &Demand,
        requirements: &[Requirement],
        index: &InMemoryIndex,
        stand_ins: &[StandIns],
    ) -> Result<ResolverOutput, Failed> {
        let env = ResolverEnvironment::specific(ResolverMarkerEnvironment::from(self.markers.clone()));
        let (preferences, metadata) = self.lock.as_deref().map(known_versions).unwrap_or_default();
        // Where Pyodide's files cannot be had, the index's wheels speak for themselves.
        let mut metadata = if demand.without_pyodide { Vec::new() } else { metadata };
        metadata.extend(stand_ins.iter().flat_map(|stand_ins| stand_ins.metadata.iter().cloned()));
        let context =
            WheelsOnly::new(self.cache.clone(), self.locations.clone(), DependencyMetadata::from_entries(metadata));
        let page = self.lock_page.as_ref().filter(|_| !demand.without_pyodide);
        let standing_in = stand_ins.iter().map(StandIns::index).collect::<Result<Vec<_>, _>>()?;
        let links = FlatIndexClient::new(self.client.cached_client(), self.client.connectivity(), &self.cache)
            .fetch_all(page.into_iter().chain(self.locations.flat_indexes()).chain(&standing_in).map(Index::url))
            .await
            .map_err(|error| Failed::Otherwise(InstallError::Network { cause: chain(&error) }))?;
        let hasher = HashStrategy::default();
        let links = FlatIndex::from_entries(links, Some(&self.tags), &hasher, &build_options());
        let manifest = Manifest::new(
            requirements.iter().map(to_uv).collect(),
            Constraints::from_requirements(self.settings.constraints.iter().chain(&demand.constraints).map(to_uv)),
            uv_configuration::Overrides::default(),
            uv_configuration::Excludes::default(),
            Preferences::from_iter(preferences, &env),
            None,
            std::collections::BTreeSet::new(),
            uv_resolver::Exclusions::default(),
            Vec::new(),
        );
        let options =
            OptionsBuilder::new().exclude_newer(self.exclude_newer.clone()).build_options(build_options()).build();
        Resolver::new(
            manifest,
            options,
            &self.python,
            env,
            &self.markers,
            Conflicts::empty(),
            Some(&self.tags),
            &links,
            index,
            &hasher,
            &context,
            EmptyInstalledPackages,
            DistributionDatabase::new(&self.client, &context, Arc::clone(&self.downloads)),
        )
        .map_err(|error| Failed::Resolving(Box::new(error)))?
        .resolve()
        .await
        .map_err(|error| Failed::Resolving(Box::new(error)))
    }

    /// The file of one package.
    fn pin(&self, dist: &ResolvedDist, stand_ins: &[StandIns]) -> Result<Pinned, InstallError> {
        let unexpected = || InstallError::Internal { what: format!("`{}` was not resolved to a wheel", dist.name()) };
        let ResolvedDist::Installable { dist, .. } = dist else { return Err(unexpected()) };
        let Dist::Built(BuiltDist::Registry(built)) = dist.as_ref() else { return Err(unexpected()) };
        let wheel = built.best_wheel();
        let stand_ins = stand_ins.iter().find(|stand_ins| stand_ins.is_for(wheel.filename.name.as_ref()));
        if let Some(real) = stand_ins.and_then(|stand_ins| stand_ins.real(&wheel.file.filename)) {
            return Ok(real.clone());
        }
        let url = wheel.file.url.to_url().map_err(|error| InstallError::Internal { what: error.to_string() })?;
        let mut url = Url::from(url);
        let filename = wheel.file.filename.to_string();
        let sha256 = match (sha256_of(wheel), url.to_file_path()) {
            (Some(sha256), _) => sha256,
            // A directory of wheels lists no hashes. What lies there now is what is meant.
            (None, Ok(path)) => hash_file(&path)?,
            (None, Err(())) => return Err(InstallError::NoHash { file: filename }),
        };
        url.set_fragment(None);
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Ok(Pinned {
            name: wheel.filename.name.to_string(),
            version: wheel.filename.version.to_string(),
            filename,
            sha256,
            size: wheel.file.size,
            kind: Kind::Wheel,
            source: self.source_of(wheel),
            url: url.to_string(),
        })
    }

    fn source_of(&self, wheel: &RegistryBuiltWheel) -> Source {
        if self.lock_page.as_ref().is_some_and(|page| *page.url() == wheel.index) {
            Source::Pyodide
        } else if self.locations.flat_indexes().any(|place| *place.url() == wheel.index) {
            Source::FindLinks
        } else {
            Source::Index
        }
    }
}

enum Failed {
    Resolving(Box<ResolveError>),
    Otherwise(InstallError),
}

impl From<InstallError> for Failed {
    fn from(error: InstallError) -> Self {
        Failed::Otherwise(error)
    }
}

fn to_uv(requirement: &Requirement) -> UvRequirement {
    UvRequirement::from(requirement.to_uv())
}

/// The lock's versions as preferences, and what its compiled wheels depend on, so that nobody need ask them.
fn known_versions(lock: &PyodideLock) -> (Vec<Preference>, Vec<StaticMetadata>) {
    let mut preferences = Vec::new();
    let mut metadata = Vec::new();
    for (name, entry) in lock.wheels() {
        let (Ok(exact), Ok(package), Ok(version)) = (
            Requirement::exact(name, &entry.version),
            PackageName::from_str(name),
            uv_pep440::Version::from_str(&entry.version),
        ) else {
            tracing::debug!(package = name, version = entry.version, "the lock names no version that can be preferred");
            continue;
        };
        let entry_of_file =
            RequirementEntry { requirement: RequirementsTxtRequirement::Named(exact.to_uv()), hashes: Vec::new() };
        preferences.extend(Preference::from_entry(entry_of_file).ok().flatten());
        if entry.form == Form::Compiled {
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
    Ok(hexadecimal(&digest.finalize()))
}

/// Compares a pinned file with the hashes that requirements give for its package.
fn check_hash<'a>(file: &Pinned, requirements: impl Iterator<Item = &'a Requirement>) -> Result<(), InstallError> {
    let mut given: BTreeMap<&str, ()> = BTreeMap::new();
    for requirement in requirements.filter(|requirement| requirement.name() == file.name) {
        given.extend(requirement.hashes.iter().filter_map(|digest| digest.strip_prefix("sha256:")).map(|d| (d, ())));
    }
    if given.is_empty() || given.contains_key(file.sha256.as_str()) {
        return Ok(());
    }
    Err(InstallError::HashMismatch {
        file: file.filename.clone(),
        expected: given.into_keys().collect::<Vec<_>>().join(" or "),
        actual: file.sha256.clone(),
    })
}
