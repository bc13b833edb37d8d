//! Inference of a piece of code's dependencies from its source, without running it.

pub(crate) mod distributions;
mod imports;
mod pip_calls;
mod script_block;
mod standard_library;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::str::FromStr;
use std::sync::Arc;

use uv_pep440::{Version, VersionSpecifiers};

use crate::error::GeneralHint;
use crate::platform::Platform;
use crate::pyodide::PyodideLock;
use crate::requirement::{Requirement, RequirementError, truncate_for_message};
use distributions::NamespaceMatch;
use imports::ImportScope;
pub use pip_calls::{PipCall, pip_calls};

/// Modules that no package provides: the program itself, and Pyodide's interface to the browser.
const NOT_PACKAGES: [&str; 5] = ["__main__", "_pyodide", "js", "pyodide", "pyodide_js"];

/// The packages that a piece of code depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Explicit requirements, from the code's metadata or from its caller.
    pub requirements: Vec<Requirement>,
    /// Packages inferred from imports. If such a package does not exist, the module may be one that the code creates.
    pub inferred: Vec<InferredDependency>,
    /// Packages inferred from imports that the code can do without.
    pub optional: Vec<Requirement>,
    /// The imported modules outside of the standard library, in dotted form and sorted, as candidates for preloading.
    pub imports: Vec<String>,
    /// True if the code has a metadata block, which declares all packages that it needs.
    pub is_declared: bool,
}

/// A module that a source imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedModule {
    /// The number of leading dots: 0 for an absolute import.
    pub level: u32,
    /// The dotted name after them, which may be empty. Its last part may be an attribute of the module before it.
    pub name: String,
}

/// Returns the modules that a source imports, at any depth. A source with a syntax error imports none.
pub fn imported_modules(source: &str) -> Vec<ImportedModule> {
    imported_within(source, ImportScope::All)
}

/// Returns the modules that importing a module imports, as far as its source shows: those at any depth, except for the
/// bodies of functions.
pub fn modules_imported_on_import(source: &str) -> Vec<ImportedModule> {
    imported_within(source, ImportScope::Module)
}

fn imported_within(source: &str, scope: ImportScope) -> Vec<ImportedModule> {
    let imports = imports::all_from_source(source, scope).unwrap_or_default();
    let absolute = imports.absolute.into_keys().map(|name| ImportedModule { level: 0, name });
    absolute.chain(imports.relative.into_iter().map(|(level, name)| ImportedModule { level, name })).collect()
}

/// A package inferred from an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferredDependency {
    /// The package, in any version.
    pub requirement: Requirement,
    /// The first imported module that the package is expected to provide, in dotted form.
    pub module: String,
}

/// An error in the metadata with which a script declares its dependencies.
#[derive(Debug, thiserror::Error)]
pub enum DependencyError {
    /// The metadata block is malformed.
    #[error("failed to read the script's metadata block (PEP 723): {reason}")]
    Block {
        /// The reason.
        reason: String,
    },

    /// The script requires another Python version.
    #[error("the script requires Python {required}, but this is Python {present}")]
    Python {
        /// The value of `requires-python`.
        required: String,
        /// The guest's version.
        present: String,
    },

    /// A dependency of the script is refused.
    #[error(transparent)]
    Requirement(#[from] RequirementError),
}

impl GeneralHint for DependencyError {
    fn general_hint(&self) -> Option<String> {
        match self {
            DependencyError::Block { .. } => {
                Some("write it as\n# /// script\n# dependencies = [\"rich\"]\n# ///".to_owned())
            }
            DependencyError::Python { present, .. } => {
                Some(format!("change `requires-python` if the script runs with {present} as well"))
            }
            DependencyError::Requirement(error) => error.general_hint(),
        }
    }
}

/// The interpreter that code is going to run in: its version and the modules that it can import without installing.
#[derive(Debug, Clone)]
pub struct AvailableModules {
    python: String,
    modules: HashSet<String>,
    lock: Option<Arc<PyodideLock>>,
}

impl AvailableModules {
    /// Creates an interpreter of a platform with its standard library.
    pub fn new(platform: &Platform) -> Self {
        Self::for_python_version(&platform.python_full_version())
    }

    /// Creates an interpreter of a version (`3.13.1`) with its standard library.
    pub fn for_python_version(version: &str) -> Self {
        AvailableModules { python: version.to_owned(), modules: HashSet::new(), lock: None }
    }

    /// Adds modules that can be imported already: those of installed packages, of the session's own files, of the
    /// guest. A dotted name adds only that part of a package.
    #[must_use]
    pub fn with_modules<M: Into<String>>(mut self, modules: impl IntoIterator<Item = M>) -> Self {
        self.modules.extend(modules.into_iter().map(Into::into));
        self
    }

    /// Adds the mapping from modules to packages of Pyodide's lock.
    #[must_use]
    pub(crate) fn with_lock(mut self, lock: Option<Arc<PyodideLock>>) -> Self {
        self.lock = lock;
        self
    }

    /// Returns whether a module can be imported without installing anything.
    fn contains(&self, module: &str) -> bool {
        if in_standard_library(module) {
            return true;
        }
        // Only listed names and their submodules count: other parts of the same namespace package may be missing.
        let mut prefix = module;
        loop {
            if self.modules.contains(prefix) {
                return true;
            }
            match prefix.rsplit_once('.') {
                Some((parent, _)) => prefix = parent,
                None => return false,
            }
        }
    }

    /// Returns the distribution that provides a module: according to Pyodide's lock, else the reviewed table, else the
    /// distribution with the module's own name.
    fn distribution_of(&self, module: &str) -> Option<String> {
        let top = module.split('.').next().unwrap_or(module);
        match distributions::namespace_distribution(module) {
            NamespaceMatch::None => {}
            NamespaceMatch::Ambiguous => return None,
            NamespaceMatch::Distribution(name) => {
                return Some(distributions::reviewed_distribution(module).map_or(name, str::to_owned));
            }
        }
        let locked = self.lock.as_ref().and_then(|lock| lock.distribution_of(top));
        Some(locked.or_else(|| distributions::reviewed_distribution(module)).unwrap_or(top).to_owned())
    }
}

/// Returns whether a module, given by its dotted name, is part of Python 3.14's standard library or is a module that no
/// package provides.
pub fn in_standard_library(module: &str) -> bool {
    let top = module.split('.').next().unwrap_or(module);
    standard_library::MODULES.binary_search(&top).is_ok() || NOT_PACKAGES.contains(&top)
}

fn check_python(required: &str, present: &str) -> Result<(), DependencyError> {
    let specifiers = VersionSpecifiers::from_str(required).map_err(|_| DependencyError::Block {
        reason: format!("`{}` is not a valid `requires-python`", truncate_for_message(required)),
    })?;
    let version = Version::from_str(present)
        .map_err(|error| DependencyError::Block { reason: format!("invalid Python version {present}: {error}") })?;
    // A pre-release of 3.15 satisfies a requirement of 3.15.
    match specifiers.contains(&version) || specifiers.contains(&version.only_release()) {
        true => Ok(()),
        false => Err(DependencyError::Python { required: required.to_owned(), present: present.to_owned() }),
    }
}

impl Dependencies {
    /// Infers the dependencies of a source: those of its PEP 723 block if it has one, else the packages of its imports.
    /// A source with a syntax error has no dependencies, since Python will reject it.
    pub fn from_code(source: &str, available: &AvailableModules) -> Result<Self, DependencyError> {
        let block = script_block::read(source)?;
        let found = imports::from_source(source).unwrap_or_default();
        let imports = found
            .iter()
            .filter(|(module, import)| !import.may_be_attribute && !in_standard_library(module))
            .map(|(module, _)| module.clone())
            .collect();
        if let Some(block) = block {
            if let Some(required) = &block.requires_python {
                check_python(required, &available.python)?;
            }
            let requirements =
                block.dependencies.iter().map(|text| Requirement::parse(text)).collect::<Result<_, _>>()?;
            return Ok(Dependencies { requirements, imports, is_declared: true, ..Dependencies::default() });
        }
        let mut needed = BTreeMap::new();
        for (module, import) in &found {
            // `from a import b` may import the module `a.b`. That matters only if `a` is a namespace package.
            let top = module.split('.').next().unwrap_or(module);
            if import.may_be_attribute
                && !matches!(distributions::namespace_distribution(top), NamespaceMatch::Ambiguous)
            {
                continue;
            }
            if available.contains(module) {
                continue;
            }
            let Some(distribution) = available.distribution_of(module) else { continue };
            let Some(requirement) = Requirement::any_version(&distribution) else { continue };
            let new = || (InferredDependency { requirement, module: module.clone() }, true);
            let entry = needed.entry(distribution).or_insert_with(new);
            entry.1 &= import.optional;
        }
        let (optional, inferred): (Vec<_>, Vec<_>) = needed.into_values().partition(|(_, optional)| *optional);
        Ok(Dependencies {
            requirements: Vec::new(),
            inferred: inferred.into_iter().map(|(inferred, _)| inferred).collect(),
            optional: optional.into_iter().map(|(inferred, _)| inferred.requirement).collect(),
            imports,
            is_declared: false,
        })
    }

    /// Adds the dependencies of another source of the same program. A package that one of them declares is not
    /// inferred, and one that one of them requires is not optional.
    #[must_use]
    pub fn merged(mut self, other: Self) -> Self {
        let mut all = std::mem::take(&mut self.requirements);
        all.extend(other.requirements.into_iter().filter(|requirement| !self.requirements.contains(requirement)));
        for inferred in other.inferred {
            if !self.inferred.iter().any(|known| known.requirement == inferred.requirement) {
                self.inferred.push(inferred);
            }
        }
        self.optional.extend(other.optional);
        self.optional.retain(|optional| !self.inferred.iter().any(|inferred| inferred.requirement == *optional));
        self.optional.sort_by(|one, other| one.name().cmp(other.name()));
        self.optional.dedup();
        self.imports.extend(other.imports);
        self.imports.sort();
        self.imports.dedup();
        self.with_requirements(all)
    }

    /// Adds explicit requirements, each of which replaces a dependency of the code on the same package.
    #[must_use]
    pub fn with_requirements(mut self, requirements: impl IntoIterator<Item = Requirement>) -> Self {
        let requirements: Vec<_> = requirements.into_iter().collect();
        let names: BTreeSet<_> = requirements.iter().map(|requirement| requirement.name().to_owned()).collect();
        self.requirements.retain(|requirement| !names.contains(requirement.name()));
        self.inferred.retain(|inferred| !names.contains(inferred.requirement.name()));
        self.optional.retain(|requirement| !names.contains(requirement.name()));
        self.requirements.extend(requirements);
        self
    }

    /// Returns whether there is nothing to install.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && self.inferred.is_empty() && self.optional.is_empty()
    }

    /// Returns the explicit and the inferred requirements.
    pub fn required(&self) -> impl Iterator<Item = &Requirement> {
        self.requirements.iter().chain(self.inferred.iter().map(|inferred| &inferred.requirement))
    }
}

#[cfg(test)]
mod tests;
