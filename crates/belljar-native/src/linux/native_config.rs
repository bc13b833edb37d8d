//! The settings and directories that all sessions of a backend share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_core::Limits;
use belljar_network::Scrubber;
use belljar_sandbox::Policy;
use tempfile::TempDir;

use crate::linux::environment_view::EnvironmentView;
use crate::linux::host_folder::NativeMount;
use crate::linux::install_broker::InstallHint;
use crate::linux::network::BackendNetwork;
use crate::linux::pip_installer::PipInstaller;

/// The settings and directories that all sessions share.
pub(crate) struct NativeConfig {
    /// The directory on the host in which sessions' directories are created.
    pub(crate) root: TempDir,
    /// The directory of the guest's code, at the same path on the host and inside sandboxes.
    pub(crate) code: PathBuf,
    /// The directory of matplotlib's font cache, at the same path on the host and inside sandboxes.
    pub(crate) fonts: PathBuf,
    /// The environment's Python.
    pub(crate) python: PathBuf,
    /// The environment as the full sandbox shows it; `None` if it is shown at its own paths.
    pub(crate) view: Option<EnvironmentView>,
    /// The version of that Python. `None` to install nothing for imports.
    pub(crate) python_version: Option<String>,
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    pub(crate) color: bool,
    /// The delegated directory in which each sandbox gets a control group; `None` if control groups are not delegated.
    pub(crate) control_groups: Option<PathBuf>,
    /// The devices of the host that sessions may use.
    pub(crate) devices: Vec<PathBuf>,
    /// The directories of the host that sessions can use.
    pub(crate) mounts: Vec<NativeMount>,
    /// Set if code can call functions of the module `tools`.
    pub(crate) tools: bool,
    /// The network that code may use; `None` for no network.
    pub(crate) network: Option<BackendNetwork>,
    pub(crate) installer: Option<PipInstaller>,
    pub(crate) install_hint: Option<Arc<InstallHint>>,
}

impl NativeConfig {
    /// Returns the scrubber of the secrets of the network.
    pub(crate) fn scrubber(&self) -> Scrubber {
        self.network.as_ref().map(|network| network.scrubber().clone()).unwrap_or_default()
    }

    /// Returns the path of the environment's Python that kernels are started with.
    pub(crate) fn guest_python(&self) -> &Path {
        self.view.as_ref().map_or(&self.python, EnvironmentView::python)
    }
}
