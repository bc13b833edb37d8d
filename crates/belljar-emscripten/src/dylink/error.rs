//! Errors in loading a library or finding a symbol, which `dlerror` returns.

use super::library::LibraryError;
use crate::termination::Termination;

/// An error that is reported to the guest as text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("dynamic loading is not available")]
    Disabled,
    #[error("library '{name}' not found in {searched}")]
    NotFound { name: String, searched: String },
    #[error("'{path}' was not installed by the host: only libraries of installed packages can be loaded")]
    NotInstalled { path: String },
    #[error("'{path}' is not loaded")]
    NotLoaded { path: String },
    #[error("failed to load '{path}': {source}")]
    Library { path: String, source: LibraryError },
    #[error("failed to read the symbols of the main module: {0}")]
    MainSymbols(String),
    #[error("undefined symbol '{symbol}' required by '{library}'")]
    Undefined { symbol: String, library: String },
    #[error("'{library}' imports '{symbol}' with another type: {reason}")]
    Mismatch { symbol: String, library: String, reason: String },
    #[error("not enough memory to load '{path}'")]
    OutOfMemory { path: String },
    #[error("'{path}' needs more than {limit} libraries")]
    TooMany { path: String, limit: usize },
    #[error("invalid library handle {0:#x}")]
    Handle(u32),
    #[error("unknown symbol '{symbol}' in '{library}'")]
    Symbol { symbol: String, library: String },
    #[error("failed to read the name of the library or symbol")]
    Name,
}

/// A failure to link: an error to report to the guest, or the termination of the program or an exception, which
/// unwinds.
#[derive(Debug)]
pub(crate) enum LinkFailure {
    Link(LinkError),
    Unwind(wasmtime::Error),
}

impl From<LinkError> for LinkFailure {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<wasmtime::Error> for LinkFailure {
    fn from(error: wasmtime::Error) -> Self {
        Self::Unwind(error)
    }
}

impl From<Termination> for LinkFailure {
    fn from(termination: Termination) -> Self {
        Self::Unwind(termination.into())
    }
}
