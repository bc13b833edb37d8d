//! Packages that work without their compiled part. If such a package has no wheel for this platform, a wheel for Linux
//! is used without its compiled files.
//!
//! uv does not support this. For each available version it gets an empty placeholder file with the name of a pure
//! wheel, and the dependencies as separate metadata, so that it never opens the file. After the resolution, the
//! placeholder is replaced by the real wheel.

use std::collections::HashMap;
use std::str::FromStr;

use tempfile::TempDir;
use url::Url;
use uv_client::{MetadataFormat, OwnedArchive};
use uv_distribution_filename::{DistFilename, WheelFilename};
use uv_distribution_types::{File, Index, IndexCapabilities, StaticMetadata};
use uv_normalize::PackageName;
use uv_pypi_types::HashAlgorithm;

use super::engine::Engine;
use super::indexes;
use super::resolve::hash_file;
use crate::error::InstallError;
use crate::resolution::{FileKind, FileSource, PinnedFile};

/// The reviewed packages. Each of them catches the failed import of its extension module, has the same interface
/// without it, has wheels for Linux that contain all of the Python code, and has no dependencies.
const REVIEWED: [&str; 2] = ["markupsafe", "pyyaml"];
/// The prefix of the platform tag of the wheels that are used.
const LINUX_TAG_PREFIX: &str = "manylinux";
/// The maximum number of versions, the newest ones, that are offered to uv.
const MAX_VERSIONS: usize = 30;

/// Returns whether a package may be used without its compiled files.
pub(super) fn is_reviewed(name: &PackageName) -> bool {
    REVIEWED.contains(&name.as_ref())
}

/// The placeholder wheels of one package.
pub(super) struct PlaceholderWheels {
    name: PackageName,
    directory: TempDir,
    /// Maps the names of the empty files to the real wheels.
    real_wheels: HashMap<String, PinnedFile>,
    pub(super) metadata: Vec<StaticMetadata>,
}

impl PlaceholderWheels {
    /// Returns the index with the placeholders, for uv.
    pub(super) fn index(&self) -> Result<Index, InstallError> {
        indexes::page(self.directory.path())
    }

    pub(super) fn is_for(&self, name: &str) -> bool {
        self.name.as_ref() == name
    }

    /// Returns the real wheel of a placeholder.
    pub(super) fn real_wheel(&self, filename: &str) -> Option<&PinnedFile> {
        self.real_wheels.get(filename)
    }
}

impl Engine {
    /// Returns placeholders for a package without a compatible wheel, or `None` if it is not a reviewed package.
    pub(super) async fn placeholder_wheels(&self, name: &str) -> Result<Option<PlaceholderWheels>, InstallError> {
        if !REVIEWED.contains(&name) {
            return Ok(None);
        }
        let Ok(name) = PackageName::from_str(name) else { return Ok(None) };
        let mut linux_wheels = self.linux_wheels_in_directories(&name)?;
        linux_wheels.extend(self.linux_wheels_of_index(&name).await);
        linux_wheels.sort_by(|(one, _), (other, _)| other.version.cmp(&one.version));
        linux_wheels.dedup_by(|(later, _), (first, _)| later.version == first.version);
        linux_wheels.truncate(MAX_VERSIONS);
        if linux_wheels.is_empty() {
            return Ok(None);
        }
        let failed = |source| InstallError::Io { action: "write", path: std::env::temp_dir(), source };
        let directory = tempfile::tempdir().map_err(failed)?;
        let mut placeholders =
            PlaceholderWheels { name: name.clone(), directory, real_wheels: HashMap::new(), metadata: Vec::new() };
        for (wheel, pinned) in linux_wheels {
            let file = format!("{}-{}-py3-none-any.whl", name.as_dist_info_name(), wheel.version);
            std::fs::write(placeholders.directory.path().join(&file), "").map_err(failed)?;
            placeholders.real_wheels.insert(file, pinned);
            placeholders.metadata.push(StaticMetadata {
                name: name.clone(),
                version: Some(wheel.version),
                requires_dist: Box::default(),
                requires_python: None,
                provides_extra: Box::default(),
            });
        }
        Ok(Some(placeholders))
    }

    async fn linux_wheels_of_index(&self, name: &PackageName) -> Vec<(WheelFilename, PinnedFile)> {
        let mut linux_wheels = Vec::new();
        for (wheel, file) in self.wheels_of_index(name).await {
            if self.is_manylinux_wheel_for_this_python(&wheel) && !self.is_too_new(&file) && file.yanked.is_none() {
                let pinned = pinned_file(&wheel, &file);
                linux_wheels.extend(pinned.map(|pinned| (wheel, pinned)));
            }
        }
        linux_wheels
    }

    /// Returns whether the index has a wheel of any version of a package for this platform.
    pub(super) async fn index_has_usable_wheels(&self, name: &PackageName) -> bool {
        let wheels = self.wheels_of_index(name).await;
        wheels.iter().any(|(wheel, _)| wheel.is_compatible(&self.tags))
    }

    async fn wheels_of_index(&self, name: &PackageName) -> Vec<(WheelFilename, File)> {
        let found = self.client.simple_detail(name, None, &IndexCapabilities::default(), &self.downloads).await;
        let mut wheels = Vec::new();
        for (_, metadata) in found.unwrap_or_default() {
            let MetadataFormat::Simple(archive) = metadata else { continue };
            for datum in OwnedArchive::deserialize(&archive) {
                for (filename, file) in datum.files.all(name) {
                    if let DistFilename::WheelFilename(wheel) = filename {
                        wheels.push((wheel, file));
                    }
                }
            }
        }
        wheels
    }

    fn linux_wheels_in_directories(
        &self,
        name: &PackageName,
    ) -> Result<Vec<(WheelFilename, PinnedFile)>, InstallError> {
        let mut linux_wheels = Vec::new();
        for location in &self.settings.find_links {
            let Ok(files) = std::fs::read_dir(location) else { continue };
            for file in files.flatten() {
                let filename = file.file_name().to_string_lossy().into_owned();
                let Ok(wheel) = WheelFilename::from_str(&filename) else { continue };
                let path = std::path::absolute(file.path()).unwrap_or_else(|_| file.path());
                let Ok(url) = Url::from_file_path(&path) else { continue };
                if wheel.name == *name && self.is_manylinux_wheel_for_this_python(&wheel) {
                    let pinned = PinnedFile {
                        name: name.to_string(),
                        version: wheel.version.to_string(),
                        filename,
                        sha256: hash_file(&path)?,
                        size: file.metadata().ok().map(|metadata| metadata.len()),
                        kind: FileKind::PythonOnly,
                        source: FileSource::FindLinks,
                        url: url.to_string(),
                    };
                    linux_wheels.push((wheel, pinned));
                }
            }
        }
        Ok(linux_wheels)
    }

    /// Returns whether a wheel is for this version of Python on x86-64 Linux.
    fn is_manylinux_wheel_for_this_python(&self, wheel: &WheelFilename) -> bool {
        let python = format!("cp{}{}", self.platform.python.0, self.platform.python.1);
        !wheel.version.any_prerelease()
            && wheel.python_tags().iter().any(|tag| tag.to_string() == python)
            && wheel.abi_tags().iter().any(|tag| tag.to_string() == python)
            && wheel.platform_tags().iter().any(|tag| {
                let tag = tag.to_string();
                tag.starts_with(LINUX_TAG_PREFIX) && tag.ends_with("x86_64")
            })
    }

    fn is_too_new(&self, file: &File) -> bool {
        match &self.exclude_newer.global {
            Some(value) => file.upload_time_utc_ms.is_none_or(|time| time >= value.timestamp().as_millisecond()),
            None => false,
        }
    }
}

/// Returns the pinned file of a wheel, or `None` if the index gives no hash for it.
fn pinned_file(wheel: &WheelFilename, file: &File) -> Option<PinnedFile> {
    let digest = file.hashes.iter().find(|digest| digest.algorithm() == HashAlgorithm::Sha256)?;
    let mut url = Url::from(file.url.to_url().ok()?);
    url.set_fragment(None);
    Some(PinnedFile {
        name: wheel.name.to_string(),
        version: wheel.version.to_string(),
        filename: file.filename.to_string(),
        sha256: digest.digest.to_ascii_lowercase(),
        size: file.size,
        kind: FileKind::PythonOnly,
        source: FileSource::Index,
        url: url.to_string(),
    })
}
