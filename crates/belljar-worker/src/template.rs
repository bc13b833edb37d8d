//! The template: this program, executed once more, from which workers are forked.

use std::io;
use std::path::PathBuf;

use belljar_core::{Limits, NoProgress};
use belljar_python::packages::PackageSet;
use belljar_python::{Image, ImageParts, OpenError, Options, Python, on_guest_thread};
use belljar_sandbox::worker::Template;
use serde::{Deserialize, Serialize};

use crate::serve;

/// The first argument of a process that is to become a template.
pub const TEMPLATE_ARGUMENT: &str = "__belljar-worker";

/// The private memory of a worker in addition to that of its interpreter, in bytes: two stacks of 128 MB, heaps, kept
/// memories.
const MEMORY_OVERHEAD: u64 = 896 << 20;

/// Returns the most private memory of a worker for an image whose interpreter has at most `memory` bytes, in bytes.
pub(crate) fn worker_memory(memory: u64, image: &ImageParts) -> u64 {
    // The state of a session is in the worker's memory twice while it is saved or restored.
    let copies = if image.is_session { 3 } else { 1 };
    memory.saturating_mul(copies).saturating_add(MEMORY_OVERHEAD)
}

/// The task of a template.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TemplateTask {
    /// The options of [`Python::open`].
    pub(crate) runtime: Option<PathBuf>,
    pub(crate) cache: PathBuf,
    pub(crate) bundle: Option<PathBuf>,
    pub(crate) release: Option<String>,
    /// The image of workers.
    pub(crate) image: ImageParts,
    /// The most memory of an interpreter, in bytes.
    pub(crate) memory: u64,
}

/// The opened interpreter, which all workers share.
pub(crate) struct Shared {
    pub(crate) python: Python,
    pub(crate) image: Image,
    /// The packages of sessions, those of the image among them.
    pub(crate) packages: PackageSet,
    /// The most private memory of a worker, in bytes.
    pub(crate) worker_memory: u64,
}

/// Becomes a template and never returns, if this process was started as one. Called first in `main`: before any file is
/// opened or thread started.
pub fn run_template_if_child() {
    if let Some(template) = Template::if_child(TEMPLATE_ARGUMENT) {
        run(template);
    }
}

/// Becomes a template and never returns, in a process that another program has started as one, such as a Python
/// interpreter: see [`WorkerOptions::command`](crate::WorkerOptions::command). Called before that opens a file that it
/// goes on to use, or starts a thread.
pub fn run_template() {
    run(Template::in_child())
}

fn run(template: Template) -> ! {
    let shared = match template.task().map_err(|error| error.to_string()).and_then(open) {
        Ok(shared) => shared,
        Err(reason) => template.fail(&reason),
    };
    let worker = template.serve();
    serve::run(worker, shared)
}

/// Opens what workers share. The thread that does it has ended when this returns: forks need a process with one.
fn open(task: TemplateTask) -> Result<Shared, String> {
    let TemplateTask { runtime, cache, bundle, release, image, memory } = task;
    let options = Options { runtime, cache: Some(cache), bundle, release, offline: true, ..Options::default() };
    let open = || {
        let python = Python::open(&options, &NoProgress).map_err(|error| error.to_string())?;
        let worker_memory = worker_memory(memory, &image);
        let (image, packages) = python.open_image(&image).map_err(|error| error.to_string())?;
        Ok(Shared { python, image, packages, worker_memory })
    };
    on_guest_thread(open).map_err(|error: io::Error| error.to_string())?
}

impl TemplateTask {
    /// Returns the task of a template for the base image of the Python with these options.
    pub(crate) fn new(options: &Options, limits: &Limits) -> Result<Self, OpenError> {
        Ok(Self {
            runtime: options.runtime.clone(),
            cache: options.cache_directory()?,
            bundle: options.bundle.clone(),
            release: options.release.clone(),
            image: ImageParts::default(),
            memory: limits.memory,
        })
    }
}
