//! A cell that runs in a session's kernel: its packages, its connections to the host, and its result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::activity::trace::SpanName;
use belljar_core::kernel::{CellError, CellObserver, CellRequest, KernelError};
use belljar_core::{
    CellResult, CellStatus, CellStep, EncodedValue, InstallRecord, Outcome, OutputCollector, Progress, Stream,
    TOOLS_MODULE, Waker,
};
use belljar_packages::{Dependencies, GeneralHint as _, Requirement, shorten_message};
use serde_json::Value;
use serde_json::value::RawValue;

use super::exchange::{self, RunCalls};
use super::held_cell::{HeldCell, SleepingCell};
use super::kernel_interpreter::KernelInterpreter;
use super::policy;
use super::runtime::PythonRuntime;
use super::session_calls::{DisplayHandler, InputHandler, NoCellRunning};
use super::session_kernel::{WasmKernel, exit_reason};
use super::wait_clock::WaitClock;
use crate::guest_protocol::ShellCell;
use crate::host_calls::HostCall;
use crate::install::{CellPackages, RuntimeInstaller, pip_installs, record_of_missing};
use crate::network::{self, ObservedConnections};
use crate::steps::Step;

/// A cell that has begun.
pub(super) struct RunningCell {
    pub(super) observer: Arc<dyn CellObserver>,
    pub(super) outputs: OutputCollector,
    pub(super) installer: Arc<RuntimeInstaller>,
    /// The packages that the cell imports.
    pub(super) tried: Vec<String>,
    /// The calls of functions of the host that the cell can make.
    pub(super) calls: Option<RunCalls>,
    /// False if the cell exchanges values with a caller that only this process has.
    pub(super) is_resumable: bool,
    pub(super) clock: WaitClock,
    /// Set if the cell is recorded.
    pub(super) held: Option<Arc<HeldCell>>,
}

impl WasmKernel {
    /// Prepares the interpreter for a cell: its packages, its streams and its calls of the host.
    ///
    /// # Errors
    /// The result of a cell that cannot begin.
    pub(super) fn prepare(
        &mut self,
        cell: &CellRequest,
        observer: Arc<dyn CellObserver>,
        waker: Option<&Waker>,
    ) -> Result<RunningCell, CellResult> {
        let outputs = OutputCollector::new(observer.clone());
        if let Err(error) = self.set_network(cell.network.as_ref()) {
            let error = CellError { name: "ValueError".into(), message: error.to_string(), traceback: Vec::new() };
            let (execution_count, status) = (self.execution_count, CellStatus::Error(error));
            return Err(CellResult { execution_count, status, outputs: outputs.take() });
        }
        let installer = self.installer(&observer);
        // A feed asks its parent for modules before it installs packages.
        let tried = match cell.monty {
            None => {
                let tried = self.install_imports(&installer, cell, &*observer, &outputs);
                self.prepare_pip_installs(&installer, &cell.code, &observer);
                tried
            }
            Some(_) => Vec::new(),
        };
        observer.on_stage(SpanName::Run);
        let exchange = cell.exchange.as_ref();
        let is_resumable = exchange.is_none_or(|exchange| exchange.is_resumable);
        let limits = self.backend.session_limits();
        let recorder = self.recorder.take().filter(|_| is_resumable);
        let held = recorder.map(|recorder| Arc::new(HeldCell::new(recorder, limits, cell.timeout)));
        let scrubber = self.backend.shared.scrubber();
        let calls = self.interpreter.begin_exchange(exchange, cell.tools, &observer, waker, held.clone(), &scrubber);
        let calls = match calls {
            Ok(calls) => calls,
            Err(error) => {
                let error = CellError { name: "OSError".into(), message: error.to_string(), traceback: Vec::new() };
                let status = CellStatus::Error(error);
                return Err(CellResult { execution_count: self.execution_count, status, outputs: outputs.take() });
            }
        };
        let input = InputHandler { observer: observer.clone(), held: held.clone(), calls: calls.clone(), scrubber };
        self.connect(&outputs, &installer, input, waker);
        let limits = limits.with_timeout(cell.timeout);
        self.interpreter.set_wall_time(limits.wall_time);
        let clock = WaitClock::new(&limits, cell.timeout);
        if let Some(held) = &held {
            held.set_packages(installer.packages().wheel_ids().cloned().collect(), tried.clone());
            let saver = Arc::new(SleepingCell { held: held.clone(), calls: calls.clone() });
            self.interpreter.start_recording(held.recorder.max_bytes, saver);
            held.begin_step(Duration::ZERO);
        }
        Ok(RunningCell { observer, outputs, installer, tried, calls, is_resumable, clock, held })
    }

    /// Sets the network policy of the session, if a cell has one.
    ///
    /// # Errors
    /// Fails if `given` is not a policy, or the session has another policy or has run cells without one.
    fn set_network(&mut self, given: Option<&Value>) -> Result<(), KernelError> {
        let Some(given) = given.filter(|given| self.network.as_ref() != Some(given)) else { return Ok(()) };
        policy(given)?;
        if self.network.is_some() || self.execution_count > 0 {
            return Err(KernelError::InvalidNetwork("the first cell of a session sets its policy".into()));
        }
        self.network = Some(given.clone());
        Ok(())
    }

    /// Returns the installer of a cell.
    pub(super) fn installer(&self, observer: &Arc<dyn CellObserver>) -> Arc<RuntimeInstaller> {
        let PythonRuntime { python, installer, .. } = &self.session_runtime.runtime;
        let progress: Arc<dyn Progress> = observer.clone();
        let installer = RuntimeInstaller::with_packages(python, self.packages.clone(), installer.clone(), progress);
        Arc::new(installer.with_observer(observer.clone()))
    }

    /// Connects the interpreter's streams and host calls to a cell.
    pub(super) fn connect(
        &mut self,
        outputs: &OutputCollector,
        installer: &Arc<RuntimeInstaller>,
        input: InputHandler,
        waker: Option<&Waker>,
    ) {
        let scrubber = self.backend.shared.scrubber();
        self.interpreter.redirect(outputs);
        if let KernelInterpreter::Isolated(session) = &self.interpreter {
            installer.limit_to(session.packages.clone());
        }
        self.interpreter.register_host_call("install", installer.clone());
        self.interpreter.register_host_call("show", Arc::new(DisplayHandler { collector: outputs.clone(), scrubber }));
        let observer = input.observer.clone();
        self.interpreter.register_host_call("input", Arc::new(input));
        let interpreter = self.interpreter.network_client();
        match (&self.backend.shared.network, &self.connections) {
            (Some(network), Some(connections)) => {
                connections.set_observer(Arc::new(ObservedConnections(observer)));
                connections.start_run();
                network::connect(interpreter, network, connections, waker);
            }
            _ => {
                let narrowed = self.network.as_ref();
                let attached = self.backend.shared.attach_network(interpreter, narrowed, &observer, waker);
                // The policy was read before, and a damaged one in a saved session allows nothing.
                self.connections = attached.unwrap_or_else(|error| {
                    tracing::warn!(%error, "a session has no network");
                    None
                });
            }
        }
    }

    /// Ends a cell whose code has ended.
    pub(super) fn complete(&mut self, running: RunningCell, result: Result<ShellCell, Outcome>) -> CellResult {
        let RunningCell { observer, outputs, installer, tried, calls, is_resumable: _, clock, held: _ } = running;
        self.interpreter.stop_recording();
        self.interpreter.wait_for_connection_records();
        // The handlers hold the cell's output and its observer.
        self.interpreter.end_cell();
        let refusal: Arc<dyn HostCall> = Arc::new(NoCellRunning);
        for name in ["install", "show", "input"] {
            self.interpreter.register_host_call(name, refusal.clone());
        }
        if calls.is_some() {
            self.interpreter.end_calls(&refusal);
        }
        if let Ok(ShellCell { value: Some(value), .. }) = &result {
            let shared = &self.backend.shared;
            let files = self.interpreter.value_files();
            let buffers = exchange::take_buffers(files, shared.limits.value, &shared.scrubber());
            match RawValue::from_string(value.clone()) {
                Ok(json) => observer.on_value(EncodedValue { json, buffers }),
                Err(error) => tracing::debug!(%error, "a cell's value is not JSON"),
            }
        }
        if let Ok(ShellCell { missing_module: Some(module), .. }) = &result {
            self.install_missing(&installer, module, &tried, &*observer, &outputs);
        }
        self.packages = self.interpreter.packages_after(&installer);
        if let KernelInterpreter::Isolated(session) = &mut self.interpreter {
            session.packages = self.packages.clone();
        }
        self.session_runtime.runtime.python.compile_imported_in_background(&self.packages);
        // A cell that the shell did not finish has no number of its own.
        let last = self.execution_count;
        self.execution_count = result.as_ref().map_or(last.saturating_add(1), |cell| cell.execution_count.max(last));
        let status = match result {
            Ok(ShellCell { error: None, .. }) => CellStatus::Ok,
            Ok(ShellCell { error: Some(error), .. }) => match clock.expired() {
                Some((after, waited)) if error.name == "KeyboardInterrupt" => {
                    CellStatus::TimedOut { after, waited, traceback: error.traceback }
                }
                _ => CellStatus::Error(error),
            },
            Err(outcome) => CellStatus::KernelDied(exit_reason(outcome)),
        };
        CellResult { execution_count: self.execution_count, status, outputs: outputs.take() }
    }

    pub(super) fn after_step(&mut self, mut running: RunningCell, step: Result<Step<ShellCell>, Outcome>) -> CellStep {
        match step {
            Ok(Step::Waiting(wait)) => {
                let wait = running.clock.begin_wait(wait);
                self.running = Some(running);
                CellStep::Waiting(wait)
            }
            Ok(Step::Completed(cell)) => CellStep::Completed(self.complete(running, Ok(cell))),
            Err(_) if running.held.as_ref().is_some_and(|held| held.is_suspended()) => CellStep::Suspended,
            Err(outcome) => match self.interpreter.divergence() {
                Some(reason) => CellStep::Failed(KernelError::Failed(
                    format!("the code cannot be continued, since it does not do what it did before: {reason}").into(),
                )),
                None => CellStep::Completed(self.complete(running, Err(outcome))),
            },
        }
    }

    /// Installs the packages that the cell imports, and returns their names. A failure is reported in the cell's
    /// output, and the cell runs anyway: it may not reach the import.
    fn install_imports(
        &mut self,
        installer: &RuntimeInstaller,
        cell: &CellRequest,
        observer: &dyn CellObserver,
        outputs: &OutputCollector,
    ) -> Vec<String> {
        let runtime = &self.session_runtime.runtime;
        let mut modules = self.interpreter.local_modules();
        if cell.tools {
            modules.push(TOOLS_MODULE.into());
        }
        let needs = runtime.python.needs_of_cell(&cell.code, &self.packages, &modules, &*runtime.installer);
        let mut names = Vec::new();
        let begin = Instant::now();
        let installed = needs.and_then(|needs| {
            if needs.is_empty() {
                return Ok(CellPackages::default());
            }
            names.extend(needs.required().chain(&needs.optional).map(|requirement| requirement.name().to_owned()));
            observer.on_stage(SpanName::Image);
            self.interpreter.install(installer, &needs, observer)
        });
        let report_failure = |reason: &str| notify(&format!("[not installed: {reason}]\n"), observer, outputs);
        match installed {
            Ok(CellPackages { installed, refused, missing }) => {
                refused.iter().for_each(|reason| report_failure(reason));
                if !installed.is_empty() {
                    observer.on_install(&InstallRecord::succeeded(&installed, begin));
                }
                let missing = missing.iter().map(|missing| (&*missing.name, &*missing.reason));
                if let Some(record) = record_of_missing(missing, begin) {
                    observer.on_install(&record);
                }
            }
            Err(error) => {
                report_failure(&error.with_general_hint());
                observer.on_install(&InstallRecord::failed(names.join(", "), &error, begin));
            }
        }
        names
    }

    /// Gives an interpreter in a process of its own the packages that the cell installs by pip, as far as that is
    /// written out: it cannot have others once the code runs. The cell itself reports what is wrong with them.
    fn prepare_pip_installs(&mut self, installer: &RuntimeInstaller, code: &str, observer: &Arc<dyn CellObserver>) {
        let KernelInterpreter::Isolated(session) = &mut self.interpreter else { return };
        let lines = pip_installs(code);
        if lines.is_empty() {
            return;
        }
        observer.on_stage(SpanName::Image);
        let PythonRuntime { python, installer: source, .. } = &self.session_runtime.runtime;
        let progress: Arc<dyn Progress> = observer.clone();
        // One that has not reported the packages.
        let preparation = RuntimeInstaller::with_packages(python, installer.packages(), source.clone(), progress);
        let preparation = preparation.in_preparation();
        let mut prepare = |requirements: Vec<Requirement>| {
            let needs = Dependencies { requirements, ..Dependencies::default() };
            session.install(&preparation, &needs, &**observer)
        };
        let all_at_once = prepare(lines.concat());
        if all_at_once.is_err() && lines.len() > 1 {
            for line in lines {
                if let Err(error) = prepare(line) {
                    tracing::debug!(%error, "the packages of a line are not prepared");
                }
            }
        }
    }

    /// Installs the package without which a cell failed, if any, for running the cell again. The cell's output
    /// reports it. `module` is the name that the guest gave; `tried` are the packages that the cell imports itself.
    fn install_missing(
        &mut self,
        installer: &RuntimeInstaller,
        module: &str,
        tried: &[String],
        observer: &dyn CellObserver,
        outputs: &OutputCollector,
    ) {
        let PythonRuntime { python, installer: source, .. } = &self.session_runtime.runtime;
        let modules = self.interpreter.local_modules();
        let inferred = python.package_of_missing_module(module, &installer.packages(), &modules, &**source);
        let Some(inferred) = inferred else { return };
        if tried.iter().any(|name| name == inferred.requirement.name()) {
            return;
        }
        let name = inferred.requirement.name().to_owned();
        let needs = Dependencies { inferred: vec![inferred], ..Dependencies::default() };
        let begin = Instant::now();
        let text = match self.interpreter.install(installer, &needs, observer) {
            Ok(CellPackages { installed, .. }) if !installed.is_empty() => {
                observer.on_install(&InstallRecord::succeeded(&installed, begin));
                format!("[installed {installed}, which provides {module}: run the cell again]\n")
            }
            result => {
                let reason = match result {
                    Ok(CellPackages { refused, .. }) => refused.into_iter().next(),
                    Err(error) => Some(shorten_message(&error.with_general_hint())),
                };
                let reason = reason.unwrap_or_else(|| format!("no package provides {module}"));
                observer.on_install(&InstallRecord::failed(name, &reason, begin));
                format!("[not installed: {reason}]\n")
            }
        };
        notify(&text, observer, outputs);
    }
}

/// Adds a message of Belljar's own to a cell's output.
fn notify(text: &str, observer: &dyn CellObserver, outputs: &OutputCollector) {
    observer.on_stream(Stream::Stderr, text.as_bytes());
    outputs.push_notice(text);
}
