//! The WebAssembly backend: CPython in interpreters that are copy-on-write copies of images.
//!
//! | file | subject |
//! | --- | --- |
//! | `runtime` | the Python that code runs on, loaded on first use |
//! | `one_shot` | code in an interpreter of its own, without IPython |
//! | `attempt` | an interpreter for one attempt to run it, connected to the host |
//! | `program_kernel` | the same as a kernel with one cell, which can wait on the disk |
//! | `session_kernel` | a session's kernel: IPython's shell |
//! | `kernel_interpreter` | the interpreter of a session: in this process, or in one of its own |
//! | `isolated_session` | the latter: its start, its cells, what is saved of it, and its move to another process |
//! | `running_cell` | a cell that runs in it |
//! | `run_interpreter` | the interpreter of such code: in this process, or in one of its own |
//! | `shown_images` | the images that it shows |
//! | `exchange` | values and calls that cross between code and its caller |
//! | `session_calls` | the host calls of code in a session |
//! | `waiting_cell` | a cell that waits, in a snapshot |
//! | `waiting_run` | code in an interpreter of its own that waits, as a snapshot |
//! | `since_1970` | times that are valid in other processes |
//! | `wait_clock` | the limits of time of code that waits |
//! | `mounts` | directories of the host that code can use |

mod attempt;
mod exchange;
mod held_cell;
mod isolated_host;
mod isolated_interpreter;
mod isolated_mounts;
mod isolated_network;
mod isolated_session;
mod kernel_interpreter;
mod mounts;
mod one_shot;
mod program_kernel;
mod replay;
mod run_interpreter;
mod running_cell;
mod runtime;
mod session_calls;
mod session_kernel;
mod shown_images;
mod since_1970;
mod wait_clock;
mod waiting_cell;
mod waiting_run;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{
    Backend, CellObserver, CompletedRun, FindBase, Kernel, KernelError, KernelSnapshot, OneShotRequest, RunOnThread,
};
use belljar_core::{
    BackendStatistics, CallCancellation, Limits, NoProgress, Progress, RestoredRun, RunStep, SessionFolder, Stream,
    Waker,
};
use belljar_emscripten::SnapshotDelta;
use belljar_emscripten::console;
use belljar_emscripten::fs::{Filesystem, Quota};
use belljar_network::{Connections, Network, Policy, Scrubber};
use parking_lot::Mutex;
use serde_json::Value;

use crate::image::Image;
use crate::install::{PrepareOptions, RuntimeInstaller};
use crate::isolation::InterpreterProcesses;
use crate::kept_image::{self, KeptImage};
use crate::network::{self, NetworkClient, ObservedConnections};
use crate::packages::{PackageSet, WheelId};
use crate::session::SESSION_DIRECTORY;
use program_kernel::ProgramKernel;
use session_kernel::WasmKernel;

pub use exchange::{CallEffects, register_calls};
pub(crate) use exchange::{NAMES as CALL_NAMES, read_files, take_value, write_buffer};
pub use mounts::GuestMount;
pub use runtime::{PythonRuntime, RuntimeLoader};

/// The shortest time between the interrupt of a session's cell at its time limit, which the cell can handle and which
/// keeps its variables, and the end of its interpreter.
const MIN_SESSION_GRACE: Duration = Duration::from_secs(3);

/// A backend that runs CPython in WebAssembly. Cheap to clone.
#[derive(Clone)]
pub struct WasmBackend {
    shared: Arc<Shared>,
}

/// The options of a backend.
#[derive(Clone, Default)]
pub struct BackendOptions {
    /// The limits of all code.
    pub limits: Limits,
    /// True for sessions with coloured tracebacks.
    pub color: bool,
    /// The directories of the host that all code can use.
    pub mounts: Vec<GuestMount>,
    /// The network that all code can use.
    pub network: Option<Arc<Network>>,
    /// The processes that interpreters are in, if they are not in this one. Such code gets no packages with compiled
    /// modules while it runs.
    pub processes: Option<Arc<dyn InterpreterProcesses>>,
}

struct Shared {
    runtime: Arc<RuntimeLoader>,
    limits: Limits,
    color: bool,
    /// The directories of the host that all code can use.
    mounts: Vec<GuestMount>,
    /// The network that all code can use.
    network: Option<Arc<Network>>,
    /// The processes of interpreters.
    processes: Option<Arc<dyn InterpreterProcesses>>,
    sessions: Mutex<Option<SessionRuntime>>,
    /// The images of earlier builds that sessions of this process continue in, by their identifiers.
    kept: Mutex<HashMap<String, SessionRuntime>>,
}

/// The runtime and the image of all kernels of sessions.
#[derive(Clone)]
struct SessionRuntime {
    runtime: PythonRuntime,
    image: Image,
    /// The packages of the image, and those of [`PythonRuntime::options`].
    packages: PackageSet,
    /// The place of the image, if it is that of an earlier build.
    kept_image: Option<KeptImage>,
}

impl Shared {
    /// Returns the scrubber of the secrets of the network that all code can use.
    fn scrubber(&self) -> Scrubber {
        self.network.as_ref().map(|network| network.scrubber().clone()).unwrap_or_default()
    }

    /// Connects a new interpreter to the network, if code can use it: to what `narrowed` allows, too, if that is given.
    ///
    /// # Errors
    /// Fails if `narrowed` is not a policy.
    fn attach_network(
        &self,
        interpreter: &mut dyn NetworkClient,
        narrowed: Option<&Value>,
        observer: &Arc<dyn CellObserver>,
        waker: Option<&Waker>,
    ) -> Result<Option<Arc<Connections>>, KernelError> {
        let narrowed = narrowed.map(policy).transpose()?;
        let Some(network) = &self.network else { return Ok(None) };
        let connections = network.connections(narrowed, Arc::new(ObservedConnections(observer.clone())));
        network::attach(interpreter, network, &connections, waker);
        Ok(Some(connections))
    }
}

/// Reads the network policy of a request.
fn policy(value: &Value) -> Result<Policy, KernelError> {
    Policy::from_json(value).map_err(|error| KernelError::InvalidNetwork(error.into()))
}

impl WasmBackend {
    /// Creates a backend whose code has these limits, and whose sessions have coloured tracebacks if `color` is set.
    /// The first call that needs the runtime loads it.
    pub fn new(runtime: Arc<RuntimeLoader>, limits: Limits, color: bool) -> Self {
        Self::with_options(runtime, BackendOptions { limits, color, ..BackendOptions::default() })
    }

    /// Does the same as [`WasmBackend::new`] with more options.
    pub fn with_options(runtime: Arc<RuntimeLoader>, options: BackendOptions) -> Self {
        let BackendOptions { limits, color, mounts, network, processes } = options;
        let (sessions, kept) = (Mutex::default(), Mutex::default());
        Self { shared: Arc::new(Shared { runtime, limits, color, mounts, network, processes, sessions, kept }) }
    }

    /// Loads what the first session would have to wait for. Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns an error if Python or IPython cannot be loaded.
    pub fn warm_up_sessions(&self) -> Result<(), KernelError> {
        let SessionRuntime { packages, .. } = self.session_runtime(&NoProgress)?;
        match &self.shared.processes {
            Some(processes) => processes.prepare_sessions(&packages, &NoProgress),
            None => Ok(()),
        }
    }

    /// Runs code once. It waits without its thread only if there is a waker.
    fn run_in_steps(
        &self,
        request: OneShotRequest,
        observer: Arc<dyn CellObserver>,
        cancellation: &CallCancellation,
        waker: Option<Waker>,
    ) -> Result<RunStep, KernelError> {
        let runtime = self.shared.runtime.get(&*observer).map_err(KernelError::Start)?;
        one_shot::begin(runtime, self.shared.clone(), request, observer, cancellation.clone(), waker)
    }

    /// Returns the limits of sessions.
    fn session_limits(&self) -> Limits {
        let limits = self.shared.limits;
        Limits { grace: limits.grace.max(MIN_SESSION_GRACE), ..limits }
    }

    /// Returns the runtime of sessions, loading it if need be.
    fn session_runtime(&self, progress: &dyn Progress) -> Result<SessionRuntime, KernelError> {
        // Held while loading: concurrent callers wait for the first.
        let mut loaded = self.shared.sessions.lock();
        if let Some(loaded) = &*loaded {
            return Ok(loaded.clone());
        }
        let runtime = self.shared.runtime.get(progress).map_err(KernelError::Start)?;
        let PythonRuntime { python, options, installer } = &runtime;
        let image = python.session_image(&**installer, progress).map_err(|error| KernelError::Start(error.into()))?;
        if image.memory_size() > self.shared.limits.memory {
            let needed_megabytes = image.memory_size().div_ceil(1 << 20);
            return Err(KernelError::MemoryLimitTooLow { needed_megabytes });
        }
        let mut packages = image.packages().clone();
        let sources = PrepareOptions { imports: Vec::new(), ..options.clone() };
        let needs = python.needs("", &sources, &**installer).map_err(|error| KernelError::Start(error.into()))?;
        if !needs.is_empty() {
            let silent: Arc<dyn Progress> = Arc::new(NoProgress);
            let runtime_installer = RuntimeInstaller::with_packages(python, packages, installer.clone(), silent);
            // Only the resolution is of use here: each session gets the layers itself.
            let mut unused_files = Filesystem::new(Quota::default());
            let installed = runtime_installer.install(&needs, &mut unused_files);
            installed.map_err(|error| KernelError::Start(error.into()))?;
            packages = runtime_installer.packages();
        }
        let session_runtime = SessionRuntime { runtime, image, packages, kept_image: None };
        *loaded = Some(session_runtime.clone());
        Ok(session_runtime)
    }

    /// Returns the runtime of sessions with the image `id`: the current image, or the one that `base` finds.
    /// `None` if neither has this identifier.
    fn runtime_of_image(
        &self,
        id: &str,
        base: FindBase<'_>,
        progress: &dyn Progress,
    ) -> Result<Option<SessionRuntime>, KernelError> {
        let current = self.session_runtime(progress)?;
        if current.image.id() == id {
            return Ok(Some(current));
        }
        // Held while an image is opened: concurrent callers wait for the first.
        let mut kept = self.shared.kept.lock();
        if let Some(runtime) = kept.get(id) {
            return Ok(Some(runtime.clone()));
        }
        let Some(directory) = base() else { return Ok(None) };
        let PythonRuntime { python, installer, .. } = &current.runtime;
        // Other processes open it, too, which have other descriptors.
        let directory = directory.canonicalize().unwrap_or(directory);
        let image = KeptImage { directory, id: id.to_owned() };
        let packages = |wheels: &[WheelId]| python.package_set(wheels, &**installer, progress);
        let opened = kept_image::open(python, &image, |wheels| packages(wheels).map_err(|error| error.to_string()));
        let (kept_image, image) =
            (Some(image), opened.map_err(|error| KernelError::IncompatibleSnapshot(error.into()))?);
        let packages = image.packages().clone();
        let runtime = SessionRuntime { runtime: current.runtime, image, packages, kept_image };
        kept.insert(id.to_owned(), runtime.clone());
        Ok(Some(runtime))
    }
}

impl Backend for WasmBackend {
    fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    fn run_once(
        &self,
        request: OneShotRequest,
        observer: Arc<dyn CellObserver>,
        cancellation: &CallCancellation,
    ) -> Result<CompletedRun, KernelError> {
        match self.run_in_steps(request, observer, cancellation, None)? {
            RunStep::Completed(completed) => Ok(*completed),
            RunStep::Waiting(..) => Err(KernelError::Unsupported("the code waits, but its caller does not".into())),
        }
    }

    fn begin_run(
        &self,
        request: OneShotRequest,
        observer: Arc<dyn CellObserver>,
        cancellation: &CallCancellation,
        waker: Waker,
    ) -> Result<RunStep, KernelError> {
        self.run_in_steps(request, observer, cancellation, Some(waker))
    }

    fn restore_run(
        &self,
        snapshot: &KernelSnapshot,
        observer: Arc<dyn CellObserver>,
        cancellation: &CallCancellation,
        waker: Waker,
    ) -> Result<RestoredRun, KernelError> {
        let runtime = self.shared.runtime.get(&*observer).map_err(KernelError::Start)?;
        waiting_run::restore(runtime, self.shared.clone(), snapshot, observer, cancellation.clone(), waker)
    }

    fn start(&self, folder: Option<&SessionFolder>, progress: &dyn Progress) -> Result<Box<dyn Kernel>, KernelError> {
        Ok(Box::new(WasmKernel::start(self.clone(), self.session_runtime(progress)?, folder, progress)?))
    }

    fn restore(
        &self,
        snapshot: &KernelSnapshot,
        base: FindBase<'_>,
        folder: Option<&SessionFolder>,
        progress: &dyn Progress,
    ) -> Result<Box<dyn Kernel>, KernelError> {
        if let Some(program) = ProgramKernel::restored(self.clone(), snapshot) {
            return Ok(Box::new(program));
        }
        Ok(Box::new(WasmKernel::restore(self.clone(), snapshot, base, folder, progress)?))
    }

    fn program(&self, request: OneShotRequest) -> Option<Box<dyn Kernel>> {
        Some(Box::new(ProgramKernel::new(self.clone(), request)))
    }

    fn supports_programs(&self) -> bool {
        true
    }

    fn write_base(&self, base: &str, directory: &Path) -> Result<(), KernelError> {
        let current = self.shared.sessions.lock().clone().filter(|runtime| runtime.image.id() == base);
        let runtime = current.or_else(|| self.shared.kept.lock().get(base).cloned());
        let runtime = runtime.ok_or(KernelError::Unsupported("no session uses this image".into()))?;
        kept_image::write(&runtime.runtime.python, &runtime.image, directory)
            .map_err(|error| KernelError::Failed(error.into()))
    }

    fn supports_exchange(&self) -> bool {
        true
    }

    fn supports_tools(&self) -> bool {
        true
    }

    fn supports_feeds(&self) -> bool {
        true
    }

    fn snapshot_files(&self, snapshot: &KernelSnapshot) -> Vec<(String, Vec<u8>)> {
        let delta = SnapshotDelta::from_bytes(&snapshot.data);
        delta.map(|delta| delta.files_under(SESSION_DIRECTORY)).unwrap_or_default()
    }

    fn statistics(&self) -> BackendStatistics {
        self.shared.runtime.loaded().map(|runtime| runtime.python.statistics()).unwrap_or_default()
    }

    fn thread_runner(&self) -> RunOnThread {
        |work| crate::on_guest_thread(work)
    }
}

/// Converts the console's stream, whose crate knows no other.
fn core_stream(stream: console::Stream) -> Stream {
    match stream {
        console::Stream::Stdout => Stream::Stdout,
        console::Stream::Stderr => Stream::Stderr,
    }
}
