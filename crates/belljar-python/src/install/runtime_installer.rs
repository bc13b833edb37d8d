//! Package installation while code runs: `%pip install`, `micropip`, and `pip` started as a process.
//!
//! The code passes only names and versions. The [`Installer`] decides which sources and packages are allowed. The
//! installation runs on its own thread; its files are then added to the interpreter's file system.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use belljar_core::kernel::CellObserver;
use belljar_core::{InstallRecord, Progress};
use belljar_emscripten::fs::{Filesystem, Layer, LayerContent, Quota};
use belljar_packages::{
    Dependencies, GeneralHint as _, InstallError, InstalledPackage, MissingPackage, PackageRequest, Requirement,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::{InstalledPackages, InstallerSource, PrepareError};
use crate::host_calls::{CallError, HostCall, HostCallContext, WaitError};
use crate::image::Image;
use crate::packages::{InstalledWheel, PackageSet};
use crate::python::Python;

/// The maximum number of requirements of one call.
const MAX_REQUIREMENTS: usize = 1000;
/// Time beyond the installer's own deadline, for compiling the fetched packages.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(300);

/// The most bytes of the files of packages that a process gets while its code runs.
const MAX_LATE_PACKAGES: usize = 64 << 20;
/// The error of code in a process of its own that installs packages which the process cannot get.
const NO_PACKAGE: &str = "no package provides the module";
const NOT_AVAILABLE: &str = "packages with compiled modules cannot be installed while code runs in a worker process\n\
    hint: install them with `%pip install NAME` on a line of its own or with a command of string literals, import \
    them, or name them in the call; a version that replaces another one needs a new session";

/// An installer for one interpreter: the handler of its host call `install`.
pub struct RuntimeInstaller {
    python: Python,
    source: Arc<dyn InstallerSource>,
    progress: Arc<dyn Progress>,
    /// Receives what the code itself installs.
    observer: Option<Arc<dyn CellObserver>>,
    /// The packages that the observer has received.
    reported: PackageSet,
    /// True if the code asks again for what is installed.
    is_preparation: bool,
    /// The packages of the interpreter, but for those that were prepared and not asked for.
    set: Mutex<PackageSet>,
    /// All packages of an interpreter in a process of its own. The process cannot open others, and gets those without
    /// compiled modules as files. `None` for an interpreter of this process.
    available: Mutex<Option<PackageSet>>,
}

/// The result of installing the packages that a cell needs.
#[derive(Debug, Default)]
pub struct CellPackages {
    /// The newly installed packages.
    pub installed: InstalledPackages,
    /// The reasons why packages were not installed whose names resemble those of well-known ones.
    pub refused: Vec<String>,
    /// The packages that were not installed, with the refused ones.
    pub missing: Vec<MissingPackage>,
}

/// The guest's request.
#[derive(Deserialize)]
struct InstallRequest {
    requirements: Vec<String>,
    /// Modules whose packages are installed, too.
    #[serde(default)]
    modules: Vec<String>,
    /// True if packages that satisfy the requirements may be upgraded.
    upgrade: bool,
}

/// The reply to the guest.
#[derive(Debug, Default, Serialize)]
struct InstallReport {
    /// Newly installed packages.
    installed: Vec<Package>,
    /// Packages that were replaced by another version.
    removed: Vec<Package>,
    /// Requested packages that were already installed.
    present: Vec<Package>,
    /// Modules whose files were replaced and that have to be imported again.
    forget: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Package {
    name: String,
    version: String,
}

impl Package {
    fn from_wheel(wheel: &InstalledWheel) -> Self {
        Self { name: wheel.id.name.clone(), version: wheel.id.version.clone() }
    }
}

impl RuntimeInstaller {
    /// Creates an installer for a copy of `image`. `source` is called when the code first installs a package.
    pub fn new(python: &Python, image: &Image, source: Arc<dyn InstallerSource>, progress: Arc<dyn Progress>) -> Self {
        Self::with_packages(python, image.packages().clone(), source, progress)
    }

    /// Creates an installer for an interpreter that has these packages.
    pub fn with_packages(
        python: &Python,
        set: PackageSet,
        source: Arc<dyn InstallerSource>,
        progress: Arc<dyn Progress>,
    ) -> Self {
        Self {
            python: python.clone(),
            source,
            progress,
            observer: None,
            reported: PackageSet::empty(),
            is_preparation: false,
            set: Mutex::new(set),
            available: Mutex::default(),
        }
    }

    /// Does not count installations: the code asks for them again, which counts.
    #[must_use]
    pub(crate) fn in_preparation(self) -> Self {
        Self { is_preparation: true, ..self }
    }

    /// Reports what the code itself installs to `observer`.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn CellObserver>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Does not report these packages, of which the observer knows.
    #[must_use]
    pub(crate) fn without_reports_of(self, reported: PackageSet) -> Self {
        Self { reported, ..self }
    }

    /// Installs the packages that a cell needs, before it runs, and adds their files to `files`.
    ///
    /// Must be called on a guest thread, while the interpreter does not run.
    ///
    /// # Errors
    /// Returns an error if a required package cannot be installed.
    pub fn install(&self, needs: &Dependencies, files: &mut Filesystem) -> Result<CellPackages, PrepareError> {
        let before = self.packages();
        let task = InstallTask {
            python: self.python.clone(),
            source: self.source.clone(),
            progress: self.progress.clone(),
            before: before.clone(),
            asked: PackageRequest::from(needs),
            imports: needs.imports.clone(),
            upgrade: false,
            is_counted: !self.is_preparation,
        };
        let (after, missing) = task.run()?;
        let report = apply(&before, &after, &needs.requirements, files);
        *self.set.lock() = after;
        let mut installed = InstalledPackages::default();
        for package in &report.installed {
            let is_named = needs.required().chain(&needs.optional).any(|named| named.name() == package.name);
            installed.add(&package.name, &package.version, is_named);
        }
        let lookalikes = missing.iter().filter(|missing| missing.is_lookalike);
        Ok(CellPackages { installed, refused: lookalikes.map(|missing| missing.reason.clone()).collect(), missing })
    }

    /// Limits what the code can install to these packages, which its interpreter has already, and to those that consist
    /// of Python alone.
    pub(crate) fn limit_to(&self, available: PackageSet) {
        *self.available.lock() = Some(available);
    }

    /// Returns the packages that an interpreter in a process of its own has now, with those that were prepared. `None`
    /// for an interpreter of this process.
    pub(crate) fn available(&self) -> Option<PackageSet> {
        self.available.lock().clone()
    }

    /// Returns the packages that the interpreter has now.
    pub fn packages(&self) -> PackageSet {
        self.set.lock().clone()
    }

    /// Installs what the code asks for.
    fn install_asked(
        &self,
        asked: &InstallRequest,
        context: &mut HostCallContext<'_>,
    ) -> Result<InstallReport, CallError> {
        let refused = |reason: &str| CallError::Refused(reason.to_owned());
        if asked.requirements.len() + asked.modules.len() > MAX_REQUIREMENTS {
            return Err(CallError::Refused(format!("more than {MAX_REQUIREMENTS} requirements in one call")));
        }
        let requirements = asked.requirements.iter().map(|text| Requirement::parse(text));
        let requirements: Vec<Requirement> =
            requirements.collect::<Result<_, _>>().map_err(|error| CallError::Refused(error.with_general_hint()))?;

        let mut before = self.packages();
        let of_module = |module: &String| self.python.package_of_missing_module(module, &before, &[], &*self.source);
        let inferred: Vec<_> = asked.modules.iter().filter_map(of_module).collect();
        if inferred.len() < asked.modules.len() {
            return Err(refused(NO_PACKAGE));
        }
        let needs = Dependencies { requirements: requirements.clone(), inferred, ..Dependencies::default() };
        let task = |before: PackageSet| InstallTask {
            python: self.python.clone(),
            source: self.source.clone(),
            progress: self.progress.clone(),
            before,
            asked: PackageRequest::from(&needs),
            imports: Vec::new(),
            upgrade: asked.upgrade,
            is_counted: true,
        };
        let installer = self.source.installer().map_err(|error| CallError::Refused(error.with_general_hint()))?;
        let timeout = installer.settings().timeout + COMPILE_TIMEOUT;
        let mut after = task(before.clone()).run_and_wait(context, timeout)?;
        let available = self.available();
        let report = match &available {
            None => apply(&before, &after, &requirements, context.files()),
            Some(available) => {
                if !is_part_of(&after, available) {
                    // The prepared packages were resolved together, and may have other versions than these alone.
                    before = available.clone();
                    after = task(before.clone()).run_and_wait(context, timeout)?;
                }
                let late = late_layers(available, &after).ok_or_else(|| refused(NOT_AVAILABLE))?;
                late.into_iter().for_each(|layer| context.files().add_layer(layer));
                *self.available.lock() = Some(available.with(&after));
                // The other packages are there already.
                let mut unused_files = Filesystem::new(Quota::default());
                apply(&before, &after, &requirements, &mut unused_files)
            }
        };
        *self.set.lock() = after;
        Ok(report)
    }

    /// Reports to the observer what the code has installed, or failed to install.
    fn report(&self, asked: &InstallRequest, result: &Result<InstallReport, CallError>, begin: Instant) {
        let Some(observer) = &self.observer else { return };
        match result {
            Ok(report) => {
                let is_reported = |package: &Package| {
                    self.reported.wheel_ids().any(|id| id.name == package.name && id.version == package.version)
                };
                let installed = report.installed.iter().filter(|package| !is_reported(package));
                let installed: Vec<_> =
                    installed.map(|Package { name, version }| format!("{name} {version}")).collect();
                if !installed.is_empty() {
                    observer.on_install(&InstallRecord::succeeded(installed.join(", "), begin));
                }
            }
            // The code has imported what does not exist: nothing was to be installed.
            Err(CallError::Refused(reason)) if reason == NO_PACKAGE => {}
            Err(error) => {
                let asked: Vec<&str> = asked.requirements.iter().chain(&asked.modules).map(String::as_str).collect();
                observer.on_install(&InstallRecord::failed(asked.join(", "), error, begin));
            }
        }
    }
}

impl HostCall for RuntimeInstaller {
    fn call(&self, request: &RawValue, context: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        let begin = Instant::now();
        let asked: InstallRequest = serde_json::from_str(request.get())
            .map_err(|_| CallError::Refused("the request of `install` is not a list of requirements".into()))?;
        let result = self.install_asked(&asked, context);
        self.report(&asked, &result, begin);
        let report = result?;
        if !(report.installed.is_empty() && report.removed.is_empty()) {
            // A replay gets the reply and not the files.
            context.set_incomplete("it installed a package while it ran");
        }
        to_raw_value(&report).map_err(|error| CallError::Refused(error.to_string()))
    }
}

/// An installation on another thread.
struct InstallTask {
    python: Python,
    source: Arc<dyn InstallerSource>,
    progress: Arc<dyn Progress>,
    before: PackageSet,
    /// The packages to add to `before`.
    asked: PackageRequest,
    /// The modules that the code is known to import.
    imports: Vec<String>,
    upgrade: bool,
    /// True if it counts in the metrics.
    is_counted: bool,
}

impl InstallTask {
    /// Returns the set of packages that the interpreter should have, and the inferred packages that are not installed.
    fn run(&self) -> Result<(PackageSet, Vec<MissingPackage>), PrepareError> {
        let begin = Instant::now();
        let installed = self.install();
        let changes_nothing = installed.as_ref().is_ok_and(|(after, _)| after.key() == self.before.key());
        if self.is_counted && !changes_nothing {
            self.python.installs().record(begin, installed.is_ok());
        }
        installed
    }

    /// Runs the installation on another thread, and waits for its result.
    fn run_and_wait(self, context: &HostCallContext<'_>, timeout: Duration) -> Result<PackageSet, CallError> {
        let refused = |reason: String| CallError::Refused(reason);
        let (send, result) = mpsc::channel();
        // Not cancelled when the code is stopped: the result goes to the cache, and other sessions may wait for it.
        let started = std::thread::Builder::new().name("install".into()).spawn(move || {
            let outcome = crate::on_guest_thread(|| self.run().map(|(set, _)| set));
            // Ignore send errors: the receiver may have been dropped.
            let _ = send.send(outcome);
        });
        if let Err(error) = started {
            return Err(refused(format!("failed to start the installation: {error}")));
        }
        match context.wait_for_work(&result, timeout)? {
            Ok(Ok(Ok(set))) => Ok(set),
            Ok(Ok(Err(error))) => Err(refused(format_as_pip_error(&error))),
            Ok(Err(error)) => Err(refused(format!("failed to start the installation: {error}"))),
            Err(WaitError::Interrupted) => Err(refused("interrupted: nothing was installed".into())),
            Err(WaitError::TimedOut) => Err(refused(format!("installing took longer than {} s", timeout.as_secs()))),
            Err(WaitError::Disconnected) => {
                Err(refused("internal error: the installation ended without a result".into()))
            }
        }
    }

    fn install(&self) -> Result<(PackageSet, Vec<MissingPackage>), PrepareError> {
        let installer = self.source.installer()?;
        let all = self.asked.requirements.iter().chain(&self.asked.inferred);
        let names: Vec<&str> = all.map(Requirement::name).collect();
        let named = |name: &str| names.contains(&name);
        // Tries to change as little as possible: nothing installed, then the named packages, then any package.
        let keeps: [&dyn Fn(&str) -> bool; 3] = [&|_| !self.upgrade, &|name| !named(name), &|_| false];
        let mut outcome = None;
        for keep in keeps {
            let kept = self.before.wheel_ids().filter(|id| keep(&id.name));
            let installed = kept.map(|id| InstalledPackage { name: id.name.clone(), version: id.version.clone() });
            let request = PackageRequest { installed: installed.collect(), ..self.asked.clone() };
            match self.python.install(&installer, &request, &self.imports, &*self.progress) {
                Ok((set, resolution)) => return Ok((self.before.with(&set), resolution.missing().to_vec())),
                Err(
                    error @ PrepareError::Install(
                        InstallError::Conflict { .. } | InstallError::NoWheel { .. } | InstallError::OldRelease { .. },
                    ),
                ) => {
                    outcome.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(outcome.unwrap_or_else(|| InstallError::Internal { reason: "no installation was tried".into() }.into()))
    }
}

/// Returns the layers of packages that are not available, for a process that cannot open their files. `None` if one of
/// them replaces another version, has compiled modules, or if all together are too large.
fn late_layers(available: &PackageSet, after: &PackageSet) -> Option<Vec<Arc<Layer>>> {
    let is_late = |wheel: &&InstalledWheel| !available.wheel_ids().any(|id| *id == wheel.id);
    let late: Vec<&InstalledWheel> = after.wheels().iter().map(|wheel| &**wheel).filter(is_late).collect();
    let replaces = |wheel: &InstalledWheel| available.wheel_ids().any(|id| id.name == wheel.id.name);
    if late.iter().any(|wheel| !wheel.libraries.is_empty() || replaces(wheel)) {
        return None;
    }
    let size = |content: LayerContent<'_>| if let LayerContent::File(bytes) = content { bytes.len() } else { 0 };
    let sizes = late.iter().flat_map(|wheel| wheel.layer.contents().map(|(_, content)| size(content)));
    (sizes.sum::<usize>() <= MAX_LATE_PACKAGES).then(|| late.iter().map(|wheel| wheel.layer.clone()).collect())
}

/// Returns whether all packages of a set are in another one.
fn is_part_of(set: &PackageSet, all: &PackageSet) -> bool {
    set.wheel_ids().all(|id| all.wheel_ids().any(|there| there == id))
}

/// Adds the layers of new wheels to `files`, and removes those that they replace.
fn apply(before: &PackageSet, after: &PackageSet, named: &[Requirement], files: &mut Filesystem) -> InstallReport {
    let mut report = InstallReport::default();
    for wheel in after.wheels() {
        let old = before.wheels().iter().find(|old| old.id.name == wheel.id.name);
        match old {
            Some(old) if old.id == wheel.id => {
                if named.iter().any(|requirement| requirement.name() == wheel.id.name) {
                    report.present.push(Package::from_wheel(wheel));
                }
                continue;
            }
            Some(old) => {
                files.remove_layer(old.layer.id());
                report.removed.push(Package::from_wheel(old));
                report.forget.extend(old.modules.iter().cloned());
            }
            None => {}
        }
        files.add_layer(wheel.layer.clone());
        report.installed.push(Package::from_wheel(wheel));
    }
    report
}

/// Formats an error the way pip begins it, for errors that pip has too.
fn format_as_pip_error(error: &PrepareError) -> String {
    match error {
        PrepareError::Install(InstallError::UnknownPackage { name, .. } | InstallError::NoWheel { name, .. }) => {
            format!(
                "Could not find a version that satisfies the requirement {name}\nNo matching distribution found for \
             {name}\n{}",
                error.with_general_hint()
            )
        }
        _ => error.with_general_hint(),
    }
}
