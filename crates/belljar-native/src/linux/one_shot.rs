//! Implements `run_once`: runs code in a kernel of its own. Helper cells before and after it, whose code is
//! `guest/belljar_kernel/one_shot.py`, find missing packages (`cell_packages`), set variables and read the value.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::activity::trace::SpanName;
use belljar_core::kernel::{CellError, CellObserver, CellRequest, CompletedRun, Kernel, KernelError, OneShotRequest};
use belljar_core::mime::Image;
use belljar_core::{
    CallCancellation, CellResult, CellStatus, ExitReason, ImageCollector, LimitKind, Limits, Outcome, Output,
    PythonError, RunReport, Value,
};
use belljar_packages::{AvailableModules, Dependencies, GeneralHint as _, Requirement};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::linux::cell_packages::{CallPackages, eval_helper, run_helper, without_tools};
use crate::linux::kernel::NativeKernel;
use crate::linux::missing_dependency::{self, missing_module};

/// The maximum number of times that code is run again, each time with another package that it lacked.
const MAX_REPETITIONS: usize = 3;

/// Runs `request` in `kernel`, whose Python is `python_version`: see
/// [`Backend::run_once`](belljar_core::kernel::Backend::run_once). `may_write_mounts` is set if the code can write to
/// directories of the host.
pub(crate) fn run(
    kernel: &mut NativeKernel,
    python_version: &str,
    limits: Limits,
    may_write_mounts: bool,
    request: OneShotRequest,
    observer: Arc<dyn CellObserver>,
    cancellation: &CallCancellation,
) -> Result<CompletedRun, KernelError> {
    let OneShotRequest { code, globals, dependencies, timeout, exchange, tools, network, owner: _, scope: _ } = request;
    if let Some(policy) = &network {
        kernel.narrow_network(policy)?;
    }
    if tools && !kernel.supports_tools() {
        return Err(KernelError::Unsupported("the kernels of this backend cannot call tools".into()));
    }
    if exchange.is_some() {
        return Err(KernelError::Unsupported("native kernels exchange no Python values with their callers".into()));
    }
    let limits = limits.with_timeout(timeout);
    if !cancellation.begin_running(kernel.interrupt_handle()) {
        return Err(KernelError::Cancelled);
    }
    observer.on_stage(SpanName::Image);
    let mut report = RunReport::new(limits);
    let dependencies = dependencies.iter().map(|dependency| Requirement::parse(dependency));
    let dependencies: Vec<Requirement> = dependencies
        .collect::<Result<_, _>>()
        .map_err(|error| KernelError::InvalidDependency(error.with_general_hint().into()))?;
    let not_installed = |mut report: RunReport, reason| {
        report.outcome = Outcome::InstallError(reason);
        Ok(CompletedRun { report, interpreter: Box::new(()) })
    };
    let needs = match Dependencies::from_code(&code, &AvailableModules::for_python_version(python_version)) {
        Ok(needs) => needs.with_requirements(dependencies),
        Err(error) => return not_installed(report, error.with_general_hint()),
    };
    let needs = if tools { without_tools(needs) } else { needs };
    let mut packages = match CallPackages::install(&needs, kernel, &*observer) {
        Ok(packages) => packages,
        Err(error) => return not_installed(report, kernel.with_install_hint(&error)),
    };
    let globals = globals.as_deref();
    let call = Call { code: &code, globals, tools, limits, observer: &observer };
    let (mut result, time) = call.run_cell(kernel, limits.wall_time)?;
    // The time of all attempts together is limited as that of one.
    let mut left = limits.without_time(time);
    for _ in 0..MAX_REPETITIONS {
        let CellStatus::Error(error) = &mut result.status else { break };
        let Some(module) = missing_module(error, kernel, &*observer) else { break };
        let explanation = packages.explain(&module);
        if !explanation.is_empty() {
            error.traceback.push(explanation);
            break;
        }
        let has_effects = may_write_mounts
            || !result.outputs.is_empty()
            || kernel.has_called()
            || kernel.has_used_network()
            || !kernel.files().is_empty();
        match missing_dependency::install(&module, python_version, &mut packages, has_effects, kernel, &*observer) {
            Ok(false) => break,
            Ok(true) => {
                observer.on_stage(SpanName::Restore);
                kernel.restart()?;
                if !cancellation.begin_running(kernel.interrupt_handle()) {
                    return Err(KernelError::Cancelled);
                }
                let (next, time) = call.run_cell(kernel, left.wall_time)?;
                left = left.without_time(time);
                result = next;
            }
            Err(missing) => {
                report.missing_dependency = Some(missing);
                break;
            }
        }
    }
    report.dependencies = packages.installed;
    let CellResult { execution_count, status, outputs } = result;
    let images = ImageCollector::default();
    for output in &outputs {
        if let Output::Display(bundle) | Output::ExecuteResult(bundle) = output
            && let Some(image) = Image::from_bundle(bundle)
            && let Err(error) = images.push(image)
        {
            tracing::debug!(%error, "an image is not shown");
        }
    }
    let has_value = outputs.iter().any(|output| matches!(output, Output::ExecuteResult(_)));
    report.outcome = match with_exit(status, kernel, &*observer) {
        CellStatus::Ok if has_value => {
            Outcome::Success(render_value(kernel, execution_count, limits.value, &*observer))
        }
        CellStatus::Ok => Outcome::Success(None),
        CellStatus::TimedOut { .. } => Outcome::Exited(ExitReason::Limit(LimitKind::WallTime)),
        CellStatus::KernelDied(reason) => Outcome::Exited(reason),
        CellStatus::Error(CellError { name, message, traceback }) => {
            let traceback = format!("{}\n", traceback.join("\n").trim_end());
            Outcome::Error(PythonError { kind: name, message, traceback, missing_module: None })
        }
    };
    kernel.finish_connections();
    cancellation.finish();
    report.images = images.take();
    Ok(CompletedRun { report, interpreter: Box::new(()) })
}

/// The code of a call, and what it runs with.
struct Call<'a> {
    code: &'a str,
    globals: Option<&'a RawValue>,
    /// True if the code can call tools.
    tools: bool,
    limits: Limits,
    observer: &'a Arc<dyn CellObserver>,
}

impl Call<'_> {
    /// Sets the variables and runs the code, for at most `time_limit`. Also returns the time that the code took.
    ///
    /// # Errors
    /// Returns an error if the variables cannot be set.
    fn run_cell(
        &self,
        kernel: &mut NativeKernel,
        time_limit: Option<Duration>,
    ) -> Result<(CellResult, Duration), KernelError> {
        if let Some(globals) = self.globals {
            // A JSON string is a Python string.
            let text = serde_json::to_string(globals.get()).map_err(|error| KernelError::Failed(error.into()))?;
            let result = run_helper(kernel, &format!("set_globals({text})"), &**self.observer);
            if let Some(error) = result.status.error(&self.limits) {
                return Err(KernelError::Failed(format!("the variables could not be set: {error}").into()));
            }
        }
        self.observer.on_phase("running");
        let (code, tools) = (self.code.to_owned(), self.tools);
        let cell = CellRequest { code, timeout: time_limit, tools, ..CellRequest::default() };
        let begin = Instant::now();
        let result = kernel.run_cell(&cell, self.observer.clone());
        Ok((result, begin.elapsed()))
    }
}

/// Replaces the exception of `sys.exit` by the exit status, since a program that is run once ends with it. An exit
/// with a text stays an exception.
fn with_exit(status: CellStatus, kernel: &mut NativeKernel, observer: &dyn CellObserver) -> CellStatus {
    #[derive(Deserialize)]
    struct Exit {
        status: Option<u8>,
    }
    match &status {
        CellStatus::Error(error) if error.name == "SystemExit" => {
            let exit: Option<Exit> = eval_helper(kernel, "exit_status()", observer);
            let code = exit.and_then(|exit| exit.status);
            code.map_or(status, |code| CellStatus::KernelDied(ExitReason::Exit(code.into())))
        }
        _ => status,
    }
}

/// Returns the value of a cell as JSON of at most `max_bytes`.
fn render_value(
    kernel: &mut NativeKernel,
    execution_count: u64,
    max_bytes: u64,
    observer: &dyn CellObserver,
) -> Option<Value> {
    #[derive(Deserialize)]
    struct RenderedValue {
        value: Option<String>,
        text: Option<String>,
        #[serde(default)]
        strict: Option<String>,
    }
    let call = format!("render_value({execution_count}, {max_bytes})");
    let RenderedValue { value, text, strict } = eval_helper(kernel, &call, observer)?;
    // The value is JSON within the JSON of a message: a secret in it has another form there.
    let scrubber = kernel.scrubber();
    let scrub = |text: String| scrubber.scrub_text(&text).into_owned();
    Some(Value { json: scrub(value?), text: scrub(text?), strict_json: strict.map(scrub) })
}
