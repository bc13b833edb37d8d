//! From requirements to wheels on the disk: what sessions and the command line call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use belljar_cache::{Entry, EntryKey, NewEntry};
use belljar_core::progress::{Progress, Step, StepProgress, Unit};
use futures::FutureExt;

use crate::error::InstallError;
use crate::memo::{Memo, Question};
use crate::needs::{Known, Needs};
use crate::outage::Outage;
use crate::platform::Platform;
use crate::requirement::Requirement;
use crate::resolution::{Absent, Pinned, Resolution, Source};
use crate::settings::Settings;
use crate::uv::{Demand, Worker};
use crate::wheel::Wheel;

/// Files that are fetched at once.
const PARALLEL: usize = 8;

/// Resolves requirements and fetches wheels for one platform under one set of [`Settings`]. Serves any number of
/// threads; making one is cheap, its first use of the network sets up uv.
pub struct Installer {
    platform: Platform,
    settings: Settings,
    memo: Memo,
    worker: Worker,
    /// Whether Pyodide's server answers.
    outage: Option<Outage>,
    /// The settings' part of every [`Question`].
    fingerprint: Vec<String>,
}

/// What is wanted of an [`Installer`].
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// What must be there.
    pub requirements: Vec<Requirement>,
    /// What must be there if a package of that name exists at all.
    pub inferred: Vec<Requirement>,
    /// What is taken along if it can be had.
    pub optional: Vec<Requirement>,
    /// Versions to keep to, beside those of the settings.
    pub constraints: Vec<Requirement>,
    /// What the interpreter has already: their versions stay as they are.
    pub installed: Vec<Installed>,
}

/// A package that is there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl From<&Needs> for Request {
    fn from(needs: &Needs) -> Self {
        Request {
            requirements: needs.requirements.clone(),
            inferred: needs.inferred.iter().map(|inferred| inferred.requirement.clone()).collect(),
            optional: needs.optional.clone(),
            ..Request::default()
        }
    }
}

impl Request {
    /// What must be there, or must if it exists.
    fn required(&self) -> impl Iterator<Item = &Requirement> {
        self.requirements.iter().chain(&self.inferred)
    }
}

impl Installer {
    /// An installer. Nothing is read or contacted yet.
    pub fn new(platform: Platform, settings: Settings) -> Self {
        let fingerprint = fingerprint(&platform, &settings);
        Installer {
            memo: Memo::new(&settings.cache),
            worker: Worker::new(platform.clone(), settings.clone()),
            outage: settings.pyodide.as_ref().map(|source| Outage::of(&source.base_url, &settings.cache)),
            fingerprint,
            platform,
            settings,
        }
    }

    /// The platform that wheels are chosen for.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// The settings it goes by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What is known of this platform's interpreter, for [`needs::of_code`](crate::needs::of_code): its standard
    /// library, and which package of Pyodide's lock provides which module.
    pub fn known(&self) -> Result<Known, InstallError> {
        Ok(Known::new(&self.platform).with_lock(self.worker.lock()?))
    }

    /// Which files satisfy a request. Cheap for a request that was resolved lately, or before and offline now. While
    /// Pyodide's server does not answer, its wheels are taken only where nobody else has any.
    pub fn resolve(&self, request: &Request, progress: &dyn Progress) -> Result<Resolution, InstallError> {
        self.resolve_until(request, progress, self.deadline())
    }

    /// The files of a resolution, from the cache or from where they are pinned to, every one of them checked against
    /// its hash. In the resolution's order.
    pub fn fetch(&self, resolution: &Resolution, progress: &dyn Progress) -> Result<Vec<Wheel>, InstallError> {
        self.fetch_until(resolution, progress, self.deadline())
    }

    /// Resolves and fetches. Where Pyodide's server turns out not to answer or to lack a file, the index's wheels are
    /// taken instead, if it has any: then the resolution is another than [`Installer::resolve`] gave, and that gives this
    /// one from now on.
    pub fn install(
        &self,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<(Resolution, Vec<Wheel>), InstallError> {
        let deadline = self.deadline();
        let resolution = self.resolve_until(request, progress, deadline)?;
        let wants_pyodide = self.lacks_files_of_pyodide(&resolution)?;
        let outage = self.outage.as_ref().filter(|_| wants_pyodide);
        match self.fetch_until(&resolution, progress, deadline) {
            Ok(wheels) => {
                outage.inspect(|outage| outage.end());
                Ok((resolution, wheels))
            }
            Err(error) if is_unreachable(&error) && wants_pyodide => {
                tracing::info!(%error, "Pyodide's wheels cannot be had; the index is asked");
                if matches!(error, InstallError::Network { .. }) {
                    outage.inspect(|outage| outage.begin());
                }
                self.install_from_index(request, progress, deadline)
            }
            Err(error) => {
                // What cannot be fetched had better be resolved anew.
                if !matches!(error, InstallError::Offline { .. } | InstallError::Timeout { .. }) {
                    self.memo.forget(&self.question(request));
                }
                Err(error)
            }
        }
    }

    /// Resolves and fetches without Pyodide's files. The request has this answer from now on.
    fn install_from_index(
        &self,
        request: &Request,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<(Resolution, Vec<Wheel>), InstallError> {
        let demand = Demand { without_pyodide: true, ..self.demand(request)? };
        let resolution = self.resolve_afresh(demand, progress, deadline)?;
        let wheels = self.fetch_until(&resolution, progress, deadline)?;
        self.memo.put(&self.question(request), &resolution);
        Ok((resolution, wheels))
    }

    /// Whether Pyodide's server is known not to answer.
    fn is_pyodide_out(&self) -> bool {
        let Some(outage) = self.outage.as_ref().filter(|_| !self.settings.offline) else { return false };
        if outage.is_known() {
            return true;
        }
        let nowhere = outage.is_nowhere();
        if nowhere {
            outage.begin();
        }
        nowhere
    }

    /// Whether a file must be fetched from Pyodide's server.
    fn lacks_files_of_pyodide(&self, resolution: &Resolution) -> Result<bool, InstallError> {
        for pinned in resolution.pinned().iter().filter(|pinned| pinned.source == Source::Pyodide) {
            if self.settings.cache.get(&key(pinned))?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.settings.timeout
    }

    fn resolve_until(
        &self,
        request: &Request,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<Resolution, InstallError> {
        if request.required().next().is_none() && request.optional.is_empty() {
            return Ok(Resolution::new(&self.platform, Vec::new()));
        }
        if self.settings.no_install {
            return self.resolve_nothing(request);
        }
        for requirement in request.required() {
            if let Some(rule) = self.settings.policy.objection(requirement.name()) {
                return Err(InstallError::Refused { name: requirement.name().to_owned(), rule, required_by: None });
            }
        }
        let question = self.question(request);
        if let Some(resolution) = self.memo.get(&question, self.settings.offline) {
            return Ok(resolution);
        }
        let demand = self.demand(request)?;
        let without_pyodide = if self.is_pyodide_out() {
            self.resolve_without_pyodide(&question, &demand, progress, deadline)?
        } else {
            None
        };
        let resolution = match without_pyodide {
            Some(resolution) => resolution,
            None => self.resolve_afresh(demand, progress, deadline)?,
        };
        self.memo.put(&question, &resolution);
        Ok(resolution)
    }

    /// The answer while Pyodide's server is out: what was taken from it before, or else what others have, if they do.
    fn resolve_without_pyodide(
        &self,
        question: &Question,
        demand: &Demand,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<Option<Resolution>, InstallError> {
        if let Some(before) = self.memo.get(question, true)
            && !self.lacks_files_of_pyodide(&before)?
        {
            return Ok(Some(before));
        }
        let demand = Demand { without_pyodide: true, ..demand.clone() };
        // What only that server has, it is asked for all the same.
        Ok(self.resolve_afresh(demand, progress, deadline).ok())
    }

    fn demand(&self, request: &Request) -> Result<Demand, InstallError> {
        let mut constraints = request.constraints.clone();
        for installed in &request.installed {
            constraints.push(Requirement::exact(&installed.name, &installed.version)?);
        }
        let allowed = |requirement: &&Requirement| self.settings.policy.objection(requirement.name()).is_none();
        Ok(Demand {
            requirements: request.requirements.clone(),
            inferred: request.inferred.clone(),
            optional: request.optional.iter().filter(allowed).cloned().collect(),
            constraints,
            without_pyodide: false,
        })
    }

    /// The answer where installing is switched off. What is only inferred from imports may be there all the same, in a
    /// directory that was mounted or as a file that the code makes.
    fn resolve_nothing(&self, request: &Request) -> Result<Resolution, InstallError> {
        let refusal = |requirements: &[Requirement]| InstallError::NoInstall {
            packages: requirements.iter().map(ToString::to_string).collect(),
        };
        if !request.requirements.is_empty() {
            return Err(refusal(&request.requirements));
        }
        let absent = |inferred: &Requirement| Absent {
            name: inferred.name().to_owned(),
            reason: refusal(std::slice::from_ref(inferred)).to_string(),
        };
        let absent = request.inferred.iter().map(absent).collect();
        Ok(Resolution::new(&self.platform, Vec::new()).without(absent))
    }

    fn resolve_afresh(
        &self,
        demand: Demand,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<Resolution, InstallError> {
        let names: Vec<_> = demand.named().map(Requirement::name).collect();
        let doing = format!("resolving {}", names.join(", "));
        let step = progress.start(Step::unmeasured(doing.clone()));
        let resolution = self.worker.run(&doing, remaining(deadline), move |engine| {
            async move { engine.resolve(&demand).await }.boxed_local()
        })?;
        step.finish();
        Ok(resolution)
    }

    fn fetch_until(
        &self,
        resolution: &Resolution,
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<Vec<Wheel>, InstallError> {
        let mut wheels: Vec<Option<Wheel>> = Vec::new();
        let mut missing = Vec::new();
        for (index, pinned) in resolution.pinned().iter().enumerate() {
            let entry = self.settings.cache.get(&key(pinned))?;
            if entry.is_none() {
                missing.push((index, pinned));
            }
            wheels.push(entry.map(|entry| self.wheel(pinned, &entry)).transpose()?);
        }
        let results = Mutex::new(Vec::new());
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..missing.len().min(PARALLEL) {
                scope.spawn(|| {
                    while let Some((index, pinned)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let outcome = self.fetch_one(pinned, progress, deadline);
                        // After a failure the rest would be fetched for nothing.
                        if outcome.is_err() {
                            next.store(missing.len(), Ordering::Relaxed);
                        }
                        results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((*index, outcome));
                    }
                });
            }
        });
        for (index, outcome) in results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            wheels[index] = Some(outcome?);
        }
        Ok(wheels.into_iter().flatten().collect())
    }

    fn fetch_one(&self, pinned: &Pinned, progress: &dyn Progress, deadline: Instant) -> Result<Wheel, InstallError> {
        let entry = self.settings.cache.get_or_make(&key(pinned), progress, |new: &NewEntry| {
            let doing = format!("downloading {}", pinned.filename);
            let step: Arc<Box<dyn StepProgress>> = Arc::new(progress.start(match pinned.size {
                Some(size) => Step::bytes(doing.clone(), size),
                None => Step { unit: Unit::Bytes, ..Step::unmeasured(doing.clone()) },
            }));
            let path = new.path().join(&pinned.filename);
            let (advancing, wanted) = (Arc::clone(&step), pinned.clone());
            self.worker.run(&doing, remaining(deadline), move |engine| {
                async move { engine.download(&wanted, &path, &|bytes| advancing.advance(bytes)).await }.boxed_local()
            })?;
            if let Some(step) = Arc::into_inner(step) {
                step.finish();
            }
            Ok::<_, InstallError>(())
        })?;
        self.wheel(pinned, &entry)
    }

    fn wheel(&self, pinned: &Pinned, entry: &Entry) -> Result<Wheel, InstallError> {
        Ok(Wheel {
            name: pinned.name.clone(),
            version: pinned.version.clone(),
            filename: pinned.filename.clone(),
            sha256: pinned.sha256.clone(),
            kind: pinned.kind,
            path: entry.file(&pinned.filename)?,
            platform: self.platform.clone(),
        })
    }

    fn question(&self, request: &Request) -> Question {
        let mut parts = self.fingerprint.clone();
        parts.extend(self.settings.find_links.iter().map(|place| listing(place)));
        for (what, list) in [
            ("requirements", &request.requirements),
            ("inferred", &request.inferred),
            ("optional", &request.optional),
            ("constraints", &request.constraints),
        ] {
            parts.push(format!("{what} {}", list.len()));
            let mut texts: Vec<_> = list.iter().map(|r| format!("{r} {}", r.hashes.join(" "))).collect();
            texts.sort();
            parts.extend(texts);
        }
        parts.extend(request.installed.iter().map(|installed| format!("{}=={}", installed.name, installed.version)));
        Question::new(parts.iter().map(String::as_str))
    }
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Whether the server of a file, rather than the file, is at fault.
fn is_unreachable(error: &InstallError) -> bool {
    matches!(error, InstallError::Network { .. } | InstallError::Absent { .. } | InstallError::Offline { .. })
}

/// The key of a file in the cache.
pub(crate) fn key(pinned: &Pinned) -> EntryKey {
    EntryKey::new("wheel").part("sha256", &pinned.sha256).part("file", &pinned.filename)
}

/// What of platform and settings decides over a resolution. Being offline does not: it only forbids asking anew.
fn fingerprint(platform: &Platform, settings: &Settings) -> Vec<String> {
    let mut parts = vec![platform.fingerprint(), settings.policy.fingerprint()];
    parts.push(format!("index {:?} {}", settings.index_url, settings.no_index));
    parts.push(format!("extra {:?}", settings.extra_index_urls));
    parts.push(format!("links {:?}", settings.find_links));
    parts.push(format!("newer {:?}", settings.exclude_newer));
    parts.extend(settings.constraints.iter().map(|constraint| format!("constraint {constraint}")));
    if let Some(source) = &settings.pyodide {
        // Reading and hashing the lock would cost more than the rest; a lock that is changed in place is younger.
        let stamp = std::fs::metadata(&source.lock).map(|metadata| (metadata.len(), metadata.modified().ok()));
        parts.push(format!("pyodide {:?} {} {:?}", source.lock, source.base_url, stamp.ok()));
    }
    parts
}

/// What lies in a directory of wheels: another listing, another question.
fn listing(place: &str) -> String {
    let Ok(files) = std::fs::read_dir(place) else { return String::new() };
    let mut names: Vec<String> = files
        .flatten()
        .map(|file| {
            let stamp = file.metadata().map(|metadata| (metadata.len(), metadata.modified().ok())).ok();
            format!("{:?} {stamp:?}", file.file_name())
        })
        .collect();
    names.sort();
    names.join("\n")
}
