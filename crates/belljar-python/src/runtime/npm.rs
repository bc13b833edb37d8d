//! Downloads of runtime files from the npm package `pyodide`, with the user's own npm.
//!
//! npm is configured for the user's network: registry, mirror, proxy and credentials. Only `npm pack` is run, which
//! downloads a package without executing any of its code.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use belljar_cache::{CacheError, NewEntry};
use belljar_core::Progress;
use belljar_core::progress::ProgressStep;
use flate2::read::GzDecoder;

use super::error::SourceError;
use super::release::{Release, RuntimeFile};
use super::verify::{self, CopyError};

/// The time limit of npm. npm has timeouts of its own; this one handles a hang.
const NPM_TIMEOUT: Duration = Duration::from_secs(600);

/// The interval of checks for npm's exit.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The maximum unpacked size of the package: the real one has 14 MB.
const MAX_UNPACKED_BYTES: u64 = 256 << 20;

/// The maximum length of npm's output in an error.
const MAX_OUTPUT_BYTES: u64 = 2000;

/// Fetches a release's files into a new cache entry.
pub(super) fn fetch(
    npm: &OsStr,
    release: &Release,
    new: &NewEntry,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    // A directory on the cache's disk, where the package fits. If this process is killed, it is removed together with
    // the entry.
    let directory = tempfile::Builder::new()
        .prefix(".npm-")
        .tempdir_in(new.path())
        .map_err(|error| CacheError::writing(&new.path().join("npm"), None, error))?;
    let package = format!("pyodide@{}", release.version);
    let step = progress.start(ProgressStep::indeterminate(format!("npm pack {package}")));
    let tarball = pack(npm, &package, directory.path())?;
    step.finish();
    unpack(&tarball, release, new, progress)
}

/// Runs `npm pack` and returns the path of the resulting tarball.
fn pack(npm: &OsStr, package: &str, directory: &Path) -> Result<PathBuf, SourceError> {
    let log_path = directory.join("npm.log");
    let log = File::create_new(&log_path).map_err(|error| CacheError::writing(&log_path, None, error))?;
    let mut command = Command::new(npm);
    command
        .args(["pack", package, "--ignore-scripts", "--no-progress", "--loglevel=error", "--pack-destination"])
        .arg(directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(SourceError::NpmSpawn)?)
        .stderr(log);
    let child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SourceError::NpmMissing { program: npm.to_string_lossy().into_owned() },
        _ => SourceError::NpmSpawn(error),
    })?;
    let status = ChildGuard(child)
        .wait_timeout(NPM_TIMEOUT)
        .map_err(SourceError::NpmSpawn)?
        .ok_or_else(|| SourceError::NpmTimedOut { package: package.to_owned(), limit: NPM_TIMEOUT })?;
    if !status.success() {
        let output = tail(&log_path).unwrap_or_default();
        return Err(SourceError::NpmFailed { package: package.to_owned(), status, output });
    }
    let listing =
        fs::read_dir(directory).map_err(|error| SourceError::NpmPackage(format!("was not found: {error}")))?;
    listing
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "tgz"))
        .ok_or_else(|| SourceError::NpmPackage("was not found: no .tgz file".to_owned()))
}

/// A child process that is killed when this value is dropped.
struct ChildGuard(Child);

impl ChildGuard {
    /// Waits for the exit. Returns `None` if the process is still running after `limit`.
    fn wait_timeout(mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(None)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Both are no-ops if the process was already reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the end of npm's output.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_OUTPUT_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Extracts the release's files, which are in the package's directory `package`, and nothing else.
fn unpack(tarball: &Path, release: &Release, new: &NewEntry, progress: &dyn Progress) -> Result<(), SourceError> {
    let damaged = |error: io::Error| SourceError::NpmPackage(format!("failed to unpack: {error}"));
    let file = File::open(tarball).map_err(damaged)?;
    let mut archive = tar::Archive::new(GzDecoder::new(file).take(MAX_UNPACKED_BYTES));
    let mut missing = RuntimeFile::ALL.to_vec();
    for member in archive.entries().map_err(damaged)? {
        let mut member = member.map_err(damaged)?;
        let found = missing.iter().position(|file| {
            member.header().entry_type().is_file() && *member.path_bytes() == *format!("package/{file}").as_bytes()
        });
        let Some(found) = found else { continue };
        let file = missing.swap_remove(found);
        let expected = release.digest(file);
        let step = progress.start(ProgressStep::bytes(format!("unpacking {file}"), expected.size));
        verify::copy_to_file(&mut member, &new.path().join(file.name()), expected, step.as_ref()).map_err(|error| {
            let from = format!("`{file}` of the npm package");
            match error {
                CopyError::Read(source) => SourceError::Interrupted { from, source },
                CopyError::Mismatch(mismatch) => SourceError::Mismatch { from, mismatch },
                CopyError::Write(error) => SourceError::Cache(error),
            }
        })?;
        step.finish();
        if missing.is_empty() {
            return Ok(());
        }
    }
    let missing: Vec<_> = missing.iter().map(|file| file.name()).collect();
    Err(SourceError::NpmPackage(format!("lacks {}", missing.join(", "))))
}

#[cfg(test)]
mod tests {
    use belljar_cache::{Cache, EntryKey};
    use belljar_core::NoProgress;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::runtime::tests::TINY;

    #[cfg(unix)]
    #[test]
    fn hanging_npm_is_killed() {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = child.id();
        assert!(ChildGuard(child).wait_timeout(Duration::from_millis(30)).unwrap().is_none());
        // The process was reaped, so that its ID is no longer in use.
        let alive = Command::new("kill").args(["-0", &id.to_string()]).stderr(Stdio::null()).status().unwrap();
        assert!(!alive.success());
    }

    #[cfg(unix)]
    #[test]
    fn error_quotes_output_of_failing_npm() {
        let directory = tempfile::tempdir().unwrap();
        // `sh pack pyodide@0.0.1 …` runs this file.
        fs::write(directory.path().join("pack"), "echo 'npm error 404 no such package' >&2; exit 3").unwrap();
        let error = pack(OsStr::new("sh"), "pyodide@0.0.1", directory.path()).unwrap_err().to_string();
        assert!(error.contains("404 no such package") && error.contains("pyodide@0.0.1"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn npm_without_a_package_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let error = pack(OsStr::new("true"), "pyodide@0.0.1", directory.path()).unwrap_err();
        assert!(matches!(error, SourceError::NpmPackage(_)), "{error}");
    }

    /// Unpacks a package of [`TINY`] into a new cache entry. Returns the names of the entry's files.
    fn unpacked(package: &[u8]) -> Result<Vec<String>, SourceError> {
        let directory = tempfile::tempdir().unwrap();
        let tarball = directory.path().join("pyodide-0.0.1.tgz");
        fs::write(&tarball, package).unwrap();
        let cache = Cache::open(Some(directory.path().join("cache"))).unwrap();
        let make = |new: &NewEntry| unpack(&tarball, &TINY, new, &NoProgress);
        let entry = cache.get_or_create(&EntryKey::new("runtime"), &NoProgress, make)?;
        Ok(entry.names().map(str::to_owned).collect())
    }

    /// Returns a package with these files, written without the checks of tar's own writer.
    fn package(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for (name, content) in files {
            let mut header = tar::Header::new_ustar();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        builder.into_inner().unwrap().finish().unwrap()
    }

    const WASM: (&str, &[u8]) = ("package/pyodide.asm.wasm", b"wasm");
    const STDLIB: (&str, &[u8]) = ("package/python_stdlib.zip", b"stdlib");
    const LOCK: (&str, &[u8]) = ("package/pyodide-lock.json", b"lock");

    #[test]
    fn only_expected_files_of_a_package_are_unpacked() {
        let members = [
            ("package/README.md", &b"#"[..]),
            STDLIB,
            ("../evil", b"!"),
            ("/evil", b"!"),
            WASM,
            LOCK,
            ("package/x", b"x"),
        ];
        let names = unpacked(&package(&members)).unwrap();
        assert_eq!(names, ["pyodide-lock.json", "pyodide.asm.wasm", "python_stdlib.zip"]);
    }

    #[test]
    fn package_without_a_file_is_an_error() {
        let error = unpacked(&package(&[WASM, LOCK])).unwrap_err();
        assert!(error.to_string().ends_with("lacks python_stdlib.zip"), "{error}");
    }

    #[test]
    fn package_with_a_modified_file_is_rejected() {
        for content in [&b"stdlob"[..], b"stdlib and more", b""] {
            let error = unpacked(&package(&[WASM, ("package/python_stdlib.zip", content), LOCK])).unwrap_err();
            assert!(matches!(error, SourceError::Mismatch { .. }), "{error}");
        }
    }

    #[test]
    fn link_in_a_package_is_not_followed() {
        let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, "package/python_stdlib.zip", "/etc/passwd").unwrap();
        let error = unpacked(&builder.into_inner().unwrap().finish().unwrap()).unwrap_err();
        assert!(error.to_string().contains("lacks"), "{error}");
    }

    #[test]
    fn damaged_package_is_an_error() {
        let mut whole = package(&[WASM, STDLIB, LOCK]);
        whole.truncate(whole.len() / 2);
        for damaged in [&whole[..], b"no tarball", b""] {
            assert!(unpacked(damaged).is_err());
        }
    }
}
