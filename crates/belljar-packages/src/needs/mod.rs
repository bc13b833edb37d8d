//! What a piece of code needs: which packages, as far as can be told without running it.

pub(crate) mod distributions;
mod imports;
mod script_block;
mod standard_library;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::str::FromStr;
use std::sync::Arc;

use uv_pep440::{Version, VersionSpecifiers};

use crate::platform::Platform;
use crate::pyodide::PyodideLock;
use crate::requirement::{Requirement, RequirementError, shortened};
use distributions::Namespace;

/// Modules that look like packages and are none: the program itself, and the browser's side of Pyodide.
const NOT_PACKAGES: [&str; 5] = ["__main__", "_pyodide", "js", "pyodide", "pyodide_js"];

/// What a piece of code needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// What it, or whoever runs it, says must be there.
    pub requirements: Vec<Requirement>,
    /// What its imports tell that it needs. Where no such package exists, a module may be meant that the code makes.
    pub inferred: Vec<Inferred>,
    /// What it uses if it is there.
    pub optional: Vec<Requirement>,
    /// The modules outside of the standard library that it imports, in dotted form and sorted: what an image for it
    /// may have imported beforehand.
    pub imports: Vec<String>,
}

/// A package that a module is thought to come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inferred {
    /// The package, in any version.
    pub requirement: Requirement,
    /// The module, in dotted form: the first of those that the code imports.
    pub module: String,
}

/// Why the needs of a piece of code cannot be met or told.
#[derive(Debug, thiserror::Error)]
pub enum NeedsError {
    /// The comment that says what a script needs cannot be read.
    #[error(
        "the script's metadata block (PEP 723) cannot be read: {reason}\nhint: write it as\n# /// script\n# dependencies = [\"rich\"]\n# ///"
    )]
    Block {
        /// What is wrong with it.
        reason: String,
    },

    /// The script is for another Python.
    #[error(
        "the script requires Python {required}, and this is Python {present}\nhint: change `requires-python` if the script runs with {present} as well"
    )]
    Python {
        /// What `requires-python` says.
        required: String,
        /// The guest's version.
        present: String,
    },

    /// One of the script's dependencies is refused.
    #[error(transparent)]
    Requirement(#[from] RequirementError),
}

/// What is known of the interpreter that code is to run in.
#[derive(Debug, Clone)]
pub struct Known {
    python: String,
    present: HashSet<String>,
    lock: Option<Arc<PyodideLock>>,
}

impl Known {
    /// An interpreter with its standard library.
    pub fn new(platform: &Platform) -> Self {
        Known { python: platform.python_full_version(), present: HashSet::new(), lock: None }
    }

    /// Another interpreter, by its version: `3.13.1`.
    pub fn python(version: &str) -> Self {
        Known { python: version.to_owned(), present: HashSet::new(), lock: None }
    }

    /// Adds modules that can be imported already: those of installed packages, of the session's own files, those
    /// that the guest provides. Dotted names say that this part is there.
    #[must_use]
    pub fn with_modules<M: Into<String>>(mut self, modules: impl IntoIterator<Item = M>) -> Self {
        self.present.extend(modules.into_iter().map(Into::into));
        self
    }

    /// Adds what Pyodide's lock says about which package provides which module.
    #[must_use]
    pub(crate) fn with_lock(mut self, lock: Option<Arc<PyodideLock>>) -> Self {
        self.lock = lock;
        self
    }

    /// Whether a module is there without installing anything.
    fn has(&self, module: &str) -> bool {
        let top = module.split('.').next().unwrap_or(module);
        if standard_library::MODULES.binary_search(&top).is_ok() || NOT_PACKAGES.contains(&top) {
            return true;
        }
        // A namespace of which some parts are there says nothing of the others.
        let mut part = module;
        loop {
            if self.present.contains(part) {
                return true;
            }
            match part.rsplit_once('.') {
                Some((above, _)) => part = above,
                None => return false,
            }
        }
    }

    /// The distribution that provides a module: by Pyodide's lock, by the reviewed table, by its own name.
    fn distribution_of(&self, module: &str) -> Option<String> {
        let top = module.split('.').next().unwrap_or(module);
        match distributions::of_namespace(module) {
            Namespace::No => {}
            Namespace::Undecided => return None,
            Namespace::Part(name) => {
                return Some(distributions::reviewed(module).map_or(name, str::to_owned));
            }
        }
        let locked = self.lock.as_ref().and_then(|lock| lock.distribution_of(top));
        Some(locked.or_else(|| distributions::reviewed(module)).unwrap_or(top).to_owned())
    }
}

/// What a source needs: what its PEP 723 block says, else what it imports. A source that does not parse needs
/// nothing, since Python will refuse it.
pub fn of_code(source: &str, known: &Known) -> Result<Needs, NeedsError> {
    let block = script_block::read(source)?;
    let found = imports::of_source(source).unwrap_or_default();
    let imports = found
        .iter()
        .filter(|(module, import)| !import.guess && !in_standard_library(module))
        .map(|(module, _)| module.clone())
        .collect();
    if let Some(block) = block {
        if let Some(required) = &block.requires_python {
            check_python(required, &known.python)?;
        }
        let requirements = block.dependencies.iter().map(|text| Requirement::parse(text)).collect::<Result<_, _>>()?;
        return Ok(Needs { requirements, imports, ..Needs::default() });
    }
    let mut needed = BTreeMap::new();
    for (module, import) in &found {
        // `from a import b` tells of `a.b` too, which counts where `a` is a namespace and decides nothing alone.
        let top = module.split('.').next().unwrap_or(module);
        if import.guess && !matches!(distributions::of_namespace(top), Namespace::Undecided) {
            continue;
        }
        if known.has(module) {
            continue;
        }
        let Some(distribution) = known.distribution_of(module) else { continue };
        let Some(requirement) = Requirement::any_version(&distribution) else { continue };
        let new = || (Inferred { requirement, module: module.clone() }, true);
        let entry = needed.entry(distribution).or_insert_with(new);
        entry.1 &= import.optional;
    }
    let (optional, inferred): (Vec<_>, Vec<_>) = needed.into_values().partition(|(_, optional)| *optional);
    Ok(Needs {
        requirements: Vec::new(),
        inferred: inferred.into_iter().map(|(inferred, _)| inferred).collect(),
        optional: optional.into_iter().map(|(inferred, _)| inferred.requirement).collect(),
        imports,
    })
}

/// Whether a module, given by its dotted name, comes with Python 3.14, or is one of those that look like packages and
/// are none.
pub fn in_standard_library(module: &str) -> bool {
    let top = module.split('.').next().unwrap_or(module);
    standard_library::MODULES.binary_search(&top).is_ok() || NOT_PACKAGES.contains(&top)
}

fn check_python(required: &str, present: &str) -> Result<(), NeedsError> {
    let specifiers = VersionSpecifiers::from_str(required)
        .map_err(|_| NeedsError::Block { reason: format!("`{}` is no version of Python", shortened(required)) })?;
    let version = Version::from_str(present)
        .map_err(|error| NeedsError::Block { reason: format!("this Python's version, {present}: {error}") })?;
    // A pre-release of 3.15 runs what wants 3.15.
    match specifiers.contains(&version) || specifiers.contains(&version.only_release()) {
        true => Ok(()),
        false => Err(NeedsError::Python { required: required.to_owned(), present: present.to_owned() }),
    }
}

impl Needs {
    /// Adds requirements that were given beside the code. One for a package that the code names too takes its place.
    #[must_use]
    pub fn with(mut self, given: impl IntoIterator<Item = Requirement>) -> Self {
        let given: Vec<_> = given.into_iter().collect();
        let names: BTreeSet<_> = given.iter().map(|requirement| requirement.name().to_owned()).collect();
        self.requirements.retain(|requirement| !names.contains(requirement.name()));
        self.inferred.retain(|inferred| !names.contains(inferred.requirement.name()));
        self.optional.retain(|requirement| !names.contains(requirement.name()));
        self.requirements.extend(given);
        self
    }

    /// Whether nothing has to be installed.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && self.inferred.is_empty() && self.optional.is_empty()
    }

    /// What must be there, said or inferred.
    pub fn required(&self) -> impl Iterator<Item = &Requirement> {
        self.requirements.iter().chain(self.inferred.iter().map(|inferred| &inferred.requirement))
    }
}

#[cfg(test)]
mod tests;
