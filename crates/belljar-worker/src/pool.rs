//! The workers of a server, by the images of their interpreters: the templates of images are started when they are
//! needed, and replaced.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use belljar_core::kernel::KernelError;
use belljar_core::{Limits, NoProgress, Progress, current_meter};
use belljar_emscripten::dylink::LibraryError;
use belljar_python::isolation::{
    InterpreterProcess, InterpreterProcesses, RunStart, SessionProcess, SessionRequest, SessionStart,
};
use belljar_python::packages::PackageSet;
use belljar_python::{ImageParts, OpenError, Options, Python};
use belljar_sandbox::worker::{TemplateReport, WorkerTemplate};
use parking_lot::Mutex;

use crate::image_workers::{ImageWorkers, Worker, maintain};
use crate::remote::{InitialMemory, RemoteInterpreter};
use crate::template::{TEMPLATE_ARGUMENT, TemplateTask, worker_memory};

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
        let template = WorkerTemplate::start(&command, &task)?;
        let memory = worker_memory(task.memory, parts);
        let started = Arc::new(ImageWorkers::new(self.options.clone(), template, memory));
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
