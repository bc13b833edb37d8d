//! The files that an interpreter is built from: locating, fetching and verifying them.

mod cdn;
mod error;
mod npm;
mod release;
mod verify;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_cache::{Cache, EntryKey, NewEntry};
use belljar_core::{NoProgress, Progress};

pub use error::{FileProblem, RuntimeError, SourceError};
pub use release::{FileDigest, Release, RuntimeFile};
use verify::CopyError;
pub use verify::Mismatch;

/// Options for locating runtime files.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A directory of the user that holds the three files. If set, it is the only source.
    pub directory: Option<PathBuf>,
    /// True if nothing may be downloaded: a file that is not in the cache is an error.
    pub offline: bool,
}

/// The sources that files are downloaded from.
struct DownloadSources {
    /// The base URL of Pyodide's CDN: `BASE/v314.0.7/full/python_stdlib.zip` is a file there.
    cdn: String,
    /// The npm program, used when the CDN fails.
    npm: OsString,
    /// The maximum time without data from the CDN.
    stall_timeout: Duration,
}

impl Default for DownloadSources {
    fn default() -> Self {
        DownloadSources {
            cdn: "https://cdn.jsdelivr.net/pyodide".to_owned(),
            npm: if cfg!(windows) { "npm.cmd" } else { "npm" }.into(),
            stall_timeout: Duration::from_secs(30),
        }
    }
}

/// The files of one release on this machine.
#[derive(Debug, Clone)]
pub struct RuntimeFiles {
    /// The release that the files belong to.
    pub release: &'static Release,
    /// The path of `pyodide.asm.wasm`. A bundle contains the file in compressed form: see [`RuntimeFiles::read`].
    pub wasm: PathBuf,
    /// The path of `python_stdlib.zip`.
    pub stdlib: PathBuf,
    /// The path of `pyodide-lock.json`.
    pub lock: PathBuf,
}

impl RuntimeFiles {
    fn in_directory(release: &'static Release, directory: &Path) -> Self {
        let path = |file: RuntimeFile| directory.join(file.name());
        RuntimeFiles {
            release,
            wasm: path(RuntimeFile::Wasm),
            stdlib: path(RuntimeFile::Stdlib),
            lock: path(RuntimeFile::Lock),
        }
    }

    /// Returns the path of a file.
    pub fn path(&self, file: RuntimeFile) -> &Path {
        match file {
            RuntimeFile::Wasm => &self.wasm,
            RuntimeFile::Stdlib => &self.stdlib,
            RuntimeFile::Lock => &self.lock,
        }
    }

    /// Reads a file, which may be compressed in a bundle, and verifies it again at the same time, so that the used content
    /// is the verified content.
    pub fn read(&self, file: RuntimeFile) -> Result<Vec<u8>, RuntimeError> {
        let mut bytes = Vec::new();
        let path = self.path(file).to_path_buf();
        check(&path, self.release, file, &mut bytes).map_err(|problem| RuntimeError::Changed { path, problem })?;
        Ok(bytes)
    }
}

/// Locates a release's files in the user's directory or in the cache, or fetches them from Pyodide's CDN or with `npm
/// pack`. The SHA-256 of every file is verified, whatever its source.
///
/// If the user's directory lacks a file or holds a wrong one, this is an error: other sources are not tried.
pub fn locate_or_fetch(
    release: &'static Release,
    options: &Options,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<RuntimeFiles, RuntimeError> {
    locate_or_fetch_from(&DownloadSources::default(), release, options, cache, progress)
}

/// Locates or fetches only the lock file, from the same sources as [`locate_or_fetch`].
pub fn locate_or_fetch_lock(
    release: &'static Release,
    options: &Options,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<PathBuf, RuntimeError> {
    let Some(directory) = &options.directory else {
        return Ok(locate_or_fetch(release, options, cache, progress)?.lock);
    };
    let (file, path) = (RuntimeFile::Lock, directory.join(RuntimeFile::Lock.name()));
    match check(&path, release, file, &mut Vec::new()) {
        Ok(()) => Ok(path),
        Err(problem) => Err(RuntimeError::InvalidDirectory { path, file, release, problem }),
    }
}

fn locate_or_fetch_from(
    sources: &DownloadSources,
    release: &'static Release,
    options: &Options,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<RuntimeFiles, RuntimeError> {
    if let Some(directory) = &options.directory {
        return locate_in_directory(release, directory);
    }
    let mut key = EntryKey::new("runtime").part("release", release.version);
    for file in RuntimeFile::ALL {
        key = key.part(file.name(), release.digest(file).sha256);
    }
    let entry = match cache.get(&key)? {
        Some(entry) => entry,
        None if options.offline => {
            return Err(RuntimeError::Offline { release, cache: cache.root().to_path_buf() });
        }
        None => cache.get_or_create(&key, progress, |new| fetch(sources, release, new, progress))?,
    };
    Ok(RuntimeFiles::in_directory(release, entry.directory()))
}

fn locate_in_directory(release: &'static Release, directory: &Path) -> Result<RuntimeFiles, RuntimeError> {
    for file in RuntimeFile::ALL {
        let path = directory.join(file.name());
        check(&path, release, file, &mut Vec::new()).map_err(|problem| RuntimeError::InvalidDirectory {
            path,
            file,
            release,
            problem,
        })?;
    }
    Ok(RuntimeFiles::in_directory(release, directory))
}

fn check(path: &Path, release: &Release, file: RuntimeFile, bytes: &mut Vec<u8>) -> Result<(), FileProblem> {
    let mut reader = belljar_cache::open_file(path)?;
    let collected = verify::copy(&mut *reader, release.digest(file), &NoProgress, &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    });
    collected.map_err(|error| match error {
        CopyError::Read(error) => FileProblem::Unreadable(error),
        CopyError::Mismatch(mismatch) => FileProblem::Mismatch(mismatch),
        // The closure above cannot fail.
        CopyError::Write(error) => FileProblem::Unreadable(std::io::Error::other(error)),
    })
}

/// Fetches from the CDN, then from npm. A failure to write the cache is final: both sources would fail.
fn fetch(
    sources: &DownloadSources,
    release: &'static Release,
    new: &NewEntry,
    progress: &dyn Progress,
) -> Result<(), RuntimeError> {
    let cdn = match cdn::fetch(sources, release, new, progress) {
        Ok(()) => return Ok(()),
        Err(SourceError::Cache(error)) => return Err(error.into()),
        Err(error) => error,
    };
    tracing::info!(%cdn, "failed to fetch from Pyodide's CDN, trying npm");
    match npm::fetch(&sources.npm, release, new, progress) {
        Ok(()) => Ok(()),
        Err(SourceError::Cache(error)) => Err(error.into()),
        Err(npm) => Err(RuntimeError::Unobtainable { release, cdn: Box::new(cdn), npm: Box::new(npm) }),
    }
}

#[cfg(test)]
mod tests;
