//! Errors of locating, fetching and verifying the runtime's files.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use belljar_cache::CacheError;

use super::Release;
use super::release::RuntimeFile;
use super::verify::Mismatch;

/// An error of finding or reading the runtime's files.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The requested version is not in the table of releases.
    #[error("Pyodide {version} is not a supported release")]
    UnknownRelease {
        /// The requested version.
        version: String,
    },

    /// The directory that the user configured lacks a file, or holds a wrong one.
    #[error("invalid runtime directory for {release}: {}: {problem}", .path.display())]
    InvalidDirectory {
        /// The file's path.
        path: PathBuf,
        /// The expected file.
        file: RuntimeFile,
        /// The expected release.
        release: &'static Release,
        /// The problem with the file.
        problem: FileProblem,
    },

    /// A file changed between its verification and its use.
    #[error("{} changed after it was verified: {problem}", .path.display())]
    Changed {
        /// The file's path.
        path: PathBuf,
        /// The problem with the file.
        problem: FileProblem,
    },

    /// The files are not in the cache, and fetching them is not allowed.
    #[error("{release} is not in the cache ({}), and downloads are disabled", .cache.display())]
    Offline {
        /// The release.
        release: &'static Release,
        /// The cache's directory.
        cache: PathBuf,
    },

    /// All sources failed.
    #[error("failed to fetch {release} from Pyodide's CDN ({cdn}) and with npm ({npm})")]
    Unobtainable {
        /// The release.
        release: &'static Release,
        /// The failure of the CDN.
        cdn: Box<SourceError>,
        /// The failure of npm.
        npm: Box<SourceError>,
    },

    /// The cache failed to store or read the files.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// A problem with a file on this machine.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// The file cannot be read; usually it does not exist.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// The file has different content.
    #[error("{0}")]
    Mismatch(#[from] Mismatch),
}

/// An error of one source of runtime files.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No connection could be established: a routing, name resolution, proxy or certificate problem.
    #[error("failed to connect to {url}: {reason}")]
    Unreachable {
        /// The URL of the file.
        url: String,
        /// The HTTP client's error.
        reason: String,
    },

    /// The server answered with an error status.
    #[error("failed to fetch {url}: HTTP status {status}")]
    Status {
        /// The URL of the file.
        url: String,
        /// The HTTP status.
        status: u16,
    },

    /// The server's response is invalid (too many redirects, a malformed header).
    #[error("failed to fetch {url}: invalid response: {reason}")]
    BadAnswer {
        /// The URL of the file.
        url: String,
        /// The HTTP client's error.
        reason: String,
    },

    /// The transfer was interrupted.
    #[error("the transfer of {from} was interrupted: {source}")]
    Interrupted {
        /// The file's URL, or its name in the package.
        from: String,
        /// The cause.
        source: io::Error,
    },

    /// The received file is not the expected one.
    #[error("{from} is not the expected file: {mismatch}")]
    Mismatch {
        /// The file's URL, or its name in the package.
        from: String,
        /// The difference.
        mismatch: Mismatch,
    },

    /// npm is not installed.
    #[error("`{program}` is not installed")]
    NpmMissing {
        /// The program that could not be found.
        program: String,
    },

    /// Starting npm failed.
    #[error("failed to run `npm pack`: {0}")]
    NpmSpawn(io::Error),

    /// npm failed.
    #[error("`npm pack {package}` failed ({status}): {output}")]
    NpmFailed {
        /// The requested package.
        package: String,
        /// The exit status.
        status: std::process::ExitStatus,
        /// The end of npm's output.
        output: String,
    },

    /// npm exceeded its time limit.
    #[error("`npm pack {package}` timed out after {} seconds", .limit.as_secs())]
    NpmTimedOut {
        /// The requested package.
        package: String,
        /// The time limit.
        limit: Duration,
    },

    /// npm succeeded, but its package cannot be used.
    #[error("the package from `npm pack` {0}")]
    NpmPackage(String),

    /// Storing the file failed. Other sources would fail for the same reason.
    #[error(transparent)]
    Cache(#[from] CacheError),
}
