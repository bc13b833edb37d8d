//! The options of native kernels.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{InstallStatistics, Limits};
use belljar_network::Network;
use belljar_sandbox::Policy;

use crate::linux::host_folder::NativeMount;
use crate::linux::install_broker::InstallHint;
use crate::linux::pip_installer::PackagePolicy;

/// The default of [`NativeOptions::package_bytes`]: enough for torch, but not with all of CUDA.
pub const DEFAULT_PACKAGE_BYTES: u64 = 4 << 30;

/// The options of a backend of native kernels.
#[derive(Clone)]
pub struct NativeOptions {
    /// The Python of an environment with ipykernel: `bin/python` of a virtual environment.
    pub python: PathBuf,
    /// The version of that Python, such as `3.13.1`, for which the packages are determined that code imports. If it is
    /// empty, imports install nothing, and [`Backend::run_once`](belljar_core::kernel::Backend::run_once) is not
    /// supported.
    pub python_version: String,
    /// The limits of each session.
    pub limits: Limits,
    /// Set to color tracebacks.
    pub color: bool,
    /// The sandbox that sessions must have.
    pub policy: Policy,
    /// The modules that the zygote imports. Those that the environment does not have are skipped.
    pub modules: Vec<String>,
    /// The number of kernels that are prestarted.
    pub prestart: usize,
    /// The devices of the host that sessions may use, by their paths below `/dev`, such as a GPU's. The host's
    /// permissions apply; if this process is root, sessions run as other users, so a device must be open to all users.
    pub devices: Vec<PathBuf>,
    /// The directories of the host that sessions can use.
    pub mounts: Vec<NativeMount>,
    /// The limit of the size of all packages that a session installs, in bytes.
    pub package_bytes: u64,
    /// A directory for data that takes long to create and outlasts the backend; `None` for a temporary one.
    pub cache: Option<PathBuf>,
    /// The installation of packages for sessions; `None` to refuse it.
    pub packages: Option<NativePackages>,
    /// Set if code can call functions of the module `tools`: requests may have `tools` set.
    pub tools: bool,
    /// The network that code may use, through a proxy; `None` for no network. Requires [`Policy::Full`].
    pub network: Option<Arc<Network>>,
}

/// The options of installing packages for sessions.
#[derive(Clone)]
pub struct NativePackages {
    /// The path of uv; `None` for the environment's pip.
    pub uv: Option<PathBuf>,
    /// The policy, which is asked about each package, including dependencies.
    pub policy: Option<Arc<PackagePolicy>>,
    /// Returns the advice that follows an error in the output of a session's pip, and in the result of
    /// [`Backend::run_once`](belljar_core::kernel::Backend::run_once).
    pub hint: Option<Arc<InstallHint>>,
    /// The time limit of one installation. It does not count towards the time limit of the cell that requests it.
    pub timeout: Duration,
    /// The numbers of installations, which backends with clones of these options share.
    pub statistics: InstallStatistics,
}

impl Default for NativePackages {
    /// Uses the environment's pip, allows all packages, and ten minutes.
    fn default() -> Self {
        Self {
            uv: None,
            policy: None,
            hint: None,
            timeout: Duration::from_secs(600),
            statistics: InstallStatistics::default(),
        }
    }
}

impl NativeOptions {
    /// Returns options with the full sandbox, without devices, with [`DEFAULT_PACKAGE_BYTES`] of packages, imports of
    /// numpy, pandas, matplotlib and plotly, one prestarted kernel, packages by the environment's pip, and without
    /// tools and without a network.
    pub fn new(python: impl Into<PathBuf>) -> Self {
        let modules =
            ["numpy", "pandas", "matplotlib.pyplot", "matplotlib_inline.backend_inline", "plotly.basedatatypes"];
        Self {
            python: python.into(),
            python_version: String::new(),
            limits: Limits::default(),
            color: false,
            policy: Policy::Full,
            modules: modules.map(str::to_owned).into(),
            prestart: 1,
            devices: Vec::new(),
            mounts: Vec::new(),
            package_bytes: DEFAULT_PACKAGE_BYTES,
            cache: None,
            packages: Some(NativePackages::default()),
            tools: false,
            network: None,
        }
    }
}
