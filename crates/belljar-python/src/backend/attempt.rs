//! An attempt to run code that is run once: an interpreter that is connected to the host.

use std::sync::Arc;

use belljar_core::activity::trace::SpanName;
use belljar_core::kernel::KernelError;
use belljar_core::{CallCancellation, ImageCollector, Waker, WakingInterruptHandle};

use super::Shared;
use super::exchange::{self, RunCalls};
use super::isolated_interpreter::IsolatedInterpreter;
use super::mounts::mount_all;
use super::one_shot::{OneShotRun, streams};
use super::run_interpreter::RunInterpreter;
use super::runtime::PythonRuntime;
use super::shown_images::{DisplayImage, TakesImages};
use crate::install::RuntimeInstaller;
use crate::interpreter::{Interpreter, Renewal};
use crate::isolation::InterpreterProcesses;
use crate::packages::PackageSet;

/// An interpreter for one run of the code, until functions that the code registered for its end have run.
pub(super) struct Attempt {
    pub(super) interpreter: RunInterpreter,
    pub(super) images: ImageCollector,
    /// The installer of packages while the code runs.
    pub(super) installer: Arc<RuntimeInstaller>,
    /// The calls of functions of the host, if the code can make any.
    pub(super) calls: Option<RunCalls>,
    effects: Effects,
}

/// The known effects of code outside of its interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effects {
    /// All that the code has done was observed.
    Observed,
    /// The code has run in another process.
    Unknown,
}

impl Attempt {
    /// Creates an interpreter for `run`.
    ///
    /// # Errors
    /// Returns an error if the interpreter could not be created, or if the call was cancelled before the code began.
    pub(super) fn new(run: &OneShotRun) -> Result<Self, KernelError> {
        let OneShotRun { runtime, image, request, observer, cancellation, waker, .. } = run;
        if cancellation.is_cancelled() {
            return Err(KernelError::Cancelled);
        }
        observer.on_stage(SpanName::Restore);
        if let Some(processes) = &run.backend.processes {
            return Self::isolated(run, &**processes);
        }
        let mut interpreter = runtime
            .python
            .interpreter_with(image, run.left, streams(observer))
            .map_err(|error| KernelError::Start(error.into()))?;
        let calls = exchange::begin(
            &mut interpreter,
            request.exchange.as_ref(),
            request.tools,
            observer,
            waker.as_ref(),
            None,
            &run.backend.scrubber(),
        )?;
        let (packages, images) = (image.packages().clone(), ImageCollector::default());
        let attempt = Self::connect(run, interpreter, packages, images, calls, Effects::Observed)?;
        observer.on_phase("running");
        observer.on_stage(SpanName::Run);
        Ok(attempt)
    }

    /// Creates an interpreter for `run` in a process of its own.
    fn isolated(run: &OneShotRun, processes: &dyn InterpreterProcesses) -> Result<Self, KernelError> {
        let OneShotRun { request, observer, waker, .. } = run;
        let (images, exchange) = (ImageCollector::default(), request.exchange.as_ref());
        let scrubber = run.backend.scrubber();
        let calls = exchange::calls_of(exchange, request.tools, observer, waker.as_ref(), None, &scrubber);
        let mut interpreter = run.start_isolated(processes, &images, calls.clone(), (None, Renewal::All))?;
        interpreter.variables = exchange.map(exchange::variables_of).unwrap_or_default();
        let attempt = Self::connect_isolated(run, interpreter, images, calls, Effects::Observed)?;
        observer.on_phase("running");
        observer.on_stage(SpanName::Run);
        Ok(attempt)
    }

    /// Connects an interpreter in a process of its own to the host.
    ///
    /// # Errors
    /// Returns an error if the call was cancelled.
    pub(super) fn connect_isolated(
        run: &OneShotRun,
        interpreter: IsolatedInterpreter,
        images: ImageCollector,
        calls: Option<RunCalls>,
        effects: Effects,
    ) -> Result<Self, KernelError> {
        let OneShotRun { observer, cancellation, waker, .. } = run;
        let mut interpreter = RunInterpreter::Isolated(Box::new(interpreter));
        let client = interpreter.network_client();
        let installer = Arc::new(run.limited_installer());
        client.register_host_call("install", installer.clone());
        run.backend.attach_network(client, run.network.as_ref(), observer, waker.as_ref())?;
        begin_running(&interpreter, cancellation, waker.as_ref())?;
        Ok(Self { interpreter, images, installer, calls, effects })
    }

    /// Connects an interpreter, which has these packages, to the host.
    ///
    /// # Errors
    /// Returns an error if a directory cannot be mounted, or if the call was cancelled.
    pub(super) fn connect(
        run: &OneShotRun,
        mut interpreter: Interpreter,
        packages: PackageSet,
        images: ImageCollector,
        calls: Option<RunCalls>,
        effects: Effects,
    ) -> Result<Self, KernelError> {
        let OneShotRun { runtime, backend, network, observer, cancellation, waker, .. } = run;
        mount_all(interpreter.files(), &backend.mounts)?;
        backend.attach_network(&mut interpreter, network.as_ref(), observer, waker.as_ref())?;
        interpreter.register_host_call("takes_images", Arc::new(TakesImages));
        interpreter.register_host_call("display", Arc::new(DisplayImage(images.clone())));
        let PythonRuntime { python, installer, .. } = runtime;
        let installer = RuntimeInstaller::with_packages(python, packages, installer.clone(), observer.clone());
        let installer = Arc::new(installer.with_observer(observer.clone()));
        interpreter.register_host_call("install", installer.clone());
        let interpreter = RunInterpreter::Local(Box::new(interpreter));
        begin_running(&interpreter, cancellation, waker.as_ref())?;
        Ok(Self { interpreter, images, installer, calls, effects })
    }

    /// Returns whether running the code again could repeat output, changes of files of the host, calls or requests.
    pub(super) fn has_effects(&self, backend: &Shared) -> bool {
        let may_write = backend.mounts.iter().any(|mount| mount.directory.is_writable());
        let has_called = self.calls.as_ref().is_some_and(|calls| calls.effects().any());
        let has_shown = self.interpreter.has_used_streams() || !self.images.is_empty();
        let has_sent = self.interpreter.has_used_network();
        self.effects == Effects::Unknown || may_write || has_called || has_shown || has_sent
    }
}

/// Records that the code of `interpreter` is about to run.
///
/// # Errors
/// Returns an error if the call was cancelled.
fn begin_running(
    interpreter: &RunInterpreter,
    cancellation: &CallCancellation,
    waker: Option<&Waker>,
) -> Result<(), KernelError> {
    let inner = interpreter.interrupt_handle();
    let handle = match waker.cloned() {
        Some(waker) => Arc::new(WakingInterruptHandle { inner, waker }),
        None => inner,
    };
    if cancellation.begin_running(handle) { Ok(()) } else { Err(KernelError::Cancelled) }
}
