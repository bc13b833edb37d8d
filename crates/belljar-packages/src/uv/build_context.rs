//! What uv's resolver wants for building packages from source: here every build is refused, and there is no
//! interpreter that could build.

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

/// The answer to every wish to build.
#[derive(Debug, thiserror::Error)]
#[error("packages are never built from source here")]
pub(super) struct NoBuilds;

impl uv_errors::Hint for NoBuilds {}

impl IsBuildBackendError for NoBuilds {
    fn is_build_backend_error(&self) -> bool {
        false
    }
}

/// A build: there is none.
pub(super) enum Never {}

impl SourceBuildTrait for Never {
    async fn metadata(&mut self) -> Result<Option<PathBuf>, AnyErrorBuild> {
        match *self {}
    }

    async fn wheel<'a>(&'a self, _directory: &'a Path) -> Result<String, AnyErrorBuild> {
        match *self {}
    }
}

/// The context of one resolution.
pub(super) struct WheelsOnly {
    cache: Cache,
    locations: IndexLocations,
    metadata: DependencyMetadata,
    capabilities: IndexCapabilities,
    options: BuildOptions,
    // What only builds use, empty.
    git: GitResolver,
    arena: BuildArena<Never>,
    config_settings: ConfigSettings,
    package_config_settings: PackageConfigSettings,
    sources: NoSources,
    workspace_cache: WorkspaceCache,
    extra_build_requires: ExtraBuildRequires,
    extra_build_variables: ExtraBuildVariables,
}

impl WheelsOnly {
    /// `metadata`: dependencies that are known without asking the wheel.
    pub(super) fn new(cache: Cache, locations: IndexLocations, metadata: DependencyMetadata) -> Self {
        WheelsOnly {
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

/// Wheels of any kind, nothing from source.
pub(super) fn build_options() -> BuildOptions {
    BuildOptions::new(NoBinary::None, NoBuild::All)
}

#[expect(refining_impl_trait_internal, reason = "naming the error is shorter, and nobody but uv sees it")]
impl BuildContext for WheelsOnly {
    type SourceDistBuilder = Never;

    fn interpreter(&self) -> impl Future<Output = &Interpreter> + '_ {
        // uv asks for it when it builds or inspects source, which `NoBuild::All` rules out. Waiting forever ends in
        // the installation's deadline; there is no value to give.
        std::future::pending()
    }

    fn cache(&self) -> &Cache {
        &self.cache
    }

    fn git(&self) -> &GitResolver {
        &self.git
    }

    fn build_arena(&self) -> &BuildArena<Never> {
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
    ) -> Result<ResolvedRequirements, NoBuilds> {
        Err(NoBuilds)
    }

    async fn install<'a>(
        &'a self,
        _requirements: &'a ResolvedRequirements,
        _environment: &'a PythonEnvironment,
        _stack: &'a BuildStack,
    ) -> Result<Vec<CachedDist>, NoBuilds> {
        Err(NoBuilds)
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
    ) -> Result<Never, NoBuilds> {
        Err(NoBuilds)
    }

    async fn direct_build<'a>(
        &'a self,
        _source: &'a Path,
        _subdirectory: Option<&'a Path>,
        _output: &'a Path,
        _sources: NoSources,
        _kind: BuildKind,
        _version_id: Option<&'a str>,
    ) -> Result<Option<DistFilename>, NoBuilds> {
        Err(NoBuilds)
    }
}
