//! The native kernels that a command asks for, from its options.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::Limits;
use belljar_native::environment::Environment;
use belljar_network::Network;

use crate::mount::Mount;

/// The native kernels that a command asks for.
pub(crate) struct NativeRequest {
    pub(crate) environment: Environment,
    /// The well-known packages that the environment has.
    pub(crate) installed: Vec<String>,
    /// Set for the sandbox without namespaces.
    pub(crate) is_weak: bool,
    /// Set if code may run without a sandbox if the sandbox is unavailable.
    pub(crate) allow_unsandboxed: bool,
    /// The devices of this machine that code can use.
    pub(crate) devices: Vec<PathBuf>,
    /// The directories of this machine that code can use.
    pub(crate) mounts: Vec<Mount>,
    /// The network that code can use.
    pub(crate) network: Option<Arc<Network>>,
    /// The installation of packages by sessions; `None` to refuse it.
    pub(crate) installs: Option<NativeInstalls>,
    /// The space in bytes for the packages that a session installs, unless it is the default.
    pub(crate) package_space: Option<u64>,
    pub(crate) limits: Limits,
    /// Set to color tracebacks.
    pub(crate) color: bool,
    /// Set if a kernel is started before a session needs it.
    pub(crate) prestart: bool,
    /// Set if code can call tools.
    pub(crate) tools: bool,
}

/// A function that checks whether a package, given by its normalized name, may be installed. The error is the reason
/// for a refusal.
type PackagePolicy = dyn Fn(&str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + Send + Sync;

/// The settings for installing packages in native kernels.
#[derive(Clone)]
pub(crate) struct NativeInstalls {
    pub(crate) policy: Arc<PackagePolicy>,
    /// The time limit of an installation.
    pub(crate) timeout: Duration,
}
