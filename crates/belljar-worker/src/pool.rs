//! The workers of a server: started, given to one owner each, used again, and ended.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use belljar_core::kernel::KernelError;
use belljar_core::{Limits, NoProgress, Progress, current_meter};
use belljar_emscripten::dylink::LibraryError;
use belljar_python::isolation::{
    InterpreterProcess, InterpreterProcesses, RunStart, SessionProcess, SessionRequest, SessionStart,
};
use belljar_python::packages::PackageSet;
use belljar_python::{ImageParts, OpenError, Options, Python};
use belljar_sandbox::worker::{TemplateReport, WorkerProcess, WorkerTemplate};
use parking_lot::{Condvar, Mutex};

use crate::remote::{InitialMemory, RemoteInterpreter};
use crate::template::{TEMPLATE_ARGUMENT, TemplateTask, worker_memory};
use crate::usage::WorkerUsage;

/// The options of a pool.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The command that executes this program, whose `main` calls [`run_template_if_child`](crate::run_template_if_child)
    /// first, or another one that calls [`run_template`](crate::run_template). It gets an argument more.
    pub command: Vec<OsString>,
    /// The number of runs after which a worker is replaced.
    pub runs: u32,
    /// The time after which a worker that is not used ends.
    pub idle: Duration,
    /// The most workers that are kept while they are not used.
    pub max_idle: usize,
    /// The most memory of the interpreter of a session, in bytes.
    pub session_memory: u64,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            command: vec!["/proc/self/exe".into()],
            runs: 1000,
            idle: Duration::from_secs(60),
            max_idle: (4 * processors).max(16),
            session_memory: Limits::default().memory,
        }
    }
}

/// The time in which an idle worker frees the memory of the interpreter that has ended.
const FREEING_TIME: Duration = Duration::from_secs(2);
/// The most templates for images with packages.
const MAX_TEMPLATES: usize = 16;

/// The workers of a server. Cheap to clone.
#[derive(Clone)]
pub struct WorkerPool {
    shared: Arc<Shared>,
}

struct Shared {
    options: WorkerOptions,
    /// The task of the template for the base image.
    task: TemplateTask,
    /// The Python of this process, once it is open.
    python: OnceLock<Python>,
    templates: Mutex<HashMap<ImageParts, Arc<TemplateSlot>>>,
    /// The number of the next interpreter.
    next: AtomicU64,
}

/// The place of the template of one image.
struct TemplateSlot {
    /// Locked while the template is started, so that concurrent callers wait for the first.
    workers: Mutex<Option<Arc<ImageWorkers>>>,
    last_used: Mutex<Instant>,
}

/// The template of one image, and its workers.
pub(crate) struct ImageWorkers {
    options: WorkerOptions,
    template: WorkerTemplate,
    /// The most memory of a worker, in bytes.
    memory: u64,
    /// The memory of a worker in which no code has run, in bytes, once it is known: what workers have of the template.
    initial_memory: OnceLock<u64>,
    known: Mutex<KnownWorkers>,
    /// Notified when a worker that has had no owner is taken.
    taken: Condvar,
}

#[derive(Default)]
struct KnownWorkers {
    /// A worker without an owner, started before it is needed.
    fresh: Option<Worker>,
    /// Workers that are not used, by the time since when.
    idle: Vec<IdleWorker>,
    /// The workers that have had an owner, whose memory is measured.
    owned: Vec<Weak<WorkerControl>>,
}

struct IdleWorker {
    owner: Arc<str>,
    worker: Worker,
    since: Instant,
}

/// A worker, and the broker's ends of its sockets. Dropping it ends the process.
pub(crate) struct Worker {
    pub(crate) channel: UnixStream,
    pub(crate) control: Arc<WorkerControl>,
    /// True once the worker has reported that it is sealed.
    pub(crate) is_ready: bool,
    /// The number of runs so far.
    pub(crate) runs: u32,
}

/// The means of stopping the code in a worker.
pub(crate) struct WorkerControl {
    pub(crate) process: WorkerProcess,
    /// The socket that receives the numbers of interpreters to interrupt.
    pub(crate) interrupts: UnixStream,
    /// The use of the worker, as that of its owner.
    pub(crate) usage: WorkerUsage,
    /// True if the worker was killed because it used too much memory.
    exceeded_memory: AtomicBool,
}

impl WorkerControl {
    /// Returns whether the worker was killed because it used too much memory.
    pub(crate) fn has_exceeded_memory(&self) -> bool {
        self.exceeded_memory.load(Ordering::Relaxed)
    }

    /// Reads the processor time of the worker for the quota of its owner.
    pub(crate) fn count_processor_time(&self) {
        self.usage.count_processor_time(|| self.process.processor_time());
    }

    /// Kills the worker if it uses more than `limit` bytes, or more than the quota of its owner has. `initial` is the
    /// memory of a worker in which no code has run. Returns whether the memory can be read.
    ///
    /// The worker's own limit has gaps for code that makes system calls of its choice: see
    /// [`SealLimits`](belljar_sandbox::worker::SealLimits).
    fn check_memory(&self, limit: u64, initial: Option<u64>) -> bool {
        let Some(bytes) = self.process.memory_bytes() else { return self.process.has_ended() };
        let has_room = initial.is_none_or(|initial| self.usage.measure(bytes.saturating_sub(initial)));
        // The number of a process that has ended may be that of another one.
        if (bytes > limit || !has_room) && !self.process.has_ended() {
            self.exceeded_memory.store(true, Ordering::Relaxed);
            self.process.kill();
        }
        true
    }
}

/// An error in starting a worker.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolError {
    #[error("failed to create the sockets of a worker process: {0}")]
    Sockets(#[from] io::Error),
    #[error("failed to start a worker process: {0}")]
    Start(#[from] belljar_sandbox::Error),
    #[error("failed to compile a package for worker processes: {0}")]
    Compile(#[from] LibraryError),
}

impl WorkerPool {
    /// Creates a pool for interpreters of the Python with these options. Those of code that is run once have at most
    /// the memory of `limits`. Begins to start the template of workers without packages, while this process opens the
    /// same Python.
    ///
    /// # Errors
    /// Fails if the cache directory is unknown.
    pub fn new(python: &Options, limits: &Limits, options: WorkerOptions) -> Result<Self, OpenError> {
        let task = TemplateTask::new(python, limits)?;
        let (python, templates, next) = (OnceLock::new(), Mutex::default(), AtomicU64::new(1));
        let shared = Arc::new(Shared { options, task, python, templates, next });
        let early = shared.clone();
        let started = std::thread::Builder::new().name("template".into()).spawn(move || {
            // Parts that are missing in the cache may fail to be built there: then this process builds them first.
            if let Err(error) = early.start_template(&ImageParts::default(), || Ok(())) {
                tracing::debug!(%error, "failed to start the template of worker processes ahead of time");
            }
        });
        if let Err(error) = started {
            tracing::debug!(%error, "failed to start a thread for the template of worker processes");
        }
        Ok(Self { shared })
    }

    /// Sets the Python of this process, which compiles packages for workers, and waits until the template of workers
    /// without packages is ready. Returns the layers of the sandbox that this machine does not provide.
    ///
    /// # Errors
    /// Fails if the template cannot be made ready.
    pub fn open(&self, python: &Python) -> Result<TemplateReport, KernelError> {
        let _ = self.shared.python.set(python.clone());
        let workers = self.shared.workers(&ImageParts::default(), &PackageSet::empty(), &NoProgress);
        Ok(workers.map_err(|error| KernelError::Start(error.into()))?.template.report().clone())
    }
}

impl InterpreterProcesses for WorkerPool {
    fn start(
        &self,
        request: &RunStart<'_>,
        progress: &dyn Progress,
    ) -> Result<Box<dyn InterpreterProcess>, KernelError> {
        let RunStart { image, limits, owner, mounts, state } = *request;
        let (worker, number, workers) = self.shared.take(&image.parts(), image.packages(), owner, progress)?;
        let bytes = image.memory_size().max(state.map_or(0, |state| state.len() as u64));
        let memory = InitialMemory { meter: current_meter(), bytes };
        let limits = (limits, mounts.to_vec());
        let mut interpreter = RemoteInterpreter::new(worker, number, limits, memory, owner.cloned(), workers);
        if let Some(state) = state {
            interpreter.begin_with(SessionStart::State(state))?;
        }
        Ok(Box::new(interpreter))
    }

    fn prepare_sessions(&self, packages: &PackageSet, progress: &dyn Progress) -> Result<(), KernelError> {
        let workers = self.shared.workers(&ImageParts::for_sessions(packages, None), packages, progress);
        workers.map(drop).map_err(|error| KernelError::Start(error.into()))
    }

    fn start_session(
        &self,
        request: &SessionRequest<'_>,
        progress: &dyn Progress,
    ) -> Result<Box<dyn SessionProcess>, KernelError> {
        let SessionRequest { packages, kept_image, limits, memory, start, mounts } = *request;
        let parts = ImageParts::for_sessions(packages, kept_image);
        // Without an owner: a worker that no other code has used or will use.
        let (worker, number, workers) = self.shared.take(&parts, packages, None, progress)?;
        // A state is what differs from the image; the worker's word for its size in memory is not needed.
        let state = if let SessionStart::State(state) = start { state.len() as u64 } else { 0 };
        let memory = InitialMemory { meter: current_meter(), bytes: memory.max(state) };
        let mut interpreter = RemoteInterpreter::new(worker, number, (limits, mounts.to_vec()), memory, None, workers);
        interpreter.set_session();
        interpreter.begin_with(start)?;
        Ok(Box::new(interpreter))
    }
}

impl Shared {
    /// Takes a worker of an image with these packages, for an interpreter whose number is returned.
    fn take(
        &self,
        parts: &ImageParts,
        packages: &PackageSet,
        owner: Option<&Arc<str>>,
        progress: &dyn Progress,
    ) -> Result<(Worker, u64, Arc<ImageWorkers>), KernelError> {
        let failed = |error: PoolError| KernelError::Start(error.into());
        let mut workers = self.workers(parts, packages, progress).map_err(failed)?;
        let worker = match workers.take(owner) {
            Ok(worker) => worker,
            Err(error) => {
                // The template may have been killed: another one is started.
                tracing::warn!(%error, "failed to start a worker process: its template is replaced");
                self.remove(parts, &workers);
                workers = self.workers(parts, packages, progress).map_err(failed)?;
                workers.take(owner).map_err(failed)?
            }
        };
        Ok((worker, self.next.fetch_add(1, Ordering::Relaxed), workers))
    }

    /// Returns the workers of an image with these packages, whose template is started if need be.
    fn workers(
        &self,
        parts: &ImageParts,
        packages: &PackageSet,
        progress: &dyn Progress,
    ) -> Result<Arc<ImageWorkers>, PoolError> {
        self.start_template(parts, || {
            let compile = |python: &Python| python.compile_libraries_of(packages, progress);
            self.python.get().map_or(Ok(()), compile)
        })
    }

    /// Returns the workers of the image of these parts. If their template is not running, it is started after
    /// `prepare`.
    fn start_template(
        &self,
        parts: &ImageParts,
        prepare: impl FnOnce() -> Result<(), LibraryError>,
    ) -> Result<Arc<ImageWorkers>, PoolError> {
        let slot = self.slot(parts);
        *slot.last_used.lock() = Instant::now();
        let mut workers = slot.workers.lock();
        if let Some(workers) = workers.as_ref().filter(|workers| !workers.template.has_ended()) {
            return Ok(workers.clone());
        }
        prepare()?;
        let mut command = self.options.command.clone();
        command.push(TEMPLATE_ARGUMENT.into());
        let memory = if parts.is_session { self.options.session_memory } else { self.task.memory };
        let task = TemplateTask { image: parts.clone(), memory, ..self.task.clone() };
        let started = Arc::new(ImageWorkers {
            options: self.options.clone(),
            template: WorkerTemplate::start(&command, &task)?,
            memory: worker_memory(task.memory, parts),
            initial_memory: OnceLock::new(),
            known: Mutex::default(),
            taken: Condvar::new(),
        });
        let (packages, for_sessions) = (parts.wheels.len(), parts.is_session);
        tracing::debug!(packages, for_sessions, "a template of worker processes is ready");
        let maintained = Arc::downgrade(&started);
        std::thread::Builder::new().name("workers".into()).spawn(move || maintain(&maintained))?;
        Ok(workers.insert(started).clone())
    }

    /// Returns the place of the template of an image. The least recently used one of the others is given up if there
    /// are too many; code that runs keeps its template.
    fn slot(&self, parts: &ImageParts) -> Arc<TemplateSlot> {
        let mut templates = self.templates.lock();
        if let Some(slot) = templates.get(parts) {
            return slot.clone();
        }
        if templates.len() > MAX_TEMPLATES {
            let others = templates.iter().filter(|(parts, _)| **parts != ImageParts::default());
            let oldest = others.min_by_key(|(_, slot)| *slot.last_used.lock()).map(|(parts, _)| parts.clone());
            oldest.and_then(|oldest| templates.remove(&oldest));
        }
        let slot = TemplateSlot { workers: Mutex::default(), last_used: Mutex::new(Instant::now()) };
        templates.entry(parts.clone()).or_insert(Arc::new(slot)).clone()
    }

    /// Removes a template that has failed.
    fn remove(&self, parts: &ImageParts, failed: &Arc<ImageWorkers>) {
        let slot = self.slot(parts);
        let mut workers = slot.workers.lock();
        if workers.as_ref().is_some_and(|workers| Arc::ptr_eq(workers, failed)) {
            *workers = None;
        }
    }
}

impl ImageWorkers {
    /// Takes a worker of `owner`, or one that has had no owner.
    pub(crate) fn take(&self, owner: Option<&Arc<str>>) -> Result<Worker, PoolError> {
        let fresh = {
            let mut known = self.known.lock();
            while let Some(owner) = owner
                && let Some(at) = known.idle.iter().rposition(|idle| idle.owner == *owner)
            {
                let IdleWorker { worker, .. } = known.idle.remove(at);
                if !worker.control.process.has_ended() {
                    return Ok(worker);
                }
            }
            known.fresh.take()
        };
        let worker = match fresh {
            Some(fresh) if !fresh.control.process.has_ended() => fresh,
            _ => self.fork()?,
        };
        self.known.lock().owned.push(Arc::downgrade(&worker.control));
        self.taken.notify_one();
        Ok(worker)
    }

    /// Takes a worker back whose interpreter has been discarded.
    pub(crate) fn put_back(&self, worker: Worker, owner: Option<Arc<str>>) {
        let Some(owner) = owner.filter(|_| worker.runs < self.options.runs) else { return };
        let mut known = self.known.lock();
        let oldest = (known.idle.len() >= self.options.max_idle).then(|| known.idle.remove(0));
        known.idle.push(IdleWorker { owner, worker, since: Instant::now() });
        drop(known);
        drop(oldest);
    }

    fn fork(&self) -> Result<Worker, PoolError> {
        let (channel, its_channel) = UnixStream::pair()?;
        let (interrupts, its_interrupts) = UnixStream::pair()?;
        interrupts.set_nonblocking(true)?;
        let process = self.template.fork(&[its_channel.as_fd(), its_interrupts.as_fd()])?;
        if self.initial_memory.get().is_none()
            && let Some(bytes) = process.memory_bytes()
        {
            let _ = self.initial_memory.set(bytes);
        }
        let (usage, exceeded_memory) = (WorkerUsage::default(), AtomicBool::new(false));
        let control = Arc::new(WorkerControl { process, interrupts, usage, exceeded_memory });
        Ok(Worker { channel, control, is_ready: false, runs: 0 })
    }

    /// Returns whether a worker without an interpreter holds memory that its owner would not be charged with.
    fn holds_uncharged(&self, control: &WorkerControl) -> bool {
        control
            .usage
            .holds_uncharged(|| Some(control.process.memory_bytes()?.saturating_sub(*self.initial_memory.get()?)))
    }

    /// Returns the workers that have been idle for too long or hold memory, and whether there is none without an owner.
    fn expire(&self) -> (Vec<IdleWorker>, bool) {
        let mut known = self.known.lock();
        let limit = self.options.idle;
        let expired = known.idle.extract_if(.., |idle| {
            let time = idle.since.elapsed();
            time > limit || (time > FREEING_TIME && self.holds_uncharged(&idle.worker.control))
        });
        let expired = expired.collect();
        (expired, known.fresh.is_none())
    }

    /// Kills the workers that use more memory than they may, and counts processor time. Returns whether the memory of
    /// all can be read.
    fn check_memory(&self) -> bool {
        let owned: Vec<Arc<WorkerControl>> = {
            let mut known = self.known.lock();
            known.owned.retain(|control| control.strong_count() > 0);
            known.owned.iter().filter_map(Weak::upgrade).collect()
        };
        let mut can_read = true;
        for control in owned {
            can_read &= control.check_memory(self.memory, self.initial_memory.get().copied());
            control.count_processor_time();
        }
        can_read
    }
}

/// Keeps a worker without an owner ready, and ends those that were idle for too long or use too much memory, as long as
/// the workers and their template exist.
fn maintain(workers: &Weak<ImageWorkers>) {
    /// The interval at which the time of idle workers is checked.
    const INTERVAL: Duration = Duration::from_secs(1);
    /// The interval at which the memory of workers is measured.
    const MEMORY_INTERVAL: Duration = Duration::from_millis(250);
    let mut can_read_memory = true;
    while let Some(workers) = workers.upgrade() {
        if workers.template.has_ended() {
            // All its workers end with it. The next call starts another template.
            let ended = std::mem::take(&mut *workers.known.lock());
            drop(ended);
            return;
        }
        let (expired, needs_fresh) = workers.expire();
        drop(expired);
        if needs_fresh {
            match workers.fork() {
                Ok(worker) => workers.known.lock().fresh = Some(worker),
                Err(error) => tracing::warn!(%error, "failed to start a worker process ahead of time"),
            }
        }
        if !workers.check_memory() && std::mem::replace(&mut can_read_memory, false) {
            tracing::warn!(
                "failed to read the memory of worker processes in /proc: only the limit of the kernel holds"
            );
        }
        let mut known = workers.known.lock();
        let interval = if known.owned.is_empty() { INTERVAL } else { MEMORY_INTERVAL };
        workers.taken.wait_for(&mut known, interval);
    }
}
