//! Hints for errors of native kernels.

use belljar_native::{InstallError, StartError, ZygoteError};
use belljar_sandbox::{Error, Policy};

use crate::hint::Hint;

/// Returns the remedy for an error, if it is that native kernels did not start.
pub(crate) fn native_start_hint(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<String> {
    error.downcast_ref::<StartError>()?.hint()
}

impl Hint for StartError {
    fn hint(&self) -> Option<String> {
        let Self::Sandbox(error) = self else {
            return match self {
                Self::MissingPython(_) => {
                    Some("create an environment with `belljar native setup`, or name one with --venv".into())
                }
                Self::UnreachableEnvironment { .. } => Some(
                    "create an environment that all users can reach, from a Python that they can reach: `belljar native \
                     setup --native-dir /opt/belljar --python /usr/bin/python3`, and start the server with --native-dir \
                     /opt/belljar; or use --sandbox native, or an ordinary user"
                        .into(),
                ),
                Self::Zygote(error) if matches!(**error, ZygoteError::MissingModule { .. }) => {
                    Some("`belljar native setup` creates an environment that has the module".into())
                }
                Self::MountElsewhere { source_path, .. } => Some(format!(
                    "mount it at its own path, --mount {0}:{0}, or use --sandbox native",
                    source_path.display()
                )),
                Self::MountOverlap { .. } => Some("mount the directory at another path, such as /data".into()),
                Self::SocketPathTooLong(_) => Some("set TMPDIR to a shorter path".into()),
                _ => None,
            };
        };
        let hint = error.hint()?;
        Some(match error {
            Error::IsolationUnavailable { policy: Policy::Full, .. } => {
                format!("{hint}; or use --sandbox wasm, which does not need this, or --sandbox native-weak")
            }
            Error::IsolationUnavailable { .. } => format!("{hint}; or use --sandbox wasm, which does not need this"),
            _ => hint.to_string(),
        })
    }
}

impl Hint for InstallError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Policy(_) => "use another package; --allow-packages and --deny-packages set the rules",
            Self::TooLarge { .. } => {
                "add large packages to the environment with `belljar native setup --packages`, or allow more with \
                 --package-space; PyTorch without CUDA is a tenth of the size: set PIP_EXTRA_INDEX_URL and \
                 UV_EXTRA_INDEX_URL to PyTorch's index of wheels for the CPU"
            }
            Self::Timeout(_) => {
                "add large packages to the environment with `belljar native setup --packages`, or allow more time with \
                 --install-timeout; PyTorch without CUDA is a tenth of the size: set PIP_EXTRA_INDEX_URL and \
                 UV_EXTRA_INDEX_URL to PyTorch's index of wheels for the CPU"
            }
            Self::Installer(failure) => return failure.advice(),
            _ => return None,
        };
        Some(hint.into())
    }
}
