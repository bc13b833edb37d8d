//! The source of versions and metadata for uv's resolver: uv's own, with placeholders for the packages that work
//! without their compiled part ([`python_only`](super::python_only)).
//!
//! A package without a wheel for this platform would make the resolver try every release of what depends on it. The
//! placeholders are therefore offered as soon as the resolver asks for the versions of such a package.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use uv_client::FlatIndexClient;
use uv_distribution::{DistributionDatabase, Reporter};
use uv_distribution_types::{DependencyMetadata, Dist, Index, IndexMetadata, InstalledDist, Name};
use uv_normalize::PackageName;
use uv_pep508::MarkerTree;
use uv_resolver::{
    AllowedYanks, DefaultResolverProvider, FlatIndex, InMemoryIndex, MetadataResponse, PackageVersionsResult,
    ResolverProvider, WheelMetadataResult,
};
use uv_types::HashStrategy;

use super::build_context::{WheelOnlyBuildContext, build_options};
use super::engine::Engine;
use super::python_only::{PlaceholderWheels, is_reviewed};
use crate::error::InstallError;

/// The state that resolutions of the same request share: the answers of the index, and the placeholders in them.
#[derive(Default)]
pub(super) struct SharedIndex {
    pub(super) index: InMemoryIndex,
    /// By package; `None` if there are wheels for this platform, or no others.
    substitutes: RefCell<HashMap<PackageName, Option<Rc<Substitute>>>>,
}

/// The placeholders of a package, in place of what the index has for this platform.
struct Substitute {
    wheels: PlaceholderWheels,
    links: FlatIndex,
    context: WheelOnlyBuildContext,
}

impl SharedIndex {
    fn substitute(&self, name: &PackageName) -> Option<Rc<Substitute>> {
        self.substitutes.borrow().get(name).cloned().flatten()
    }

    /// Calls `read` with the placeholders of a package, if the resolver was offered some.
    pub(super) fn with_placeholders<T>(
        &self,
        name: &PackageName,
        read: impl FnOnce(&PlaceholderWheels) -> T,
    ) -> Option<T> {
        Some(read(&self.substitute(name)?.wheels))
    }
}

/// The source of versions and metadata.
pub(super) struct Provider<'a> {
    pub(super) engine: &'a Engine,
    pub(super) default: DefaultResolverProvider<'a, WheelOnlyBuildContext>,
    pub(super) shared: &'a SharedIndex,
    pub(super) yanks: AllowedYanks,
    pub(super) hasher: &'a HashStrategy,
    /// Returns whether other sources than the index may have wheels of a package.
    pub(super) is_linked: Box<dyn Fn(&PackageName) -> bool + 'a>,
}

impl Provider<'_> {
    /// Returns the placeholders of a package, if it has no wheel for this platform.
    async fn substitute(&self, name: &PackageName) -> Option<Rc<Substitute>> {
        if !is_reviewed(name) || (self.is_linked)(name) {
            return None;
        }
        if let Some(known) = self.shared.substitutes.borrow().get(name) {
            return known.clone();
        }
        let substitute = self.new_substitute(name).await.unwrap_or_else(|error| {
            // The resolution fails, and is repeated with placeholders or explained.
            tracing::debug!(package = %name, %error, "failed to offer placeholders");
            None
        });
        let substitute = substitute.map(Rc::new);
        self.shared.substitutes.borrow_mut().insert(name.clone(), substitute.clone());
        substitute
    }

    async fn new_substitute(&self, name: &PackageName) -> Result<Option<Substitute>, InstallError> {
        let Engine { client, cache, locations, tags, .. } = self.engine;
        if self.engine.index_has_usable_wheels(name).await {
            return Ok(None);
        }
        let Some(wheels) = self.engine.placeholder_wheels(name.as_ref()).await? else { return Ok(None) };
        let page: Index = wheels.index()?;
        let links = FlatIndexClient::new(client.cached_client(), client.connectivity(), cache)
            .fetch_all(std::iter::once(page.url()))
            .await
            .map_err(|error| InstallError::Network { cause: super::engine::error_chain(&error) })?;
        let links = FlatIndex::from_entries(links, Some(tags), self.hasher, &build_options());
        let metadata = DependencyMetadata::from_entries(wheels.metadata.iter().cloned());
        let context = WheelOnlyBuildContext::new(cache.clone(), locations.clone(), metadata);
        Ok(Some(Substitute { wheels, links, context }))
    }

    /// Returns a provider that knows the placeholders of one package.
    fn substitute_provider<'a>(
        &'a self,
        substitute: &'a Substitute,
    ) -> DefaultResolverProvider<'a, WheelOnlyBuildContext> {
        self.engine.provider(&substitute.context, &substitute.links, self.yanks.clone(), self.hasher)
    }
}

impl ResolverProvider for Provider<'_> {
    async fn get_package_versions<'io>(
        &'io self,
        name: &'io PackageName,
        index: Option<&'io IndexMetadata>,
    ) -> PackageVersionsResult {
        match self.substitute(name).await {
            Some(substitute) => self.substitute_provider(&substitute).get_package_versions(name, index).await,
            None => self.default.get_package_versions(name, index).await,
        }
    }

    async fn get_or_build_wheel_metadata<'io>(&'io self, dist: &'io Dist) -> WheelMetadataResult {
        let metadata = match self.shared.substitute(dist.name()) {
            Some(substitute) => self.substitute_provider(&substitute).get_or_build_wheel_metadata(dist).await,
            None => self.default.get_or_build_wheel_metadata(dist).await,
        };
        metadata.map(with_sockets)
    }

    async fn get_installed_metadata<'io>(&'io self, dist: &'io InstalledDist) -> WheelMetadataResult {
        self.default.get_installed_metadata(dist).await
    }

    fn with_reporter(self, reporter: Arc<dyn Reporter>) -> Self {
        Self { default: self.default.with_reporter(reporter), ..self }
    }
}

/// Has httpx2 depend on what it needs for sockets. Its metadata leaves that out on Emscripten, where programs in a
/// browser have none; here they have. Its transport for browsers is replaced in the guest (`guest/http_clients.py` in
/// `belljar-python`).
fn with_sockets(response: MetadataResponse) -> MetadataResponse {
    let MetadataResponse::Found(mut archive) = response else { return response };
    if archive.metadata.name.as_ref() == "httpx2" {
        for requirement in &mut archive.metadata.requires_dist {
            if matches!(requirement.name.as_ref(), "anyio" | "httpcore2") {
                requirement.marker = MarkerTree::TRUE;
            }
        }
    }
    MetadataResponse::Found(archive)
}

impl Engine {
    /// Returns uv's source of versions and metadata.
    pub(super) fn provider<'a>(
        &'a self,
        context: &'a WheelOnlyBuildContext,
        links: &'a FlatIndex,
        yanks: AllowedYanks,
        hasher: &'a HashStrategy,
    ) -> DefaultResolverProvider<'a, WheelOnlyBuildContext> {
        use uv_types::BuildContext as _;
        DefaultResolverProvider::new(
            DistributionDatabase::new(&self.client, context, Arc::clone(&self.downloads)),
            links,
            Some(&self.tags),
            &self.requires_python,
            yanks,
            hasher,
            self.exclude_newer.clone(),
            context.locations(),
            context.build_options(),
            context.capabilities(),
        )
    }
}
