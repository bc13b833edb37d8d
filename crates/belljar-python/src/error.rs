//! Errors of making CPython ready to run.

use std::path::PathBuf;

use belljar_cache::CacheError;
use belljar_emscripten::InstanceError;
use belljar_emscripten::fs::{FileError, LayerError};
use belljar_emscripten::program::ProgramError;

use crate::packages::WheelLayerError;
use crate::runtime::RuntimeError;

/// The reason why installed files (a bundle) are not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleMismatch {
    #[error("they belong to another version, processor or Pyodide release")]
    Other,
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// An error of making CPython ready to run.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Pyodide's files are not available.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The cache failed.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Translating or compiling CPython failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Creating or restoring an instance failed.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// Installing a wheel failed.
    #[error(transparent)]
    Wheel(#[from] WheelLayerError),
    /// CPython failed to boot or to build one of its parts.
    #[error("failed to build {what}: {reason}{output}")]
    Build {
        /// The part that was being built.
        what: &'static str,
        /// The cause.
        reason: String,
        /// The interpreter's output, starting with a newline, or empty.
        output: String,
    },
    /// Reading a file of the cache failed.
    #[error("failed to read {path}: {error}")]
    File {
        /// The file's path.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
}

impl From<belljar_emscripten::wasmtime::Error> for OpenError {
    fn from(error: belljar_emscripten::wasmtime::Error) -> Self {
        Self::Program(error.into())
    }
}

impl From<LayerError> for OpenError {
    fn from(error: LayerError) -> Self {
        Self::Build { what: "the file system", reason: error.to_string(), output: String::new() }
    }
}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        Self::Build { what: "the standard library", reason: error.to_string(), output: String::new() }
    }
}
