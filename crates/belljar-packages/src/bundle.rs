//! A directory of wheels for machines without a network, and the lock that says what is in it.
//!
//! The lock is a `pylock.toml`: <https://packaging.python.org/specifications/pylock-toml/> (PEP 751).

use std::path::{Path, PathBuf};

use belljar_core::progress::Progress;
use serde::Serialize;

use crate::error::InstallError;
use crate::installer::Installer;
use crate::platform::Platform;
use crate::resolution::{Kind, Resolution};

/// The lock's file name within a bundle.
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
    /// The resolution as the text of a `pylock.toml` whose wheels lie at their addresses.
    pub fn to_pylock(&self, platform: &Platform) -> Result<String, InstallError> {
        self.pylock(platform, false)
    }

    fn pylock(&self, platform: &Platform, beside: bool) -> Result<String, InstallError> {
        let wheels = self.pinned().iter().filter(|pinned| pinned.kind != Kind::SharedLibrary);
        let packages = wheels.map(|pinned| Package {
            name: &pinned.name,
            version: &pinned.version,
            wheels: [LockedWheel {
                name: &pinned.filename,
                url: (!beside).then_some(pinned.url.as_str()),
                path: beside.then_some(pinned.filename.as_str()),
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
        toml::to_string(&lock).map_err(|error| InstallError::Internal { what: format!("writing the lock: {error}") })
    }
}

impl Installer {
    /// Fetches a resolution's files into a directory, with a lock beside them. With `--find-links DIRECTORY` and
    /// `--offline` that directory serves what was resolved. Gives the files written.
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
            write_whole(directory, &path, |file| std::io::copy(&mut std::fs::File::open(&wheel.path)?, file).map(drop))
                .map_err(failed(&path))?;
            written.push(path);
        }
        let lock = resolution.pylock(self.platform(), true)?;
        let path = directory.join(LOCK_FILE);
        write_whole(directory, &path, |file| std::io::Write::write_all(file, lock.as_bytes()))
            .map_err(failed(&path))?;
        written.push(path);
        Ok(written)
    }
}

/// Writes a file under another name and renames it: nobody finds half of it.
fn write_whole(
    directory: &Path,
    path: &Path,
    write: impl FnOnce(&mut std::fs::File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    write(file.as_file_mut())?;
    // Temporary files are their owner's alone; a bundle is for whoever may read its directory.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
