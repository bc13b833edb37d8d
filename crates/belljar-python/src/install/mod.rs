//! From code to an image with what it needs; and installing more while it runs (`live`).

mod live;

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_core::progress::Progress;
use belljar_packages::needs::{self, NeedsError};
use belljar_packages::{
    InstallError, Installer, Known, Needs, Platform, PyodideSource, Request, Requirement, Resolution, Wheel,
};

use crate::image::Image;
use crate::packages::{Contents, Member, PackageSet, SupplyError, WheelFile};
use crate::python::{OpenError, Python};

pub use live::LiveInstaller;

/// Modules that programs import and that are part of the guest.
pub(crate) const PROVIDED: [&str; 2] = ["micropip", "pip"];

/// Why code has no image to run in.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// What it says it needs cannot be told or met.
    #[error(transparent)]
    Needs(#[from] NeedsError),
    /// Its packages cannot be had.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// They were had, and cannot be made use of.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl PrepareError {
    /// Whether this is about the packages, and whoever wrote the code may do something about it.
    pub fn is_about_packages(&self) -> bool {
        !matches!(self, Self::Open(error) if !matches!(error, OpenError::Wheel(_)))
    }
}

/// Makes the [`Installer`] when it is first needed: most code needs none.
pub trait InstallerSource: Send + Sync {
    /// The installer, the same each time.
    ///
    /// # Errors
    /// When a setting is not valid.
    fn installer(&self) -> Result<Arc<Installer>, InstallError>;
}

impl Python {
    /// The platform that wheels must be for.
    pub fn platform(&self) -> Platform {
        let release = self.release();
        Platform {
            python: (release.python.0, release.python.1, release.micro),
            pre_release: release.pre_release.into(),
            pyemscripten: release.pyemscripten,
            emscripten: release.emscripten,
        }
    }

    /// Where Pyodide's own wheels for this release are.
    ///
    /// # Errors
    /// When the release's lock file cannot be had.
    pub fn pyodide_source(&self, progress: &dyn Progress) -> Result<PyodideSource, OpenError> {
        Ok(PyodideSource::on_cdn(self.lock_file(progress)?, self.release().version))
    }

    /// An image with what `code` needs and with `given`, and with the modules imported that the code imports: from
    /// memory, from the cache, or resolved, fetched and built, which `progress` hears of.
    ///
    /// Must be called on a guest thread. For code that needs no packages `source` is not asked.
    ///
    /// # Errors
    /// When the packages cannot be had.
    pub fn prepare(
        &self,
        code: &str,
        given: &Given,
        source: &dyn InstallerSource,
        progress: &dyn Progress,
    ) -> Result<Image, PrepareError> {
        self.image_for(&self.needs(code, given, source)?, given, source, progress)
    }

    /// An image with what [`Python::needs`] found: what [`Python::prepare`] does after that.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// When the packages cannot be had.
    pub fn image_for(
        &self,
        needs: &Needs,
        given: &Given,
        source: &dyn InstallerSource,
        progress: &dyn Progress,
    ) -> Result<Image, PrepareError> {
        let named: &[String] = if given.preload { &given.imports } else { &[] };
        if needs.is_empty() {
            return Ok(self.image_with(&PackageSet::none(), &[], named, progress)?);
        }
        let request = Request { constraints: given.constraints.clone(), ..Request::from(needs) };
        let (set, resolution) = self.install(&*source.installer()?, &request, progress)?;
        let image = self.image_with(&set, if given.preload { &needs.imports } else { &[] }, named, progress)?;
        Ok(image.with_absent(absent_modules(needs, &resolution)))
    }

    /// What has to be resolved for these pieces of code together.
    ///
    /// # Errors
    /// When one of them says what it needs in a way that cannot be read or met.
    pub fn request(
        &self,
        code: &[String],
        given: &Given,
        source: &dyn InstallerSource,
    ) -> Result<Request, PrepareError> {
        let mut all = Request { constraints: given.constraints.clone(), ..Request::default() };
        for code in code {
            let needs = self.needs(code, &Given { requirements: Vec::new(), ..given.clone() }, source)?;
            // Asked for beforehand, a package that does not exist is an error.
            all.requirements.extend(needs.required().cloned());
            all.optional.extend(needs.optional);
        }
        all.requirements.extend(given.requirements.iter().cloned());
        Ok(all)
    }

    /// What `code` needs, and what is given beside it.
    ///
    /// # Errors
    /// When the code says what it needs in a way that cannot be read or met.
    pub fn needs(&self, code: &str, given: &Given, source: &dyn InstallerSource) -> Result<Needs, PrepareError> {
        let present = || PROVIDED.into_iter().chain(self.base().further_modules().iter().map(String::as_str));
        let imports: String = given.imports.iter().map(|module| format!("import {module}\n")).collect();
        let of_both = |known: &Known| -> Result<Needs, NeedsError> {
            let mut needs = needs::of_code(code, known)?;
            // Whoever names a module means one that there is.
            let named = needs::of_code(&imports, known)?;
            needs.requirements.extend(named.required().cloned());
            needs.optional.extend(named.optional);
            Ok(needs)
        };
        let mut needs = of_both(&Known::new(&self.platform()).with_modules(present()))?;
        if !needs.is_empty() {
            // Only now is it worth reading which package has which module.
            needs = of_both(&source.installer()?.known()?.with_modules(present()))?;
        }
        Ok(needs.with(given.requirements.iter().cloned()))
    }

    /// Resolves, and installs what was never installed on this machine.
    pub(crate) fn install(
        &self,
        installer: &Installer,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<(PackageSet, Resolution), PrepareError> {
        let mut resolution = installer.resolve(request, progress)?;
        loop {
            let mut failure = None;
            let set = self.packages(
                &members(&resolution),
                |missing| match installer.install(request, progress) {
                    Ok((now, wheels)) if now.key() == resolution.key() => unpack(&wheels, missing),
                    other => {
                        failure = Some(other);
                        Err("the wheels are others than those resolved".into())
                    }
                },
                progress,
            );
            match failure {
                None => return Ok((set?, resolution)),
                // A server did not have what it promised, and others were taken.
                Some(Ok((now, _))) => resolution = now,
                Some(Err(error)) => return Err(error.into()),
            }
        }
    }
}

/// What is given beside the code.
#[derive(Debug, Clone)]
pub struct Given {
    /// Packages to install.
    pub requirements: Vec<Requirement>,
    /// Versions to keep to, if the packages are needed.
    pub constraints: Vec<Requirement>,
    /// Modules to import beforehand, whether the code imports them or not: dotted names. Packages that have them are
    /// installed.
    pub imports: Vec<String>,
    /// Whether modules may have been imported beforehand: not when the code is to see environment variables that those
    /// would have read.
    pub preload: bool,
}

impl Default for Given {
    fn default() -> Self {
        Self { requirements: Vec::new(), constraints: Vec::new(), imports: Vec::new(), preload: true }
    }
}

/// The modules for which no package exists, and what to tell whoever imports them.
fn absent_modules(needs: &Needs, resolution: &Resolution) -> BTreeMap<String, String> {
    let module = |name: &str| needs.inferred.iter().find(|inferred| inferred.requirement.name() == name);
    let absent = resolution.absent().iter();
    absent.filter_map(|absent| Some((module(&absent.name)?.module.clone(), absent.reason.clone()))).collect()
}

fn members(resolution: &Resolution) -> Vec<Member> {
    let member = |pinned: &belljar_packages::Pinned| Member {
        name: pinned.name.clone(),
        version: pinned.version.clone(),
        sha256: pinned.sha256.clone(),
    };
    resolution.pinned().iter().map(member).collect()
}

/// The files of those of `wheels` that are wanted.
fn unpack(wheels: &[Wheel], wanted: &[Member]) -> Result<Vec<Contents>, SupplyError> {
    let mut contents = Vec::with_capacity(wanted.len());
    for wheel in wheels {
        let same = |member: &&Member| member.name == wheel.name && member.sha256 == wheel.sha256;
        let Some(member) = wanted.iter().find(same) else { continue };
        let unpacked = wheel.unpack()?;
        let file = |file: belljar_packages::UnpackedFile| WheelFile {
            path: file.path,
            bytes: file.bytes.into(),
            is_library: file.is_library,
        };
        let files = unpacked.files.into_iter().map(file).collect();
        contents.push(Contents { member: member.clone(), files, modules: unpacked.top_level });
    }
    Ok(contents)
}
