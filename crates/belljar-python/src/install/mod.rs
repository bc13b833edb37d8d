//! From source code to an image with the packages that it needs.

mod installed_packages;
mod missing_dependency;
mod pip_installs;
mod runtime_installer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use belljar_core::Progress;
use belljar_core::kernel::BoxError;
use belljar_packages::{
    AvailableModules, Dependencies, DependencyError, GeneralHint, InstallError, Installer, PackageRequest, Platform,
    PyodideSource, Requirement, Resolution, Wheel,
};

use crate::error::OpenError;
use crate::image::Image;
use crate::packages::{PackageSet, SupplyError, UnpackedWheel, WheelFile, WheelId};
use crate::python::Python;

pub use installed_packages::InstalledPackages;
pub(crate) use installed_packages::record_of_missing;
pub use missing_dependency::{FailedRun, ImageForRepetition};
pub(crate) use pip_installs::pip_installs;
pub use runtime_installer::{CellPackages, RuntimeInstaller};

/// Modules that programs import and that are part of the guest package.
pub(crate) const PROVIDED: [&str; 2] = ["micropip", "pip"];

/// An error of preparing an image for code.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The requirements of the code cannot be determined or met.
    #[error(transparent)]
    Dependencies(#[from] DependencyError),
    /// Resolving or fetching packages failed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The packages were fetched, but building an image from them failed.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The packages were fetched, but no process could be started that has them.
    #[error("{0}")]
    Process(#[source] BoxError),
}

impl PrepareError {
    /// Returns whether the author of the code may be able to correct this error: it concerns the packages.
    pub fn is_about_packages(&self) -> bool {
        !matches!(self, Self::Open(error) if !matches!(error, OpenError::Wheel(_)))
    }
}

impl GeneralHint for PrepareError {
    fn general_hint(&self) -> Option<String> {
        match self {
            Self::Dependencies(error) => error.general_hint(),
            Self::Install(error) => error.general_hint(),
            Self::Open(_) | Self::Process(_) => None,
        }
    }
}

/// A lazily created [`Installer`]: most code does not need one.
pub trait InstallerSource: Send + Sync {
    /// Returns the installer, the same one each time.
    ///
    /// # Errors
    /// Returns an error if a setting is invalid.
    fn installer(&self) -> Result<Arc<Installer>, InstallError>;
}

impl Python {
    /// Returns the platform that wheels must support.
    pub fn platform(&self) -> Platform {
        let release = self.release();
        Platform {
            python: (release.python.0, release.python.1, release.micro),
            pre_release: release.pre_release.into(),
            pyemscripten: release.pyemscripten,
            emscripten: release.emscripten,
        }
    }

    /// Returns the location of Pyodide's own wheels for this release.
    ///
    /// # Errors
    /// Returns an error if fetching the release's lock file fails.
    pub fn pyodide_source(&self, progress: &dyn Progress) -> Result<PyodideSource, OpenError> {
        Ok(PyodideSource::on_cdn(self.lock_file(progress)?, self.release().version))
    }

    /// Returns an image with the packages that `code` and `options` require, in which the modules that the code imports
    /// are imported: from memory, from the cache, or newly resolved, fetched and built, which `progress` reports.
    ///
    /// Must be called on a guest thread. `source` is not called for code that does not need packages.
    ///
    /// # Errors
    /// Returns an error if a package cannot be resolved, fetched or installed.
    pub fn prepare(
        &self,
        code: &str,
        options: &PrepareOptions,
        source: &dyn InstallerSource,
        progress: &dyn Progress,
    ) -> Result<Image, PrepareError> {
        self.image_for(&self.needs(code, options, source)?, options, source, progress)
    }

    /// Returns an image with the packages that [`Python::needs`] found: the second step of [`Python::prepare`].
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns an error if a package cannot be resolved, fetched or installed.
    pub fn image_for(
        &self,
        needs: &Dependencies,
        options: &PrepareOptions,
        source: &dyn InstallerSource,
        progress: &dyn Progress,
    ) -> Result<Image, PrepareError> {
        let named: &[String] = if options.preload { &options.imports } else { &[] };
        if needs.is_empty() {
            return Ok(self.image_with(&PackageSet::empty(), &[], named, progress)?);
        }
        let request = PackageRequest { constraints: options.constraints.clone(), ..PackageRequest::from(needs) };
        let begin = Instant::now();
        let installed = source.installer().map_err(PrepareError::from);
        let installed = installed.and_then(|installer| self.install(&installer, &request, &needs.imports, progress));
        self.installs().record(begin, installed.is_ok());
        let (set, resolution) = installed?;
        let image = self.image_with(&set, if options.preload { &needs.imports } else { &[] }, named, progress)?;
        Ok(image.with_missing_modules(missing_modules(needs, &resolution)))
    }

    /// Returns the request to resolve for these pieces of code together, each with its options, and for `options`.
    ///
    /// # Errors
    /// Returns an error if the requirements of one of them cannot be read or met.
    pub fn request(
        &self,
        programs: &[(String, PrepareOptions)],
        options: &PrepareOptions,
        source: &dyn InstallerSource,
    ) -> Result<PackageRequest, PrepareError> {
        let mut all = PackageRequest { constraints: options.constraints.clone(), ..PackageRequest::default() };
        for (code, options) in programs {
            let needs = self.needs(code, &PrepareOptions { requirements: Vec::new(), ..options.clone() }, source)?;
            if !needs.inferred.is_empty() {
                let installer = source.installer()?;
                let lookalikes = needs.inferred.iter().map(|inferred| installer.lookalike(inferred.requirement.name()));
                if let Some(error) = lookalikes.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().next() {
                    return Err(error.into());
                }
            }
            // Packages that are requested ahead of time must exist.
            all.requirements.extend(needs.required().cloned());
            all.optional.extend(needs.optional);
        }
        all.requirements.extend(options.requirements.iter().cloned());
        Ok(all)
    }

    /// Returns the requirements of `code` and of `options`.
    ///
    /// # Errors
    /// Returns an error if the requirements cannot be read or met.
    pub fn needs(
        &self,
        code: &str,
        options: &PrepareOptions,
        source: &dyn InstallerSource,
    ) -> Result<Dependencies, PrepareError> {
        let own = || options.modules.iter().chain(self.base().extra_stdlib_modules()).map(String::as_str);
        let present = || PROVIDED.into_iter().chain(own());
        let imports: String = options.imports.iter().map(|module| format!("import {module}\n")).collect();
        let dependencies_of = |available: &AvailableModules| -> Result<Dependencies, DependencyError> {
            let mut needs = Dependencies::from_code(code, available)?;
            if !needs.is_declared {
                for source in &options.sources {
                    needs = needs.merged(Dependencies::from_code(source, available)?);
                }
            }
            // Modules that are named explicitly must exist.
            let named = Dependencies::from_code(&imports, available)?;
            needs.requirements.extend(named.required().cloned());
            needs.optional.extend(named.optional);
            Ok(needs)
        };
        let mut needs = dependencies_of(&AvailableModules::new(&self.platform()).with_modules(present()))?;
        if !needs.is_empty() {
            // The list of modules by package is only read if the code needs a package.
            needs = dependencies_of(&source.installer()?.available_modules()?.with_modules(present()))?;
        }
        Ok(needs.with_requirements(options.requirements.iter().cloned()))
    }

    /// Resolves the request, and installs the wheels that are not installed on this machine, for code that imports the
    /// modules `imports`.
    pub(crate) fn install(
        &self,
        installer: &Installer,
        request: &PackageRequest,
        imports: &[String],
        progress: &dyn Progress,
    ) -> Result<(PackageSet, Resolution), PrepareError> {
        let mut resolution = installer.resolve(request, progress)?;
        loop {
            let mut failure = None;
            let set = self.packages(
                &wheel_ids(&resolution),
                imports,
                |missing| match installer.install(request, progress) {
                    Ok((now, wheels)) if now.key() == resolution.key() => unpack(&wheels, missing),
                    other => {
                        failure = Some(other);
                        Err("the fetched wheels differ from the resolved ones".into())
                    }
                },
                progress,
            );
            match failure {
                None => return Ok((set?, resolution)),
                // A server did not deliver a wheel, and others were chosen.
                Some(Ok((now, _))) => resolution = now,
                Some(Err(error)) => return Err(error.into()),
            }
        }
    }
}

/// Options of [`Python::prepare`].
#[derive(Debug, Clone)]
pub struct PrepareOptions {
    /// Packages to install.
    pub requirements: Vec<Requirement>,
    /// Version constraints of packages, if they are needed.
    pub constraints: Vec<Requirement>,
    /// Modules to import ahead of time, even if the code does not import them: dotted names. Packages that provide them
    /// are installed.
    pub imports: Vec<String>,
    /// The sources of further files of the program, whose imports are requirements like those of the code.
    pub sources: Vec<String>,
    /// The modules that files of the program provide, in dotted form.
    pub modules: Vec<String>,
    /// True if the image may contain imported modules. False if the code is to see environment variables that those
    /// modules would have read.
    pub preload: bool,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        Self {
            requirements: Vec::new(),
            constraints: Vec::new(),
            imports: Vec::new(),
            sources: Vec::new(),
            modules: Vec::new(),
            preload: true,
        }
    }
}

/// Returns the modules that no package provides, with the notes for errors of importing them.
fn missing_modules(needs: &Dependencies, resolution: &Resolution) -> BTreeMap<String, String> {
    let module = |name: &str| needs.inferred.iter().find(|inferred| inferred.requirement.name() == name);
    let absent = resolution.missing().iter();
    absent.filter_map(|absent| Some((module(&absent.name)?.module.clone(), absent.reason.clone()))).collect()
}

fn wheel_ids(resolution: &Resolution) -> Vec<WheelId> {
    let wheel_id = |pinned: &belljar_packages::PinnedFile| WheelId {
        name: pinned.name.clone(),
        version: pinned.version.clone(),
        sha256: pinned.sha256.clone(),
    };
    resolution.pinned().iter().map(wheel_id).collect()
}

/// Returns the files of those of `wheels` that are `wanted`.
fn unpack(wheels: &[Wheel], wanted: &[WheelId]) -> Result<Vec<UnpackedWheel>, SupplyError> {
    let mut contents = Vec::with_capacity(wanted.len());
    for wheel in wheels {
        let same = |id: &&WheelId| id.name == wheel.name && id.sha256 == wheel.sha256;
        let Some(id) = wanted.iter().find(same) else { continue };
        let unpacked = wheel.unpack()?;
        let file = |file: belljar_packages::UnpackedFile| WheelFile {
            path: file.path,
            bytes: file.bytes.into(),
            is_library: file.is_library,
        };
        let files = unpacked.files.into_iter().map(file).collect();
        contents.push(UnpackedWheel { id: id.clone(), files, modules: unpacked.top_level });
    }
    Ok(contents)
}
