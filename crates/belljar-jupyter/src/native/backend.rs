//! The backend of native kernels: where they come from. One that was started ahead is there at once; one that is forked from
//! a process with its imports done takes a moment; one that starts from nothing is what is left while neither is there.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use belljar_core::Limits;
use belljar_core::kernel::{Backend, Kernel, KernelError, Saved};
use belljar_core::progress::{Progress, Step};

use crate::native::guest;
use crate::native::home::{Ground, Home, new_user, set_mode};
use crate::native::installer::{Installer, PackagePolicy};
use crate::native::kernel::{Life, NativeKernel};
use crate::native::nursery::{Cradle, Nursery};

use crate::native::sandbox::{self, Findings, Policy};

/// Time between the interrupt of a cell whose time is up, which it can handle and which leaves its variables, and the end
/// of its interpreter.
const GRACE: Duration = Duration::from_secs(3);
/// How long a nursery may take to import what it is to: matplotlib looks at all fonts when it is imported first.
const IMPORTS: Duration = Duration::from_secs(180);
/// How long after a session was given a kernel the next one is started: its first cell has the processor to itself.
const REFILL: Duration = Duration::from_millis(300);
/// How long no other nursery is started after one has failed.
const RETRY: Duration = Duration::from_secs(30);

/// How much of packages a session may install for itself, unless something else is said: torch, but not with all of CUDA.
pub const PACKAGE_BYTES: u64 = 4 << 30;

/// What native kernels are made with.
#[derive(Clone)]
pub struct NativeOptions {
    /// The Python of an environment that has ipykernel: `bin/python` of a virtual environment.
    pub python: PathBuf,
    /// What each session may use.
    pub limits: Limits,
    /// Whether tracebacks have colours.
    pub color: bool,
    /// What must hold the code.
    pub policy: Policy,
    /// Modules that are imported beforehand, in the process that kernels are forked from. Those that the environment does
    /// not have are left out.
    pub modules: Vec<String>,
    /// How many kernels are started ahead.
    pub ahead: usize,
    /// Devices of the host that sessions may use, by their paths below `/dev`: a GPU's. The host's permissions hold; as
    /// root, sessions are users of their own, so that a device must be open to everybody.
    pub devices: Vec<PathBuf>,
    /// Bytes of all packages that a session installs for itself.
    pub package_bytes: u64,
    /// A folder that lasts, for what takes long to make; a temporary one if there is none.
    pub cache: Option<PathBuf>,
    /// Whether, and how, sessions get packages.
    pub packages: Option<NativePackages>,
}

/// How sessions get packages.
#[derive(Clone)]
pub struct NativePackages {
    /// uv, where there is one; else the environment's pip installs.
    pub uv: Option<PathBuf>,
    /// Has the last word on each package, needed ones included.
    pub policy: Option<Arc<PackagePolicy>>,
    /// How long one installation may take. It does not count against the time of the cell that asks for it.
    pub timeout: Duration,
}

impl Default for NativePackages {
    /// The environment's pip, everything allowed, ten minutes.
    fn default() -> Self {
        Self { uv: None, policy: None, timeout: Duration::from_secs(600) }
    }
}

impl NativeOptions {
    /// A full sandbox, no devices, [`PACKAGE_BYTES`] of packages, imports of numpy, pandas, matplotlib and plotly, one kernel ahead, and packages by the environment's pip.
    pub fn new(python: impl Into<PathBuf>) -> Self {
        let modules =
            ["numpy", "pandas", "matplotlib.pyplot", "matplotlib_inline.backend_inline", "plotly.basedatatypes"];
        Self {
            python: python.into(),
            limits: Limits::default(),
            color: false,
            policy: Policy::Full,
            modules: modules.map(str::to_owned).into(),
            ahead: 1,
            devices: Vec::new(),
            package_bytes: PACKAGE_BYTES,
            cache: None,
            packages: Some(NativePackages::default()),
        }
    }
}

/// The backend. Cheap to clone.
#[derive(Clone)]
pub struct Native {
    shared: Arc<Shared>,
    _owner: Arc<Owner>,
}

/// What all copies of a backend have together. The last one that is dropped waits for kernels that are being started ahead,
/// which takes a moment: their folders would be left behind otherwise.
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Relaxed);
        drop(lock(&self.shared.filling));
    }
}

/// What kernels need of their backend.
pub(crate) struct Shared {
    // Processes go before the folders that they are in.
    ready: Mutex<Vec<(Life, Home)>>,
    nursery: Mutex<Warm>,
    /// Held by whoever starts kernels ahead, until it holds nothing else of this.
    filling: Arc<Mutex<()>>,
    /// No more kernels are wanted.
    is_closing: AtomicBool,
    pub(crate) ground: Ground,
    pub(crate) grace: Duration,
    modules: Vec<String>,
    ahead: usize,
}

/// The process that has its imports done.
enum Warm {
    /// Nobody has asked for one, or the last one has ended.
    None,
    /// Somebody is at it.
    Starting,
    /// Somebody waits for its imports.
    Importing(Arc<Nursery>),
    There(Arc<Nursery>),
    /// None came to be.
    Failed(Instant, String),
}

impl Native {
    /// A backend. Finds out whether the sandbox stands here, and starts nothing yet. The program must call
    /// [`launch_if_asked`](sandbox::launch_if_asked) first thing in `main`.
    ///
    /// # Errors
    /// [`KernelError::Start`] when there is no such Python, or the sandbox that was asked for does not stand here; with
    /// what to do about it.
    pub fn new(options: NativeOptions) -> Result<Self, KernelError> {
        let NativeOptions { python, limits, color, policy, modules, ahead, devices, package_bytes, cache, packages } =
            options;
        if !python.is_file() {
            return Err(KernelError::Start(format!(
                "there is no Python at {}: `belljar native setup` makes an environment, --venv names one",
                python.display()
            )));
        }
        // Its own name is that of the environment: resolving it would lead out of there.
        let python = std::path::absolute(python).map_err(|error| KernelError::Start(error.to_string()))?;
        if policy != Policy::Unsandboxed {
            let admitted = Self::findings().and_then(|findings| findings.admit(policy));
            admitted.map_err(|error| KernelError::Start(error.to_string()))?;
        }
        sandbox::check_devices(&devices).map_err(|error| KernelError::Start(error.to_string()))?;
        let failed = |error: std::io::Error| KernelError::Start(format!("a folder cannot be made: {error}"));
        let root = tempfile::Builder::new().prefix("belljar-").tempdir().map_err(failed)?;
        set_mode(root.path(), 0o711).map_err(failed)?;
        let code = root.path().join("code");
        guest::write(&code).map_err(failed)?;
        let fonts = cache.unwrap_or_else(|| root.path().to_owned()).join("matplotlib");
        std::fs::create_dir_all(&fonts).map_err(failed)?;
        let installer = packages.map(|NativePackages { uv, policy, timeout }| Installer {
            python: python.clone(),
            uv,
            policy,
            timeout,
            most_bytes: package_bytes,
        });
        let control_groups = sandbox::delegated_control_groups();
        let grace = limits.grace.max(GRACE);
        let ground = Ground { root, code, fonts, python, policy, limits, color, control_groups, devices, installer };
        let shared = Arc::new(Shared {
            ready: Mutex::default(),
            nursery: Mutex::new(Warm::None),
            filling: Arc::default(),
            is_closing: AtomicBool::new(false),
            ground,
            grace,
            modules,
            ahead,
        });
        Ok(Self { _owner: Arc::new(Owner { shared: shared.clone() }), shared })
    }

    /// How strong a sandbox stands on this machine, found out by making one.
    ///
    /// # Errors
    /// When not even that can be found out.
    pub fn findings() -> Result<Findings, sandbox::Error> {
        sandbox::probe(new_user())
    }

    /// Does the imports, and starts kernels ahead: takes seconds. Without this the first session has it done beside it.
    ///
    /// # Errors
    /// [`KernelError::Start`] when Python cannot be made ready.
    pub fn warm_up(&self) -> Result<(), KernelError> {
        if Shared::warm_up(&Arc::downgrade(&self.shared)).map_err(KernelError::Start)? {
            Shared::fill(self.shared.clone());
        }
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Warm::Importing(nursery) = &*lock(&self.nursery) {
            // It would write to folders that are taken away.
            nursery.give_up();
        }
    }
}

impl Shared {
    /// Starts the nursery, unless it is there or somebody is at it; answers whether it is there.
    ///
    /// Nothing is held while it imports: a server that ends meanwhile takes its folders away and waits for nobody.
    fn warm_up(shared: &Weak<Self>) -> Result<bool, String> {
        let Some(held) = shared.upgrade() else { return Ok(false) };
        if held.ground.policy == Policy::Weak {
            // Kernels are programs there.
            return Ok(true);
        }
        {
            let mut warm = lock(&held.nursery);
            match &*warm {
                Warm::Starting | Warm::Importing(_) => return Ok(false),
                Warm::There(nursery) if nursery.is_alive() => return Ok(true),
                Warm::Failed(when, reason) if when.elapsed() < RETRY => return Err(reason.clone()),
                _ => *warm = Warm::Starting,
            }
        }
        let cradle = held.cradle(held.modules.clone());
        drop(held);
        let started = Nursery::start(cradle, Instant::now() + IMPORTS).map(Arc::new).and_then(|nursery| {
            let Some(held) = shared.upgrade() else { return Ok(nursery) };
            *lock(&held.nursery) = Warm::Importing(nursery.clone());
            drop(held);
            nursery.ready().map(|()| nursery)
        });
        let Some(held) = shared.upgrade() else { return Ok(false) };
        let mut warm = lock(&held.nursery);
        match started {
            Ok(nursery) => {
                *warm = Warm::There(nursery);
                Ok(true)
            }
            Err(reason) => {
                *warm = Warm::Failed(Instant::now(), reason.clone());
                Err(reason)
            }
        }
    }

    fn cradle(&self, modules: Vec<String>) -> Cradle {
        let Ground { python, code, fonts, .. } = &self.ground;
        Cradle { python: python.clone(), code: code.clone(), modules, fonts: fonts.clone() }
    }

    /// Something to fork a kernel from: the nursery that has its imports done, or one without; `None` where kernels can
    /// only be programs.
    fn any_nursery(&self) -> Result<Option<Arc<Nursery>>, String> {
        if self.ground.policy == Policy::Weak {
            return Ok(None);
        }
        if let Warm::There(nursery) = &*lock(&self.nursery)
            && nursery.is_alive()
        {
            return Ok(Some(nursery.clone()));
        }
        match Nursery::start(self.cradle(Vec::new()), Instant::now() + IMPORTS) {
            Ok(nursery) => Ok(Some(Arc::new(nursery))),
            // A Python whose loader the code could change: see `zygote_command`.
            Err(reason) if self.ground.policy == Policy::Full && reason.contains("cannot be a zygote") => Ok(None),
            Err(reason) => Err(reason),
        }
    }

    /// A kernel's process in this home.
    pub(crate) fn life(&self, home: &mut Home) -> Result<Life, String> {
        Life::begin(&self.ground, home, self.any_nursery()?)
    }

    fn started(&self) -> Result<(Life, Home), String> {
        let nursery = self.any_nursery()?;
        let mut home = Home::new(&self.ground, nursery.as_deref())?;
        let life = Life::begin(&self.ground, &mut home, nursery)?;
        Ok((life, home))
    }

    /// Starts kernels ahead.
    fn fill(shared: Arc<Self>) {
        let filling = shared.filling.clone();
        let Ok(filling) = filling.try_lock() else { return };
        while !shared.is_closing.load(Ordering::Relaxed) && lock(&shared.ready).len() < shared.ahead {
            let started = shared.started().and_then(|(mut life, mut home)| {
                life.warm_up(&mut home)?;
                Ok((life, home))
            });
            match started {
                Ok(started) => lock(&shared.ready).push(started),
                Err(reason) => {
                    tracing::warn!(reason, "no kernel is started ahead");
                    break;
                }
            }
        }
        // In this order: whoever waits for the lock takes the folders away.
        drop(shared);
        drop(filling);
    }

    /// One that was started ahead and is still there.
    fn take(&self) -> Option<(Life, Home)> {
        loop {
            let taken = lock(&self.ready).pop()?;
            if taken.0.is_alive() {
                return Some(taken);
            }
        }
    }
}

/// Makes ready, beside all else, what the next session finds.
fn prepare(shared: &Arc<Shared>) {
    let shared: Weak<Shared> = Arc::downgrade(shared);
    let prepared = std::thread::Builder::new().name("kernels".into()).spawn(move || {
        std::thread::sleep(REFILL);
        match Shared::warm_up(&shared) {
            Ok(true) => {
                if let Some(shared) = shared.upgrade() {
                    Shared::fill(shared);
                }
            }
            // Whoever is at it goes on with that.
            Ok(false) => {}
            Err(reason) => tracing::warn!(reason, "kernels start from nothing"),
        }
    });
    if let Err(error) = prepared {
        tracing::warn!(%error, "no kernel is started ahead");
    }
}

impl Backend for Native {
    fn start(&self, progress: &dyn Progress) -> Result<Box<dyn Kernel>, KernelError> {
        let (life, home) = match self.shared.take() {
            Some(taken) => taken,
            None => {
                let step = progress.start(Step::unmeasured("starting a kernel"));
                let started = self.shared.started().map_err(KernelError::Start)?;
                step.finish();
                started
            }
        };
        // Not before: imports would take this one's processors.
        prepare(&self.shared);
        Ok(Box::new(NativeKernel::new(self.shared.clone(), life, home)))
    }

    fn wake(&self, _: &Saved, _: &dyn Progress) -> Result<Box<dyn Kernel>, KernelError> {
        Err(KernelError::Refused("it was saved by the WebAssembly sandbox, and this server runs native kernels".into()))
    }

    fn files_of(&self, _: &Saved) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }
}

impl std::fmt::Debug for Native {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let python: &Path = &self.shared.ground.python;
        formatter.debug_struct("Native").field("python", &python).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
