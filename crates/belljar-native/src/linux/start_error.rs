//! The reasons why a kernel did not start.

use std::path::PathBuf;
use std::sync::Arc;

use crate::linux::kernel_process::KernelExitStatus;
use crate::linux::zmtp::ZmtpError;
use crate::linux::zygote::ZygoteError;

/// The reason why a kernel, or the backend of kernels, did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The Python of the environment does not exist.
    #[error("there is no Python at {}", .0.display())]
    MissingPython(PathBuf),
    /// The users that sessions run as, if this process is root, cannot enter a directory of the environment. Only the
    /// full sandbox shows it to them.
    #[error("{} cannot run weak kernels: only root, or its owner, may enter {}", python.display(), directory.display())]
    UnreachableEnvironment {
        /// The environment's Python.
        python: PathBuf,
        /// The directory.
        directory: PathBuf,
    },
    /// Without mount namespaces the code sees directories of the host at their own paths only.
    #[error("{} cannot be shown as {} without the full native sandbox", source_path.display(), inside.display())]
    MountElsewhere {
        /// The path inside.
        inside: PathBuf,
        /// The path on the host.
        source_path: PathBuf,
    },
    /// A mount would cover a path that kernels need.
    #[error("a mount at {} would cover {}, which native kernels need", inside.display(), needed.display())]
    MountOverlap {
        /// The path inside.
        inside: PathBuf,
        /// The path that kernels need.
        needed: PathBuf,
    },
    /// Without network namespaces code would reach the network past the policy, or not at all.
    #[error("a network policy needs the full native sandbox, and not one that is {0}")]
    NetworkWithoutNamespaces(belljar_sandbox::Policy),
    /// The zygote did not start or did not fork the kernel.
    #[error(transparent)]
    Zygote(Arc<ZygoteError>),
    /// The sandbox could not be set up.
    #[error(transparent)]
    Sandbox(#[from] belljar_sandbox::Error),
    /// A directory of the backend or of the session could not be created or opened.
    #[error("failed to create the directories of native kernels: {0}")]
    Directory(#[from] std::io::Error),
    /// The path of the directory for the kernel's sockets exceeds the length of a socket address.
    #[error("the path {0} is too long for sockets")]
    SocketPathTooLong(String),
    /// The kernel exited while it started.
    #[error("the kernel exited while it started ({0})")]
    Exited(KernelExitStatus),
    /// The connection to the kernel failed.
    #[error(transparent)]
    Connection(#[from] ZmtpError),
    /// The kernel started, but lost its first cell.
    #[error("the kernel does not run cells")]
    FirstCell,
    /// The sandbox of the session is gone, and with it the session's files.
    #[error("the session's sandbox and its files are gone: {0}")]
    SandboxLost(#[source] belljar_sandbox::Error),
    /// The sockets of the previous kernel could not be deleted.
    #[error("failed to delete the sockets of the previous kernel: {0}")]
    ClearSockets(#[source] std::io::Error),
}

impl From<ZygoteError> for StartError {
    fn from(error: ZygoteError) -> Self {
        Self::Zygote(Arc::new(error))
    }
}
