//! The zygote, a Python process with its imports done that kernels are forked from
//! (`guest/belljar_kernel/zygote.py`).

use std::collections::BTreeMap;
use std::io::{Error, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use belljar_sandbox::{Channel, Sandbox};
use nix::poll::PollFlags;
use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::linux::kernel_process::{ExitSource, KernelProcess};
use crate::linux::zmtp::peer::wait_for;
use crate::linux::zygote_command::{ZygoteCommandError, zygote_command};

/// The time that the zygote has to exit after its control socket was closed.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// The time that a killed zygote has to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of bytes of Python's error output that are read when it does not start.
const MAX_STARTUP_STDERR: u64 = 4 << 10;

/// The configuration of a kernel, read by `guest/belljar_kernel/kernel.py`. Paths are those inside its sandbox.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct KernelLaunchConfig {
    /// All environment variables.
    pub(crate) environment: BTreeMap<String, String>,
    /// The working directory.
    pub(crate) directory: String,
    /// The directory of the guest's code.
    pub(crate) code: String,
    /// The directory of packages that are installed for the session.
    pub(crate) site: String,
    /// The directory in which the kernel creates its sockets.
    pub(crate) sockets: String,
    /// The path of the socket for calls of functions of the host, which the kernel creates; `None` without tools.
    pub(crate) functions: Option<String>,
    /// The directory of matplotlib's font cache, which the kernel copies.
    pub(crate) fonts: String,
    /// Set to color tracebacks.
    pub(crate) color: bool,
    /// Set if the kernel can open network sockets: it has a network namespace of its own, or no sandbox.
    pub(crate) network: bool,
    /// Set if these are sockets of the host's network: the kernel has no sandbox.
    pub(crate) host_network: bool,
    /// Set if a proxy leads to the network that the policy allows.
    pub(crate) proxy: bool,
    /// The content of ipykernel's connection file.
    pub(crate) connection: Value,
}

/// The parameters that a zygote is started with.
pub(crate) struct ZygoteConfig {
    /// The environment's Python, for messages.
    pub(crate) python: PathBuf,
    /// The path by which that Python is started, from which it derives its others.
    pub(crate) executable: PathBuf,
    /// The directory of the guest's code, on the host.
    pub(crate) code: PathBuf,
    /// The modules to import; those that the environment does not have are skipped.
    pub(crate) modules: Vec<String>,
    /// The directory of matplotlib's font cache.
    pub(crate) fonts: PathBuf,
}

/// The reason why a zygote was not started, or did not fork a kernel.
#[derive(Debug, thiserror::Error)]
pub enum ZygoteError {
    /// The environment's Python cannot be run as a zygote.
    #[error(transparent)]
    Command(#[from] ZygoteCommandError),
    /// Python could not be started.
    #[error("failed to start {}: {error}", python.display())]
    Spawn {
        /// The path of Python.
        python: PathBuf,
        /// The error of the system.
        error: Error,
    },
    /// The environment does not have a module that kernels need.
    #[error("{} cannot run kernels: its module `{module}` is not installed", python.display())]
    MissingModule {
        /// The path of Python.
        python: PathBuf,
        /// The name of the module, such as `ipykernel`.
        module: String,
    },
    /// Python exited before it was ready.
    #[error("{} exited while it started: {message}", python.display())]
    Exited {
        /// The path of Python.
        python: PathBuf,
        /// The last line of Python's error output.
        message: String,
    },
    /// Python did not become ready.
    #[error("{} did not become ready: {error}", python.display())]
    NotReady {
        /// The path of Python.
        python: PathBuf,
        /// The error of the control socket, such as a timeout.
        error: Error,
    },
    /// The zygote is gone.
    #[error("the process that kernels are forked from has exited")]
    Gone,
    /// The zygote could not fork.
    #[error("failed to fork the kernel: {0}")]
    Fork(String),
    /// The communication with the zygote failed.
    #[error("failed to fork the kernel: {0}")]
    Io(#[from] Error),
    /// The forked process did not enter the sandbox.
    #[error("failed to enter the sandbox: {0}")]
    Entry(#[source] belljar_sandbox::Error),
}

/// A zygote process. Dropping it ends the process and its kernels.
pub(crate) struct Zygote {
    control: Channel,
    child: Mutex<Child>,
    /// The pidfd that signals are sent to.
    pidfd: OwnedFd,
    python: PathBuf,
    /// The directories of Python and its packages, set by [`Self::wait_for_hello`].
    prefixes: OnceLock<Vec<PathBuf>>,
    /// The deadline of the imports; `None` once they are done.
    import_deadline: Mutex<Option<Instant>>,
}

/// The zygote's first message, sent before its imports.
#[derive(Deserialize)]
struct ZygoteHello {
    prefixes: Vec<PathBuf>,
}

/// The zygote's second message, sent after its imports.
#[derive(Deserialize)]
struct ImportReport {
    /// A module that every kernel needs and that could not be found. The zygote exits after that.
    missing_module: Option<String>,
}

/// The zygote's reply to a request to fork a kernel without a sandbox. A pidfd comes with it.
#[derive(Deserialize)]
struct ForkReply {
    pid: Option<i32>,
    error: Option<String>,
}

/// The commands of the zygote's control socket; each is followed by JSON.
#[derive(Clone, Copy)]
enum Command {
    /// Forks a kernel without a sandbox.
    Fork = b'f' as isize,
    /// Forks a process that enters a sandbox and becomes a kernel there.
    Enter = b'e' as isize,
    /// Asks for the exit status of a kernel that has entered a sandbox.
    Watch = b'w' as isize,
}

impl Zygote {
    /// Starts a zygote. Its imports continue in the background: [`Self::ready`] waits for them, until `deadline` at
    /// most.
    ///
    /// # Errors
    /// Returns an error if Python does not start.
    pub(crate) fn start(config: ZygoteConfig, deadline: Instant) -> Result<Self, ZygoteError> {
        let zygote = Self::spawn(config, deadline)?;
        zygote.wait_for_hello(deadline)?;
        Ok(zygote)
    }

    /// Does the same as [`Self::start`], but does not wait for Python: [`Self::wait_for_hello`] does.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started.
    pub(crate) fn spawn(config: ZygoteConfig, deadline: Instant) -> Result<Self, ZygoteError> {
        let (control, zygote_end) = Channel::pair()?;
        let child = zygote_command(&config.executable)?
            .arg("-I")
            .arg(config.code.join("bootstrap.py"))
            .args(&config.modules)
            .env_clear()
            .env("LANG", "C.UTF-8")
            .env("PATH", "/usr/bin:/bin")
            .env("MPLCONFIGDIR", &config.fonts)
            .env("MPLBACKEND", "module://matplotlib_inline.backend_inline")
            // A fork copies one thread alone.
            .envs(["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"].map(|name| (name, "1")))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir("/")
            .stdin(zygote_end.into_descriptor())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| ZygoteError::Spawn { python: config.python.clone(), error })?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(Error::from)?;
        Ok(Self {
            control,
            child: Mutex::new(child),
            pidfd,
            python: config.python,
            prefixes: OnceLock::new(),
            import_deadline: Mutex::new(Some(deadline)),
        })
    }

    /// Waits until Python runs. Called once, before [`Self::ready`].
    ///
    /// # Errors
    /// Returns an error if Python does not start.
    pub(crate) fn wait_for_hello(&self, deadline: Instant) -> Result<(), ZygoteError> {
        let ZygoteHello { prefixes } = self.receive(deadline)?;
        let _ = self.prefixes.set(prefixes);
        Ok(())
    }

    /// Waits until the imports are done.
    ///
    /// # Errors
    /// Returns [`ZygoteError::MissingModule`] if the environment does not have ipykernel, for example.
    pub(crate) fn ready(&self) -> Result<(), ZygoteError> {
        let mut import_deadline = self.import_deadline.lock();
        if let Some(deadline) = *import_deadline {
            if let ImportReport { missing_module: Some(module) } = self.receive(deadline)? {
                return Err(ZygoteError::MissingModule { python: self.python.clone(), module });
            }
            *import_deadline = None;
            // Kernels inherit the standard error from now on, and their writes to it must not block.
            drop(self.child.lock().stderr.take());
        }
        Ok(())
    }

    /// Kills the process while another thread waits in [`Self::wait_for_hello`] or [`Self::ready`], which reap it.
    /// Returns when the process has exited, and so creates no more files.
    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let _ = wait_for(&[(self.pidfd.as_fd(), PollFlags::POLLIN)], Instant::now() + KILL_TIMEOUT);
    }

    /// Receives the next message of a start, and kills the process if it does not arrive.
    fn receive<T: DeserializeOwned>(&self, deadline: Instant) -> Result<T, ZygoteError> {
        let mut child = self.child.lock();
        match receive::<T>(&self.control, deadline) {
            Ok(Some((message, _))) => Ok(message),
            Ok(None) => Err(startup_error(&mut child, &self.python)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(ZygoteError::NotReady { python: self.python.clone(), error })
            }
        }
    }

    /// Returns the directories of Python and its packages.
    pub(crate) fn prefixes(&self) -> &[PathBuf] {
        self.prefixes.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns whether the process runs.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.child.lock().try_wait(), Ok(None))
    }

    /// Forks a kernel that runs without a sandbox.
    ///
    /// # Errors
    /// Returns an error if the zygote cannot fork, or does not reply before `deadline`.
    pub(crate) fn fork_kernel(
        &self,
        config: &KernelLaunchConfig,
        deadline: Instant,
    ) -> Result<KernelProcess, ZygoteError> {
        #[derive(Serialize)]
        struct Request<'a> {
            config: &'a KernelLaunchConfig,
        }
        self.ready()?;
        let (exit_channel, zygote_end) = Channel::pair()?;
        self.send(Command::Fork, &Request { config }, &[zygote_end.as_fd()])?;
        // The zygote's copy is the last one now: when the zygote exits, the channel closes.
        drop(zygote_end);
        match receive::<ForkReply>(&exit_channel, deadline)? {
            Some((ForkReply { pid: Some(pid), .. }, mut descriptors)) => {
                let incomplete = || ZygoteError::Fork("the reply is incomplete".into());
                let pid = Pid::from_raw(pid).ok_or_else(incomplete)?;
                let pidfd = descriptors.pop().ok_or_else(incomplete)?;
                Ok(KernelProcess::new(pidfd, Some(pid), ExitSource::Zygote(exit_channel)))
            }
            Some((ForkReply { error: Some(reason), .. }, _)) => Err(ZygoteError::Fork(reason)),
            _ => Err(ZygoteError::Gone),
        }
    }

    /// Forks a kernel that enters a sandbox.
    ///
    /// # Errors
    /// Returns an error if the zygote cannot fork, or the process does not enter the sandbox before `deadline`.
    pub(crate) fn fork_into_sandbox(
        &self,
        config: &KernelLaunchConfig,
        sandbox: &Sandbox,
        deadline: Instant,
    ) -> Result<KernelProcess, ZygoteError> {
        #[derive(Serialize)]
        struct Request<'a> {
            config: &'a KernelLaunchConfig,
            entry: &'a RawValue,
        }
        #[derive(Serialize)]
        struct Watch {
            pid: i32,
        }
        self.ready()?;
        let (entry, arrival) = sandbox.entry([None, None, None]).map_err(ZygoteError::Entry)?;
        let steps: &RawValue = serde_json::from_str(&entry.plan).map_err(Error::from)?;
        let descriptors: Vec<BorrowedFd<'_>> = entry.descriptors.iter().map(AsFd::as_fd).collect();
        self.send(Command::Enter, &Request { config, entry: steps }, &descriptors)?;
        drop(descriptors);
        // The forked process's copies are the last ones now: when it exits before it has entered, its socket closes.
        drop(entry.descriptors);
        let timeout = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let entered = arrival.wait(timeout).map_err(ZygoteError::Entry)?;
        let (exit_channel, zygote_end) = Channel::pair()?;
        self.send(Command::Watch, &Watch { pid: entered.pid }, &[zygote_end.as_fd()])?;
        Ok(KernelProcess::new(entered.pidfd, None, ExitSource::Zygote(exit_channel)))
    }

    fn send(&self, command: Command, body: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let mut message = vec![command as u8];
        serde_json::to_writer(&mut message, body)?;
        self.control.send_bytes(&message, descriptors)
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        // The zygote kills its kernels and exits; on a busy machine that takes a while.
        let deadline = Instant::now() + SHUTDOWN_GRACE;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Reads the error output of a Python that has exited while it started.
fn startup_error(child: &mut Child, python: &Path) -> ZygoteError {
    let mut stderr = Vec::new();
    if let Some(pipe) = child.stderr.take() {
        let _ = pipe.take(MAX_STARTUP_STDERR).read_to_end(&mut stderr);
    }
    let _ = child.kill();
    let _ = child.wait();
    let stderr = String::from_utf8_lossy(&stderr);
    let message = stderr.trim().lines().next_back().unwrap_or("it printed nothing").to_owned();
    ZygoteError::Exited { python: python.to_owned(), message }
}

/// Receives the next message and its descriptors, or `None` if the other end is closed.
pub(crate) fn receive<T: DeserializeOwned>(
    channel: &Channel,
    deadline: Instant,
) -> std::io::Result<Option<(T, Vec<OwnedFd>)>> {
    if !wait_for(&[(channel.as_fd(), PollFlags::POLLIN)], deadline)?[0] {
        return Err(Error::from(std::io::ErrorKind::TimedOut));
    }
    channel.receive(false)
}
