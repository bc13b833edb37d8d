//! The packages that code imports: finds those that are missing before the code runs, installs them, and explains what
//! is not installed. The helper cells are in `guest/belljar_kernel/one_shot.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::activity::trace::SpanName;
use belljar_core::kernel::{CellError, CellObserver, CellRequest, NullObserver};
use belljar_core::{CellResult, CellStatus, Limits, Output, Stream, TOOLS_MODULE};
use belljar_packages::{AvailableModules, Dependencies, GeneralHint as _, InferredDependency, Requirement};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::linux::kernel::NativeKernel;
use crate::linux::missing_dependency::missing_module;
use crate::linux::pip_installer::{self, InstallError, InstalledPackages};

/// The time for a helper cell. The first one of a kernel compiles and imports its module, which on a busy machine takes
/// seconds. A value that is not rendered in time is missing in the result.
const HELPER_CELL_TIMEOUT: Duration = Duration::from_secs(30);
/// The MIME type of a helper cell's result.
const RESULT_MIME_TYPE: &str = "application/vnd.belljar.result+json";

/// The modules that a session has looked for.
#[derive(Default)]
pub(crate) struct KnownModules {
    /// Those that can be imported.
    present: BTreeSet<String>,
    /// Those whose packages could not be installed, and the reasons. They are not tried again.
    missing: BTreeMap<String, String>,
}

/// Runs a cell of a session, whose Python is `python_version`. Packages that it imports are installed before.
pub(crate) fn execute(
    kernel: &mut NativeKernel,
    python_version: &str,
    cell: &CellRequest,
    observer: Arc<dyn CellObserver>,
) -> CellResult {
    let mut note = String::new();
    if kernel.can_install() && !installs_itself(&cell.code) {
        match install_for_cell(kernel, python_version, cell, &*observer) {
            Ok(text) => note = text,
            Err(InstallError::Cancelled) if !kernel.is_killed() => return interrupted(kernel),
            // Running the cell reports the kill.
            Err(InstallError::Cancelled) => {}
            Err(error) => note = not_installed(&kernel.with_install_hint(&error)),
        }
    }
    if !note.is_empty() {
        observer.on_stream(Stream::Stderr, note.as_bytes());
    }
    let mut result = kernel.run_cell(cell, observer.clone());
    if let CellStatus::Error(error) = &mut result.status
        && let Some(module) = missing_module(error, kernel, &*observer)
        && let Some(reason) = explain_missing_module(kernel, python_version, &module)
    {
        error.traceback.push(reason);
    }
    if !note.is_empty() {
        result.outputs.insert(0, Output::Text { stream: Stream::Stderr, text: note });
    }
    result
}

/// Returns whether the code installs packages itself by a magic or a shell command, perhaps in versions that differ
/// from the newest.
fn installs_itself(code: &str) -> bool {
    code.lines().map(str::trim_start).any(|line| line.starts_with(['%', '!']) && line.contains("pip install"))
}

fn not_installed(reason: &str) -> String {
    format!("[not installed: {reason}]\n")
}

/// Returns the result of a cell that was interrupted while its packages were installed.
fn interrupted(kernel: &NativeKernel) -> CellResult {
    let error = CellError {
        name: "KeyboardInterrupt".into(),
        message: "the installation of packages was interrupted".into(),
        traceback: vec!["KeyboardInterrupt: the installation of packages was interrupted".into()],
    };
    CellResult { execution_count: kernel.next_execution_count(), status: CellStatus::Error(error), outputs: Vec::new() }
}

/// Installs what a cell needs. Returns the note for its output.
fn install_for_cell(
    kernel: &mut NativeKernel,
    python_version: &str,
    cell: &CellRequest,
    observer: &dyn CellObserver,
) -> Result<String, InstallError> {
    let mut needs = match Dependencies::from_code(&cell.code, &AvailableModules::for_python_version(python_version)) {
        Ok(needs) if cell.tools => without_tools(needs),
        Ok(needs) => needs,
        Err(error) => return Ok(not_installed(&error.with_general_hint())),
    };
    let known = &kernel.known_modules;
    needs
        .inferred
        .retain(|inferred| !known.present.contains(&inferred.module) && !known.missing.contains_key(&inferred.module));
    if needs.requirements.is_empty() && needs.inferred.is_empty() {
        return Ok(String::new());
    }
    observer.on_stage(SpanName::Image);
    let packages = CallPackages::install(&needs, kernel, observer)?;
    let is_missing = |module: &String| packages.missing.contains_key(module);
    let present = needs.inferred.iter().map(|inferred| inferred.module.clone()).filter(|module| !is_missing(module));
    kernel.known_modules.present.extend(present);
    kernel.known_modules.missing.extend(packages.missing);
    Ok(packages
        .installed_now
        .summary(&packages.installed)
        .map_or_else(String::new, |text| format!("[installed {text}]\n")))
}

/// Returns the needs without the module `tools`, which the guest provides.
pub(crate) fn without_tools(mut needs: Dependencies) -> Dependencies {
    needs.inferred.retain(|inferred| inferred.module.split('.').next() != Some(TOOLS_MODULE));
    needs
}

/// Returns why a module's package is not installed, or how to install it.
fn explain_missing_module(kernel: &NativeKernel, python_version: &str, missing: &str) -> Option<String> {
    if let Some((module, reason)) = kernel.known_modules.missing.iter().find(|(module, _)| is_part_of(missing, module))
    {
        return Some(cannot_be_installed(module, reason));
    }
    let available = AvailableModules::for_python_version(python_version);
    let needs = Dependencies::from_code(&format!("import {missing}"), &available).ok()?;
    let package = needs.inferred.first()?.requirement.name();
    Some(if kernel.can_install() {
        format!("hint: `%pip install {package}` installs it, if that is the name of its package")
    } else {
        format!("{missing} is not installed, and this session installs no packages: use those that are there")
    })
}

/// Returns whether a `ModuleNotFoundError` about `missing` may be due to `module`: `import a.b` reports `a` if `a` is
/// missing.
fn is_part_of(missing: &str, module: &str) -> bool {
    module == missing || module.strip_prefix(missing).is_some_and(|rest| rest.starts_with('.'))
}

fn cannot_be_installed(module: &str, reason: &str) -> String {
    format!("{module} cannot be installed: {reason}")
}

/// Calls a function of `one_shot.py` as a cell that is not recorded.
pub(crate) fn run_helper(kernel: &mut NativeKernel, call: &str, observer: &dyn CellObserver) -> CellResult {
    let code = format!("__import__('belljar_kernel.one_shot', fromlist=['one_shot']).{call}");
    let timeout = Some(HELPER_CELL_TIMEOUT);
    let cell = CellRequest { code, timeout, store_history: false, ..CellRequest::default() };
    let result = kernel.run_helper_cell(&cell, Arc::new(NullObserver));
    if let Some(error) = result.status.error(&Limits::default()) {
        observer.on_debug(&error.to_string());
    }
    result
}

/// Calls a function of `one_shot.py` and returns the result that it displays. The guest made the result, so it may be
/// missing or malformed.
pub(crate) fn eval_helper<T: DeserializeOwned>(
    kernel: &mut NativeKernel,
    call: &str,
    observer: &dyn CellObserver,
) -> Option<T> {
    let result = run_helper(kernel, call, observer);
    let value = result.outputs.iter().find_map(|output| match output {
        Output::Display(bundle) => bundle.get(RESULT_MIME_TYPE),
        _ => None,
    })?;
    T::deserialize(value).ok()
}

/// The packages of one call.
pub(crate) struct CallPackages {
    /// The names of the installed packages that the call, or its code, asks for.
    pub(crate) installed: Vec<String>,
    /// The packages that were installed for it, with those that they depend on.
    installed_now: InstalledPackages,
    /// The reasons why packages that imports hint at are not installed, by module.
    missing: BTreeMap<String, String>,
    /// True if the code declares its packages in a metadata block.
    pub(crate) are_declared: bool,
}

impl CallPackages {
    /// Installs what the environment lacks, within the time limit of one installation. A module that code imports only
    /// if it exists is not an error.
    ///
    /// # Errors
    /// Returns an error if a package is not installed that the code, or the call, requires, or if the installation was
    /// cancelled.
    pub(crate) fn install(
        needs: &Dependencies,
        kernel: &mut NativeKernel,
        observer: &dyn CellObserver,
    ) -> Result<Self, InstallError> {
        let deadline = Instant::now() + kernel.install_timeout();
        let mut packages = Self {
            installed: names(needs.requirements.iter()),
            installed_now: InstalledPackages::default(),
            missing: BTreeMap::new(),
            are_declared: needs.is_declared,
        };
        if !needs.requirements.is_empty() {
            let installed = install(&needs.requirements, kernel, observer, deadline)?;
            packages.installed_now.extend(installed);
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
        if all.is_empty() {
            return Ok(packages);
        }
        match install(&all, kernel, observer, deadline) {
            Ok(installed) => {
                packages.installed.extend(names(all.iter()));
                packages.installed_now.extend(installed);
            }
            Err(InstallError::Cancelled) => return Err(InstallError::Cancelled),
            Err(error) => packages.install_each(&missing, error, kernel, observer, deadline)?,
        }
        Ok(packages)
    }

    /// Installs packages one by one after all of them together failed. The one at fault may be a module that the code
    /// creates, or misspells.
    fn install_each(
        &mut self,
        missing: &[&InferredDependency],
        mut error: InstallError,
        kernel: &mut NativeKernel,
        observer: &dyn CellObserver,
        deadline: Instant,
    ) -> Result<(), InstallError> {
        for inferred in missing {
            // After a timeout there is no time left for the others.
            if missing.len() > 1 && Instant::now() < deadline {
                match install(std::slice::from_ref(&inferred.requirement), kernel, observer, deadline) {
                    Ok(installed) => {
                        self.installed.push(inferred.requirement.name().to_owned());
                        self.installed_now.extend(installed);
                        continue;
                    }
                    Err(InstallError::Cancelled) => return Err(InstallError::Cancelled),
                    Err(other) => error = other,
                }
            }
            let reason = kernel.with_install_hint(&error);
            observer.on_debug(&format!("{}: {reason}", inferred.module));
            self.missing.insert(inferred.module.clone(), reason);
        }
        Ok(())
    }

    /// Returns why the package of a missing module is not installed; an empty text if that was not tried.
    pub(crate) fn explain(&self, missing: &str) -> String {
        let about = self.missing.iter().filter(|(module, _)| is_part_of(missing, module));
        about.map(|(module, reason)| format!("{}\n", cannot_be_installed(module, reason))).collect()
    }

    /// Returns why the package of a module that was imported is not installed.
    pub(crate) fn reason(&self, module: &str) -> Option<&str> {
        self.missing.get(module).map(String::as_str)
    }

    /// Adds packages that were installed later. Returns whether there are any.
    pub(crate) fn extend(&mut self, later: Self) -> bool {
        let is_extended = !later.installed.is_empty();
        self.installed.extend(later.installed);
        self.installed_now.extend(later.installed_now);
        is_extended
    }
}

/// Returns the packages of `inferred` that are not installed, or all of them if the kernel does not answer.
fn missing_packages<'a>(
    inferred: &'a [InferredDependency],
    kernel: &mut NativeKernel,
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
    kernel: &mut NativeKernel,
    observer: &dyn CellObserver,
    deadline: Instant,
) -> Result<InstalledPackages, InstallError> {
    let packages: Vec<String> = requirements.iter().map(ToString::to_string).collect();
    let begin = Instant::now();
    let installed = kernel.install_until(&packages, observer, deadline);
    pip_installer::report(&installed, &packages, begin, observer);
    installed
}

fn names<'a>(requirements: impl Iterator<Item = &'a Requirement>) -> Vec<String> {
    requirements.map(|requirement| requirement.name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_installs_itself_is_found() {
        for code in ["%pip install a", "x = 1\n  !pip install a", "!python -m pip install a==1"] {
            assert!(installs_itself(code), "{code}");
        }
        for code in ["# pip install a\nimport a", "print('use %pip install a')", "%timeit f()"] {
            assert!(!installs_itself(code), "{code}");
        }
    }

    #[test]
    fn submodule_of_a_missing_module_is_part_of_it() {
        assert!(is_part_of("a", "a") && is_part_of("a", "a.b") && !is_part_of("a.b", "a") && !is_part_of("a", "ab"));
    }
}
