//! Errors as Python exceptions. The Python code turns them into the package's own, by their kind.

use belljar_core::files::FileError;
use belljar_core::kernel::KernelError;
use belljar_packages::GeneralHint as _;
use belljar_python::OpenError;
use belljar_python::install::PrepareError;
use belljar_sessions::PoolFull;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(belljar._native, NativeError, PyException, "An error with the arguments `kind` and `message`.");

/// The kind of an error, for the choice of the Python exception.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ErrorKind {
    /// The sandbox cannot be made ready.
    Start,
    /// An argument is not valid.
    Argument,
    /// A package cannot be installed.
    Install,
    /// The process was forked after the first use.
    Fork,
    /// A saved session cannot be continued.
    Dump,
    /// A file of a session cannot be read or written.
    File,
    /// The file does not exist.
    FileMissing,
    /// The call was cancelled.
    Cancelled,
    /// A server cannot be reached, refuses a call, or sends an invalid answer.
    Server,
    /// A server does not offer the operation.
    Unsupported,
    /// The operation failed.
    Failed,
}

impl ErrorKind {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Argument => "argument",
            Self::Install => "install",
            Self::Fork => "fork",
            Self::Dump => "dump",
            Self::File => "file",
            Self::FileMissing => "file-missing",
            Self::Cancelled => "cancelled",
            Self::Server => "server",
            Self::Unsupported => "unsupported",
            Self::Failed => "failed",
        }
    }
}

/// An error of the library, before the GIL is held.
#[derive(Debug, Clone)]
pub(crate) struct Error {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl From<Error> for PyErr {
    fn from(Error { kind, message }: Error) -> Self {
        NativeError::new_err((kind.name(), message))
    }
}

impl From<KernelError> for Error {
    fn from(error: KernelError) -> Self {
        let kind = match &error {
            KernelError::Start(_) | KernelError::MemoryLimitTooLow { .. } => ErrorKind::Start,
            KernelError::InvalidDependency(_) | KernelError::InvalidNetwork(_) => ErrorKind::Argument,
            KernelError::IncompatibleSnapshot(_) => ErrorKind::Dump,
            KernelError::Install(_) => ErrorKind::Install,
            KernelError::Cancelled => ErrorKind::Cancelled,
            KernelError::Unsupported(_)
            | KernelError::Shell(_)
            | KernelError::ProcessEnded
            | KernelError::Failed(_) => ErrorKind::Failed,
        };
        if let KernelError::Start(source) = &error {
            if let Some(error) = source.downcast_ref::<PrepareError>() {
                let kind = if error.is_about_packages() { ErrorKind::Install } else { kind };
                return Self::new(kind, error.with_general_hint());
            }
            if let Some(error) = source.downcast_ref::<OpenError>() {
                return error.into();
            }
        }
        Self::new(kind, error.to_string())
    }
}

impl From<&OpenError> for Error {
    fn from(error: &OpenError) -> Self {
        Self::new(ErrorKind::Start, error.to_string())
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        let kind = if matches!(error, FileError::Missing(_)) { ErrorKind::FileMissing } else { ErrorKind::File };
        Self::new(kind, error.to_string())
    }
}

impl From<PoolFull> for Error {
    fn from(error: PoolFull) -> Self {
        Self::new(ErrorKind::Failed, error.to_string())
    }
}
