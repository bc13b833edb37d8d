//! The backend of native kernels. A prestarted kernel is available at once; a kernel that is forked from a zygote with
//! its imports done takes a moment; until neither exists, kernels start from nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use belljar_core::activity::trace::SpanName;
use belljar_core::kernel::{
    Backend, CellObserver, CompletedRun, FindBase, Kernel, KernelError, KernelSnapshot, OneShotRequest, RunOnThread,
};
use belljar_core::progress::ProgressStep;
use belljar_core::{BackendStatistics, CallCancellation, Limits, Progress, SessionFolder};
use belljar_sandbox::{self as sandbox, Policy, ProbeResult};
use parking_lot::Mutex;

use crate::linux::environment_view::EnvironmentView;
use crate::linux::guest;
use crate::linux::host_folder::check_mounts;
use crate::linux::kernel::NativeKernel;
use crate::linux::kernel_connection::KernelConnection;
use crate::linux::kernel_process::KernelProcess;
use crate::linux::kernel_starter::KernelStarter;
use crate::linux::native_config::NativeConfig;
use crate::linux::network::BackendNetwork;
use crate::linux::one_shot;
use crate::linux::options::{NativeOptions, NativePackages};
use crate::linux::pip_installer::PipInstaller;
use crate::linux::session_sandbox::{SessionSandbox, allocate_uid, python_prefixes, set_mode};
use crate::linux::start_error::StartError;

/// The time after the start of a session at which the next kernel is prestarted, so that the session's first cell has
/// the processor to itself.
const PRESTART_DELAY: Duration = Duration::from_millis(300);
/// The time for which a backend that is dropped waits at most for the end of a prestart.
const PRESTART_END_TIMEOUT: Duration = Duration::from_secs(10);

/// The backend of native kernels. Cheap to clone.
#[derive(Clone)]
pub struct NativeBackend {
    state: Arc<BackendState>,
    _shutdown: Arc<ShutdownGuard>,
}

/// A guard that all clones of a backend share. Dropping it ends the start of a kernel that is being prestarted, and
/// waits until the thread that starts it has released the state: otherwise its directory would be left on the disk.
struct ShutdownGuard {
    state: Arc<BackendState>,
}

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        self.state.is_closing.store(true, Ordering::Relaxed);
        if let Some(process) = self.state.prestarting.lock().upgrade() {
            process.kill();
        }
        drop(self.state.prestart_lock.try_lock_for(PRESTART_END_TIMEOUT));
    }
}

/// The state that all clones of a backend share.
struct BackendState {
    // Before the starter: processes must be killed before the starter deletes their directories.
    prestarted: Mutex<Vec<(KernelConnection, SessionSandbox)>>,
    /// Locked while kernels are prestarted, until the thread that does it has released the state.
    prestart_lock: Arc<Mutex<()>>,
    /// Set when kernels need not be prestarted any more.
    is_closing: AtomicBool,
    /// The process of the kernel that is being prestarted.
    prestarting: Mutex<Weak<KernelProcess>>,
    starter: Arc<KernelStarter>,
    /// The number of kernels to prestart.
    prestart: usize,
}

impl NativeBackend {
    /// Creates a backend. Probes the sandbox, but does not start a kernel. The program must call
    /// [`run_fork_server_if_child`](sandbox::run_fork_server_if_child) first in `main`.
    ///
    /// # Errors
    /// Returns an error if the Python does not exist, or the sandbox cannot be set up: see [`StartError`].
    pub fn new(options: NativeOptions) -> Result<Self, StartError> {
        let NativeOptions { python, python_version, limits, color, policy, modules, prestart, .. } = options;
        let NativeOptions { devices, mounts, package_bytes, cache, packages, tools, network, .. } = options;
        if network.is_some() && policy != Policy::Full {
            return Err(StartError::NetworkWithoutNamespaces(policy));
        }
        if !python.is_file() {
            return Err(StartError::MissingPython(python));
        }
        // Links are not resolved: Python finds its environment by the path that it was started with.
        let python = std::path::absolute(python)?;
        if policy != Policy::Unsandboxed {
            Self::probe_sandbox().and_then(|result| result.check(policy))?;
        }
        let root = tempfile::Builder::new().prefix("belljar-").tempdir()?;
        set_mode(root.path(), 0o711)?;
        check_mounts(&mounts, policy, &python, root.path())?;
        if policy == Policy::Weak && rustix::process::geteuid().is_root() {
            check_reachable(&python)?;
        }
        sandbox::check_devices(&devices)?;
        let code = root.path().join("code");
        guest::write(&code)?;
        let view = if policy == Policy::Full { EnvironmentView::create(root.path(), &python)? } else { None };
        let fonts = cache.unwrap_or_else(|| root.path().to_owned()).join("matplotlib");
        std::fs::create_dir_all(&fonts)?;
        let network = network.map(|network| BackendNetwork::new(network, root.path())).transpose()?;
        let install_hint = packages.as_ref().and_then(|packages| packages.hint.clone());
        let installer = packages.map(|NativePackages { uv, policy, timeout, statistics, hint: _ }| PipInstaller {
            python: python.clone(),
            uv,
            policy,
            timeout,
            max_bytes: package_bytes,
            statistics,
        });
        let config = NativeConfig {
            root,
            code,
            fonts,
            python,
            view,
            python_version: Some(python_version).filter(|version| !version.is_empty()),
            policy,
            limits,
            color,
            control_groups: sandbox::delegated_control_groups(),
            devices,
            mounts,
            tools,
            network,
            installer,
            install_hint,
        };
        let state = Arc::new(BackendState {
            prestarted: Mutex::default(),
            prestart_lock: Arc::default(),
            is_closing: AtomicBool::new(false),
            prestarting: Mutex::default(),
            starter: Arc::new(KernelStarter::new(config, modules)),
            prestart,
        });
        Ok(Self { _shutdown: Arc::new(ShutdownGuard { state: state.clone() }), state })
    }

    /// Determines, by setting up a sandbox, which isolation this machine supports.
    ///
    /// # Errors
    /// Returns an error if the probe itself cannot be run.
    pub fn probe_sandbox() -> Result<ProbeResult, sandbox::Error> {
        sandbox::probe(allocate_uid())
    }

    /// Starts the zygote and prestarts kernels, which takes seconds. Without this call the first session starts the
    /// zygote in the background.
    ///
    /// # Errors
    /// Returns an error if the zygote does not start.
    pub fn warm_up(&self) -> Result<(), StartError> {
        if KernelStarter::warm_up(&Arc::downgrade(&self.state.starter))? {
            BackendState::prestart_kernels(self.state.clone());
        }
        Ok(())
    }

    /// Does the same as [`Self::warm_up`] on a thread of its own, which passes an error to `on_error`. Unlike a call of
    /// `warm_up`, the thread does not keep the backend alive while the zygote imports.
    pub fn warm_up_in_background(&self, on_error: impl FnOnce(StartError) + Send + 'static) {
        spawn_warm_up(&self.state, Duration::ZERO, on_error);
    }

    /// Takes a prestarted kernel, or starts one. A session with a folder gets a new kernel, because the sandbox of a
    /// prestarted one does not show the folder.
    fn start_native(
        &self,
        folder: Option<&SessionFolder>,
        progress: &dyn Progress,
    ) -> Result<NativeKernel, KernelError> {
        let (connection, sandbox) = match if folder.is_none() { self.state.take_prestarted() } else { None } {
            Some(prestarted) => prestarted,
            None => {
                let step = progress.start(ProgressStep::indeterminate("starting a kernel"));
                let started = self.state.starter.start_session(folder, &|_| {});
                let started = started.map_err(|error| KernelError::Start(error.into()))?;
                step.finish();
                started
            }
        };
        // Only now, since imports would compete with this start for the processors.
        spawn_warm_up(&self.state, PRESTART_DELAY, |error| {
            tracing::warn!(%error, "failed to start the zygote: kernels start without it");
        });
        Ok(NativeKernel::new(self.state.starter.clone(), connection, sandbox))
    }
}

/// Checks that all users can reach a Python, the Python that it was created from, and their packages.
fn check_reachable(python: &Path) -> Result<(), StartError> {
    let mut paths = python_prefixes(python)?;
    paths.extend([python.to_owned(), python.canonicalize()?]);
    for directory in paths.iter().flat_map(|path| path.ancestors().filter(|ancestor| ancestor.is_dir())) {
        if directory.metadata()?.permissions().mode() & 0o001 == 0 {
            let (python, directory) = (python.to_owned(), directory.to_owned());
            return Err(StartError::UnreachableEnvironment { python, directory });
        }
    }
    Ok(())
}

impl BackendState {
    /// Starts kernels until [`NativeOptions::prestart`] are ready.
    fn prestart_kernels(state: Arc<Self>) {
        let prestart_lock = state.prestart_lock.clone();
        let Some(guard) = prestart_lock.try_lock() else { return };
        while !state.is_closing.load(Ordering::Relaxed) && state.prestarted.lock().len() < state.prestart {
            let on_spawn = |process: &Arc<KernelProcess>| state.set_prestarting(process);
            let started = state.starter.start_session(None, &on_spawn).and_then(|(mut connection, mut sandbox)| {
                connection.warm_up(&mut sandbox)?;
                Ok((connection, sandbox))
            });
            *state.prestarting.lock() = Weak::new();
            match started {
                Ok(started) => state.prestarted.lock().push(started),
                Err(_) if state.is_closing.load(Ordering::Relaxed) => break,
                Err(error) => {
                    tracing::warn!(%error, "failed to prestart a kernel");
                    break;
                }
            }
        }
        // In this order: a thread that waits for the lock in `ShutdownGuard` then deletes the directories.
        drop(state);
        drop(guard);
    }

    /// Sets the process of the kernel that is being prestarted. Kills it if the backend is closing: the guard may have
    /// looked for the process before.
    fn set_prestarting(&self, process: &Arc<KernelProcess>) {
        let mut prestarting = self.prestarting.lock();
        *prestarting = Arc::downgrade(process);
        if self.is_closing.load(Ordering::Relaxed) {
            process.kill();
        }
    }

    /// Takes a prestarted kernel whose process still runs.
    fn take_prestarted(&self) -> Option<(KernelConnection, SessionSandbox)> {
        loop {
            let (connection, sandbox) = self.prestarted.lock().pop()?;
            if connection.is_alive() {
                return Some((connection, sandbox));
            }
        }
    }
}

/// Starts the zygote and prestarts kernels for the next session, after this time and on a thread of its own.
fn spawn_warm_up(state: &Arc<BackendState>, delay: Duration, on_error: impl FnOnce(StartError) + Send + 'static) {
    // Weak references: a server that ends meanwhile does not wait for this thread.
    let starter = Arc::downgrade(&state.starter);
    let state: Weak<BackendState> = Arc::downgrade(state);
    let spawned = std::thread::Builder::new().name("kernels".into()).spawn(move || {
        std::thread::sleep(delay);
        match KernelStarter::warm_up(&starter) {
            Ok(true) => {
                if let Some(state) = state.upgrade() {
                    BackendState::prestart_kernels(state);
                }
            }
            // Another thread starts the zygote, and prestarts kernels after that.
            Ok(false) => {}
            Err(error) => on_error(error),
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "failed to prestart kernels");
    }
}

impl Backend for NativeBackend {
    fn limits(&self) -> &Limits {
        &self.state.starter.config().limits
    }

    fn run_once(
        &self,
        request: OneShotRequest,
        observer: Arc<dyn CellObserver>,
        cancellation: &CallCancellation,
    ) -> Result<CompletedRun, KernelError> {
        let Some(version) = &self.state.starter.config().python_version else {
            return Err(KernelError::Unsupported("the version of the kernels' Python is not known".into()));
        };
        observer.on_stage(SpanName::Restore);
        let mut kernel = self.start_native(None, &*observer)?;
        let may_write_mounts = self.state.starter.config().mounts.iter().any(|mount| mount.writable);
        one_shot::run(&mut kernel, version, *self.limits(), may_write_mounts, request, observer, cancellation)
    }

    fn start(&self, folder: Option<&SessionFolder>, progress: &dyn Progress) -> Result<Box<dyn Kernel>, KernelError> {
        Ok(Box::new(self.start_native(folder, progress)?))
    }

    fn supports_fork(&self) -> bool {
        false
    }

    fn measures_processor_time(&self) -> bool {
        false
    }

    fn supports_exchange(&self) -> bool {
        false
    }

    fn supports_tools(&self) -> bool {
        self.state.starter.config().tools
    }

    fn restore(
        &self,
        _: &KernelSnapshot,
        _: FindBase<'_>,
        _: Option<&SessionFolder>,
        _: &dyn Progress,
    ) -> Result<Box<dyn Kernel>, KernelError> {
        let reason = "it was saved by the WebAssembly sandbox, and this server runs native kernels";
        Err(KernelError::IncompatibleSnapshot(reason.into()))
    }

    fn snapshot_files(&self, _: &KernelSnapshot) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    fn statistics(&self) -> BackendStatistics {
        let installer = self.state.starter.config().installer.as_ref();
        let installs = installer.map(|installer| installer.statistics.clone()).unwrap_or_default();
        BackendStatistics { installs, cache: None }
    }

    fn temporary_directory(&self) -> Option<&Path> {
        Some(self.state.starter.config().root.path())
    }

    fn thread_runner(&self) -> RunOnThread {
        |work| {
            std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().name("kernel".into()).spawn_scoped(scope, work)?;
                thread.join().or_else(|panic| std::panic::resume_unwind(panic))
            })
        }
    }
}

impl std::fmt::Debug for NativeBackend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let python: &Path = &self.state.starter.config().python;
        formatter.debug_struct("NativeBackend").field("python", &python).finish_non_exhaustive()
    }
}
