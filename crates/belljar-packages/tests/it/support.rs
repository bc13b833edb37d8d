//! Fixtures: an installer with a temporary cache, and short forms of requests.

use std::path::Path;

use belljar_cache::Cache;
use belljar_core::NoProgress;
use belljar_packages::{InstallError, Installer, PackageRequest, Platform, Requirement, Resolution, Settings, Wheel};
use tempfile::TempDir;

/// An installer with a cache directory that is deleted with it.
pub(crate) struct Fixture {
    pub(crate) installer: Installer,
    pub(crate) cache: TempDir,
}

/// Returns the settings of the environment, with an empty cache.
pub(crate) fn settings(cache: &Path) -> Settings {
    let cache = Cache::open(Some(cache.to_path_buf())).unwrap();
    Settings::from_environment(cache).unwrap()
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// Creates an installer with changed settings.
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let mut settings = settings(cache.path());
        change(&mut settings);
        Fixture { installer: Installer::new(Platform::cpython_3_14(), settings), cache }
    }

    /// Creates an installer with changed settings on an existing cache.
    pub(crate) fn with_cache(cache: &Path, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings(cache);
        change(&mut settings);
        let installer = Installer::new(Platform::cpython_3_14(), settings);
        Fixture { installer, cache: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn resolve(&self, requirements: &[&str]) -> Result<Resolution, InstallError> {
        self.installer.resolve(&request(requirements), &NoProgress)
    }

    pub(crate) fn install(&self, requirements: &[&str]) -> Result<(Resolution, Vec<Wheel>), InstallError> {
        self.installer.install(&request(requirements), &NoProgress)
    }
}

pub(crate) fn request(requirements: &[&str]) -> PackageRequest {
    let requirements = requirements.iter().map(|text| Requirement::parse(text).unwrap()).collect();
    PackageRequest { requirements, ..PackageRequest::default() }
}
