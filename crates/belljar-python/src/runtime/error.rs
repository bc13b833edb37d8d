//! Why the runtime's files are not to be had, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use belljar_cache::CacheError;

use super::Release;
use super::release::RuntimeFile;
use super::verify::Mismatch;

/// A failure to find or read the runtime's files.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A version that is not in the table of releases.
    #[error("Pyodide {version} is not a release that Belljar knows\nhint: use one of {}", known())]
    UnknownRelease {
        /// What was asked for.
        version: String,
    },

    /// The directory that the user named lacks a file, or holds a wrong one.
    #[error(
        "the runtime directory does not hold {release}: {}: {problem}\nhint: put the `{file}` of that release there, \
         or leave the directory out to have it fetched",
        .path.display()
    )]
    Given {
        /// The file's path.
        path: PathBuf,
        /// Which file it should be.
        file: RuntimeFile,
        /// Of which release.
        release: &'static Release,
        /// What is wrong.
        problem: FileProblem,
    },

    /// A file changed between being checked and being read.
    #[error("{} changed while it was being used: {problem}", .path.display())]
    Changed {
        /// The file's path.
        path: PathBuf,
        /// What is wrong now.
        problem: FileProblem,
    },

    /// The files would have to be fetched, and that was forbidden.
    #[error(
        "{release} is not in the cache ({}), and fetching it was not allowed\nhint: allow it once, or set \
         BELLJAR_RUNTIME to a directory that holds {}",
        .cache.display(),
        names()
    )]
    Offline {
        /// The release.
        release: &'static Release,
        /// The cache's directory.
        cache: PathBuf,
    },

    /// No source delivered the files.
    #[error(
        "{release} could not be fetched\n  from Pyodide's CDN: {cdn}\n  with npm: {npm}\nhint: if you reach the \
         internet through a proxy, set HTTPS_PROXY; if packages come from a mirror, install npm and configure its \
         registry; or set BELLJAR_RUNTIME to a directory that holds {}",
        names()
    )]
    Unobtainable {
        /// The release.
        release: &'static Release,
        /// Why the CDN did not serve.
        cdn: Box<SourceError>,
        /// Why npm did not serve.
        npm: Box<SourceError>,
    },

    /// The cache could not keep or give the files.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// What is wrong with a file on this machine.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// It cannot be read, mostly because it is not there.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// It is another file.
    #[error("{0}")]
    Mismatch(#[from] Mismatch),
}

/// Why one source of runtime files did not deliver.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No connection came about: no route, no name, no proxy, no trust.
    #[error("no connection to {url}: {reason}")]
    Unreachable {
        /// What was to be fetched.
        url: String,
        /// What the HTTP client said.
        reason: String,
    },

    /// The server answered with something other than the file.
    #[error("{url} answered with HTTP status {status}")]
    Status {
        /// What was to be fetched.
        url: String,
        /// The HTTP status.
        status: u16,
    },

    /// The server's answer is no proper one (too many redirects, a malformed header).
    #[error("{url} did not answer properly: {reason}")]
    BadAnswer {
        /// What was to be fetched.
        url: String,
        /// What the HTTP client said.
        reason: String,
    },

    /// The transfer began and did not end.
    #[error("the transfer of {from} broke off: {source}")]
    Interrupted {
        /// The file's URL, or its name in the package.
        from: String,
        /// What the system said.
        source: io::Error,
    },

    /// What came is not the wanted file.
    #[error("{from} is not the expected file: {mismatch}")]
    Mismatch {
        /// The file's URL, or its name in the package.
        from: String,
        /// What is wrong.
        mismatch: Mismatch,
    },

    /// There is no npm.
    #[error("`{program}` is not installed")]
    NpmMissing {
        /// The program that was to be started.
        program: String,
    },

    /// npm could not be run.
    #[error("`npm pack` could not be run: {0}")]
    NpmNotRun(io::Error),

    /// npm ran and failed.
    #[error("`npm pack {package}` failed ({status}): {output}")]
    NpmFailed {
        /// The package that was asked for.
        package: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The end of what it said.
        output: String,
    },

    /// npm did not end in time.
    #[error("`npm pack {package}` was stopped after {} seconds", .limit.as_secs())]
    NpmTimedOut {
        /// The package that was asked for.
        package: String,
        /// The time it was given.
        limit: Duration,
    },

    /// npm ended well, but its package cannot be used.
    #[error("the package that `npm pack` left {0}")]
    NpmPackage(String),

    /// The file could not be stored here. Another source would fare no better.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

fn known() -> String {
    Release::all().iter().map(|release| release.version).collect::<Vec<_>>().join(", ")
}

fn names() -> String {
    RuntimeFile::ALL.map(RuntimeFile::name).join(", ")
}
