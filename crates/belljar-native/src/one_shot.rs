//! Implements `run_once`: runs code in a kernel of its own. Helper cells before and after it, whose code is
//! `guest/belljar_kernel/one_shot.py`, find missing packages, set variables and read the value.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{
    CellError, CellObserver, CellRequest, CompletedRun, Kernel, KernelError, NullObserver, OneShotRequest,
};
use belljar_core::mime::Image;
use belljar_core::{
    CallCancellation, CellResult, CellStatus, ExitReason, ImageCollector, LimitKind, Limits, Outcome, Output,
    PythonError, RunReport, Value,
};
use belljar_packages::{AvailableModules, Dependencies, GeneralHint as _, InferredDependency, Requirement};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::install_broker::InstallHint;
use crate::pip_installer::InstallError;

/// The time for a helper cell.
const HELPER_CELL_TIMEOUT: Duration = Duration::from_secs(10);
/// The MIME type of a helper cell's result.
const RESULT_MIME_TYPE: &str = "application/vnd.belljar.result+json";

/// Runs `request` in `kernel`, whose Python is `python_version`: see
/// [`Backend::run_once`](belljar_core::kernel::Backend::run_once).
pub(crate) fn run(
    kernel: &mut dyn Kernel,
    python_version: &str,
    limits: Limits,
    request: OneShotRequest,
    observer: Arc<dyn CellObserver>,
    cancellation: &CallCancellation,
    install_hint: Option<&InstallHint>,
) -> Result<CompletedRun, KernelError> {
    let OneShotRequest { code, globals, dependencies, timeout } = request;
    let limits = limits.with_timeout(timeout);
    if !cancellation.begin_running(kernel.interrupt_handle()) {
        return Err(KernelError::Cancelled);
    }
    let mut report =
        RunReport { outcome: Outcome::Success(None), dependencies: Vec::new(), images: Vec::new(), limits };
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
    let packages = match CallPackages::install(&needs, kernel, &*observer) {
        Ok(packages) => packages,
        Err(error) => return not_installed(report, with_install_hint(&error, install_hint)),
    };
    report.dependencies.clone_from(&packages.installed);
    if let Some(globals) = &globals {
        // A JSON string is a Python string.
        let text = serde_json::to_string(globals.get()).map_err(|error| KernelError::Failed(error.into()))?;
        let result = run_helper(kernel, &format!("set_globals({text})"), &*observer);
        if let Some(error) = result.status.error(&limits) {
            return Err(KernelError::Failed(format!("the variables could not be set: {error}").into()));
        }
    }
    observer.on_phase("running");
    let cell = CellRequest { code, timeout: limits.wall_time, ..CellRequest::default() };
    let CellResult { execution_count, status, outputs } = kernel.execute(&cell, observer.clone());
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
    report.outcome = match status {
        CellStatus::Ok if has_value => {
            Outcome::Success(render_value(kernel, execution_count, limits.value, &*observer))
        }
        CellStatus::Ok => Outcome::Success(None),
        CellStatus::TimedOut { .. } => Outcome::Exited(ExitReason::Limit(LimitKind::WallTime)),
        CellStatus::KernelDied(reason) => Outcome::Exited(reason),
        CellStatus::Error(CellError { name, message, traceback }) => {
            let traceback = format!("{}\n", traceback.join("\n").trim_end());
            let mut error = PythonError { kind: name, message, traceback };
            packages.explain(&mut error, kernel, &*observer);
            Outcome::Error(error)
        }
    };
    cancellation.finish();
    report.images = images.take();
    Ok(CompletedRun { report, interpreter: Box::new(()) })
}

/// Calls a function of `one_shot.py` as a cell that is not recorded.
fn run_helper(kernel: &mut dyn Kernel, call: &str, observer: &dyn CellObserver) -> CellResult {
    let code = format!("__import__('belljar_kernel.one_shot', fromlist=['one_shot']).{call}");
    let timeout = Some(HELPER_CELL_TIMEOUT);
    let cell = CellRequest { code, timeout, store_history: false, ..CellRequest::default() };
    let result = kernel.execute(&cell, Arc::new(NullObserver));
    if let Some(error) = result.status.error(&Limits::default()) {
        observer.on_debug(&error.to_string());
    }
    result
}

/// Calls a function of `one_shot.py` and returns the result that it displays. The guest made the result, so it may be
/// missing or malformed.
fn eval_helper<T: DeserializeOwned>(kernel: &mut dyn Kernel, call: &str, observer: &dyn CellObserver) -> Option<T> {
    let result = run_helper(kernel, call, observer);
    let value = result.outputs.iter().find_map(|output| match output {
        Output::Display(bundle) => bundle.get(RESULT_MIME_TYPE),
        _ => None,
    })?;
    T::deserialize(value).ok()
}

/// Returns the value of a cell as JSON of at most `max_bytes`.
fn render_value(
    kernel: &mut dyn Kernel,
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
    Some(Value { json: value?, text: text?, strict_json: strict })
}

/// The packages of one call.
struct CallPackages {
    /// The names of the installed packages that the call, or its code, asks for.
    installed: Vec<String>,
    /// The reasons why packages that imports hint at are not installed, by module.
    missing: BTreeMap<String, String>,
}

impl CallPackages {
    /// Installs what the environment lacks. A module that code imports only if it exists is not an error.
    ///
    /// # Errors
    /// Returns an error if a package is not installed that the code, or the call, requires.
    fn install(
        needs: &Dependencies,
        kernel: &mut dyn Kernel,
        observer: &dyn CellObserver,
    ) -> Result<Self, KernelError> {
        let mut packages = Self { installed: names(needs.requirements.iter()), missing: BTreeMap::new() };
        if !needs.requirements.is_empty() {
            install(&needs.requirements, kernel, observer)?;
        }
        let mut missing = missing_packages(&needs.inferred, kernel, observer);
        missing.retain(|inferred| match belljar_packages::lookalike(inferred.requirement.name()) {
            Some(error) => {
                packages.missing.insert(inferred.module.clone(), error.with_general_hint());
                false
            }
            None => true,
        });
        let all: Vec<Requirement> = missing.iter().map(|inferred| inferred.requirement.clone()).collect();
        let failure = if all.is_empty() { None } else { install(&all, kernel, observer).err() };
        match failure {
            None => packages.installed.extend(names(all.iter())),
            Some(error) => packages.install_each(&missing, error.to_string(), kernel, observer),
        }
        Ok(packages)
    }

    /// Installs packages one by one after all of them together failed for `reason`. The one at fault may be a module
    /// that the code creates, or misspells.
    fn install_each(
        &mut self,
        missing: &[&InferredDependency],
        mut reason: String,
        kernel: &mut dyn Kernel,
        observer: &dyn CellObserver,
    ) {
        for inferred in missing {
            if missing.len() > 1 {
                match install(std::slice::from_ref(&inferred.requirement), kernel, observer) {
                    Ok(()) => {
                        self.installed.push(inferred.requirement.name().to_owned());
                        continue;
                    }
                    Err(error) => reason = error.to_string(),
                }
            }
            observer.on_debug(&format!("{}: {reason}", inferred.module));
            self.missing.insert(inferred.module.clone(), reason.clone());
        }
    }

    /// Adds to the last error of the kernel, if it is a `ModuleNotFoundError`, why the module's package is not
    /// installed.
    fn explain(&self, error: &mut PythonError, kernel: &mut dyn Kernel, observer: &dyn CellObserver) {
        #[derive(Deserialize)]
        struct MissingModule {
            module: Option<String>,
        }
        if self.missing.is_empty() {
            return;
        }
        let result: Option<MissingModule> = eval_helper(kernel, "missing_module()", observer);
        let Some(missing) = result.and_then(|result| result.module) else { return };
        for (module, reason) in &self.missing {
            // `import a.b` reports `a` if `a` is missing.
            if *module == missing || module.strip_prefix(&missing).is_some_and(|rest| rest.starts_with('.')) {
                error.traceback.push_str(&format!("{module} cannot be installed: {reason}\n"));
            }
        }
    }
}

/// Returns the packages of `inferred` that are not installed, or all of them if the kernel does not answer.
fn missing_packages<'a>(
    inferred: &'a [InferredDependency],
    kernel: &mut dyn Kernel,
    observer: &dyn CellObserver,
) -> Vec<&'a InferredDependency> {
    #[derive(Deserialize)]
    struct MissingPackages {
        missing: Vec<String>,
    }
    if inferred.is_empty() {
        return Vec::new();
    }
    let pairs: Vec<_> = inferred.iter().map(|inferred| (inferred.requirement.name(), &inferred.module)).collect();
    let Ok(pairs) = serde_json::to_string(&pairs) else { return Vec::new() };
    let result: Option<MissingPackages> = eval_helper(kernel, &format!("missing_packages({pairs})"), observer);
    let is_missing = |inferred: &&InferredDependency| {
        result.as_ref().is_none_or(|result| result.missing.iter().any(|name| name == inferred.requirement.name()))
    };
    inferred.iter().filter(is_missing).collect()
}

fn install(
    requirements: &[Requirement],
    kernel: &mut dyn Kernel,
    observer: &dyn CellObserver,
) -> Result<(), KernelError> {
    let packages: Vec<String> = requirements.iter().map(ToString::to_string).collect();
    kernel.install(&packages, observer)
}

/// Returns the message of an error, followed by the hint for its [`InstallError`] on a line of its own.
fn with_install_hint(error: &KernelError, install_hint: Option<&InstallHint>) -> String {
    let cause = match error {
        KernelError::Install(cause) => cause.downcast_ref::<InstallError>(),
        _ => None,
    };
    match cause.zip(install_hint).and_then(|(cause, hint)| hint(cause)) {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    }
}

fn names<'a>(requirements: impl Iterator<Item = &'a Requirement>) -> Vec<String> {
    requirements.map(|requirement| requirement.name().to_owned()).collect()
}
