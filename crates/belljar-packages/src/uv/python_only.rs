//! Packages that do without their compiled part: where no wheel fits the platform, one for another platform is taken
//! and what is compiled in it left out.
//!
//! uv has no notion of this. It is given an empty file with a pure wheel's name for each version there is, and the
//! dependencies beside it, so that it never opens the file; afterwards the real wheel takes the file's place.

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
use crate::resolution::{Kind, Pinned, Source};

/// The packages, each looked at: it catches the failed import of its extension module and has the same interface
/// without it, its wheels for Linux hold all of the Python code, and it depends on no other package.
const REVIEWED: [&str; 2] = ["markupsafe", "pyyaml"];
/// The platform whose wheels are taken.
const DONOR: &str = "manylinux";
/// At most so many versions are offered, the newest.
const OFFERED: usize = 30;

/// The stand-ins for one package.
pub(super) struct StandIns {
    name: PackageName,
    directory: TempDir,
    /// Name of the empty file to the real one.
    real: HashMap<String, Pinned>,
    pub(super) metadata: Vec<StaticMetadata>,
}

impl StandIns {
    /// The place that uv is to look at.
    pub(super) fn index(&self) -> Result<Index, InstallError> {
        indexes::page(self.directory.path())
    }

    pub(super) fn is_for(&self, name: &str) -> bool {
        self.name.as_ref() == name
    }

    /// The wheel that an empty file stands for.
    pub(super) fn real(&self, filename: &str) -> Option<&Pinned> {
        self.real.get(filename)
    }
}

impl Engine {
    /// Stand-ins for a package that no wheel was found for. `None`: it is not one of those that do without.
    pub(super) async fn stand_ins(&self, name: &str) -> Result<Option<StandIns>, InstallError> {
        if !REVIEWED.contains(&name) {
            return Ok(None);
        }
        let Ok(name) = PackageName::from_str(name) else { return Ok(None) };
        let mut donors = self.donors_in_directories(&name)?;
        donors.extend(self.donors_of_index(&name).await);
        donors.sort_by(|(one, _), (other, _)| other.version.cmp(&one.version));
        donors.dedup_by(|(later, _), (first, _)| later.version == first.version);
        donors.truncate(OFFERED);
        if donors.is_empty() {
            return Ok(None);
        }
        let failed = |source| InstallError::Io { action: "write", path: std::env::temp_dir(), source };
        let directory = tempfile::tempdir().map_err(failed)?;
        let mut stand_ins = StandIns { name: name.clone(), directory, real: HashMap::new(), metadata: Vec::new() };
        for (wheel, pinned) in donors {
            let file = format!("{}-{}-py3-none-any.whl", name.as_dist_info_name(), wheel.version);
            std::fs::write(stand_ins.directory.path().join(&file), "").map_err(failed)?;
            stand_ins.real.insert(file, pinned);
            stand_ins.metadata.push(StaticMetadata {
                name: name.clone(),
                version: Some(wheel.version),
                requires_dist: Box::default(),
                requires_python: None,
                provides_extra: Box::default(),
            });
        }
        Ok(Some(stand_ins))
    }

    async fn donors_of_index(&self, name: &PackageName) -> Vec<(WheelFilename, Pinned)> {
        let found = self.client.simple_detail(name, None, &IndexCapabilities::default(), &self.downloads).await;
        let mut donors = Vec::new();
        for (_, metadata) in found.unwrap_or_default() {
            let MetadataFormat::Simple(archive) = metadata else { continue };
            for datum in OwnedArchive::deserialize(&archive) {
                for (filename, file) in datum.files.all(name) {
                    let DistFilename::WheelFilename(wheel) = filename else { continue };
                    if self.is_donor(&wheel) && !self.is_too_new(&file) && file.yanked.is_none() {
                        let pinned = pinned(&wheel, &file);
                        donors.extend(pinned.map(|pinned| (wheel, pinned)));
                    }
                }
            }
        }
        donors
    }

    fn donors_in_directories(&self, name: &PackageName) -> Result<Vec<(WheelFilename, Pinned)>, InstallError> {
        let mut donors = Vec::new();
        for place in &self.settings.find_links {
            let Ok(files) = std::fs::read_dir(place) else { continue };
            for file in files.flatten() {
                let filename = file.file_name().to_string_lossy().into_owned();
                let Ok(wheel) = WheelFilename::from_str(&filename) else { continue };
                let path = std::path::absolute(file.path()).unwrap_or_else(|_| file.path());
                let Ok(url) = Url::from_file_path(&path) else { continue };
                if wheel.name == *name && self.is_donor(&wheel) {
                    let pinned = Pinned {
                        name: name.to_string(),
                        version: wheel.version.to_string(),
                        filename,
                        sha256: hash_file(&path)?,
                        size: file.metadata().ok().map(|metadata| metadata.len()),
                        kind: Kind::PythonOnly,
                        source: Source::FindLinks,
                        url: url.to_string(),
                    };
                    donors.push((wheel, pinned));
                }
            }
        }
        Ok(donors)
    }

    /// Whether a wheel is for this version of Python on the platform whose wheels are taken.
    fn is_donor(&self, wheel: &WheelFilename) -> bool {
        let python = format!("cp{}{}", self.platform.python.0, self.platform.python.1);
        !wheel.version.any_prerelease()
            && wheel.python_tags().iter().any(|tag| tag.to_string() == python)
            && wheel.abi_tags().iter().any(|tag| tag.to_string() == python)
            && wheel.platform_tags().iter().any(|tag| {
                let tag = tag.to_string();
                tag.starts_with(DONOR) && tag.ends_with("x86_64")
            })
    }

    fn is_too_new(&self, file: &File) -> bool {
        match &self.exclude_newer.global {
            Some(value) => file.upload_time_utc_ms.is_none_or(|time| time >= value.timestamp().as_millisecond()),
            None => false,
        }
    }
}

/// `None`: there is no hash to check the file with.
fn pinned(wheel: &WheelFilename, file: &File) -> Option<Pinned> {
    let digest = file.hashes.iter().find(|digest| digest.algorithm() == HashAlgorithm::Sha256)?;
    let mut url = Url::from(file.url.to_url().ok()?);
    url.set_fragment(None);
    Some(Pinned {
        name: wheel.name.to_string(),
        version: wheel.version.to_string(),
        filename: file.filename.to_string(),
        sha256: digest.digest.to_ascii_lowercase(),
        size: file.size,
        kind: Kind::PythonOnly,
        source: Source::Index,
        url: url.to_string(),
    })
}
