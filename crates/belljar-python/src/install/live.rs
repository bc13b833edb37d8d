//! Installing while code runs: what `%pip install`, `micropip` and a `pip` started as a process come to.
//!
//! The code says names and versions, and nothing else: where packages come from, and which may be had, is the
//! [`Installer`]'s business. The work is done on a thread of its own; what is installed is put under the code's files.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use belljar_core::progress::Progress;
use belljar_emscripten::fs::Filesystem;
use belljar_packages::{InstallError, Installed, Needs, Request, Requirement};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::{InstallerSource, PrepareError};
use crate::calls::{CallError, GaveUp, HostCall, Scene};
use crate::image::Image;
use crate::packages::{InstalledWheel, PackageSet};
use crate::python::Python;

/// Requirements that one call may name.
const MAX_REQUIREMENTS: usize = 1000;
/// Time beyond the installer's own deadline, in which what was fetched is compiled.
const COMPILING: Duration = Duration::from_secs(300);

/// Installs packages into one interpreter: answers its call `install`.
pub struct LiveInstaller {
    python: Python,
    source: Arc<dyn InstallerSource>,
    progress: Arc<dyn Progress>,
    /// What the interpreter has.
    set: Mutex<PackageSet>,
}

/// What the guest asks.
#[derive(Deserialize)]
struct Asked {
    requirements: Vec<String>,
    /// Whether versions that satisfy the requirements already may become newer ones.
    upgrade: bool,
}

/// What it is told.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// What is new.
    installed: Vec<Package>,
    /// What had another version before.
    removed: Vec<Package>,
    /// What was asked for, and was there.
    present: Vec<Package>,
    /// Modules whose files were replaced, to be imported anew.
    forget: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Package {
    name: String,
    version: String,
}

impl Package {
    fn of(wheel: &InstalledWheel) -> Self {
        Self { name: wheel.member.name.clone(), version: wheel.member.version.clone() }
    }
}

impl LiveInstaller {
    /// For an interpreter that is a copy of `image`. `source` is asked when the code first installs something.
    pub fn new(python: &Python, image: &Image, source: Arc<dyn InstallerSource>, progress: Arc<dyn Progress>) -> Self {
        Self::with_packages(python, image.packages().clone(), source, progress)
    }

    /// For an interpreter that has these packages.
    pub fn with_packages(
        python: &Python,
        set: PackageSet,
        source: Arc<dyn InstallerSource>,
        progress: Arc<dyn Progress>,
    ) -> Self {
        Self { python: python.clone(), source, progress, set: Mutex::new(set) }
    }

    /// Installs what a cell is going to need, before it runs, and puts it under its files.
    ///
    /// Must be called on a guest thread, while the interpreter does not run.
    ///
    /// # Errors
    /// When something cannot be had that the cell cannot do without.
    pub fn install(&self, needs: &Needs, files: &mut Filesystem) -> Result<(), PrepareError> {
        let before = self.packages();
        let work = Work {
            python: self.python.clone(),
            source: self.source.clone(),
            progress: self.progress.clone(),
            before: before.clone(),
            asked: Request::from(needs),
            upgrade: false,
        };
        let after = work.run()?;
        apply(&before, &after, &needs.requirements, files);
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = after;
        Ok(())
    }

    /// What the interpreter has by now.
    pub fn packages(&self) -> PackageSet {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl HostCall for LiveInstaller {
    fn call(&self, request: &RawValue, scene: &mut Scene<'_>) -> Result<Box<RawValue>, CallError> {
        let refused = |reason: &str| CallError::Refused(reason.to_owned());
        let asked: Asked =
            serde_json::from_str(request.get()).map_err(|_| refused("`install` takes a list of requirements"))?;
        if asked.requirements.len() > MAX_REQUIREMENTS {
            return Err(CallError::Refused(format!("at most {MAX_REQUIREMENTS} requirements can be named at once")));
        }
        let requirements = asked.requirements.iter().map(|text| Requirement::parse(text));
        let requirements: Vec<Requirement> =
            requirements.collect::<Result<_, _>>().map_err(|error| CallError::Refused(error.to_string()))?;

        let before = self.packages();
        let (send, result) = mpsc::channel();
        let work = Work {
            python: self.python.clone(),
            source: self.source.clone(),
            progress: self.progress.clone(),
            before: before.clone(),
            asked: Request { requirements: requirements.clone(), ..Request::default() },
            upgrade: asked.upgrade,
        };
        let installer = self.source.installer().map_err(|error| CallError::Refused(error.to_string()))?;
        let patience = installer.settings().timeout + COMPILING;
        // Left alone when the code is stopped: what it makes is for the cache, and others may wait for it.
        let started = std::thread::Builder::new().name("install".into()).spawn(move || {
            let outcome = crate::on_guest_thread(|| work.run());
            // Nobody waits any more, perhaps.
            let _ = send.send(outcome);
        });
        if let Err(error) = started {
            return Err(CallError::Refused(format!("cannot start a thread to install: {error}")));
        }
        let after = match scene.wait(&result, patience)? {
            Ok(Ok(Ok(set))) => set,
            Ok(Ok(Err(error))) => return Err(CallError::Refused(in_pips_words(&error))),
            Ok(Err(error)) => return Err(CallError::Refused(format!("cannot start a thread to install: {error}"))),
            Err(GaveUp::Interrupted) => return Err(refused("interrupted: nothing was installed")),
            Err(GaveUp::TimeUp) => return Err(refused("installing took too long (--install-timeout)")),
            Err(GaveUp::Abandoned) => return Err(refused("installing failed by a fault of Belljar")),
        };
        let report = apply(&before, &after, &requirements, scene.files());
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = after;
        to_raw_value(&report).map_err(|error| CallError::Refused(error.to_string()))
    }
}

/// What is done on the other thread.
struct Work {
    python: Python,
    source: Arc<dyn InstallerSource>,
    progress: Arc<dyn Progress>,
    before: PackageSet,
    /// What is wanted beside what there is.
    asked: Request,
    upgrade: bool,
}

impl Work {
    /// The set that the interpreter is to have.
    fn run(&self) -> Result<PackageSet, PrepareError> {
        let installer = self.source.installer()?;
        let all = self.asked.requirements.iter().chain(&self.asked.inferred);
        let names: Vec<&str> = all.map(Requirement::name).collect();
        let named = |name: &str| names.contains(&name);
        // As little as possible changes: nothing, or what was named, or whatever must.
        let keeps: [&dyn Fn(&str) -> bool; 3] = [&|_| !self.upgrade, &|name| !named(name), &|_| false];
        let mut outcome = None;
        for keep in keeps {
            let kept = self.before.members().filter(|member| keep(&member.name));
            let installed = kept.map(|member| Installed { name: member.name.clone(), version: member.version.clone() });
            let request = Request { installed: installed.collect(), ..self.asked.clone() };
            match self.python.install(&installer, &request, &*self.progress) {
                Ok((set, _)) => return Ok(self.before.with(&set)),
                Err(error @ PrepareError::Install(InstallError::Conflict { .. } | InstallError::NoWheel { .. })) => {
                    outcome.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(outcome.unwrap_or_else(|| InstallError::Internal { what: "nothing was tried".into() }.into()))
    }
}

/// Puts what is new under the code's files, and takes away what it replaces.
fn apply(before: &PackageSet, after: &PackageSet, named: &[Requirement], files: &mut Filesystem) -> Report {
    let mut report = Report::default();
    for wheel in after.wheels() {
        let old = before.wheels().iter().find(|old| old.member.name == wheel.member.name);
        match old {
            Some(old) if old.member == wheel.member => {
                if named.iter().any(|requirement| requirement.name() == wheel.member.name) {
                    report.present.push(Package::of(wheel));
                }
                continue;
            }
            Some(old) => {
                files.remove_layer(old.layer.id());
                report.removed.push(Package::of(old));
                report.forget.extend(old.modules.iter().cloned());
            }
            None => {}
        }
        files.add_layer(wheel.layer.clone());
        report.installed.push(Package::of(wheel));
    }
    report
}

/// An error as pip begins it, where pip has words for it.
fn in_pips_words(error: &PrepareError) -> String {
    match error {
        PrepareError::Install(InstallError::Unknown { name, .. } | InstallError::NoWheel { name, .. }) => format!(
            "Could not find a version that satisfies the requirement {name}\nNo matching distribution found for \
             {name}\n{error}"
        ),
        _ => error.to_string(),
    }
}
