//! `run_once`: code in an interpreter of its own, restored from an image with its packages. IPython is not involved.

use std::sync::Arc;

use belljar_core::kernel::{CellObserver, CompletedRun, KernelError, OneShotRequest};
use belljar_core::{
    CallCancellation, Execution, ExitReason, ImageCollector, Limits, Outcome, RunReport, RunRequest, mime,
};
use belljar_emscripten::console::{self, OutputSink};
use belljar_packages::{Dependencies, GeneralHint as _, InferredDependency, Requirement};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::exchange;
use super::mounts::mount_all;
use super::runtime::PythonRuntime;
use super::{Shared, TOOLS_MODULE, core_stream};
use crate::host_calls::{CallError, HostCall, HostCallContext};
use crate::image::Image;
use crate::install::{FailedRun, ImageForRepetition, InstalledPackages, RuntimeInstaller};
use crate::interpreter::{Interpreter, Streams};

/// The maximum number of times that code is run again, each time with another package that it lacked.
const MAX_REPETITIONS: usize = 3;

/// Runs `request` on `runtime`: see [`Backend::run_once`](belljar_core::kernel::Backend::run_once).
pub(super) fn run(
    runtime: &PythonRuntime,
    backend: &Shared,
    request: OneShotRequest,
    observer: Arc<dyn CellObserver>,
    cancellation: &CallCancellation,
) -> Result<CompletedRun, KernelError> {
    let PythonRuntime { python, installer, .. } = runtime;
    let OneShotRequest { code, globals, dependencies, timeout, exchange, tools } = request;
    let limits = backend.limits.with_timeout(timeout);
    let mut report = RunReport::new(limits);
    let mut options = runtime.options.clone();
    if tools {
        // The guest provides it.
        options.modules.push(TOOLS_MODULE.into());
    }
    for dependency in &dependencies {
        let requirement = Requirement::parse(dependency)
            .map_err(|error| KernelError::InvalidDependency(error.with_general_hint().into()))?;
        options.requirements.push(requirement);
    }
    let image = python.needs(&code, &options, &**installer).and_then(|needs| {
        report.dependencies = names(needs.required());
        let image = python.image_for(&needs, &options, &**installer, &*observer)?;
        report.dependencies = installed_names(&needs, &image);
        let installed = InstalledPackages::new(image.packages(), &needs);
        if !installed.is_empty() {
            observer.on_installed(&installed.to_string());
        }
        Ok(image)
    });
    let mut image = match image {
        Ok(image) => image,
        Err(error) if error.is_about_packages() => {
            report.outcome = Outcome::InstallError(error.with_general_hint());
            return Ok(CompletedRun { report, interpreter: Box::new(()) });
        }
        Err(error) => return Err(KernelError::Start(error.into())),
    };
    let request = RunRequest { code, globals, exchange, tools, ..RunRequest::default() };
    let mut ran = Attempt::run(runtime, backend, &image, limits, &request, &observer, cancellation)?;
    // The time of all attempts together is limited as that of one.
    let mut left = limits;
    for _ in 0..MAX_REPETITIONS {
        let Outcome::Error(error) = &ran.execution.outcome else { break };
        let failed = FailedRun { code: &request.code, image: &image, error, has_effects: ran.has_effects(backend) };
        match python.image_for_repetition(&failed, &mut options, &**installer, &*observer) {
            Ok(None) => break,
            Ok(Some(ImageForRepetition { image: next, installed, needs })) => {
                observer.on_installed(&installed.to_string());
                report.dependencies = installed_names(&needs, &next);
                left = left.without_time(ran.execution.statistics.run);
                image = next;
                ran = Attempt::run(runtime, backend, &image, left, &request, &observer, cancellation)?;
            }
            Err(missing) => {
                report.missing_dependency = Some(missing);
                break;
            }
        }
    }
    let Attempt { mut interpreter, execution, images } = ran;
    report.outcome = execution.outcome;
    report.statistics = execution.statistics;
    if request.exchange.is_some() && matches!(report.outcome, Outcome::Success(Some(_))) {
        report.buffers = exchange::take_buffers(interpreter.files(), limits.value);
    }
    if !interpreter.is_dead() {
        let finished = interpreter.finish();
        if matches!(
            finished.outcome,
            Outcome::Exited(ExitReason::Limit(_) | ExitReason::Cancelled | ExitReason::Crash(_))
        ) {
            report.outcome = finished.outcome;
        }
    }
    cancellation.finish();
    python.compile_imported_in_background(image.packages());
    report.images = images.take();
    Ok(CompletedRun { report, interpreter: Box::new(interpreter) })
}

/// A run of the code that has not been finished yet: functions that the code registered for its end have not run.
struct Attempt {
    interpreter: Interpreter,
    execution: Execution,
    images: ImageCollector,
}

impl Attempt {
    /// Runs `request` in a new interpreter.
    ///
    /// # Errors
    /// Returns an error if the interpreter could not be created, or if the call was cancelled before the code began.
    fn run(
        runtime: &PythonRuntime,
        backend: &Shared,
        image: &Image,
        limits: Limits,
        request: &RunRequest,
        observer: &Arc<dyn CellObserver>,
        cancellation: &CallCancellation,
    ) -> Result<Self, KernelError> {
        if cancellation.is_cancelled() {
            return Err(KernelError::Cancelled);
        }
        let PythonRuntime { python, installer, .. } = runtime;
        let output = Box::new(ObserverSink(observer.clone()));
        let streams = Streams { output, input: Box::new(std::io::empty()) };
        let mut interpreter =
            python.interpreter_with(image, limits, streams).map_err(|error| KernelError::Start(error.into()))?;
        mount_all(interpreter.files(), &backend.mounts, None)?;
        let images = ImageCollector::default();
        interpreter.register_host_call("takes_images", Arc::new(TakesImages));
        interpreter.register_host_call("display", Arc::new(DisplayImage(images.clone())));
        exchange::begin(&mut interpreter, request.exchange.as_ref(), request.tools, observer)?;
        let installer = RuntimeInstaller::new(python, image, installer.clone(), observer.clone());
        interpreter.register_host_call("install", Arc::new(installer));
        if !cancellation.begin_running(Arc::new(interpreter.interrupt_handle())) {
            return Err(KernelError::Cancelled);
        }
        observer.on_phase("running");
        let execution = interpreter.run(request);
        Ok(Self { interpreter, execution, images })
    }

    /// Returns whether running the code again could repeat output or changes of files of the host.
    fn has_effects(&self, backend: &Shared) -> bool {
        let may_write = backend.mounts.iter().any(|mount| mount.directory.is_writable());
        may_write || self.interpreter.has_used_streams() || !self.images.is_empty()
    }
}

/// Returns the names of the installed packages that the code or its caller asked for.
fn installed_names(needs: &Dependencies, image: &Image) -> Vec<String> {
    let is_installed = |inferred: &&InferredDependency| !image.missing_modules().contains_key(&inferred.module);
    let inferred = needs.inferred.iter().filter(is_installed).map(|inferred| &inferred.requirement);
    names(needs.requirements.iter().chain(inferred))
}

/// Returns the names of `requirements`, each once, in order.
fn names<'a>(requirements: impl Iterator<Item = &'a Requirement>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for requirement in requirements {
        if !names.iter().any(|name| name == requirement.name()) {
            names.push(requirement.name().to_owned());
        }
    }
    names
}

/// Passes what the code writes to its observer.
struct ObserverSink(Arc<dyn CellObserver>);

impl OutputSink for ObserverSink {
    fn write(&mut self, stream: console::Stream, bytes: &[u8]) {
        self.0.on_stream(core_stream(stream), bytes);
    }
}

/// The host call `display`: adds an image to the report.
struct DisplayImage(ImageCollector);

impl HostCall for DisplayImage {
    fn call(&self, request: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        #[derive(Deserialize)]
        struct DisplayRequest {
            mime: String,
            data: String,
        }
        let DisplayRequest { mime, data } = serde_json::from_str(request.get())
            .map_err(|_| CallError::Refused("`display` takes a MIME type and data".into()))?;
        let pushed = mime::Image::from_base64(&mime, data).and_then(|image| self.0.push(image));
        pushed.map_err(|error| CallError::Refused(error.to_string()))?;
        to_raw_value(&()).map_err(|error| CallError::Refused(error.to_string()))
    }
}

/// The host call `takes_images`: reports to the guest that images can be displayed.
struct TakesImages;

impl HostCall for TakesImages {
    fn call(&self, _: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        to_raw_value(&true).map_err(|error| CallError::Refused(error.to_string()))
    }
}
