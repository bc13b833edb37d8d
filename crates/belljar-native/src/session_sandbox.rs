//! The sandbox of a session with its directories and its packages. It outlives the kernel's process, so that a
//! restarted kernel finds the session's files.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use belljar_core::{Limits, SessionFolder};
use belljar_network::Scrubber;
use belljar_sandbox::{self as sandbox, FolderSource, Policy, Sandbox, Spec};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::client::connection_info;
use crate::environment_view::EnvironmentView;
use crate::function_calls;
use crate::host_folder::{FolderOwnership, NativeMount};
use crate::install_broker::{InstallBroker, InstallHint};
use crate::network::{BackendNetwork, SessionNetwork};
use crate::pip_installer::PipInstaller;
use crate::session_dir::SessionDir;
use crate::site_packages::SitePackages;
use crate::start_error::StartError;
use crate::zmtp::message::SigningKey;
use crate::zmtp::path::open_directory;
use crate::zygote::{ExitSource, KernelLaunchConfig, KernelProcess, Zygote, ZygoteError};

/// The time within which a kernel must start, on a busy machine.
pub(crate) const KERNEL_START_TIMEOUT: Duration = Duration::from_secs(60);

/// The directory of a session's files inside its sandbox.
pub(crate) const SESSION: &str = "/session";
/// A directory in which models expect the session's files, since ChatGPT's code interpreter has them there. It is a
/// link to [`SESSION`].
const DATA_LINK: &str = "/mnt/data";
/// The directory of the kernel's sockets inside its sandbox.
pub(crate) const SOCKETS: &str = "/kernel";
/// The size of the directory of sockets at most, in bytes.
const SOCKETS_BYTES: u64 = 1 << 20;
/// The number of files in the directory of sockets at most.
const SOCKETS_FILES: u64 = 64;
/// The length at most of the path of a directory of sockets, in bytes: a socket's address has 108.
const MAX_SOCKET_DIR_LEN: usize = 96;

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

/// The way in which a session's processes are sandboxed.
enum SandboxMode {
    /// One sandbox that lasts as long as the session. Kernels that a zygote has forked enter it.
    Persistent(Box<Sandbox>),
    /// A sandbox of its own for each kernel, which is started as a program.
    PerKernel(Box<Spec>),
    /// Without a sandbox.
    None,
}

/// The sandbox, directories and install broker of a session.
pub(crate) struct SessionSandbox {
    mode: SandboxMode,
    directory: SessionDir,
    sockets: SessionDir,
    /// The descriptor of `sockets`, to resolve names below.
    sockets_fd: OwnedFd,
    /// The configuration of the session's kernels, without the connection.
    launch_config: KernelLaunchConfig,
    broker: InstallBroker,
    /// The network that code may use.
    network: Option<SessionNetwork>,
    /// The session's folder on the host, if its files are not in `_host`. Given back after the processes are killed.
    _folder: Option<FolderOwnership>,
    /// The session's directories on the host. The last field, so that they are deleted after all else is dropped.
    _host: TempDir,
}

impl SessionSandbox {
    /// Creates the sandbox of a session whose kernels are forked from `zygote`, or are programs without one. The
    /// session's files are in `folder`, if one is given.
    ///
    /// # Errors
    /// Returns an error if the directories cannot be created or the sandbox cannot be set up.
    pub(crate) fn new(
        config: &NativeConfig,
        zygote: Option<&Zygote>,
        folder: Option<&SessionFolder>,
    ) -> Result<Self, StartError> {
        let host = tempfile::Builder::new().prefix("s").tempdir_in(config.root.path())?;
        // The session's user may pass through the directory, but may not list it.
        set_mode(host.path(), 0o711)?;
        let create = |name: &str| -> std::io::Result<PathBuf> {
            let path = host.path().join(name);
            std::fs::create_dir(&path)?;
            set_mode(&path, 0o755)?;
            Ok(path)
        };
        let (site, broker_dir) = (create("site")?, create("broker")?);
        let broker_socket = broker_dir.join("pip");
        let packages = SitePackages::new(site.clone(), create("backup")?, create("staging")?);
        let (installer, hint) = (config.installer.clone(), config.install_hint.clone());
        let broker = InstallBroker::new(&broker_socket, packages, installer, hint)?;
        let user = (config.policy != Policy::Unsandboxed).then(allocate_uid).flatten();
        let folder = folder.map(|folder| FolderOwnership::new(folder, user)).transpose()?;
        let in_memory = config.policy == Policy::Full && zygote.is_some();
        let (mut session, sockets, temporary) = if in_memory {
            (SESSION.to_owned(), SOCKETS.to_owned(), "/tmp".to_owned())
        } else {
            let create_private = |name: &str| -> std::io::Result<String> {
                let path = create(name)?;
                set_mode(&path, 0o700)?;
                if user.is_some() {
                    std::os::unix::fs::chown(&path, user, user)?;
                }
                Ok(path.display().to_string())
            };
            (create_private("session")?, create_private("k")?, create_private("tmp")?)
        };
        let session_source = folder.as_ref().map(|folder| folder.path().to_owned());
        if let Some(source) = &session_source {
            // Only a sandbox with a root of its own can show the folder at another path.
            session = if config.policy == Policy::Full { SESSION.to_owned() } else { source.display().to_string() };
        }
        if sockets.len() > MAX_SOCKET_DIR_LEN {
            return Err(StartError::SocketPathTooLong(sockets));
        }
        let paths = SandboxPaths { session, session_source, sockets, temporary, site, broker_socket };
        let mut network =
            config.network.as_ref().map(|network| SessionNetwork::new(network, host.path())).transpose()?;
        let launch_config = paths.launch_config(config, network.as_ref());
        let mode = match (config.policy, zygote) {
            (Policy::Unsandboxed, _) => SandboxMode::None,
            (Policy::Full, Some(zygote)) => {
                let prefixes = config.view.as_ref().map_or(zygote.prefixes(), EnvironmentView::readable);
                let spec = paths.spec(config, user, prefixes.to_vec(), &launch_config, network.as_ref());
                let mut sandbox = sandbox::spawn(&spec, config.policy, sandbox::Streams::default())?;
                serve_network(network.as_mut(), &mut sandbox)?;
                SandboxMode::Persistent(Box::new(sandbox))
            }
            (Policy::Full | Policy::Weak, _) => {
                let prefixes = match &config.view {
                    Some(view) => view.readable().to_vec(),
                    None => python_prefixes(&config.python)?,
                };
                SandboxMode::PerKernel(Box::new(paths.spec(config, user, prefixes, &launch_config, network.as_ref())))
            }
        };
        let open = |path: &str| -> std::io::Result<OwnedFd> {
            match &mode {
                SandboxMode::Persistent(sandbox) => {
                    let directory = sandbox.folder(Path::new(path)).ok_or(std::io::ErrorKind::NotFound)?;
                    directory.try_clone_to_owned()
                }
                SandboxMode::PerKernel(_) | SandboxMode::None => open_directory(Path::new(path)),
            }
        };
        let opened = match &folder {
            Some(folder) => folder.descriptor()?,
            None => open(&paths.session)?,
        };
        let directory = SessionDir::new(opened, user, config.limits.disk);
        let sockets = SessionDir::new(open(&paths.sockets)?, user, SOCKETS_BYTES);
        let sockets_fd = open(&paths.sockets)?;
        Ok(Self { mode, directory, sockets, sockets_fd, launch_config, broker, network, _folder: folder, _host: host })
    }

    /// Returns the directory of the session's files.
    pub(crate) fn directory(&self) -> &SessionDir {
        &self.directory
    }

    /// Returns the directory in which the kernel creates its sockets.
    pub(crate) fn sockets(&self) -> &OwnedFd {
        &self.sockets_fd
    }

    /// Returns the server of the session's install requests.
    pub(crate) fn broker(&mut self) -> &mut InstallBroker {
        &mut self.broker
    }

    /// Returns the network that code may use.
    pub(crate) fn network(&self) -> Option<&SessionNetwork> {
        self.network.as_ref()
    }

    /// Returns whether the sandbox has killed processes that exceeded the memory limit since the last call.
    pub(crate) fn exceeded_memory(&mut self) -> bool {
        match &mut self.mode {
            SandboxMode::Persistent(sandbox) => sandbox.exceeded_memory(),
            SandboxMode::PerKernel(_) | SandboxMode::None => false,
        }
    }

    /// Starts a kernel in the sandbox. The previous kernel must have exited.
    ///
    /// # Errors
    /// Returns an error if the zygote or the sandbox cannot start it.
    pub(crate) fn start(
        &mut self,
        config: &NativeConfig,
        zygote: Option<&Zygote>,
        key: &SigningKey,
        deadline: Instant,
    ) -> Result<KernelProcess, StartError> {
        let connection = connection_info(&self.launch_config.sockets, key);
        let launch_config = KernelLaunchConfig { connection, ..self.launch_config.clone() };
        let zygote = || zygote.ok_or(ZygoteError::Gone);
        match &self.mode {
            SandboxMode::Persistent(sandbox) => Ok(zygote()?.fork_into_sandbox(&launch_config, sandbox, deadline)?),
            SandboxMode::None => Ok(zygote()?.fork_kernel(&launch_config, deadline)?),
            SandboxMode::PerKernel(spec) => {
                // On standard input, since every user of the machine can read a program's arguments, and the
                // configuration has the kernel's key.
                let input = config_as_stdin(&launch_config)?;
                let mut spec = (**spec).clone();
                let bootstrap = config.code.join("bootstrap.py");
                spec.arguments = vec![config.guest_python().into(), "-I".into(), bootstrap.into(), "--kernel".into()];
                let streams = sandbox::Streams { input: Some(input), ..sandbox::Streams::default() };
                let mut sandbox = sandbox::spawn(&spec, config.policy, streams)?;
                serve_network(self.network.as_mut(), &mut sandbox)?;
                let pidfd = sandbox.program_pidfd().ok_or(ZygoteError::Gone)?.try_clone_to_owned()?;
                Ok(KernelProcess::new(pidfd, None, ExitSource::Sandbox(Box::new(Mutex::new(sandbox)))))
            }
        }
    }

    /// Kills the processes of the session and deletes the kernel's sockets, so that another kernel can start.
    ///
    /// # Errors
    /// Returns an error if the sandbox is gone, or the sockets cannot be deleted.
    pub(crate) fn kill_all_and_reset(&mut self) -> Result<(), StartError> {
        if let SandboxMode::Persistent(sandbox) = &mut self.mode {
            sandbox.kill_all().map_err(StartError::SandboxLost)?;
        }
        if let Some(network) = &self.network {
            network.reset();
        }
        self.sockets.clear().map_err(StartError::ClearSockets)
    }
}

/// Serves the connections of the code to the proxy of its sandbox.
fn serve_network(network: Option<&mut SessionNetwork>, sandbox: &mut Sandbox) -> std::io::Result<()> {
    let Some(network) = network else { return Ok(()) };
    network.serve(sandbox.take_listener().ok_or(std::io::ErrorKind::NotConnected)?)
}

/// The paths of a session as its kernel sees them. Paths of the host are the same inside the sandbox.
struct SandboxPaths {
    session: String,
    /// The path of the session's folder on the host, if its files are in one.
    session_source: Option<PathBuf>,
    sockets: String,
    temporary: String,
    site: PathBuf,
    broker_socket: PathBuf,
}

impl SandboxPaths {
    /// Returns the configuration of a kernel with these paths, without the connection.
    fn launch_config(&self, config: &NativeConfig, network: Option<&SessionNetwork>) -> KernelLaunchConfig {
        let text = |path: &Path| path.display().to_string();
        let python = config.guest_python();
        let bin = python.parent().map(text).unwrap_or_default();
        let environment = python.parent().and_then(Path::parent).map(text).unwrap_or_default();
        let code = text(&config.code);
        let mut variables = vec![
            ("PATH", format!("{code}/bin:{bin}:/usr/local/bin:/usr/bin:/bin")),
            ("LANG", "C.UTF-8".into()),
            ("HOME", self.session.clone()),
            ("TMPDIR", self.temporary.clone()),
            ("VIRTUAL_ENV", environment),
            ("PYTHONPATH", format!("{code}/pip_stub:{}", text(&self.site))),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
            ("IPYTHONDIR", format!("{}/ipython", self.temporary)),
            ("MPLCONFIGDIR", format!("{}/matplotlib", self.temporary)),
            // matplotlib's figures become images of the cell by this backend, which `kernel.py` attaches to the shell
            // (`_configure_shell`). Plotly's figures have a formatter in `plotly_display.py`.
            ("MPLBACKEND", "module://matplotlib_inline.backend_inline".into()),
            ("BELLJAR_CODE", code.clone()),
            ("BELLJAR_SITE", text(&self.site)),
            ("BELLJAR_BROKER", text(&self.broker_socket)),
        ];
        if config.policy != Policy::Unsandboxed {
            // There is no sound card. SDL (pygame) would look for one, and ALSA would write a page of errors.
            variables.push(("SDL_AUDIODRIVER", "dummy".into()));
        }
        // A secret does not replace a variable of the sandbox.
        let mut environment: BTreeMap<String, String> =
            network.map(SessionNetwork::variables).unwrap_or_default().into_iter().collect();
        environment.extend(variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
        KernelLaunchConfig {
            environment,
            directory: self.session.clone(),
            code,
            site: text(&self.site),
            sockets: self.sockets.clone(),
            functions: config.tools.then(|| format!("{}/{}", self.sockets, function_calls::SOCKET)),
            fonts: text(&config.fonts),
            color: config.color,
            network: config.policy != Policy::Weak,
            host_network: config.policy == Policy::Unsandboxed,
            proxy: network.is_some(),
            connection: serde_json::Value::Null,
        }
    }

    /// Returns the specification of a sandbox with these paths.
    fn spec(
        &self,
        config: &NativeConfig,
        user: Option<u32>,
        mut readable: Vec<PathBuf>,
        launch_config: &KernelLaunchConfig,
        network: Option<&SessionNetwork>,
    ) -> Spec {
        let Limits { memory, disk, files, .. } = config.limits;
        let broker_dir = self.broker_socket.parent().map(Path::to_path_buf);
        readable.extend([config.code.clone(), config.fonts.clone(), self.site.clone()].into_iter().chain(broker_dir));
        readable.extend(network.map(SessionNetwork::readable));
        // Every sandbox shows `/usr`.
        readable.retain(|path| !path.starts_with("/usr"));
        let folder = |inside: &str, bytes: u64, files: u64| {
            if let Some(source) = self.session_source.as_ref().filter(|_| inside == self.session) {
                return sandbox::Folder { inside: inside.into(), source: FolderSource::Host(source.clone()) };
            }
            let is_on_host = Path::new(inside).starts_with(config.root.path());
            let source =
                if is_on_host { FolderSource::Host(inside.into()) } else { FolderSource::Memory { bytes, files } };
            sandbox::Folder { inside: inside.into(), source }
        };
        let mut folders =
            vec![folder(&self.session, disk, u64::from(files)), folder(&self.sockets, SOCKETS_BYTES, SOCKETS_FILES)];
        if self.temporary != "/tmp" {
            folders.push(folder(&self.temporary, disk, u64::from(files)));
        }
        for mount in &config.mounts {
            if config.policy == Policy::Full || mount.writable {
                folders.push(mount.folder());
            } else {
                readable.push(mount.source.clone());
            }
        }
        let mut others = readable.iter().chain(folders.iter().map(|folder| &folder.inside));
        let is_free = self.session == SESSION && others.all(|path| !path.starts_with(DATA_LINK));
        let links = if is_free { BTreeMap::from([(DATA_LINK.into(), SESSION.into())]) } else { BTreeMap::new() };
        Spec {
            links,
            environment: launch_config.environment.clone(),
            directory: self.session.clone().into(),
            user,
            readable,
            folders,
            devices: config.devices.clone(),
            listener: network.map(SessionNetwork::port),
            control_groups: config.control_groups.clone(),
            limits: sandbox::ResourceLimits {
                memory_bytes: Some(memory),
                file_bytes: disk,
                ..sandbox::ResourceLimits::default()
            },
            ..Spec::idle()
        }
    }
}

/// Allocates a user id that no other session of this process has, if this process may choose one. The first id is
/// random, so that another process probably allocates others.
pub(crate) fn allocate_uid() -> Option<u32> {
    static FIRST: LazyLock<u32> = LazyLock::new(|| uuid::Uuid::new_v4().as_fields().0);
    static ALLOCATED: AtomicU32 = AtomicU32::new(0);
    let users = sandbox::SESSION_USERS;
    let next = || FIRST.wrapping_add(ALLOCATED.fetch_add(1, Ordering::Relaxed)) % (users.end - users.start);
    rustix::process::geteuid().is_root().then(|| users.start + next())
}

/// Makes a standard input from which the kernel reads its configuration: a pipe whose buffer holds all of it.
fn config_as_stdin(config: &KernelLaunchConfig) -> std::io::Result<OwnedFd> {
    let (reader, writer) = std::io::pipe()?;
    let mut writer = std::fs::File::from(OwnedFd::from(writer));
    rustix::io::ioctl_fionbio(&writer, true)?;
    writer.write_all(&serde_json::to_vec(config)?)?;
    Ok(reader.into())
}

/// Asks a Python for the directories of itself and its packages.
pub(crate) fn python_prefixes(python: &Path) -> std::io::Result<Vec<PathBuf>> {
    let script = "import sys; print(sys.prefix); print(sys.base_prefix); print(sys.exec_prefix)";
    let output = std::process::Command::new(python).args(["-I", "-c", script]).env_clear().output()?;
    let mut prefixes: Vec<PathBuf> = String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect();
    prefixes.sort();
    prefixes.dedup();
    Ok(prefixes)
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_devices_and_host_folders_are_passed_on() {
        let config = |control_groups: Option<&str>, devices: &[&str]| NativeConfig {
            root: tempfile::tempdir().unwrap(),
            code: "/code".into(),
            fonts: "/fonts".into(),
            python: "/environment/bin/python".into(),
            view: None,
            python_version: None,
            policy: Policy::Full,
            limits: Limits::default(),
            color: false,
            control_groups: control_groups.map(PathBuf::from),
            devices: devices.iter().map(PathBuf::from).collect(),
            mounts: vec![NativeMount { source: "/srv/data".into(), inside: "/data".into(), writable: false }],
            tools: false,
            network: None,
            installer: None,
            install_hint: None,
        };
        let paths = SandboxPaths {
            session: SESSION.into(),
            session_source: Some("/srv/files/one".into()),
            sockets: SOCKETS.into(),
            temporary: "/tmp".into(),
            site: "/site".into(),
            broker_socket: "/broker/pip".into(),
        };
        let spec =
            |config: &NativeConfig| paths.spec(config, None, Vec::new(), &paths.launch_config(config, None), None);
        let with_both = spec(&config(Some("/sys/fs/cgroup/belljar"), &["/dev/dri/renderD128"]));
        assert_eq!(with_both.control_groups.as_deref(), Some(Path::new("/sys/fs/cgroup/belljar")));
        assert_eq!(with_both.devices, [PathBuf::from("/dev/dri/renderD128")]);
        let folders: Vec<_> = with_both.folders.into_iter().map(|folder| (folder.inside, folder.source)).collect();
        assert_eq!(folders[0], (SESSION.into(), FolderSource::Host("/srv/files/one".into())));
        assert_eq!(folders.last(), Some(&("/data".into(), FolderSource::HostReadOnly("/srv/data".into()))));
        assert_eq!(with_both.links.get(Path::new(DATA_LINK)).map(PathBuf::as_path), Some(Path::new(SESSION)));
        let mut with_data = config(None, &[]);
        with_data.mounts[0].inside = DATA_LINK.into();
        assert!(spec(&with_data).links.is_empty(), "the mount takes its place");
        let without = spec(&config(None, &[]));
        assert_eq!((without.control_groups, without.devices), (None, Vec::new()));
    }

    #[test]
    fn sessions_have_different_users() {
        let users: Vec<_> = (0..1000).filter_map(|_| allocate_uid()).collect();
        let mut distinct = users.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), users.len());
        assert!(users.iter().all(|user| sandbox::SESSION_USERS.contains(user)));
    }
}
