//! Packages that code turns out to lack while it runs: optional dependencies of the packages that it imports.

use belljar_core::{MissingDependency, Obstacle, Progress, PythonError};
use belljar_packages::{Dependencies, GeneralHint as _, InferredDependency, shorten_message};

use super::{InstalledPackages, InstallerSource, PrepareOptions};
use crate::image::Image;
use crate::packages::PackageSet;
use crate::python::Python;

/// The maximum length of a module's name, in bytes.
const MAX_MODULE: usize = 100;

/// A run that failed.
pub struct FailedRun<'a> {
    /// The code.
    pub code: &'a str,
    /// The image from which it started.
    pub image: &'a Image,
    /// The error that ended it.
    pub error: &'a PythonError,
    /// True if running the code again would repeat effects outside of its interpreter, such as output.
    pub has_effects: bool,
}

/// An image in which code can be run again.
pub struct ImageForRepetition {
    /// The image.
    pub image: Image,
    /// The packages that it has in addition to those of the image before.
    pub installed: InstalledPackages,
    /// The requirements of the code, with the one that it lacked.
    pub needs: Dependencies,
}

impl Python {
    /// Returns the package that is expected to provide a module which code failed to import, by the rules for imports
    /// in source text. Returns `None` for the name of a module that is not missing, or that no package can provide.
    pub fn package_of_missing_module(
        &self,
        module: &str,
        packages: &PackageSet,
        local_modules: &[String],
        source: &dyn InstallerSource,
    ) -> Option<InferredDependency> {
        if module.len() > MAX_MODULE || !is_module_name(module) {
            return None;
        }
        let needs = self.needs_of_cell(&format!("import {module}"), packages, local_modules, source).ok()?;
        let is_installed = |name: &str| packages.wheel_ids().any(|id| id.name == name);
        needs.inferred.into_iter().next().filter(|inferred| !is_installed(inferred.requirement.name()))
    }

    /// Returns an image with the package without which a run failed, so that the code can be run again, and adds the
    /// package to `options`. Returns `None` if the run did not fail for lack of a package.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns the package if the code cannot be run again with it.
    pub fn image_for_repetition(
        &self,
        failed: &FailedRun<'_>,
        options: &mut PrepareOptions,
        source: &dyn InstallerSource,
        progress: &dyn Progress,
    ) -> Result<Option<ImageForRepetition>, MissingDependency> {
        let FailedRun { code, image, error, has_effects } = failed;
        let Some(module) = &error.missing_module else { return Ok(None) };
        // The error has a note about each of these.
        let is_known =
            image.missing_modules().keys().any(|known| format!("{known}.").starts_with(&format!("{module}.")));
        let found = self.package_of_missing_module(module, image.packages(), &options.modules, source);
        let Some(inferred) = found.filter(|_| !is_known) else { return Ok(None) };
        let package = inferred.requirement.name().to_owned();
        let missing = |obstacle| MissingDependency { module: module.clone(), package: package.clone(), obstacle };
        let not_installable = |reason: &str| missing(Obstacle::NotInstallable(shorten_message(reason)));

        let mut extended = options.clone();
        extended.sources.push(format!("import {module}\n"));
        let needs = self.needs(code, &extended, source);
        let needs = needs.map_err(|error| not_installable(&error.with_general_hint()))?;
        if needs.is_declared {
            return Err(missing(Obstacle::DeclaredByCode));
        }
        if *has_effects {
            return Err(missing(Obstacle::Effects));
        }
        let next = self.image_for(&needs, &extended, source, progress);
        let next = next.map_err(|error| not_installable(&error.with_general_hint()))?;
        if let Some(reason) = next.missing_modules().get(&inferred.module) {
            return Err(not_installable(reason));
        }
        *options = extended;
        let installed = InstalledPackages::between(image.packages(), next.packages(), &needs);
        Ok(Some(ImageForRepetition { image: next, installed, needs }))
    }
}

/// Returns whether text from the guest is the dotted name of a module. It becomes part of a line of Python.
fn is_module_name(text: &str) -> bool {
    let is_identifier = |part: &str| {
        part.starts_with(|first: char| first.is_alphabetic() || first == '_')
            && part.chars().all(|character| character.is_alphanumeric() || character == '_')
    };
    text.split('.').all(is_identifier)
}

#[cfg(test)]
mod tests {
    use super::is_module_name;

    #[test]
    fn only_dotted_identifiers_are_names_of_modules() {
        assert!(["openpyxl", "lxml.etree", "_x", "größe"].into_iter().all(is_module_name));
        assert!(
            ["", ".", "a.", "a b", "1a", "a\nimport b", "a;b", "a-b", "a=1"].iter().all(|text| !is_module_name(text))
        );
    }
}
