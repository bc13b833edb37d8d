//! The build context that uv's resolver requires. It rejects every build from source and has no interpreter to build
//! with.

use std::future::Future;
use std::path::{Path, PathBuf};

use uv_cache::Cache;
use uv_configuration::{BuildKind, BuildOptions, BuildOutput, NoBinary, NoBuild, NoSources};
use uv_distribution_filename::DistFilename;
use uv_distribution_types::{
    CachedDist, ConfigSettings, DependencyMetadata, ExtraBuildRequires, ExtraBuildVariables, IndexCapabilities,
    IndexLocations, IsBuildBackendError, PackageConfigSettings, Requirement, SourceDist,
};
use uv_git::GitResolver;
use uv_python::{Interpreter, PythonEnvironment};
use uv_types::{
    AnyErrorBuild, BuildArena, BuildContext, BuildIsolation, BuildStack, ResolvedRequirements, SourceBuildTrait,
};
use uv_workspace::WorkspaceCache;

/// The error that every build fails with.
#[derive(Debug, thiserror::Error)]
#[error("building packages from source is not supported")]
pub(super) struct RejectBuilds;

impl uv_errors::Hint for RejectBuilds {}

impl IsBuildBackendError for RejectBuilds {
    fn is_build_backend_error(&self) -> bool {
        false
    }
}

/// The type of builds. It has no values, since builds are never started.
pub(super) enum Unbuildable {}

impl SourceBuildTrait for Unbuildable {
    async fn metadata(&mut self) -> Result<Option<PathBuf>, AnyErrorBuild> {
        match *self {}
    }

    async fn wheel<'a>(&'a self, _directory: &'a Path) -> Result<String, AnyErrorBuild> {
        match *self {}
    }
}

/// The build context of one resolution.
pub(super) struct WheelOnlyBuildContext {
    cache: Cache,
    locations: IndexLocations,
    metadata: DependencyMetadata,
    capabilities: IndexCapabilities,
    options: BuildOptions,
    // Empty values that are used by builds only.
    git: GitResolver,
    arena: BuildArena<Unbuildable>,
    config_settings: ConfigSettings,
    package_config_settings: PackageConfigSettings,
    sources: NoSources,
    workspace_cache: WorkspaceCache,
    extra_build_requires: ExtraBuildRequires,
    extra_build_variables: ExtraBuildVariables,
}

impl WheelOnlyBuildContext {
    /// Creates a context. `metadata` has the dependencies that are known without reading the wheels.
    pub(super) fn new(cache: Cache, locations: IndexLocations, metadata: DependencyMetadata) -> Self {
        WheelOnlyBuildContext {
            cache,
            locations,
            metadata,
            capabilities: IndexCapabilities::default(),
            options: build_options(),
            git: GitResolver::default(),
            arena: BuildArena::default(),
            config_settings: ConfigSettings::default(),
            package_config_settings: PackageConfigSettings::default(),
            sources: NoSources::All,
            workspace_cache: WorkspaceCache::default(),
            extra_build_requires: ExtraBuildRequires::default(),
            extra_build_variables: ExtraBuildVariables::default(),
        }
    }
}

/// Returns options that allow all wheels and no builds.
pub(super) fn build_options() -> BuildOptions {
    BuildOptions::new(NoBinary::None, NoBuild::All)
}

#[expect(refining_impl_trait_internal, reason = "naming the error type is shorter, and only uv uses it")]
impl BuildContext for WheelOnlyBuildContext {
    type SourceDistBuilder = Unbuildable;

    fn interpreter(&self) -> impl Future<Output = &Interpreter> + '_ {
        // uv uses the interpreter to build or inspect source distributions, which `NoBuild::All` rules out. The context
        // has none to return; waiting forever would end at the installation's deadline.
        std::future::pending()
    }

    fn cache(&self) -> &Cache {
        &self.cache
    }

    fn git(&self) -> &GitResolver {
        &self.git
    }

    fn build_arena(&self) -> &BuildArena<Unbuildable> {
        &self.arena
    }

    fn capabilities(&self) -> &IndexCapabilities {
        &self.capabilities
    }

    fn dependency_metadata(&self) -> &DependencyMetadata {
        &self.metadata
    }

    fn build_options(&self) -> &BuildOptions {
        &self.options
    }

    fn build_isolation(&self) -> BuildIsolation<'_> {
        BuildIsolation::Isolated
    }

    fn config_settings(&self) -> &ConfigSettings {
        &self.config_settings
    }

    fn config_settings_package(&self) -> &PackageConfigSettings {
        &self.package_config_settings
    }

    fn sources(&self) -> &NoSources {
        &self.sources
    }

    fn locations(&self) -> &IndexLocations {
        &self.locations
    }

    fn workspace_cache(&self) -> &WorkspaceCache {
        &self.workspace_cache
    }

    fn extra_build_requires(&self) -> &ExtraBuildRequires {
        &self.extra_build_requires
    }

    fn extra_build_variables(&self) -> &ExtraBuildVariables {
        &self.extra_build_variables
    }

    async fn resolve<'a>(
        &'a self,
        _requirements: &'a [Requirement],
        _stack: &'a BuildStack,
    ) -> Result<ResolvedRequirements, RejectBuilds> {
        Err(RejectBuilds)
    }

    async fn install<'a>(
        &'a self,
        _requirements: &'a ResolvedRequirements,
        _environment: &'a PythonEnvironment,
        _stack: &'a BuildStack,
    ) -> Result<Vec<CachedDist>, RejectBuilds> {
        Err(RejectBuilds)
    }

    async fn setup_build<'a>(
        &'a self,
        _source: &'a Path,
        _subdirectory: Option<&'a Path>,
        _install_path: &'a Path,
        _lock_path: Option<&'a Path>,
        _version_id: Option<&'a str>,
        _distribution: Option<&'a SourceDist>,
        _sources: &'a NoSources,
        _kind: BuildKind,
        _output: BuildOutput,
        _stack: BuildStack,
    ) -> Result<Unbuildable, RejectBuilds> {
        Err(RejectBuilds)
    }

    async fn direct_build<'a>(
        &'a self,
        _source: &'a Path,
        _subdirectory: Option<&'a Path>,
        _output: &'a Path,
        _sources: NoSources,
        _kind: BuildKind,
        _version_id: Option<&'a str>,
    ) -> Result<Option<DistFilename>, RejectBuilds> {
        Err(RejectBuilds)
    }
}
