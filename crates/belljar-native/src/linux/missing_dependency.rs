//! Packages that a call turns out to lack while its code runs: optional dependencies of the packages that it imports.

use belljar_core::kernel::{CellError, CellObserver};
use belljar_core::{MissingDependency, Obstacle};
use belljar_packages::{AvailableModules, Dependencies};
use serde::Deserialize;

use crate::linux::cell_packages::{CallPackages, eval_helper};
use crate::linux::kernel::NativeKernel;

/// The maximum length of a module's name, in bytes.
const MAX_MODULE: usize = 100;

/// Returns the module without which the last cell failed with `error`. The guest chose the name.
pub(crate) fn missing_module(
    error: &CellError,
    kernel: &mut NativeKernel,
    observer: &dyn CellObserver,
) -> Option<String> {
    #[derive(Deserialize)]
    struct MissingModule {
        module: Option<String>,
    }
    if !matches!(error.name.as_str(), "ImportError" | "ModuleNotFoundError") {
        return None;
    }
    let result: Option<MissingModule> = eval_helper(kernel, "missing_module()", observer);
    let is_name = |name: &String| name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
    result?.module.filter(|name| name.len() <= MAX_MODULE && is_name(name))
}

/// Installs the package of a module without which a call failed, and adds it to `packages`. Returns whether it was
/// installed, so that the code can be run again.
///
/// # Errors
/// Returns the package if the code cannot be run again with it.
pub(crate) fn install(
    module: &str,
    python_version: &str,
    packages: &mut CallPackages,
    has_effects: bool,
    kernel: &mut NativeKernel,
    observer: &dyn CellObserver,
) -> Result<bool, MissingDependency> {
    let available = AvailableModules::for_python_version(python_version);
    let Ok(needs) = Dependencies::from_code(&format!("import {module}"), &available) else { return Ok(false) };
    let Some(inferred) = needs.inferred.first() else { return Ok(false) };
    let package = inferred.requirement.name().to_owned();
    let missing = |obstacle| MissingDependency { module: module.to_owned(), package: package.clone(), obstacle };
    if packages.are_declared {
        return Err(missing(Obstacle::DeclaredByCode));
    }
    if has_effects {
        return Err(missing(Obstacle::Effects));
    }
    let installed = match CallPackages::install(&needs, kernel, observer) {
        Ok(installed) => installed,
        Err(error) => return Err(missing(Obstacle::NotInstallable(kernel.with_install_hint(&error)))),
    };
    if let Some(reason) = installed.reason(module) {
        return Err(missing(Obstacle::NotInstallable(reason.to_owned())));
    }
    Ok(packages.extend(installed))
}
