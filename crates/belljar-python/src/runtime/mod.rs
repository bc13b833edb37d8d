//! The files that an interpreter is built from: which there are, where they come from, and that they are the right
//! ones.

mod cdn;
mod error;
mod npm;
mod release;
mod verify;

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_cache::{Cache, EntryKey, NewEntry};
use belljar_core::progress::{NoProgress, Progress};

pub use error::{FileProblem, RuntimeError, SourceError};
pub use release::{Fingerprint, Release, RuntimeFile};
use verify::CopyError;
pub use verify::Mismatch;

/// Where runtime files may come from.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A directory of the user's that holds the three files. When given, nothing else is looked at.
    pub directory: Option<PathBuf>,
    /// Whether nothing may be fetched: the files are in the cache, or it is an error.
    pub offline: bool,
}

/// What is fetched from, and how patiently.
struct Upstream {
    /// The base URL of Pyodide's CDN: `BASE/v314.0.7/full/python_stdlib.zip` is a file there.
    cdn: String,
    /// The npm to run when the CDN does not deliver.
    npm: OsString,
    /// How long the CDN may send nothing before it is given up.
    stall_timeout: Duration,
}

impl Default for Upstream {
    fn default() -> Self {
        Upstream {
            cdn: "https://cdn.jsdelivr.net/pyodide".to_owned(),
            npm: if cfg!(windows) { "npm.cmd" } else { "npm" }.into(),
            stall_timeout: Duration::from_secs(30),
        }
    }
}

/// The files of one release on this machine.
#[derive(Debug, Clone)]
pub struct RuntimeFiles {
    /// The release that they belong to.
    pub release: &'static Release,
    /// `pyodide.asm.wasm`
    pub wasm: PathBuf,
    /// `python_stdlib.zip`
    pub stdlib: PathBuf,
    /// `pyodide-lock.json`
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

    /// Where a file lies.
    pub fn path(&self, file: RuntimeFile) -> &Path {
        match file {
            RuntimeFile::Wasm => &self.wasm,
            RuntimeFile::Stdlib => &self.stdlib,
            RuntimeFile::Lock => &self.lock,
        }
    }

    /// A file's content, checked again while it is read: what is used is what was checked.
    pub fn read(&self, file: RuntimeFile) -> Result<Vec<u8>, RuntimeError> {
        let mut bytes = Vec::new();
        let path = self.path(file).to_path_buf();
        check(&path, self.release, file, &mut bytes).map_err(|problem| RuntimeError::Changed { path, problem })?;
        Ok(bytes)
    }
}

/// Finds a release's files: in the directory that the user gave; else in the cache; else fetches them from Pyodide's
/// CDN; else with `npm pack`. Whatever the source, their sha256 is checked.
///
/// A given directory with a missing or wrong file is an error, never a reason to look elsewhere.
pub fn obtain(
    release: &'static Release,
    options: &Options,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<RuntimeFiles, RuntimeError> {
    obtain_from(&Upstream::default(), release, options, cache, progress)
}

/// The lock alone, from where [`obtain`] finds the files: the others are not looked at.
pub fn obtain_lock(
    release: &'static Release,
    options: &Options,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<PathBuf, RuntimeError> {
    let Some(directory) = &options.directory else { return Ok(obtain(release, options, cache, progress)?.lock) };
    let (file, path) = (RuntimeFile::Lock, directory.join(RuntimeFile::Lock.name()));
    match check(&path, release, file, &mut Vec::new()) {
        Ok(()) => Ok(path),
        Err(problem) => Err(RuntimeError::Given { path, file, release, problem }),
    }
}

fn obtain_from(
    upstream: &Upstream,
    release: &'static Release,
    options: &Options,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<RuntimeFiles, RuntimeError> {
    if let Some(directory) = &options.directory {
        return given(release, directory);
    }
    let mut key = EntryKey::new("runtime").part("release", release.version);
    for file in RuntimeFile::ALL {
        key = key.part(file.name(), release.fingerprint(file).sha256);
    }
    let entry = match cache.get(&key)? {
        Some(entry) => entry,
        None if options.offline => {
            return Err(RuntimeError::Offline { release, cache: cache.root().to_path_buf() });
        }
        None => cache.get_or_make(&key, progress, |new| fetch(upstream, release, new, progress))?,
    };
    Ok(RuntimeFiles::in_directory(release, entry.directory()))
}

fn given(release: &'static Release, directory: &Path) -> Result<RuntimeFiles, RuntimeError> {
    for file in RuntimeFile::ALL {
        let path = directory.join(file.name());
        check(&path, release, file, &mut Vec::new()).map_err(|problem| RuntimeError::Given {
            path,
            file,
            release,
            problem,
        })?;
    }
    Ok(RuntimeFiles::in_directory(release, directory))
}

fn check(path: &Path, release: &Release, file: RuntimeFile, bytes: &mut Vec<u8>) -> Result<(), FileProblem> {
    let mut reader = File::open(path)?;
    let collected = verify::copy(&mut reader, release.fingerprint(file), &NoProgress, &mut |part| {
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

/// The CDN first, then npm. A failure to write here ends it at once: both would fail alike.
fn fetch(
    upstream: &Upstream,
    release: &'static Release,
    new: &NewEntry,
    progress: &dyn Progress,
) -> Result<(), RuntimeError> {
    let cdn = match cdn::fetch(upstream, release, new, progress) {
        Ok(()) => return Ok(()),
        Err(SourceError::Cache(error)) => return Err(error.into()),
        Err(error) => error,
    };
    tracing::info!(%cdn, "Pyodide's CDN did not deliver, trying npm");
    match npm::fetch(&upstream.npm, release, new, progress) {
        Ok(()) => Ok(()),
        Err(SourceError::Cache(error)) => Err(error.into()),
        Err(npm) => Err(RuntimeError::Unobtainable { release, cdn: Box::new(cdn), npm: Box::new(npm) }),
    }
}

#[cfg(test)]
mod tests;
