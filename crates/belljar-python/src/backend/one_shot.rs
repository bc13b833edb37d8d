//! `run_once`: code in an interpreter of its own, restored from an image with its packages. IPython is not involved.

use std::sync::Arc;
use std::time::Instant;

use belljar_core::activity::trace::SpanName;
use belljar_core::kernel::{CellObserver, CompletedRun, KernelError, KernelSnapshot, OneShotRequest};
use belljar_core::{
    CallCancellation, Execution, ExitReason, ImageCollector, InstallRecord, Limits, Obstacle, Outcome, RunReport,
    RunRequest, RunStep, TOOLS_MODULE, WaitingRun, Waker,
};
use belljar_emscripten::console::{self, OutputSink};
use belljar_packages::{Dependencies, GeneralHint as _, InferredDependency, Requirement};
use serde_json::Value;

use super::attempt::Attempt;
use super::exchange::{self, RunCalls};
use super::isolated_host::IsolatedHost;
use super::isolated_interpreter::IsolatedInterpreter;
use super::runtime::PythonRuntime;
use super::wait_clock::WaitClock;
use super::{Shared, core_stream, waiting_run};
use crate::image::Image;
use crate::install::{
    FailedRun, ImageForRepetition, InstalledPackages, PrepareOptions, RuntimeInstaller, pip_installs, record_of_missing,
};
use crate::interpreter::{Renewal, Streams};
use crate::isolation::InterpreterProcesses;
use crate::packages::PackageSet;
use crate::steps::Step;

/// The maximum number of times that code is run again, each time with another package that it lacked.
const MAX_REPETITIONS: usize = 3;

/// Begins to run `request` on `runtime`: see [`Backend::begin_run`](belljar_core::kernel::Backend::begin_run). Without
/// a waker, the code runs to its end.
pub(super) fn begin(
    runtime: PythonRuntime,
    backend: Arc<Shared>,
    request: OneShotRequest,
    observer: Arc<dyn CellObserver>,
    cancellation: CallCancellation,
    waker: Option<Waker>,
) -> Result<RunStep, KernelError> {
    let PythonRuntime { python, installer, .. } = &runtime;
    let OneShotRequest { code, globals, mut dependencies, timeout, exchange, tools, network, owner, scope: _ } =
        request;
    let limits = backend.limits.with_timeout(timeout);
    let mut report = RunReport::new(limits);
    let mut options = options(&runtime, &dependencies, tools)?;
    // Modules that are imported beforehand would not see the placeholders of secrets.
    options.preload &= backend.network.as_ref().is_none_or(|network| network.secrets().is_empty());
    observer.on_stage(SpanName::Image);
    let begin = Instant::now();
    let image = python.needs(&code, &options, &**installer).and_then(|needs| {
        report.dependencies = names(needs.required());
        // The lines report what is wrong with them.
        let (image, all) = match prepare_pip_installs(&runtime, &backend, &code, &mut options, &*observer) {
            Some((image, all, prepared)) => {
                dependencies.extend(prepared);
                (image, Some(all))
            }
            None => (python.image_for(&needs, &options, &**installer, &*observer)?, None),
        };
        report.dependencies = installed_names(&needs, &image);
        report_installation(&image, all.as_ref().unwrap_or(&needs), begin, &*observer);
        Ok(image)
    });
    let image = match image {
        Ok(image) => image,
        Err(error) if error.is_about_packages() => {
            observer.on_install(&InstallRecord::failed(report.dependencies.join(", "), &error, begin));
            report.outcome = Outcome::InstallError(error.with_general_hint());
            let completed = CompletedRun { report, interpreter: Box::new(()) };
            return Ok(RunStep::Completed(Box::new(completed)));
        }
        Err(error) => return Err(KernelError::Start(error.into())),
    };
    let request = RunRequest { code, globals, exchange, tools, ..RunRequest::default() };
    let clock = WaitClock::new(&limits, timeout);
    network.as_ref().map(super::policy).transpose()?;
    let run = OneShotRun {
        owner,
        network,
        runtime,
        backend,
        dependencies,
        options,
        request,
        report,
        image,
        left: limits,
        repetitions: 0,
        clock,
        observer,
        cancellation,
        waker,
        waiting: None,
    };
    Box::new(run).attempt()
}

/// Reports the packages of an image that was made for these needs, and those that it lacks.
fn report_installation(image: &Image, needs: &Dependencies, begin: Instant, observer: &dyn CellObserver) {
    let installed = InstalledPackages::new(image.packages(), needs);
    if !installed.is_empty() {
        observer.on_install(&InstallRecord::succeeded(installed, begin));
    }
    let missing = needs.inferred.iter().filter_map(|inferred| {
        let reason = image.missing_modules().get(&inferred.module)?;
        Some((inferred.requirement.name(), reason.as_str()))
    });
    if let Some(record) = record_of_missing(missing, begin) {
        observer.on_install(&record);
    }
}

/// Prepares the packages that the code installs by pip, as far as that is written out: a process of its own gets
/// packages before its code runs only. Returns their image, all needs, and the requirements, which are then in
/// `options`. Returns `None` if there are none, or something is wrong with them.
fn prepare_pip_installs(
    runtime: &PythonRuntime,
    backend: &Shared,
    code: &str,
    options: &mut PrepareOptions,
    observer: &dyn CellObserver,
) -> Option<(Image, Dependencies, Vec<String>)> {
    backend.processes.as_ref()?;
    let requirements = pip_installs(code).concat();
    if requirements.is_empty() {
        return None;
    }
    let texts = requirements.iter().map(Requirement::to_string).collect();
    let PythonRuntime { python, installer, .. } = runtime;
    let mut all = options.clone();
    all.requirements.extend(requirements);
    let needs = python.needs(code, &all, &**installer).ok()?;
    let image = python.image_for(&needs, &all, &**installer, observer).ok()?;
    *options = all;
    Some((image, needs, texts))
}

/// Returns the options for code with these packages, in addition to those of the runtime.
pub(super) fn options(
    runtime: &PythonRuntime,
    dependencies: &[String],
    tools: bool,
) -> Result<PrepareOptions, KernelError> {
    let mut options = runtime.options.clone();
    if tools {
        // The guest provides it.
        options.modules.push(TOOLS_MODULE.into());
    }
    for dependency in dependencies {
        let requirement = Requirement::parse(dependency)
            .map_err(|error| KernelError::InvalidDependency(error.with_general_hint().into()))?;
        options.requirements.push(requirement);
    }
    Ok(options)
}

/// Returns streams that pass what the code writes to its observer. There is no input.
pub(super) fn streams(observer: &Arc<dyn CellObserver>) -> Streams {
    Streams { output: Box::new(ObserverSink(observer.clone())), input: Box::new(std::io::empty()) }
}

/// Code that is run once.
pub(super) struct OneShotRun {
    pub(super) runtime: PythonRuntime,
    pub(super) backend: Arc<Shared>,
    /// The owner of the call.
    pub(super) owner: Option<Arc<str>>,
    /// The network policy of the request.
    pub(super) network: Option<Value>,
    /// The packages of the request.
    pub(super) dependencies: Vec<String>,
    pub(super) options: PrepareOptions,
    pub(super) request: RunRequest,
    pub(super) report: RunReport,
    pub(super) image: Image,
    /// The limits of the next attempt: the time of all attempts together is limited as that of one.
    pub(super) left: Limits,
    /// The number of times that the code has been run again.
    pub(super) repetitions: usize,
    pub(super) clock: WaitClock,
    pub(super) observer: Arc<dyn CellObserver>,
    pub(super) cancellation: CallCancellation,
    pub(super) waker: Option<Waker>,
    /// The attempt that waits.
    pub(super) waiting: Option<Attempt>,
}

impl WaitingRun for OneShotRun {
    fn resume(mut self: Box<Self>) -> Result<RunStep, KernelError> {
        let mut attempt = self.waiting.take().ok_or(KernelError::Cancelled)?;
        let wait_end = self.clock.end_wait();
        let step = attempt.interpreter.resume_run(wait_end);
        self.after_step(attempt, step)
    }

    fn has_replies(&mut self) -> bool {
        let Some(attempt) = &self.waiting else { return false };
        // Only the code can see if something has arrived for a connection.
        attempt.interpreter.has_connections() || attempt.calls.as_ref().is_some_and(|calls| calls.save().is_none())
    }

    fn snapshot(&mut self) -> Result<KernelSnapshot, KernelError> {
        let mut attempt = self.waiting.take().ok_or(KernelError::Cancelled)?;
        let saved = waiting_run::save(self, &mut attempt);
        self.waiting = Some(attempt);
        saved
    }

    fn exclude_wait(&mut self) {
        self.clock.exclude_wait();
    }
}

impl OneShotRun {
    /// Runs the code in a new interpreter, until it ends or waits.
    fn attempt(self: Box<Self>) -> Result<RunStep, KernelError> {
        let mut attempt = Attempt::new(&self)?;
        let step = match &self.waker {
            Some(_) => attempt.interpreter.begin_run(&self.request),
            None => attempt.interpreter.run(&self.request),
        };
        self.after_step(attempt, step)
    }

    /// Starts the interpreter in a process of its own, with the calls that it can make, as a copy of the image or from
    /// a state.
    ///
    /// # Errors
    /// See [`InterpreterProcesses::start`].
    pub(super) fn start_isolated(
        &self,
        processes: &dyn InterpreterProcesses,
        images: &ImageCollector,
        calls: Option<RunCalls>,
        start: (Option<&[u8]>, Renewal),
    ) -> Result<IsolatedInterpreter, KernelError> {
        let (observer, mounts) = (self.observer.clone(), self.backend.mounts.clone());
        let host = IsolatedHost::new(observer, images.clone(), calls, mounts, &self.left);
        let owner = self.owner.as_ref();
        IsolatedInterpreter::start(processes, &self.image, self.left, owner, host, start, &*self.observer)
    }

    /// Returns an installer of the packages that the image has already, which lines of the code report as installed.
    pub(super) fn limited_installer(&self) -> RuntimeInstaller {
        let PythonRuntime { python, installer, .. } = &self.runtime;
        let available = self.image.packages();
        let present = if pip_installs(&self.request.code).is_empty() { available.clone() } else { PackageSet::empty() };
        let progress = self.observer.clone();
        let limited = RuntimeInstaller::with_packages(python, present, installer.clone(), progress);
        let limited = limited.with_observer(self.observer.clone()).without_reports_of(available.clone());
        limited.limit_to(available.clone());
        limited
    }

    fn after_step(mut self: Box<Self>, attempt: Attempt, step: Step<Execution>) -> Result<RunStep, KernelError> {
        let execution = match step {
            Step::Completed(execution) => execution,
            Step::Waiting(wait) => {
                let wait = self.clock.begin_wait(wait);
                self.waiting = Some(attempt);
                return Ok(RunStep::Waiting(wait, self));
            }
        };
        if let Outcome::Error(error) = &execution.outcome
            && self.repetitions < MAX_REPETITIONS
        {
            let PythonRuntime { python, installer, .. } = &self.runtime;
            let has_effects = attempt.has_effects(&self.backend);
            let begin = Instant::now();
            let failed = FailedRun { code: &self.request.code, image: &self.image, error, has_effects };
            match python.image_for_repetition(&failed, &mut self.options, &**installer, &*self.observer) {
                Ok(None) => {}
                Ok(Some(ImageForRepetition { image: next, installed, needs })) => {
                    self.observer.on_install(&InstallRecord::succeeded(installed, begin));
                    self.report.dependencies = installed_names(&needs, &next);
                    self.left = self.left.without_time(execution.statistics.run);
                    self.image = next;
                    self.repetitions += 1;
                    return self.attempt();
                }
                Err(missing) => {
                    if let Obstacle::NotInstallable(reason) = &missing.obstacle {
                        self.observer.on_install(&InstallRecord::failed(&missing.package, reason, begin));
                    }
                    self.report.missing_dependency = Some(missing);
                }
            }
        }
        Ok(RunStep::Completed(Box::new(self.complete(attempt, execution))))
    }

    /// Ends the program, whose code has ended.
    fn complete(self: Box<Self>, attempt: Attempt, execution: Execution) -> CompletedRun {
        let Attempt { mut interpreter, images, .. } = attempt;
        let mut report = self.report;
        report.outcome = execution.outcome;
        report.statistics = execution.statistics;
        if self.request.exchange.is_some() && matches!(report.outcome, Outcome::Success(Some(_))) {
            let scrubber = self.backend.scrubber();
            report.buffers = exchange::take_buffers(interpreter.value_files(), self.backend.limits.value, &scrubber);
        }
        if let Some(outcome @ Outcome::Exited(ExitReason::Limit(_) | ExitReason::Cancelled | ExitReason::Crash(_))) =
            interpreter.finish()
        {
            report.outcome = outcome;
        }
        self.cancellation.finish();
        self.runtime.python.compile_imported_in_background(self.image.packages());
        report.images = images.take();
        CompletedRun { report, interpreter: Box::new(interpreter) }
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
pub(super) struct ObserverSink(pub(super) Arc<dyn CellObserver>);

impl OutputSink for ObserverSink {
    fn write(&mut self, stream: console::Stream, bytes: &[u8]) {
        self.0.on_stream(core_stream(stream), bytes);
    }
}
