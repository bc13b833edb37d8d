//! Why a library could not be loaded or a symbol not be found: what `dlerror` answers.

use super::library::LibraryError;
use crate::host::Termination;

/// An error that the guest gets as text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("this program cannot load libraries: the host offers none")]
    Disabled,
    #[error("cannot find the library '{name}'; looked for it in {searched}")]
    NotFound { name: String, searched: String },
    #[error("'{path}' was not installed by the host: only libraries of installed packages can be loaded")]
    NotInstalled { path: String },
    #[error("'{path}' is not loaded")]
    NotLoaded { path: String },
    #[error("'{path}' cannot be loaded: {source}")]
    Library { path: String, source: LibraryError },
    #[error("the symbols of the main module are not there: {0}")]
    MainSymbols(String),
    #[error("undefined symbol '{symbol}', which '{library}' needs")]
    Undefined { symbol: String, library: String },
    #[error("'{library}' uses '{symbol}' as something else than it is: {reason}")]
    Mismatch { symbol: String, library: String, reason: String },
    #[error("not enough memory to load '{path}'")]
    OutOfMemory { path: String },
    #[error("'{path}' needs more libraries than {limit}")]
    TooMany { path: String, limit: usize },
    #[error("invalid handle {0:#x}: no library was loaded with it")]
    Handle(u32),
    #[error("unknown symbol '{symbol}' in '{library}'")]
    Symbol { symbol: String, library: String },
    #[error("the name of the library or symbol cannot be read")]
    Name,
}

/// How linking fails: with a message for the guest, or with the end of the program (or an exception on its way).
#[derive(Debug)]
pub(crate) enum Failure {
    Link(LinkError),
    Unwind(wasmtime::Error),
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<wasmtime::Error> for Failure {
    fn from(error: wasmtime::Error) -> Self {
        Self::Unwind(error)
    }
}

impl From<Termination> for Failure {
    fn from(termination: Termination) -> Self {
        Self::Unwind(termination.into())
    }
}
