//! What the tests share: an installer with a cache of its own, requests in short.

use std::path::Path;

use belljar_cache::Cache;
use belljar_core::progress::NoProgress;
use belljar_packages::{InstallError, Installer, Platform, Request, Requirement, Resolution, Settings, Wheel};
use tempfile::TempDir;

/// An installer whose cache is deleted with it.
pub(crate) struct Bench {
    pub(crate) installer: Installer,
    pub(crate) cache: TempDir,
}

/// Settings with an empty cache and what the environment says.
pub(crate) fn settings(cache: &Path) -> Settings {
    let cache = Cache::open(Some(cache.to_path_buf())).unwrap();
    Settings::from_environment(cache).unwrap()
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// With settings changed.
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let mut settings = settings(cache.path());
        change(&mut settings);
        Bench { installer: Installer::new(Platform::cpython_3_14(), settings), cache }
    }

    /// On the cache of another one.
    pub(crate) fn with_cache(cache: &Path, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings(cache);
        change(&mut settings);
        let installer = Installer::new(Platform::cpython_3_14(), settings);
        Bench { installer, cache: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn resolve(&self, requirements: &[&str]) -> Result<Resolution, InstallError> {
        self.installer.resolve(&request(requirements), &NoProgress)
    }

    pub(crate) fn install(&self, requirements: &[&str]) -> Result<(Resolution, Vec<Wheel>), InstallError> {
        self.installer.install(&request(requirements), &NoProgress)
    }
}

pub(crate) fn request(requirements: &[&str]) -> Request {
    let requirements = requirements.iter().map(|text| Requirement::parse(text).unwrap()).collect();
    Request { requirements, ..Request::default() }
}
