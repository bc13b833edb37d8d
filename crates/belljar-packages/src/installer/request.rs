//! The packages that a caller wants.

use crate::inference::Dependencies;
use crate::requirement::Requirement;

/// The input of [`Installer::resolve`] and [`Installer::install`].
#[derive(Debug, Clone, Default)]
pub struct PackageRequest {
    /// Requirements that have to be met.
    pub requirements: Vec<Requirement>,
    /// Requirements that have to be met unless no package of that name exists.
    pub inferred: Vec<Requirement>,
    /// Requirements that are met if possible.
    pub optional: Vec<Requirement>,
    /// Constraints on versions, in addition to those of the settings.
    pub constraints: Vec<Requirement>,
    /// Packages that the interpreter already has, whose versions must not change.
    pub installed: Vec<InstalledPackage>,
}

/// A package that is already installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledPackage {
    /// The package's name.
    pub name: String,
    /// The installed version.
    pub version: String,
}

impl From<&Dependencies> for PackageRequest {
    fn from(dependencies: &Dependencies) -> Self {
        PackageRequest {
            requirements: dependencies.requirements.clone(),
            inferred: dependencies.inferred.iter().map(|inferred| inferred.requirement.clone()).collect(),
            optional: dependencies.optional.clone(),
            ..PackageRequest::default()
        }
    }
}

impl PackageRequest {
    /// Returns the requirements and the inferred requirements.
    pub(super) fn required(&self) -> impl Iterator<Item = &Requirement> {
        self.requirements.iter().chain(&self.inferred)
    }
}
