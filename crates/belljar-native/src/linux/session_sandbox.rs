//! The sandbox of a session with its directories and its packages. It outlives the kernel's process, so that a
//! restarted kernel finds the session's files.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use belljar_core::SessionFolder;
use belljar_sandbox::{self as sandbox, Policy, Sandbox, Spec};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::linux::client::connection_info;
use crate::linux::environment_view::EnvironmentView;
use crate::linux::host_folder::FolderOwnership;
use crate::linux::install_broker::InstallBroker;
use crate::linux::kernel_process::{ExitSource, KernelProcess};
use crate::linux::native_config::NativeConfig;
use crate::linux::network::SessionNetwork;
use crate::linux::sandbox_paths::{SESSION, SOCKETS, SOCKETS_BYTES, SandboxPaths};
use crate::linux::session_dir::SessionDir;
use crate::linux::site_packages::SitePackages;
use crate::linux::start_error::StartError;
use crate::linux::zmtp::message::SigningKey;
use crate::linux::zmtp::path::open_directory;
use crate::linux::zygote::{KernelLaunchConfig, Zygote, ZygoteError};

/// The time within which a kernel must start, on a busy machine.
pub(crate) const KERNEL_START_TIMEOUT: Duration = Duration::from_secs(60);

/// The length at most of the path of a directory of sockets, in bytes: a socket's address has 108.
const MAX_SOCKET_DIR_LEN: usize = 96;

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
    fn sessions_have_different_users() {
        let users: Vec<_> = (0..1000).filter_map(|_| allocate_uid()).collect();
        let mut distinct = users.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), users.len());
        assert!(users.iter().all(|user| sandbox::SESSION_USERS.contains(user)));
    }
}
