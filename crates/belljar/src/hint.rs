//! Hints: remedies for errors of the library crates, in terms of the command line.
//!
//! A library's error states a fact. This file adds the option, command or environment variable that helps; for errors
//! of native kernels `os/linux/hints.rs` does.

use belljar_cache::CacheError;
use belljar_core::kernel::KernelError;
use belljar_jupyter::KernelServerError;
use belljar_jupyter::kernelspec::KernelspecError;
use belljar_native::environment::EnvironmentError;
use belljar_packages::{
    DependencyError, GeneralHint as _, InstallError, PolicyError, RequirementError, RequirementsFileError, Setting,
};
use belljar_python::OpenError;
use belljar_python::install::PrepareError;
use belljar_python::runtime::{Release, RuntimeError, RuntimeFile};
use belljar_sessions::{NotebookError, StoreError};

use crate::os::native_start_hint;

/// An error with a remedy.
pub(crate) trait Hint {
    /// Returns the remedy for this error, in a sentence without a full stop, if the command line offers one.
    fn hint(&self) -> Option<String>;
}

impl Hint for CacheError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoDirectory => "name a directory with --cache or BELLJAR_CACHE",
            Self::Full { .. } => "free space there, or name a directory on another disk with --cache or BELLJAR_CACHE",
            Self::NotWritable { .. } => "name a writable directory with --cache or BELLJAR_CACHE",
            _ => return None,
        };
        Some(hint.into())
    }
}

impl Hint for RuntimeError {
    fn hint(&self) -> Option<String> {
        let files = || RuntimeFile::ALL.map(RuntimeFile::name).join(", ");
        Some(match self {
            Self::UnknownRelease { .. } => {
                let versions: Vec<_> = Release::all().iter().map(|release| release.version).collect();
                format!("use one of {}", versions.join(", "))
            }
            Self::InvalidDirectory { file, .. } => {
                format!(
                    "put the `{file}` of that release there, or leave out --runtime and BELLJAR_RUNTIME to fetch it"
                )
            }
            Self::Offline { .. } => format!(
                "run once without --offline, or name a directory with {} with --runtime or BELLJAR_RUNTIME",
                files()
            ),
            Self::Unobtainable { .. } => format!(
                "behind a proxy, set HTTPS_PROXY; with a package mirror, install npm and configure its registry; or name \
                 a directory with {} with --runtime or BELLJAR_RUNTIME",
                files()
            ),
            Self::Cache(error) => return error.hint(),
            _ => return None,
        })
    }
}

impl Hint for OpenError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Runtime(error) => error.hint(),
            Self::Cache(error) => error.hint(),
            _ => None,
        }
    }
}

impl Hint for InstallError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::InstallDisabled { .. } => "use the standard library or installed packages, or leave out --no-install",
            Self::Denied { .. } => {
                "use another package or the standard library; --allow-packages and --deny-packages set the rules"
            }
            Self::Offline { .. } => "run once without --offline, or name a directory of wheels with --find-links",
            Self::Network { .. } => {
                "check the network, the proxy settings and the index's address; with all packages in the cache, --offline \
                 works without them"
            }
            Self::NoHash { .. } => {
                "use an index that publishes hashes, or download the wheel into a directory and name that with --find-links"
            }
            Self::Timeout { .. } => {
                "allow more time with --install-timeout, or install ahead of time with `belljar packages download`"
            }
            Self::Setting { setting, .. } => match setting {
                Setting::IndexUrl => "set it with --index-url or UV_DEFAULT_INDEX",
                Setting::ExtraIndexUrl => "set it with --extra-index-url or UV_INDEX",
                Setting::FindLinks => "set it with --find-links or UV_FIND_LINKS",
                Setting::ExcludeNewer => "set it with --exclude-newer or UV_EXCLUDE_NEWER",
                Setting::Policy => {
                    "write a name or a glob, such as `google-*`, for --allow-packages and --deny-packages"
                }
                Setting::Constraints => "set it with --constraints or UV_CONSTRAINT",
                Setting::Certificates => "set it with SSL_CERT_FILE",
                Setting::InsecureHost => "set it with UV_INSECURE_HOST",
                Setting::PyodideUrl | Setting::PyodideLock => return None,
            },
            Self::Requirement(error) => return error.hint(),
            Self::Cache(error) => return error.hint(),
            _ => return self.general_hint(),
        };
        Some(hint.into())
    }
}

impl Hint for RequirementError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Option { .. } => {
                Some("choose indexes and directories of wheels with --index-url and --find-links".into())
            }
            _ => self.general_hint(),
        }
    }
}

impl Hint for RequirementsFileError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Line { source, .. } => source.hint(),
            _ => None,
        }
    }
}

impl Hint for PolicyError {
    fn hint(&self) -> Option<String> {
        self.general_hint()
    }
}

impl Hint for DependencyError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Requirement(error) => error.hint(),
            _ => self.general_hint(),
        }
    }
}

impl Hint for PrepareError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Dependencies(error) => error.hint(),
            Self::Install(error) => error.hint(),
            Self::Open(error) => error.hint(),
            Self::Process(_) => None,
        }
    }
}

impl Hint for KernelError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::MemoryLimitTooLow { .. } => Some("allow more with --session-memory".into()),
            Self::Start(source) => {
                if let Some(error) = source.downcast_ref::<PrepareError>() {
                    return error.hint();
                }
                if let Some(error) = source.downcast_ref::<OpenError>() {
                    return error.hint();
                }
                native_start_hint(&**source)
            }
            _ => None,
        }
    }
}

impl Hint for KernelspecError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Foreign(_) => Some("choose another name with --name".into()),
            _ => None,
        }
    }
}

impl Hint for KernelServerError {
    fn hint(&self) -> Option<String> {
        None
    }
}

impl Hint for StoreError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Missing => Some("`belljar sessions list` lists the sessions".into()),
            _ => None,
        }
    }
}

impl Hint for NotebookError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::UnsupportedFormat => {
                Some("`jupyter nbconvert --to notebook` converts notebooks of older formats".into())
            }
            _ => None,
        }
    }
}

impl Hint for EnvironmentError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing => "`belljar native setup` creates it".into(),
            Self::NoPython { .. } => {
                "install Python 3.10 or newer, or uv, or name one: --python /path/to/python3".into()
            }
            Self::NoVenv { .. } => "on Debian and Ubuntu install python3-venv, or install uv".into(),
            Self::Install { .. } => "check the network and the names of the packages".into(),
            Self::Unfit { python, .. } => {
                format!("`{} -m pip install ipykernel nbformat` adds the missing packages", python.display())
            }
            _ => return None,
        })
    }
}

impl Hint for belljar_mcp_client::McpError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Unauthorized { .. } => {
                Some("use --oauth, or send a token with --header 'authorization: Bearer TOKEN'".into())
            }
            // The inherent method: hints that do not concern the command line.
            error => belljar_mcp_client::McpError::hint(error),
        }
    }
}
