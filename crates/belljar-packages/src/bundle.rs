//! Bundles: directories of wheels for machines without a network, with a lock file.
//!
//! The lock file is a `pylock.toml`: <https://packaging.python.org/specifications/pylock-toml/> (PEP 751).

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use belljar_core::Progress;
use belljar_core::os::make_public;
use serde::Serialize;

use crate::atomic_file::write_atomically;
use crate::error::InstallError;
use crate::installer::Installer;
use crate::platform::Platform;
use crate::resolution::{FileKind, Resolution};

/// The name of the lock file within a bundle.
pub const LOCK_FILE: &str = "pylock.toml";

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Pylock<'a> {
    lock_version: &'static str,
    created_by: &'static str,
    requires_python: String,
    packages: Vec<Package<'a>>,
}

#[derive(Serialize)]
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    wheels: [LockedWheel<'a>; 1],
}

#[derive(Serialize)]
struct LockedWheel<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    hashes: Hashes<'a>,
}

#[derive(Serialize)]
struct Hashes<'a> {
    sha256: &'a str,
}

impl Resolution {
    /// Returns the text of a `pylock.toml` that refers to the wheels by their URLs.
    pub fn to_pylock(&self, platform: &Platform) -> Result<String, InstallError> {
        self.pylock(platform, false)
    }

    /// Returns the text of a `pylock.toml` that refers to the wheels by their file names (`in_bundle`) or URLs.
    fn pylock(&self, platform: &Platform, in_bundle: bool) -> Result<String, InstallError> {
        let wheels = self.pinned().iter().filter(|pinned| pinned.kind != FileKind::SharedLibrary);
        let packages = wheels.map(|pinned| Package {
            name: &pinned.name,
            version: &pinned.version,
            wheels: [LockedWheel {
                name: &pinned.filename,
                url: (!in_bundle).then_some(pinned.url.as_str()),
                path: in_bundle.then_some(pinned.filename.as_str()),
                size: pinned.size,
                hashes: Hashes { sha256: &pinned.sha256 },
            }],
        });
        let lock = Pylock {
            lock_version: "1.0",
            created_by: "belljar",
            requires_python: format!("=={}.{}.*", platform.python.0, platform.python.1),
            packages: packages.collect(),
        };
        toml::to_string(&lock)
            .map_err(|error| InstallError::Internal { reason: format!("failed to write the lock file: {error}") })
    }
}

impl Installer {
    /// Fetches a resolution's files into a directory, adds a lock file, and returns the paths of the files. An offline
    /// installer with the directory among its [`Settings::find_links`](crate::Settings::find_links) can then install
    /// the same packages.
    pub fn download(
        &self,
        resolution: &Resolution,
        directory: &Path,
        progress: &dyn Progress,
    ) -> Result<Vec<PathBuf>, InstallError> {
        let wheels = self.fetch(resolution, progress)?;
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| InstallError::Io { action: "write", path, source }
        };
        std::fs::create_dir_all(directory).map_err(failed(directory))?;
        let mut written = Vec::new();
        for wheel in &wheels {
            let path = directory.join(&wheel.filename);
            write_public(&path, |file| io::copy(&mut File::open(&wheel.path)?, file).map(drop))
                .map_err(failed(&path))?;
            written.push(path);
        }
        let lock = resolution.pylock(self.platform(), true)?;
        let path = directory.join(LOCK_FILE);
        write_public(&path, |file| file.write_all(lock.as_bytes())).map_err(failed(&path))?;
        written.push(path);
        Ok(written)
    }
}

/// Writes a file atomically, readable by every user who has access to its directory.
fn write_public(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    write_atomically(path, |file| {
        write(file)?;
        make_public(file)
    })
}
